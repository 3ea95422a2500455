/* What only a timing on this machine can choose: packings and kernels that give the same bits. */
#ifndef TRINE_ENGINE_KERNEL_CHOICE_H
#define TRINE_ENGINE_KERNEL_CHOICE_H

#include "engine/plan.h"
#include "machine/thread_team.h"

/* The faster packing by weights a second of both: trits4 only if it is more than 3 % ahead of trits5, which
 * takes a fifth less memory. */
enum trits kernel_faster_trits(double trits4_s, double trits5_s);

/* Makes TRITS_AUTO one of the two: the faster, by a timing on the team. Of models so small that reading them
 * takes no time, and of isa that has no fast trits5, nothing is timed; nor without a team (NULL: a plan alone),
 * nor where the timing gets no memory: then it is trits5. */
void kernel_choose_trits(struct engine_options *options, struct trits_choice *choice,
                         const struct model *model, uint64_t file_bytes,
                         const struct topology *topology, struct thread_team *team);

/* plan_make with options that kernel_choose_trits has seen. Where the trits4 that a timing chose does not fit
 * in memory, or leaves less than the usual context that trits5 would, the plan is made with trits5 if that can be
 * done. Where no matrix can have either packing the reason becomes DEFAULT.
 * errors  as plan_make */
enum status kernel_choose_plan(struct plan *plan, const struct model *model,
                               const struct team_layout *layout,
                               const struct engine_options *options,
                               const struct trits_choice *choice, struct thread_team *team,
                               struct error *err);

/* Products of many tokens of a plan on AMX tiles stay so unless those of the next instruction set below
 * are as fast, packing by packing; then plan->matmul becomes that. Where a timing gets no memory they stay, and
 * plan->is_tiles_untimed says so. */
void kernel_choose_products(struct plan *plan, struct thread_team *team,
                            const struct topology *topology);

#endif
