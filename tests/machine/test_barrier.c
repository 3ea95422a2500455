/* Barriers: what a thread wrote before it reported is there for all that pass, whoever does the
 * units and whoever comes late; nobody is left asleep. Data is plain memory, so that ThreadSanitizer
 * sees every order that the barrier does not make. --long: ten million rounds instead of 1e5. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "../support.h"
#include "base/clock.h"
#include "base/random.h"
#include "machine/barrier.h"

#define MAX_NODES   4
#define MAX_THREADS 12
#define MAX_UNITS   4
#define N_BANKS     8
#define SPIN_NS     20000

static bool is_long;

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
    alarm(is_long ? 3600 : 60);
    return 0;
}

static int stop_alarm(void **state)
{
    (void)state;
    alarm(0);
    return 0;
}

static void sleep_ns(int64_t ns)
{
    nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
}

/* Starts n threads of the same function; join_all waits for them. */
static void start_all(pthread_t *threads, int n, void *(*body)(void *), void *arguments,
                      size_t size)
{
    for (int i = 0; i < n; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, body, (char *)arguments + (size_t)i * size), 0);
}

static void join_all(const pthread_t *threads, int n)
{
    for (int i = 0; i < n; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void test_gate_numbers_wrap(void **state)
{
    (void)state;
    static const struct {
        uint32_t opened, seq;
        bool is_open;
    } cases[] = {
        {0, 0, true},          {0, 1, false},          {5, 4, true},
        {5, 6, false},         {0xffffffff, 0, false}, {0xffffffff, 1, false},
        {0, 0xffffffff, true}, {2, 0xfffffff0, true},  {0xfffffff0, 2, false},
        {0x80000000, 1, true}, {1, 0x80000000, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gate gate = {.opened = cases[i].opened};
        assert_int_equal(gate_is_open(&gate, cases[i].seq), cases[i].is_open);
    }
}

struct waiter {
    struct gate *gate;
    uint32_t seq;
    int64_t spin_ns, cpu_ns;
    _Atomic int *n_passed;
};

static void *wait_at_gate(void *argument)
{
    struct waiter *waiter = argument;
    gate_wait(waiter->gate, waiter->seq, waiter->spin_ns);
    atomic_fetch_add(waiter->n_passed, 1);
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    waiter->cpu_ns = used.tv_sec * 1000000000 + used.tv_nsec;
    return NULL;
}

/* All of them are asleep before it opens, and again when it opens for an earlier step. */
static void test_sleepers_wake(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 100; round++) {
        uint32_t seq = 0xffffffce + round; /* passes zero half-way */
        struct gate gate = {.opened = seq - 2};
        _Atomic int n_passed = 0;
        struct waiter waiters[4];
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            waiters[i] = (struct waiter){&gate, seq, i % 2 ? 1000 : 0, 0, &n_passed};
        start_all(threads, 4, wait_at_gate, waiters, sizeof *waiters);
        while (atomic_load(&gate.n_sleepers) < 4)
            sched_yield();
        gate_open(&gate, seq - 1);
        if (round < 10)
            sleep_ns(1000000);
        assert_int_equal(n_passed, 0);
        gate_open(&gate, seq);
        join_all(threads, 4);
        assert_int_equal(n_passed, 4);
        assert_int_equal(gate.n_sleepers, 0);
    }
}

static void test_sleep_uses_no_cpu(void **state)
{
    (void)state;
    struct gate gate = {0};
    _Atomic int n_passed = 0;
    struct waiter waiters[2] = {{&gate, 1, 0, 0, &n_passed}, {&gate, 1, SPIN_NS, 0, &n_passed}};
    pthread_t threads[2];
    start_all(threads, 2, wait_at_gate, waiters, sizeof *waiters);
    sleep_ns(500000000);
    gate_open(&gate, 1);
    join_all(threads, 2);
    assert_in_range(waiters[0].cpu_ns, 1, 20000000);
    assert_in_range(waiters[1].cpu_ns, 1, 20000000);
}

static void test_spinning_does_not_sleep(void **state)
{
    (void)state;
    struct gate gate = {0};
    _Atomic int n_passed = 0;
    struct waiter waiter = {&gate, 1, 60000000000, 0, &n_passed};
    pthread_t thread;
    start_all(&thread, 1, wait_at_gate, &waiter, sizeof waiter);
    for (int i = 0; i < 30; i++) {
        assert_int_equal(gate.n_sleepers, 0);
        sleep_ns(1000000);
    }
    gate_open(&gate, 1);
    join_all(&thread, 1);
}

#ifdef __has_feature /* clang's way to say it */
#define IS_SANITISED_BY_CLANG (__has_feature(thread_sanitizer) || __has_feature(address_sanitizer))
#else
#define IS_SANITISED_BY_CLANG 0
#endif

#if defined(__x86_64__) && !IS_SANITISED_BY_CLANG && !defined(__SANITIZE_ADDRESS__) &&             \
    !defined(__SANITIZE_THREAD__)

#define TRAP_FLAG 0x100

/* The opener is stopped before one instruction after the other (trap flag of the processor), and
 * each time a waiter comes and does all it can: it must not stay asleep when the opener goes on. */
static struct {
    struct gate gate;
    int n_left; /* instructions to the stop */
    bool has_opened, was_past_end;
    _Atomic bool may_wait;
    _Atomic int n_passed;
} stop;

static void *wait_when_stopped(void *argument)
{
    while (!atomic_load(&stop.may_wait))
        sched_yield();
    gate_wait(&stop.gate, 1, 0);
    atomic_fetch_add(&stop.n_passed, 1);
    return argument;
}

static void on_instruction(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    greg_t *flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];
    if (stop.n_left-- > 0) {
        *flags |= TRAP_FLAG;
        return;
    }
    *flags &= ~TRAP_FLAG;
    stop.was_past_end = stop.has_opened;
    atomic_store(&stop.may_wait, true);
    while (atomic_load(&stop.gate.n_sleepers) == 0 && atomic_load(&stop.n_passed) == 0)
        sched_yield();
    if (atomic_load(&stop.n_passed) == 0)
        sleep_ns(1000000); /* it has said that it will sleep, now it may */
}

static void test_opener_stops_at_each_instruction(void **state)
{
    (void)state;
    struct sigaction action = {.sa_sigaction = on_instruction, .sa_flags = SA_SIGINFO}, saved;
    sigaction(SIGTRAP, &action, &saved);
    int n = 0;
    for (memset(&stop, 0, sizeof stop); !stop.was_past_end; n++) {
        memset(&stop, 0, sizeof stop);
        stop.n_left = n;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, wait_when_stopped, NULL), 0);
        __asm__ volatile("int3" ::: "memory");
        gate_open(&stop.gate, 1);
        stop.has_opened = true;
        while (!atomic_load(&stop.may_wait))
            continue;
        join_all(&thread, 1);
        assert_int_equal(stop.n_passed, 1);
    }
    sigaction(SIGTRAP, &saved, NULL);
    assert_true(n > 4); /* an exchange, a load, a test and a return at least */
}

#else

static void test_opener_stops_at_each_instruction(void **state)
{
    (void)state;
    NEED(NULL, "x86-64 and no sanitiser");
}

#endif

/* Three nodes in the hands of one thread. */
struct trio {
    struct barrier_node nodes[3], *list[3];
    struct barrier barrier;
    struct barrier_cursor cursors[3];
};

static void trio_init(struct trio *trio, uint32_t seq0)
{
    memset(trio, 0, sizeof *trio);
    for (int n = 0; n < 3; n++) {
        trio->list[n] = &trio->nodes[n];
        atomic_store(&trio->nodes[n].gate.opened, seq0);
        trio->cursors[n].seq = seq0;
    }
    trio->barrier.n_nodes = 3;
    trio->barrier.nodes = trio->list;
}

static void trio_next(struct trio *trio, int node, enum sync sync, const uint32_t *n_units)
{
    uint32_t n_all = n_units[0] + n_units[1] + n_units[2];
    uint32_t n_busy = (uint32_t)((n_units[0] > 0) + (n_units[1] > 0) + (n_units[2] > 0));
    barrier_next(&trio->barrier, &trio->cursors[node], node,
                 &(struct step_units){sync, n_units[node], n_all, n_busy});
}

static void trio_report(struct trio *trio, int node, uint32_t n)
{
    barrier_report(&trio->barrier, &trio->cursors[node], node, n);
}

/* Which nodes' steps have ended, as bits. */
static unsigned trio_open(const struct trio *trio)
{
    unsigned bits = 0;
    for (int n = 0; n < 3; n++)
        bits |= (unsigned)barrier_is_open(&trio->barrier, &trio->cursors[n], n) << n;
    return bits;
}

/* Which report opens which gates, for units 2, 0 and 3 of the nodes; counters by hand. */
static void test_who_opens_what(void **state)
{
    (void)state;
    static const uint32_t n_units[3] = {2, 0, 3};
    struct trio t;
    trio_init(&t, 0xfffffffc); /* of nine steps the fourth is number zero */
    for (uint32_t s = 1; s <= 9; s++) {
        bool is_node = s % 3 == 1;
        for (int n = 0; n < 3; n++)
            trio_next(&t, n, is_node ? SYNC_NODE : s % 3 == 2 ? SYNC_GLOBAL : SYNC_FLAT, n_units);
        assert_int_equal(trio_open(&t), is_node ? 2 : 0);
        trio_report(&t, 2, 2);
        trio_report(&t, 0, 1);
        assert_int_equal(trio_open(&t), is_node ? 2 : 0);
        trio_report(&t, 2, 1);
        assert_int_equal(trio_open(&t), is_node ? 6 : 0);
        trio_report(&t, 0, 1);
        assert_int_equal(trio_open(&t), 7);
        for (int n = 0; n < 3; n++)
            barrier_wait(&t.barrier, &t.cursors[n], n, 0);
        assert_int_equal(t.nodes[0].gate.opened, 0xfffffffc + s);
        assert_int_equal(t.nodes[1].gate.opened, 0xfffffffc + s - is_node);
        assert_int_equal(t.nodes[2].gate.opened, 0xfffffffc + s);
    }
    assert_int_equal(t.nodes[0].n_finished, 2 * 6); /* of node and global steps */
    assert_int_equal(t.nodes[1].n_finished, 6);     /* of global and flat steps without units */
    assert_int_equal(t.nodes[2].n_finished, 3 * 6);
    assert_int_equal(t.barrier.n_arrived, 3 * 3);
    assert_int_equal(t.barrier.n_finished, (5 + 1) * 3);
}

/* A node that has no units in a global step, but is still busy with the one before, is neither left
 * behind nor let through. */
static void test_node_without_units_is_waited_for(void **state)
{
    (void)state;
    static const uint32_t all[3] = {1, 2, 1}, others[3] = {1, 0, 1}, own[3] = {0, 1, 0};
    static const enum sync syncs[2] = {SYNC_GLOBAL, SYNC_FLAT};
    for (int i = 0; i < 2; i++) {
        struct trio t;
        trio_init(&t, 0);
        for (int n = 0; n < 3; n++)
            trio_next(&t, n, SYNC_NODE, all);
        trio_report(&t, 1, 1); /* one of two */
        for (int n = 0; n < 3; n += 2) {
            trio_report(&t, n, 1);
            trio_next(&t, n, syncs[i], others);
            trio_report(&t, n, 1);
        }
        assert_int_equal(trio_open(&t), 0);
        struct barrier_cursor late = t.cursors[1]; /* another thread of node 1, in step 1 */
        trio_report(&t, 1, 1);
        assert_int_equal(trio_open(&t), 2);
        trio_next(&t, 1, syncs[i], others);
        assert_int_equal(trio_open(&t), 7);
        /* It comes when node 1 is in step 3 already: it must not arrive a second time. */
        trio_next(&t, 1, syncs[i], own);
        t.cursors[1] = late;
        trio_next(&t, 1, syncs[i], others);
        assert_int_equal(trio_open(&t), 7);
        trio_next(&t, 1, syncs[i], own);
        trio_next(&t, 0, syncs[i], own);
        trio_report(&t, 1, 1);
        assert_int_equal(trio_open(&t), 4); /* node 2 stays in step 2 */
        trio_next(&t, 2, syncs[i], own);
        assert_int_equal(trio_open(&t), 7);
    }
}

/* A list of steps as the engine walks it. Unit u of step i on node n writes i + 1 into a cell of its
 * own, after it has looked at the cells that must be there: those of its node's last step, and those
 * of all nodes at the last global step. Cells of a step are used again N_BANKS steps later; a global
 * step at least every N_BANKS - 2 steps keeps their readers ahead. */
struct walk_step {
    enum sync sync;
    uint32_t n_units[MAX_NODES], n_units_all, n_nodes_busy;
    int last_global; /* before this one; -1: none */
};

struct walk {
    int n_nodes, n_steps;
    int n_threads[MAX_NODES];
    int64_t spin_ns;
    uint32_t seq0;
    bool is_one_late; /* the last thread of node 0 stays away until all others are at the end */
    struct walk_step *steps;
    struct barrier barrier;
    struct barrier_node nodes[MAX_NODES], *node_list[MAX_NODES];
    _Atomic uint32_t *claims; /* (n_steps, n_nodes) relaxed: they order nothing */
    uint32_t cells[N_BANKS][MAX_NODES][MAX_UNITS];
    _Atomic long n_wrong, n_at_end;
};

struct walker {
    struct walk *walk;
    int node;
    bool is_late;
    long n_skipped, n_done;
    struct random random;
};

static void fill_steps(struct walk *walk, bool is_flat, struct random *random)
{
    int last_global = -1;
    for (int i = 0; i < walk->n_steps; i++) {
        struct walk_step *step = &walk->steps[i];
        bool is_global = random_bits(random) % 3 == 0 || i - last_global >= N_BANKS - 2;
        step->sync = !is_global ? SYNC_NODE : is_flat ? SYNC_FLAT : SYNC_GLOBAL;
        step->last_global = last_global;
        for (int n = 0; n < walk->n_nodes; n++) {
            uint32_t n_units = (uint32_t)(random_bits(random) % (MAX_UNITS + 2));
            step->n_units[n] = n_units > MAX_UNITS ? 0 : n_units; /* one in three has none */
        }
        if (i % 5 == 0)
            step->n_units[random_bits(random) % (uint64_t)walk->n_nodes] = 1;
        for (int n = 0; n < walk->n_nodes; n++) {
            step->n_units_all += step->n_units[n];
            step->n_nodes_busy += step->n_units[n] > 0;
        }
        if (step->n_units_all == 0)
            step->n_units[0] = step->n_units_all = step->n_nodes_busy = 1;
        if (is_global)
            last_global = i;
    }
}

static long wrong_cells(const struct walk *walk, int step, int node)
{
    long n_wrong = 0;
    for (uint32_t u = 0; u < walk->steps[step].n_units[node]; u++)
        n_wrong += walk->cells[step % N_BANKS][node][u] != (uint32_t)step + 1;
    return n_wrong;
}

static void do_unit(struct walk *walk, int i, int node, uint32_t unit)
{
    int last_global = walk->steps[i].last_global;
    long n_wrong = i > 0 ? wrong_cells(walk, i - 1, node) : 0;
    for (int n = 0; last_global >= 0 && n < walk->n_nodes; n++)
        n_wrong += wrong_cells(walk, last_global, n);
    if (n_wrong)
        atomic_fetch_add_explicit(&walk->n_wrong, n_wrong, memory_order_relaxed);
    walk->cells[i % N_BANKS][node][unit] = (uint32_t)i + 1;
}

/* Takes units of a step while there are any; every third step reports them all at once. */
static void do_step(struct walker *walker, int i, const struct barrier_cursor *cursor)
{
    struct walk *walk = walker->walk;
    int node = walker->node;
    uint32_t unit, n_mine = 0, n_units = walk->steps[i].n_units[node];
    _Atomic uint32_t *claims = &walk->claims[i * walk->n_nodes + node];
    while ((unit = atomic_fetch_add_explicit(claims, 1, memory_order_relaxed)) < n_units) {
        do_unit(walk, i, node, unit);
        walker->n_done++;
        if (i % 3 == 0)
            n_mine++;
        else
            barrier_report(&walk->barrier, cursor, node, 1);
    }
    if (n_mine)
        barrier_report(&walk->barrier, cursor, node, n_mine);
}

static void dawdle(struct random *random)
{
    uint64_t r = random_bits(random);
    if (r % 64 == 0)
        sched_yield();
    else if (r % 1024 == 1)
        sleep_ns(20000);
}

static void *walk_steps(void *argument)
{
    struct walker *walker = argument;
    struct walk *walk = walker->walk;
    int n_all = 0;
    for (int n = 0; n < walk->n_nodes; n++)
        n_all += walk->n_threads[n];
    while (walker->is_late &&
           atomic_load_explicit(&walk->n_at_end, memory_order_relaxed) < n_all - 1)
        sleep_ns(100000);
    struct barrier_cursor cursor = {.seq = walk->seq0};
    for (int i = 0; i < walk->n_steps; i++) {
        const struct walk_step *s = &walk->steps[i];
        barrier_next(&walk->barrier, &cursor, walker->node,
                     &(struct step_units){s->sync, s->n_units[walker->node], s->n_units_all,
                                          s->n_nodes_busy});
        if (barrier_is_open(&walk->barrier, &cursor, walker->node))
            walker->n_skipped++;
        else
            do_step(walker, i, &cursor);
        dawdle(&walker->random);
        barrier_wait(&walk->barrier, &cursor, walker->node, walk->spin_ns);
    }
    atomic_fetch_add_explicit(&walk->n_at_end, 1, memory_order_relaxed);
    return NULL;
}

static int make_walkers(struct walk *walk, struct walker *walkers)
{
    int n_walkers = 0;
    for (int n = 0; n < walk->n_nodes; n++) {
        for (int t = 0; t < walk->n_threads[n]; t++, n_walkers++) {
            walkers[n_walkers] = (struct walker){.walk = walk, .node = n};
            random_init(&walkers[n_walkers].random, (uint64_t)n_walkers + 1);
        }
        if (n == 0 && walk->is_one_late)
            walkers[n_walkers - 1].is_late = true;
    }
    return n_walkers;
}

/* Runs it and checks that every unit was done once, in order. Returns how many steps the last
 * thread of node 0 skipped. */
static long run_walk(struct walk *walk, bool is_flat, uint64_t seed)
{
    struct random random;
    random_init(&random, seed);
    walk->steps = calloc((size_t)walk->n_steps, sizeof *walk->steps);
    walk->claims = calloc((size_t)(walk->n_steps * walk->n_nodes), sizeof *walk->claims);
    assert_true(walk->steps && walk->claims);
    fill_steps(walk, is_flat, &random);
    walk->barrier = (struct barrier){.n_nodes = walk->n_nodes, .nodes = walk->node_list};
    for (int n = 0; n < walk->n_nodes; n++) {
        walk->node_list[n] = &walk->nodes[n];
        atomic_store(&walk->nodes[n].gate.opened, walk->seq0);
    }
    struct walker walkers[MAX_THREADS];
    pthread_t threads[MAX_THREADS];
    int n_walkers = make_walkers(walk, walkers);
    start_all(threads, n_walkers, walk_steps, walkers, sizeof *walkers);
    join_all(threads, n_walkers);

    long n_units = 0, n_done = 0;
    for (int i = 0; i < walk->n_steps; i++)
        n_units += walk->steps[i].n_units_all;
    for (int t = 0; t < n_walkers; t++)
        n_done += walkers[t].n_done;
    assert_int_equal(walk->n_wrong, 0);
    assert_int_equal(n_done, n_units);
    free(walk->steps);
    free(walk->claims);
    return walkers[walk->n_threads[0] - 1].n_skipped;
}

static void test_data_crosses_steps(void **state)
{
    (void)state;
    int n_steps = is_long ? 20000 : 500;
    for (int shape = 0; shape < 27; shape++)
        for (int is_flat = 0; is_flat < 2; is_flat++) {
            struct walk walk = {.n_nodes = 3,
                                .n_threads = {shape % 3 + 1, shape / 3 % 3 + 1, shape / 9 + 1},
                                .n_steps = n_steps,
                                .spin_ns = shape % 2 ? SPIN_NS : 0};
            run_walk(&walk, is_flat, (uint64_t)shape + 1);
        }
}

static void test_data_crosses_one_and_four_nodes(void **state)
{
    (void)state;
    for (int is_flat = 0; is_flat < 2; is_flat++) {
        struct walk one = {.n_nodes = 1, .n_threads = {3}, .n_steps = 2000};
        run_walk(&one, is_flat, 11);
        struct walk four = {.n_nodes = 4, .n_threads = {3, 3, 3, 3}, .n_steps = 2000, .spin_ns = 1};
        run_walk(&four, is_flat, 12);
    }
}

static void test_numbers_wrap_on_the_way(void **state)
{
    (void)state;
    for (int is_flat = 0; is_flat < 2; is_flat++) {
        struct walk walk = {.n_nodes = 3,
                            .n_threads = {2, 1, 2},
                            .n_steps = 1000,
                            .spin_ns = SPIN_NS,
                            .seq0 = 0xffffffff - 500};
        run_walk(&walk, is_flat, 21);
    }
}

/* While one thread is away the others do its share of 1000 steps; it then skips them all. */
static void test_late_thread_delays_nobody(void **state)
{
    (void)state;
    for (int is_flat = 0; is_flat < 2; is_flat++) {
        struct walk walk = {.n_nodes = 2,
                            .n_threads = {2, 1},
                            .n_steps = 1000,
                            .seq0 = 0xffffffff - 300,
                            .is_one_late = true};
        assert_int_equal(run_walk(&walk, is_flat, 31), 1000);
    }
}

/* Rounds of one unit a thread: a plain barrier. */
struct rounds {
    int n_threads, n_nodes; /* thread t is of node t % n_nodes */
    enum sync sync;
    int64_t spin_ns;
    uint32_t n;
    struct barrier barrier;
    struct barrier_node nodes[MAX_NODES], *node_list[MAX_NODES];
    uint32_t marks[2][MAX_THREADS]; /* by odd and even rounds */
    _Atomic long n_wrong;
};

struct rounder {
    struct rounds *rounds;
    int thread;
};

static void *go_round(void *argument)
{
    const struct rounder *me = argument;
    struct rounds *r = me->rounds;
    int node = me->thread % r->n_nodes;
    int next = (me->thread + (r->sync == SYNC_NODE ? r->n_nodes : 1)) % r->n_threads;
    uint32_t in_node = (uint32_t)(r->n_threads / r->n_nodes);
    struct step_units step = {r->sync, in_node, (uint32_t)r->n_threads, (uint32_t)r->n_nodes};
    struct barrier_cursor cursor = {.seq = r->nodes[node].gate.opened};
    long n_wrong = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        r->marks[i % 2][me->thread] = i;
        barrier_next(&r->barrier, &cursor, node, &step);
        barrier_report(&r->barrier, &cursor, node, 1);
        barrier_wait(&r->barrier, &cursor, node, r->spin_ns);
        n_wrong += r->marks[i % 2][next] != i;
    }
    atomic_fetch_add(&r->n_wrong, n_wrong);
    return NULL;
}

static void run_rounds(struct rounds *rounds)
{
    struct rounder rounders[MAX_THREADS];
    pthread_t threads[MAX_THREADS];
    rounds->barrier = (struct barrier){.n_nodes = rounds->n_nodes, .nodes = rounds->node_list};
    for (int n = 0; n < rounds->n_nodes; n++)
        rounds->node_list[n] = &rounds->nodes[n];
    for (int t = 0; t < rounds->n_threads; t++)
        rounders[t] = (struct rounder){rounds, t};
    start_all(threads, rounds->n_threads, go_round, rounders, sizeof *rounders);
    join_all(threads, rounds->n_threads);
    assert_int_equal(rounds->n_wrong, 0);
    for (int n = 0; n < rounds->n_nodes; n++) {
        assert_int_equal(rounds->nodes[n].gate.opened, rounds->n);
        assert_int_equal(rounds->nodes[n].gate.n_sleepers, 0);
    }
}

/* Leaves this thread and those it starts two CPUs at most; *saved is what it had. */
static void share_two_cpus(cpu_set_t *saved)
{
    cpu_set_t two;
    CPU_ZERO(&two);
    assert_int_equal(sched_getaffinity(0, sizeof *saved, saved), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&two) < 2; cpu++)
        if (CPU_ISSET(cpu, saved))
            CPU_SET(cpu, &two);
    assert_int_equal(sched_setaffinity(0, sizeof two, &two), 0);
}

/* More threads than CPUs; at 1 ns they look a few times and then go to sleep at once, where a
 * wake-up could be lost. */
static void test_no_wake_up_is_lost(void **state)
{
    (void)state;
    cpu_set_t saved;
    share_two_cpus(&saved);
    uint32_t n = is_long ? 10000000 : IS_SANITISED ? 10000 : 100000;
    struct rounds pair = {.n_threads = 2, .n_nodes = 1, .sync = SYNC_NODE, .spin_ns = 1, .n = n};
    run_rounds(&pair);
    struct rounds crowd = {.n_threads = 3, .n_nodes = 1, .sync = SYNC_NODE, .n = n};
    run_rounds(&crowd);
    static const enum sync syncs[] = {SYNC_NODE, SYNC_GLOBAL, SYNC_FLAT};
    for (int i = 0; i < 6; i++) {
        struct rounds rounds = {.n_threads = 6, .n_nodes = 3, .sync = syncs[i % 3], .n = n / 20};
        rounds.spin_ns = i / 3;
        run_rounds(&rounds);
    }
    assert_int_equal(sched_setaffinity(0, sizeof saved, &saved), 0);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, start_alarm, stop_alarm)

int main(int argc, char **argv)
{
    support_init(argc, argv);
    for (int i = 1; i < argc; i++)
        is_long = is_long || strcmp(argv[i], "--long") == 0;
    const struct CMUnitTest tests[] = {
        CASE(test_gate_numbers_wrap),
        CASE(test_sleepers_wake),
        CASE(test_sleep_uses_no_cpu),
        CASE(test_spinning_does_not_sleep),
        CASE(test_opener_stops_at_each_instruction),
        CASE(test_who_opens_what),
        CASE(test_node_without_units_is_waited_for),
        CASE(test_data_crosses_steps),
        CASE(test_data_crosses_one_and_four_nodes),
        CASE(test_numbers_wrap_on_the_way),
        CASE(test_late_thread_delays_nobody),
        CASE(test_no_wake_up_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
