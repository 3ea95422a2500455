/* The plain forward pass: the definition that everything faster is compared with.
 * One thread, no SIMD, weights decoded row by row to float, sums in double, activations and
 * residual in float. Includes nothing of the fast paths. Each token's result depends only on the
 * tokens before it, not on how the prompt was cut. */
#ifndef TRINE_REFERENCE_REFERENCE_H
#define TRINE_REFERENCE_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "model/model_load.h"

struct reference;

struct reference_options {
    int n_ctx;     /* positions of the KV cache */
    int max_batch; /* most tokens of one reference_forward */
    bool kv_f16;   /* round keys and values to f16 as a half-precision cache would */
};

/* Bytes of KV cache and scratch that reference_open would take. */
uint64_t reference_bytes(const struct model_config *config,
                         const struct reference_options *options);

/* The model is borrowed. errors: MEMORY */
enum status reference_open(struct reference **reference, const struct model *model,
                           const struct reference_options *options, struct error *err);
void reference_close(struct reference *reference);

/* Runs n tokens (ids in [0, n_vocab), n <= max_batch) at the positions after those already run.
 * logits: (n_logits, n_vocab) for the last n_logits of them; n_logits in [0, n].
 * The caller keeps position + n <= n_ctx. */
void reference_forward(struct reference *reference, const int32_t *tokens, int n, float *logits,
                       int n_logits);

/* Tokens run so far. */
int reference_position(const struct reference *reference);

/* Forgets the positions from `position` on. */
void reference_rewind(struct reference *reference, int position);

#endif
