#include "machine/thread_team.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

#include "machine/barrier.h"

/* Longer than the 100 us or so between two tokens, in which the caller samples: a member that went
 * to sleep costs 30 us to wake (two Zen 3 cores, December 2026), one that spins 0.2 us. */
#define SPIN_NS 200000

/* A set of CPUs, as many as the kernel can be built for. */
struct affinity {
    cpu_set_t cpus[8192 / CPU_SETSIZE];
};

struct member_thread {
    struct thread_team *team;
    struct team_member me;
    pthread_t thread;
};

struct thread_team {
    struct gate start, done;                  /* seq: of the run */
    _Alignas(64) _Atomic uint64_t n_finished; /* members other than the caller, of all runs */
    _Alignas(64) team_work *work;             /* of the present run; NULL: end */
    void *context;
    uint64_t finish_target; /* n_finished at the end of the run */
    uint32_t seq;
    bool is_running, is_pinned;
    int n_started; /* members that have a thread, the caller counts */
    const struct team_layout *layout;
    struct member_thread *members; /* (n_threads) */
    struct affinity saved;         /* of the caller */
    struct arena arena;            /* of all this */
};

static long starts_left = -1;

void team_fail_after(long count)
{
    starts_left = count;
}

/* Counts one thread start; false when this one is to fail. */
static bool may_start(void)
{
    if (starts_left > 0)
        starts_left--;
    else if (starts_left == 0)
        return false;
    return true;
}

static void *member_main(void *argument)
{
    struct member_thread *member = argument;
    struct thread_team *team = member->team;
    int64_t spin_ns = team_spin_ns(team);
    for (uint32_t seq = 1;; seq++) {
        gate_wait(&team->start, seq, spin_ns);
        if (!team->work)
            return NULL;
        team->work(team->context, &member->me);
        /* After the addition that ends the run the caller may change the run's fields. */
        uint64_t target = team->finish_target;
        if (atomic_fetch_add_explicit(&team->n_finished, 1, memory_order_acq_rel) + 1 == target)
            gate_open(&team->done, seq);
    }
}

/* Signals are left to the caller's thread, but for those that a fault of a member itself raises. */
static void block_signals(sigset_t *saved)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGPROF};
    sigset_t blocked;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, saved);
}

/* Starts a thread for each member but the first; stops at the one that cannot be started. Returns
 * its reason, 0 when all were. */
static int start_members(struct thread_team *team)
{
    sigset_t saved;
    int reason = 0;
    block_signals(&saved);
    while (reason == 0 && team->n_started < team->layout->n_threads) {
        struct member_thread *member = &team->members[team->n_started];
        reason = may_start() ? pthread_create(&member->thread, NULL, member_main, member) : EAGAIN;
        team->n_started += reason == 0;
    }
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    return reason;
}

static void set_affinity_of_first(struct thread_team *team, int n, const struct affinity *affinity)
{
    for (int i = 0; i < n; i++)
        pthread_setaffinity_np(team->members[i].thread, sizeof affinity->cpus, affinity->cpus);
}

/* Pins every member to its CPU, or none when one of them cannot be. */
static bool pin_members(struct thread_team *team)
{
    for (int i = 0; i < team->n_started; i++) {
        struct affinity own = {0};
        CPU_SET_S((size_t)team->layout->cpus[i], sizeof own.cpus, own.cpus);
        if (pthread_setaffinity_np(team->members[i].thread, sizeof own.cpus, own.cpus) != 0) {
            set_affinity_of_first(team, i, &team->saved);
            return false;
        }
    }
    return true;
}

static void describe_members(struct thread_team *team)
{
    const struct team_layout *layout = team->layout;
    for (int n = 0; n < layout->n_nodes; n++)
        for (int i = 0; i < layout->nodes[n].n_threads; i++) {
            int index = layout->nodes[n].thread0 + i;
            team->members[index] =
                (struct member_thread){.team = team,
                                       .me = {.index = index,
                                              .node = n,
                                              .in_node = i,
                                              .n_in_node = layout->nodes[n].n_threads,
                                              .cpu = layout->cpus[index]}};
        }
}

static struct thread_team *team_alloc(const struct team_layout *layout)
{
    struct arena arena = {0};
    struct thread_team *team = arena_alloc(&arena, 1, sizeof *team);
    struct member_thread *members = arena_alloc(&arena, (size_t)layout->n_threads, sizeof *members);
    if (!team || !members) {
        arena_done(&arena);
        return NULL;
    }
    *team = (struct thread_team){.layout = layout, .members = members, .arena = arena};
    describe_members(team);
    return team;
}

enum status team_open(struct thread_team **opened, const struct team_layout *layout, bool is_pinned,
                      struct error *err)
{
    *opened = NULL;
    struct thread_team *team = team_alloc(layout);
    if (!team)
        return fail_memory(err, "threads", sizeof *team);
    team->members[0].thread = pthread_self();
    team->n_started = 1;
    int reason = start_members(team);
    if (reason != 0) {
        int number = team->n_started + 1;
        team_close(team);
        return fail(err, STATUS_LIMIT, "cannot start thread %d of %d: %s; use fewer with --threads",
                    number, layout->n_threads, strerror(reason));
    }
    /* The caller is pinned last of all: new threads inherit its affinity. */
    team->is_pinned =
        is_pinned &&
        pthread_getaffinity_np(pthread_self(), sizeof team->saved.cpus, team->saved.cpus) == 0 &&
        pin_members(team);
    *opened = team;
    return STATUS_OK;
}

/* Begins a run on the other members. */
static void start_run(struct thread_team *team, team_work *work, void *context)
{
    team->work = work;
    team->context = context;
    team->finish_target += (uint64_t)(team->n_started - 1);
    gate_open(&team->start, ++team->seq);
}

void team_close(struct thread_team *team)
{
    if (!team)
        return;
    start_run(team, NULL, NULL);
    for (int i = 1; i < team->n_started; i++)
        pthread_join(team->members[i].thread, NULL);
    if (team->is_pinned)
        set_affinity_of_first(team, 1, &team->saved);
    struct arena arena = team->arena; /* it holds the team itself */
    arena_done(&arena);
}

void team_run(struct thread_team *team, team_work *work, void *context)
{
    assert(work && !team->is_running);
    assert(pthread_equal(team->members[0].thread, pthread_self()));
    if (team->n_started == 1) {
        work(context, &team->members[0].me);
        return;
    }
    team->is_running = true;
    start_run(team, work, context);
    work(context, &team->members[0].me);
    gate_wait(&team->done, team->seq, team_spin_ns(team));
    team->is_running = false;
}

const struct team_layout *team_layout_of(const struct thread_team *team)
{
    return team->layout;
}

bool team_is_pinned(const struct thread_team *team)
{
    return team->is_pinned;
}

int64_t team_spin_ns(const struct thread_team *team)
{
    return team->layout->is_oversubscribed ? 0 : SPIN_NS;
}
