/* How fast one thread reads a plan's weights through its kernels: measured, never remembered. */
#ifndef TRINE_ENGINE_KERNEL_SPEED_H
#define TRINE_ENGINE_KERNEL_SPEED_H

#include "engine/plan.h"

/* Bytes a second that the calling thread gets from memory through the products of one token, over
 * the packings of the plan in the proportion of their bytes. Each is run for `seconds` on made-up
 * weights of at least least_bytes in memory like the engine's, on memory_node; threads of a team may
 * do it at the same time.
 * errors  MEMORY */
enum status kernel_speed_measure(double *bytes_s, const struct plan *plan,
                                 const struct topology *topology, int memory_node,
                                 uint64_t least_bytes, double seconds, struct error *err);

#endif
