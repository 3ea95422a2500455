/* How fast one thread reads a plan's weights through its kernels: measured, never remembered. */
#ifndef TRINE_ENGINE_KERNEL_SPEED_H
#define TRINE_ENGINE_KERNEL_SPEED_H

#include "engine/plan.h"
#include "machine/thread_team.h"

/* Bytes a second that the calling thread gets from memory through the products of one token, over
 * the packings of the plan in the proportion of their bytes. Each is run for `seconds` on made-up
 * weights of at least least_bytes in memory like the engine's, on memory_node; threads of a team may
 * do it at the same time.
 * errors  MEMORY */
enum status kernel_speed_measure(double *bytes_s, const struct plan *plan,
                                 const struct topology *topology, int memory_node,
                                 uint64_t least_bytes, double seconds, struct error *err);

/* One way to multiply. */
struct kernel_trial {
    kernel *run;
    struct packed w; /* no data: a matrix of that size is made up */
    int n_tokens;
};

/* Weights a second of ways a and b in weights_s. Both are run in turns, by all threads of the team at once,
 * each on a matrix of its own; every turn takes `seconds`. False: there was no memory for such matrices, and
 * nothing was timed. */
bool kernel_race(double weights_s[2], const struct kernel_trial *a, const struct kernel_trial *b,
                 double seconds, struct thread_team *team, const struct topology *topology);

#endif
