/* The team: every member runs once a run, where it should, sees what was written before and leaves
 * nothing behind: no thread, no affinity, no CPU time. Layouts are made by hand. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../support.h"
#include "machine/barrier.h"
#include "machine/thread_team.h"

#define MAX_NODES   3
#define MAX_THREADS 16

static void on_alarm(int number)
{
    (void)number;
    static const char text[] = "ERROR: a thread waits for ever\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(3);
    _exit(1);
}

static int start_alarm(void **state)
{
    (void)state;
    signal(SIGALRM, on_alarm);
    alarm(60);
    return 0;
}

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static cpu_set_t affinity_of_caller(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    return set;
}

static cpu_set_t affinity_at_start;

/* After each test: the affinity is what the program began with. */
static int stop_alarm(void **state)
{
    (void)state;
    alarm(0);
    cpu_set_t now = affinity_of_caller();
    assert_true(CPU_EQUAL(&now, &affinity_at_start));
    return 0;
}

/* A layout with given threads on each node, on the allowed CPUs in turn. */
struct hand_layout {
    struct team_layout layout;
    struct team_node nodes[MAX_NODES];
    int cpus[MAX_THREADS];
};

static void lay_out(struct hand_layout *hand, int n_nodes, const int *n_threads)
{
    cpu_set_t allowed = affinity_of_caller();
    *hand = (struct hand_layout){.layout = {.n_nodes = n_nodes}};
    hand->layout.nodes = hand->nodes;
    hand->layout.cpus = hand->cpus;
    for (int n = 0; n < n_nodes; n++) {
        hand->nodes[n] =
            (struct team_node){.thread0 = hand->layout.n_threads, .n_threads = n_threads[n]};
        hand->layout.n_threads += n_threads[n];
    }
    for (int t = 0, cpu = -1; t < hand->layout.n_threads; t++) {
        do
            cpu = (cpu + 1) % CPU_SETSIZE;
        while (!CPU_ISSET(cpu, &allowed));
        hand->cpus[t] = cpu;
    }
    hand->layout.is_oversubscribed = hand->layout.n_threads > CPU_COUNT(&allowed);
}

static struct thread_team *open_team(const struct hand_layout *hand, bool is_pinned)
{
    struct error err = {0};
    struct thread_team *team = NULL;
    if (team_open(&team, &hand->layout, is_pinned, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return team;
}

/* Threads of this process. */
static int count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    int n = 0;
    while (readdir(tasks))
        n++;
    closedir(tasks);
    return n - 2; /* "." and ".." */
}

/* A thread that was joined may be listed a moment longer. */
static void assert_thread_count(int expected)
{
    for (int i = 0; i < 1000 && count_threads() != expected; i++)
        sleep_ms(1);
    assert_int_equal(count_threads(), expected);
}

/* What each member saw; plain memory, so that ThreadSanitizer checks both ends of a run. */
struct roll {
    int number; /* written before each run */
    int seen[MAX_THREADS], n_calls[MAX_THREADS];
    struct team_member members[MAX_THREADS];
    pthread_t threads[MAX_THREADS];
    cpu_set_t affinity[MAX_THREADS];
    sigset_t blocked[MAX_THREADS];
};

static void answer(void *context, const struct team_member *me)
{
    struct roll *roll = context;
    int i = me->index;
    roll->seen[i] = roll->number;
    roll->n_calls[i]++;
    roll->members[i] = *me;
    roll->threads[i] = pthread_self();
    CPU_ZERO(&roll->affinity[i]);
    sched_getaffinity(0, sizeof roll->affinity[i], &roll->affinity[i]);
    pthread_sigmask(SIG_BLOCK, NULL, &roll->blocked[i]);
}

static void test_every_member_runs_every_time(void **state)
{
    (void)state;
    static const int shapes[][MAX_NODES] = {{1}, {2}, {5}, {1, 1}, {2, 1, 3}, {1, 7, 1}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct hand_layout hand;
        int n_nodes = 1 + (shapes[s][1] > 0) + (shapes[s][2] > 0);
        lay_out(&hand, n_nodes, shapes[s]);
        struct thread_team *team = open_team(&hand, true);
        assert_ptr_equal(team_layout_of(team), &hand.layout);
        struct roll roll = {0};
        for (int run = 1; run <= 500; run++) {
            roll.number = run;
            team_run(team, answer, &roll);
            for (int t = 0; t < hand.layout.n_threads; t++)
                assert_true(roll.seen[t] == run && roll.n_calls[t] == run);
        }
        assert_true(pthread_equal(roll.threads[0], pthread_self()));
        for (int n = 0, t = 0; n < n_nodes; n++)
            for (int i = 0; i < shapes[s][n]; i++, t++) {
                const struct team_member *m = &roll.members[t];
                assert_true(m->index == t && m->node == n && m->in_node == i);
                assert_true(m->n_in_node == shapes[s][n] && m->cpu == hand.cpus[t]);
            }
        team_close(team);
    }
    team_close(NULL);
}

static void test_members_stay_on_their_cpus(void **state)
{
    (void)state;
    struct hand_layout hand;
    lay_out(&hand, 2, (int[]){2, 3});
    struct thread_team *team = open_team(&hand, true);
    assert_true(team_is_pinned(team));
    struct roll roll = {0};
    team_run(team, answer, &roll);
    for (int t = 0; t < 5; t++) {
        assert_int_equal(CPU_COUNT(&roll.affinity[t]), 1);
        assert_true(CPU_ISSET(hand.cpus[t], &roll.affinity[t]));
    }
    team_close(team);
}

/* Not asked for, or refused by the system for one of them: nobody is pinned. */
static void test_unpinned_members_may_run_anywhere(void **state)
{
    (void)state;
    for (int is_refused = 0; is_refused < 2; is_refused++) {
        struct hand_layout hand;
        lay_out(&hand, 1, (int[]){4});
        if (is_refused)
            hand.cpus[2] = 8191; /* beyond any machine that can run this */
        struct thread_team *team = open_team(&hand, is_refused);
        assert_false(team_is_pinned(team));
        struct roll roll = {0};
        team_run(team, answer, &roll);
        for (int t = 0; t < 4; t++)
            assert_true(CPU_EQUAL(&roll.affinity[t], &affinity_at_start));
        team_close(team);
    }
}

static void test_signals_are_left_to_the_caller(void **state)
{
    (void)state;
    struct hand_layout hand;
    lay_out(&hand, 1, (int[]){3});
    struct thread_team *team = open_team(&hand, true);
    struct roll roll = {0};
    team_run(team, answer, &roll);
    team_close(team);
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGALRM, SIGCHLD};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        for (int t = 0; t < 3; t++)
            assert_int_equal(sigismember(&roll.blocked[t], numbers[i]), t > 0);
    for (int t = 0; t < 3; t++)
        assert_false(sigismember(&roll.blocked[t], SIGSEGV));
}

static void test_failing_starts_leave_nothing(void **state)
{
    (void)state;
    enum { N = 6 };
    int n_before = count_threads();
    struct hand_layout hand;
    lay_out(&hand, 2, (int[]){3, 3});
    for (int n_good = 0; n_good < N - 1; n_good++) {
        struct error err = {0};
        struct thread_team *team = (struct thread_team *)&hand;
        team_fail_after(n_good);
        enum status status = team_open(&team, &hand.layout, true, &err);
        team_fail_after(-1);
        assert_int_equal(status, STATUS_LIMIT);
        assert_null(team);
        char expected[128];
        snprintf(expected, sizeof expected,
                 "cannot start thread %d of 6: %s; use fewer with --threads", n_good + 2,
                 strerror(EAGAIN));
        assert_string_equal(err.text, expected);
        assert_thread_count(n_before);
        cpu_set_t after = affinity_of_caller();
        assert_true(CPU_EQUAL(&after, &affinity_at_start));
    }
    team_fail_after(N - 1);
    struct thread_team *team = open_team(&hand, true);
    team_fail_after(-1);
    assert_thread_count(n_before + N - 1);
    team_close(team);
    assert_thread_count(n_before);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct hand_layout hand;
    lay_out(&hand, 1, (int[]){2});
    struct thread_team *team = NULL;
    long n_good = 0;
    for (enum status status = STATUS_MEMORY; status != STATUS_OK; n_good++) {
        struct error err = {0};
        memory_fail_after(n_good);
        status = team_open(&team, &hand.layout, true, &err);
        memory_fail_after(-1);
        assert_true(status == STATUS_OK || (status == STATUS_MEMORY && !team && err.text[0]));
    }
    assert_true(n_good > 1);
    team_close(team);
}

/* In a child: as a user without privileges who may have one thread. Exit 0: refused as it should
 * be; 77: this system does not let us try. */
static int open_without_right_to_threads(void)
{
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0)
        return 77;
    if (setrlimit(RLIMIT_NPROC, &(struct rlimit){1, 1}) != 0)
        return 77;
    struct hand_layout hand;
    lay_out(&hand, 1, (int[]){4});
    struct error err = {0};
    struct thread_team *team;
    if (team_open(&team, &hand.layout, true, &err) != STATUS_LIMIT || team)
        return 1;
    char expected[128];
    snprintf(expected, sizeof expected, "cannot start thread 2 of 4: %s; use fewer with --threads",
             strerror(EAGAIN));
    return strcmp(err.text, expected) != 0;
}

static void test_system_refuses_a_thread(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(open_without_right_to_threads());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    NEED(WEXITSTATUS(status) == 77 ? NULL : "", "a limit of threads");
    assert_int_equal(WEXITSTATUS(status), 0);
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* The second after 10 ms of rest: less than 1 % of it, for threads that spin and that do not. */
static void test_idle_team_uses_no_cpu(void **state)
{
    (void)state;
    for (int n_threads = 2; n_threads <= 8; n_threads *= 2) {
        struct hand_layout hand;
        lay_out(&hand, 1, &n_threads);
        struct thread_team *team = open_team(&hand, true);
        struct roll roll = {0};
        team_run(team, answer, &roll);
        sleep_ms(10);
        double before = cpu_seconds();
        sleep_ms(1000);
        double used = cpu_seconds() - before;
        team_run(team, answer, &roll);
        assert_int_equal(roll.n_calls[n_threads - 1], 2);
        team_close(team);
        assert_true(used < 0.01);
    }
}

static void test_crowded_team_does_not_spin(void **state)
{
    (void)state;
    struct hand_layout hand;
    lay_out(&hand, 1, (int[]){2});
    for (int is_crowded = 0; is_crowded < 2; is_crowded++) {
        hand.layout.is_oversubscribed = is_crowded;
        struct thread_team *team = open_team(&hand, true);
        if (is_crowded)
            assert_int_equal(team_spin_ns(team), 0);
        else
            assert_in_range(team_spin_ns(team), 1000, 1000000);
        team_close(team);
    }
}

/* The last member is asleep between runs: it has to be woken for each, and so has the caller, who
 * waits for it. */
static void dawdle_last(void *context, const struct team_member *me)
{
    long *sum = context;
    if (me->index == me->n_in_node - 1) {
        sleep_ms(1);
        ++*sum;
    }
}

static void test_sleeping_members_and_caller_wake(void **state)
{
    (void)state;
    struct hand_layout hand;
    lay_out(&hand, 1, (int[]){3});
    struct thread_team *team = open_team(&hand, false);
    long sum = 0;
    for (int run = 0; run < 200; run++) {
        team_run(team, dawdle_last, &sum);
        assert_int_equal(sum, run + 1);
        sleep_ms(1);
    }
    team_close(team);
}

/* Steps of a barrier within a run. */
struct march {
    struct thread_team *team;
    struct barrier_node nodes[MAX_NODES], *list[MAX_NODES];
    struct barrier barrier;
    struct barrier_cursor cursors[MAX_THREADS]; /* kept from run to run */
    int marks[2][MAX_THREADS];
    _Atomic int n_wrong;
};

static void march(void *context, const struct team_member *me)
{
    struct march *m = context;
    int n_threads = team_layout_of(m->team)->n_threads;
    int neighbour = (me->index + 1) % n_threads;
    struct step_units step = {SYNC_GLOBAL, (uint32_t)me->n_in_node, (uint32_t)n_threads,
                              (uint32_t)m->barrier.n_nodes};
    for (int i = 0; i < 200; i++) {
        m->marks[i % 2][me->index] = i;
        barrier_next(&m->barrier, &m->cursors[me->index], me->node, &step);
        barrier_report(&m->barrier, &m->cursors[me->index], me->node, 1);
        barrier_wait(&m->barrier, &m->cursors[me->index], me->node, team_spin_ns(m->team));
        if (m->marks[i % 2][neighbour] != i)
            atomic_fetch_add(&m->n_wrong, 1);
    }
}

static void test_barriers_go_on_from_run_to_run(void **state)
{
    (void)state;
    struct hand_layout hand;
    lay_out(&hand, 3, (int[]){1, 3, 2});
    struct march m = {.barrier = {.n_nodes = 3}};
    m.barrier.nodes = m.list;
    for (int n = 0; n < 3; n++)
        m.list[n] = &m.nodes[n];
    m.team = open_team(&hand, true);
    for (int run = 0; run < 10; run++)
        team_run(m.team, march, &m);
    team_close(m.team);
    assert_int_equal(m.n_wrong, 0);
    for (int n = 0; n < 3; n++)
        assert_int_equal(m.nodes[n].gate.opened, 2000);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, start_alarm, stop_alarm)

int main(int argc, char **argv)
{
    support_init(argc, argv);
    affinity_at_start = affinity_of_caller();
    const struct CMUnitTest tests[] = {
        CASE(test_every_member_runs_every_time),      CASE(test_members_stay_on_their_cpus),
        CASE(test_unpinned_members_may_run_anywhere), CASE(test_signals_are_left_to_the_caller),
        CASE(test_failing_starts_leave_nothing),      CASE(test_no_memory),
        CASE(test_system_refuses_a_thread),           CASE(test_idle_team_uses_no_cpu),
        CASE(test_crowded_team_does_not_spin),        CASE(test_sleeping_members_and_caller_wake),
        CASE(test_barriers_go_on_from_run_to_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
