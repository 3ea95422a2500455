/* How well a model foresees a text. */
#ifndef TRINE_MEASURE_PERPLEXITY_H
#define TRINE_MEASURE_PERPLEXITY_H

#include "measure/mean.h"

/* log(sum of exp(logits[i])), in double. */
double log_sum_exp(const float *logits, int n);

/* What llama-perplexity scores of a text that is cut into chunks of n_ctx tokens: each token behind
 * the first half, which is there to give the model something to go by.
 *   tokens [chunk_first(n_ctx), n_ctx) of every chunk, each given those before it */
static inline int chunk_first(int n_ctx)
{
    return n_ctx / 2 + 1;
}

/* Scored tokens of a chunk; positive from 3 tokens on. */
static inline int chunk_scored(int n_ctx)
{
    return n_ctx - chunk_first(n_ctx);
}

#define MIN_CHUNK 3

/* Perplexity of the mean negative log likelihood per token, in nats, and its standard error.
 *   exp(mean),  exp(mean) * error of the mean */
double perplexity_of(const struct mean *nll);
double perplexity_error(const struct mean *nll);

#endif
