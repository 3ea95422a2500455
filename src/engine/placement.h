/* Fills the nodes' memory with their weights: every node's threads read and pack what the node
 * holds, straight into place. */
#ifndef TRINE_ENGINE_PLACEMENT_H
#define TRINE_ENGINE_PLACEMENT_H

#include "engine/plan.h"
#include "machine/node_memory.h"
#include "machine/thread_team.h"

/* Gives every slice of a node its place in the arena, which has room for plan->sizes[node].weights. */
void placement_assign(struct plan *plan, int node, struct node_arena *arena);

/* Packs all slices. Scales are checked on the way: a value that is not finite is an error. Pages of
 * the file are released as they are done with, so that weights are not held twice.
 * errors  FORMAT, MEMORY */
enum status placement_fill(struct plan *plan, struct thread_team *team, engine_progress *progress,
                           void *context, struct error *err);

#endif
