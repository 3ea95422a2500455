/* How long a barrier takes on this machine: measured, never remembered. */
#ifndef TRINE_MACHINE_BARRIER_SPEED_H
#define TRINE_MACHINE_BARRIER_SPEED_H

#include "machine/barrier.h"
#include "machine/thread_team.h"

/* Of several passes of many steps without work, one unit a thread, in which all threads of the team
 * take part. */
struct barrier_speed {
    double best_s, median_s; /* of a step: from the first report to the last thread that goes on */
    int n_steps;             /* of a pass */
};

/* Takes about a fifth of a second.
 * errors  MEMORY */
enum status barrier_measure(struct barrier_speed *speed, struct thread_team *team, enum sync sync,
                            struct error *err);

#endif
