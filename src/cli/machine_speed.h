/* Where the numbers of a prediction come from: given, measured here, or assumed. */
#ifndef TRINE_CLI_MACHINE_SPEED_H
#define TRINE_CLI_MACHINE_SPEED_H

#include "cli/inspect_predict.h"
#include "engine/predict.h"
#include "machine/topology.h"

enum origin { ORIGIN_GIVEN, ORIGIN_MEASURED, ORIGIN_ASSUMED };

struct known_speed {
    struct machine_speed speed;
    double *node_bytes_s; /* owned */
    enum origin bandwidth, core, share, barriers;
};

/* Of the machine of a plan. What is measured takes about three seconds.
 * errors  USAGE, as inspect_predict; of team_open and bandwidth_measure */
enum status known_speed_find(struct known_speed *known, const struct plan *plan,
                             const struct topology *topology, const struct predict_options *options,
                             struct error *err);

/* Accepts a zeroed object. */
void known_speed_done(struct known_speed *known);

const char *origin_name(enum origin origin);

#endif
