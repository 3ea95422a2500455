/* What is quantised: the floats of a token, or its norm, which is then never stored. */
#ifndef TRINE_KERNELS_TOKEN_SOURCE_H
#define TRINE_KERNELS_TOKEN_SOURCE_H

#include <stdint.h>

/* Element i is x[i], or (x[i] * factor) * gain[i] if there is a gain. */
struct token_source {
    const float *x, *gain;
    float factor;
};

static inline float source_value(const struct token_source *source, int64_t i)
{
    return source->gain ? source->x[i] * source->factor * source->gain[i] : source->x[i];
}

#endif
