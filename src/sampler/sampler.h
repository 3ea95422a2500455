/* Logits to the next token. The chain is fixed: penalties, top-k, top-p, min-p, temperature, draw;
 * a stage at its neutral value does nothing. */
#ifndef TRINE_SAMPLER_SAMPLER_H
#define TRINE_SAMPLER_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/random.h"

struct sampler_options {
    float temperature;    /* 0: greedy; 1: the model's own distribution */
    int top_k;            /* keep the k most likely; 0: all */
    float top_p;          /* keep the fewest that sum to p; 1: all */
    float min_p;          /* keep those at least min_p as likely as the first; 0: all */
    int repeat_last_n;    /* penalties look at that many last tokens; 0: off; -1: all */
    float repeat_penalty; /* divides positive, multiplies negative logits of seen tokens; 1: off */
    float frequency_penalty; /* subtracted once per occurrence; 0: off */
    float presence_penalty;  /* subtracted once if seen; 0: off */
    uint64_t seed;
};

struct sampler;

/* errors: MEMORY; LIMIT when the vocabulary is empty */
enum status sampler_open(struct sampler **sampler, const struct sampler_options *options,
                         int n_vocab, struct error *err);
void sampler_close(struct sampler *sampler);

/* Tells the sampler of a token that is now part of the text. errors: MEMORY */
enum status sampler_accept(struct sampler *sampler, int32_t token, struct error *err);

/* Chooses the next token from n_vocab logits, which stay as they are. Ties: the lower id. The same
 * seed, options, history and logits give the same token on every machine with the same C library.
 */
int32_t sampler_next(struct sampler *sampler, const float *logits);

#endif
