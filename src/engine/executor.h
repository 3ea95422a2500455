/* Runs plans. This is the seam to other backends: what is above it knows sessions and batches, what is
 * below it walks a list of steps. */
#ifndef TRINE_ENGINE_EXECUTOR_H
#define TRINE_ENGINE_EXECUTOR_H

#include "engine/plan.h"
#include "engine/trace.h"
#include "machine/node_memory.h"
#include "machine/thread_team.h"

struct executor;
struct node_buffers;

/* Plan, buffers and team are borrowed; the plan is bound to its memory.
 * errors  MEMORY */
enum status executor_open(struct executor **executor, struct plan *plan,
                          const struct node_buffers *buffers, struct thread_team *team,
                          struct error *err);
void executor_close(struct executor *executor);

/* Runs one batch on the whole team. trace: where times go, or NULL. */
void executor_run(struct executor *executor, enum program_kind kind,
                  const struct batch_shape *shape, struct trace *trace);

#endif
