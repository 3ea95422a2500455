/* Threads, one per entry of a layout, each pinned to its CPU, that run a function together. The
 * caller of team_open is the first of them and is pinned too until team_close. Between runs they
 * spin for a moment, then sleep: an idle team uses no CPU. Signals go to the caller's thread. */
#ifndef TRINE_MACHINE_THREAD_TEAM_H
#define TRINE_MACHINE_THREAD_TEAM_H

#include "machine/topology.h"

struct team_member {
    int index; /* of all threads */
    int node, in_node, n_in_node;
    int cpu;
};
typedef void team_work(void *context, const struct team_member *me);

struct thread_team;

/* The layout is borrowed. is_pinned false: threads may run on any CPU that the process may use
 * (and so when the operating system refuses: team_is_pinned says it).
 * errors  LIMIT: a thread cannot be started (all that were are ended again); MEMORY */
enum status team_open(struct thread_team **team, const struct team_layout *layout, bool is_pinned,
                      struct error *err);

/* Ends the threads, restores the caller's affinity. Accepts NULL. */
void team_close(struct thread_team *team);

/* Runs work(context, member) on every thread and returns when all have finished. Only the thread
 * that opened the team calls it, never from within. */
void team_run(struct thread_team *team, team_work *work, void *context);

const struct team_layout *team_layout_of(const struct thread_team *team);
bool team_is_pinned(const struct thread_team *team);

/* How long its threads spin before they sleep, for gate_wait and barrier_wait: less when threads
 * share cores. */
int64_t team_spin_ns(const struct thread_team *team);

/* Makes the thread start after `count` successful ones fail, and all that follow; negative (the
 * default): none. For tests. */
void team_fail_after(long count);

#endif
