/* What only a timing on this machine can choose: packings and kernels that give the same bits. */
#ifndef TRINE_ENGINE_KERNEL_CHOICE_H
#define TRINE_ENGINE_KERNEL_CHOICE_H

#include "engine/plan.h"
#include "machine/thread_team.h"

/* Makes TRITS_AUTO one of the two: trits4 if it does more weights a second than trits5, which reads a fifth
 * fewer bytes, by more than 3 %. Of models so small that reading them takes no time, and of isa that has
 * no fast trits5, nothing is timed.
 * errors  MEMORY */
enum status kernel_choose_trits(struct engine_options *options, const struct model *model,
                                uint64_t file_bytes, const struct topology *topology,
                                struct thread_team *team, struct error *err);

/* Products of many tokens of a plan on AMX tiles stay so if they are faster than those of the next
 * instruction set below, packing by packing; else plan->matmul becomes that.
 * errors  MEMORY */
enum status kernel_choose_products(struct plan *plan, struct thread_team *team,
                                   const struct topology *topology, struct error *err);

#endif
