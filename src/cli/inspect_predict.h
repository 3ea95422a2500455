/* `trine inspect --plan --predict`: how fast a plan should run, on this machine or one that somebody
 * does not have. */
#ifndef TRINE_CLI_INSPECT_PREDICT_H
#define TRINE_CLI_INSPECT_PREDICT_H

#include <stdio.h>

#include "engine/engine.h"

struct predict_options {
    const char *bandwidth; /* "GB/s[,GB/s...]": of every node, or of each; NULL: measured */
    const char *barriers;  /* "NODE,GLOBAL[,FLAT]" in us; NULL: measured, elsewhere assumed */
    double core_gb_s;      /* of one thread; 0: measured, elsewhere assumed */
    double cache_gb_s;     /* of a node's caches; 0: as memory */
    double
        share; /* per cent of the bandwidth that all threads reach through kernels; 0: as the core */
    double late; /* per cent for every further thread of a node */
    int64_t depth;
};

/* Plans the model for the machine (an XML file of hwloc; NULL: this one, whose speed is measured
 * where it is not given) and prints what predict_token makes of it.
 * errors  as engine_plan_on; USAGE: no bandwidth of another machine, malformed lists, memory that is
 *         not local */
enum status inspect_predict(const struct model *model, const struct engine_options *options,
                            const char *machine, const struct predict_options *predict,
                            bool is_json, FILE *out, struct error *err);

#endif
