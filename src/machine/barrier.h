/* Waiting for work to be finished, within a node and across nodes.
 * A barrier here counts finished units of work, not threads: it opens when the last unit of a step
 * has been reported, so a thread that was preempted while it held no work delays nobody.
 * One thread per unit makes it an ordinary barrier.
 *
 * Steps are numbered (seq) from 1 by all threads alike; numbers may wrap. On a node step s may be
 * begun when the gate of the node has been opened for step s - 1. */
#ifndef TRINE_MACHINE_BARRIER_H
#define TRINE_MACHINE_BARRIER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A number that only grows and can be waited for: spinning first, then asleep (futex). Two cache
 * lines: the first is read by all waiters and written once a step. */
struct gate {
    _Alignas(64) _Atomic uint32_t opened;
    _Alignas(64) _Atomic uint32_t n_sleepers;
};

/* True when it was opened for `seq` or a later one. */
static inline bool gate_is_open(const struct gate *gate, uint32_t seq)
{
    uint32_t opened = atomic_load_explicit(&gate->opened, memory_order_acquire);
    return (int32_t)(opened - seq) >= 0;
}

/* Opens it for `seq`, a later one than before; wakes those that sleep. What the caller wrote before
 * is seen by all that pass. */
void gate_open(struct gate *gate, uint32_t seq);

/* Returns when it is open for `seq`. spin_ns: how long to spin before sleeping; 0: the CPU is
 * offered to others at once. */
void gate_wait(struct gate *gate, uint32_t seq, int64_t spin_ns);

/* What belongs to one node; in its memory. */
struct barrier_node {
    struct gate gate;
    _Alignas(64) _Atomic uint64_t n_finished; /* units of all steps so far; a global step in which
                                                 it has none counts as one */
};

struct barrier {
    int n_nodes;
    struct barrier_node **nodes;              /* borrowed */
    _Alignas(64) _Atomic uint64_t n_arrived;  /* nodes that finished a global step, all steps */
    _Alignas(64) _Atomic uint64_t n_finished; /* units of flat global steps; likewise */
};

/* SYNC_NODE: opens when the units of the own node are finished. SYNC_GLOBAL: when those of all nodes
 * are; the last unit of a node arrives for it, the last node opens all gates. SYNC_FLAT: the same
 * effect, but every report goes to one counter.
 * A node without units takes part in global steps all the same: the first of its threads that gets
 * there arrives for it. Otherwise the others would go on while it is still busy with earlier steps,
 * and its gate would be opened for steps that it has not finished. */
enum sync { SYNC_NONE, SYNC_NODE, SYNC_GLOBAL, SYNC_FLAT };

/* The end of one step, as a thread of a node sees it. n_units of the own node and of all nodes, and
 * the number of nodes that have any; a step of no unit anywhere has SYNC_NONE. */
struct step_units {
    enum sync sync;
    uint32_t n_units, n_units_all, n_nodes_busy;
};

/* Where a thread is; every thread has its own and advances it over all steps alike. Zeroed at
 * first. */
struct barrier_cursor {
    uint32_t seq;                                     /* of the present step */
    uint64_t node_target, arrived_target, all_target; /* counters that end it: n_finished of the
                                                         node, n_arrived, n_finished of all */
    enum sync sync;
    bool is_busy_node; /* the own node has units in this step */
};

/* Goes on to the next step with a sync other than NONE; the present one has ended for this node. */
void barrier_next(struct barrier *barrier, struct barrier_cursor *cursor, int node,
                  const struct step_units *step);

/* Reports n > 0 finished units of the present step. What the thread wrote before is seen by all that
 * pass the gate. */
void barrier_report(struct barrier *barrier, const struct barrier_cursor *cursor, int node,
                    uint32_t n);

/* True when the present step has ended for this node: nothing of it is left to do. A node without
 * units in a step with SYNC_NODE has ended it at once. */
bool barrier_is_open(const struct barrier *barrier, const struct barrier_cursor *cursor, int node);

/* Returns when it has ended. */
void barrier_wait(struct barrier *barrier, const struct barrier_cursor *cursor, int node,
                  int64_t spin_ns);

#endif
