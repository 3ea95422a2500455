/* The model that is measured: a file, or random weights in a published shape. */
#ifndef TRINE_CLI_BENCH_MODEL_H
#define TRINE_CLI_BENCH_MODEL_H

#include "cli/bench_tests.h"

struct bench_model {
    struct model model;
    char title[96];            /* of random weights */
    char type[96];             /* "llama 8.0B TQ2_0": architecture, weights, most frequent format */
    uint64_t bytes, n_weights; /* of all tensors of the file */
    int unnamed;               /* owned: the file of random weights; 0: none */
};

/* Random weights are written to a file without a name in $TMPDIR (or /tmp), so that nothing is left
 * whatever happens.
 * errors  USAGE: no model or two, unknown shape or type; IO; as model_open */
enum status bench_model_open(struct bench_model *m, const struct bench_options *options,
                             struct error *err);

/* Accepts a zeroed object. */
void bench_model_close(struct bench_model *m);

#endif
