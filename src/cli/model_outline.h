/* A model of a published shape without its weights, for plans: the file's header as `synth` writes
 * it, and zeros that take no memory. */
#ifndef TRINE_CLI_MODEL_OUTLINE_H
#define TRINE_CLI_MODEL_OUTLINE_H

#include "model/model_load.h"

struct model_outline {
    struct model model;
    char title[96];
    void *bytes; /* owned: mapping */
    size_t n_bytes;
};

/* type: of the projections, as --type of `synth`, which chooses the other types.
 * errors  USAGE: unknown shape or type; IO, MEMORY */
enum status model_outline_open(struct model_outline *outline, const char *shape, const char *type,
                               struct error *err);

/* Accepts a zeroed object. */
void model_outline_close(struct model_outline *outline);

#endif
