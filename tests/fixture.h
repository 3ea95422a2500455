/* Small models written on the spot. A scripted model has random ternary projections, but attention
 * output and ffn_down are zero: greedy decoding says a chosen chain of tokens after ':' and then
 * ends, whatever came before. */
#ifndef TRINE_TESTS_FIXTURE_H
#define TRINE_TESTS_FIXTURE_H

#include "support.h"
#include "tensor/formats.h"

struct fixture {
    const char *const *chain; /* what greedy decoding answers after ':'; a text of the form
                                 "\xNN..." of one byte >= 0x80 means that byte's own token */
    int n_chain;
    bool ring;                /* the chain repeats for ever */
    enum format_id format;    /* of the projections; FORMAT_F32 (0) means F16 */
    int width, n_ff, n_ctx;   /* 0: 256, 512, 512 */
    const char *architecture; /* NULL: llama */
    const char *omit;         /* a tensor left out */
    const char *extra;        /* a vector added under this name */
    const char *twice;        /* a tensor declared twice */
    const char *swap_shape;   /* a matrix whose dimensions are exchanged in the file */
    bool real_output;         /* random attention output and ffn_down instead of zero */
    bool no_bos, add_eos;     /* what the tokenizer puts around a text; by itself BOS before it */
    uint64_t seed;
};

/* Writes the model. */
void fixture_write(const char *path, const struct fixture *fixture);

/* The bytes of the same model; *size gets their number. The caller frees. */
char *fixture_bytes(const struct fixture *fixture, size_t *size);

/* Makes the first weight of every TQ2_0 matrix of a file +2, which trits5 cannot hold. */
void fixture_add_fourth_value(const char *path);

#endif
