/* A result as names and values: what JSON, JSON lines and CSV hold. */
#ifndef TRINE_CLI_BENCH_FIELDS_H
#define TRINE_CLI_BENCH_FIELDS_H

#include <jansson.h>

#include "cli/bench_run.h"

/* A new object, or NULL without memory. Names up to samples_ts are those of llama-bench. What a timing chose
 * at load stands in kernels (the products of every packing that the model has) and trits_choice
 * (engine/trits_choice.h). */
json_t *bench_fields(const struct bench_model *model, const struct bench_run *run,
                     const struct bench_result *result);

#endif
