/* `trine inspect --plan`: what the nodes will do, before anything runs. */
#ifndef TRINE_CLI_INSPECT_PLAN_H
#define TRINE_CLI_INSPECT_PLAN_H

#include <stdio.h>

#include "engine/engine.h"

/* In the order of the option's words: --format text|json|svg. */
enum plan_format { PLAN_TEXT, PLAN_JSON, PLAN_SVG };
#define PLAN_FORMATS "text|json|svg"

/* Plans the model for the options (instruction set resolved) and prints the decoding of one token.
 * Takes no memory for weights and runs nothing. machine: an XML file of hwloc; NULL: this one.
 * errors  as engine_plan_on */
enum status inspect_plan(const struct model *model, const struct engine_options *options,
                         const char *machine, enum plan_format format, FILE *out,
                         struct error *err);

#endif
