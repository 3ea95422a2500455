#include "machine/barrier.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

/* Looks at the gate between two reads of the clock: with 40 to 140 cycles a pause, about 1 us. */
#define LOOKS_A_CLOCK_READ 32

/* Offers of the CPU before sleep when there is nothing to be gained by spinning: enough for the
 * threads that share the core to run once each, if they are few. */
#define N_YIELDS           4

_Static_assert(sizeof(_Atomic uint32_t) == 4, "the kernel compares four bytes");

/* Sleeps while *word is `seen`; may also return for no reason. */
static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, (void *)word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, (void *)word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Tells the core that this is a waiting loop. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* The exchange and the load of n_sleepers are seq_cst, as are the two in sleep_until_open: either
 * this thread sees the sleeper, or the sleeper sees the new number before it sleeps. */
void gate_open(struct gate *gate, uint32_t seq)
{
    uint32_t before = atomic_exchange(&gate->opened, seq);
    assert((int32_t)(seq - before) > 0);
    (void)before;
    if (atomic_load(&gate->n_sleepers) != 0)
        futex_wake_all(&gate->opened);
}

/* True when it opened within spin_ns. */
static bool spin(const struct gate *gate, uint32_t seq, int64_t spin_ns)
{
    int64_t end = 0;
    do {
        for (int i = 0; i < LOOKS_A_CLOCK_READ; i++) {
            if (gate_is_open(gate, seq))
                return true;
            cpu_relax();
        }
        if (end == 0)
            end = clock_ns() + spin_ns;
    } while (clock_ns() < end);
    return false;
}

static bool offer_cpu(const struct gate *gate, uint32_t seq)
{
    for (int i = 0; i < N_YIELDS; i++) {
        sched_yield();
        if (gate_is_open(gate, seq))
            return true;
    }
    return false;
}

static void sleep_until_open(struct gate *gate, uint32_t seq)
{
    atomic_fetch_add(&gate->n_sleepers, 1);
    for (;;) {
        uint32_t opened = atomic_load(&gate->opened);
        if ((int32_t)(opened - seq) >= 0)
            break;
        futex_wait(&gate->opened, opened); /* not if it has changed since */
    }
    atomic_fetch_sub(&gate->n_sleepers, 1);
}

void gate_wait(struct gate *gate, uint32_t seq, int64_t spin_ns)
{
    if (gate_is_open(gate, seq))
        return;
    if (spin_ns > 0 ? spin(gate, seq, spin_ns) : offer_cpu(gate, seq))
        return;
    sleep_until_open(gate, seq);
}

/* Adds to a counter; true for the one that brings it to the target. Each addition releases what its
 * thread wrote and acquires what the earlier ones did, so the last has everything to pass on. */
static bool is_last(_Atomic uint64_t *counter, uint64_t n, uint64_t target)
{
    uint64_t sum = atomic_fetch_add_explicit(counter, n, memory_order_acq_rel) + n;
    assert((int64_t)(target - sum) >= 0); /* more units were reported than the step has */
    return sum == target;
}

/* The own gate comes last: its line is the nearest. */
static void open_all(struct barrier *barrier, uint32_t seq, int own)
{
    for (int i = 1; i <= barrier->n_nodes; i++)
        gate_open(&barrier->nodes[(own + i) % barrier->n_nodes]->gate, seq);
}

/* Arrives for a node without units, once: n_finished goes from the end of the step before to the
 * end of this one by the first thread that comes here; nothing else counts on it meanwhile. */
static void arrive_without_units(struct barrier *barrier, const struct barrier_cursor *cursor,
                                 int node)
{
    _Atomic uint64_t *counter = &barrier->nodes[node]->n_finished;
    uint64_t before = cursor->node_target - 1;
    if (atomic_load_explicit(counter, memory_order_relaxed) != before ||
        !atomic_compare_exchange_strong_explicit(counter, &before, cursor->node_target,
                                                 memory_order_acq_rel, memory_order_relaxed))
        return;
    bool is_flat = cursor->sync == SYNC_FLAT;
    if (is_last(is_flat ? &barrier->n_finished : &barrier->n_arrived, 1,
                is_flat ? cursor->all_target : cursor->arrived_target))
        open_all(barrier, cursor->seq, node);
}

void barrier_next(struct barrier *barrier, struct barrier_cursor *cursor, int node,
                  const struct step_units *step)
{
    uint32_t n_nodes = (uint32_t)barrier->n_nodes;
    assert(step->sync != SYNC_NONE);
    cursor->seq++;
    cursor->sync = step->sync;
    cursor->is_busy_node = step->n_units > 0;
    if (step->sync == SYNC_FLAT)
        cursor->all_target += step->n_units_all + n_nodes - step->n_nodes_busy;
    else
        cursor->node_target += step->n_units;
    if (step->sync == SYNC_GLOBAL)
        cursor->arrived_target += n_nodes;
    if (!cursor->is_busy_node && step->sync != SYNC_NODE) {
        cursor->node_target++;
        arrive_without_units(barrier, cursor, node);
    }
}

void barrier_report(struct barrier *barrier, const struct barrier_cursor *cursor, int node,
                    uint32_t n)
{
    struct barrier_node *own = barrier->nodes[node];
    assert(n > 0 && cursor->is_busy_node);
    if (cursor->sync == SYNC_FLAT) {
        if (is_last(&barrier->n_finished, n, cursor->all_target))
            open_all(barrier, cursor->seq, node);
        return;
    }
    if (!is_last(&own->n_finished, n, cursor->node_target))
        return;
    if (cursor->sync == SYNC_NODE)
        gate_open(&own->gate, cursor->seq);
    else if (is_last(&barrier->n_arrived, 1, cursor->arrived_target))
        open_all(barrier, cursor->seq, node);
}

/* Nobody opens the gate of a node for a step in which it alone counts and has no units. */
static bool has_no_end(const struct barrier_cursor *cursor)
{
    return cursor->sync == SYNC_NODE && !cursor->is_busy_node;
}

bool barrier_is_open(const struct barrier *barrier, const struct barrier_cursor *cursor, int node)
{
    return has_no_end(cursor) || gate_is_open(&barrier->nodes[node]->gate, cursor->seq);
}

void barrier_wait(struct barrier *barrier, const struct barrier_cursor *cursor, int node,
                  int64_t spin_ns)
{
    if (!has_no_end(cursor))
        gate_wait(&barrier->nodes[node]->gate, cursor->seq, spin_ns);
}
