/* Int8 of one token, as kernels.h defines it. */
#ifndef TRINE_KERNELS_SCALAR_QUANTIZE_ROW_SCALAR_H
#define TRINE_KERNELS_SCALAR_QUANTIZE_ROW_SCALAR_H

#include <math.h>
#include <string.h>

#include "base/float16.h"
#include "kernels/kernels.h"
#include "kernels/token_source.h"

/* q, zero so far, of inputs [begin, end) and their scale. Magnitudes are compared as integers: the
 * order is that of the numbers, and NaN comes above infinity. */
static inline void quantize_group(const struct token_source *source, int64_t begin, int64_t end,
                                  int8_t *q, float *scale)
{
    uint32_t highest = 0;
    for (int64_t i = begin; i < end; i++) {
        uint32_t magnitude = bits_from_f32(source_value(source, i)) & 0x7fffffff;
        highest = magnitude > highest ? magnitude : highest;
    }
    float amax = f32_from_bits(highest);
    bool is_tiny = amax < 0x1p-120f;
    *scale = is_tiny ? 0 : amax / 127;
    if (is_tiny || highest >= 0x7f800000)
        return;
    float factor = 127 / amax;
    for (int64_t i = begin; i < end; i++)
        q[i] = (int8_t)rintf(source_value(source, i) * factor);
}

/* q, scales and sums of token t. */
static inline void quantize_row(const struct token_source *source, const struct activations *a,
                                int t)
{
    int8_t *q = a->q + t * a->stride;
    memset(q, 0, (size_t)a->stride);
    for (int k = 0; k < a->n_scales; k++) {
        int64_t begin = (int64_t)k * a->group;
        int64_t end = a->group && begin + a->group < a->n_cols ? begin + a->group : a->n_cols;
        float *scale = a->scale + (int64_t)t * a->n_scales + k;
        *scale = 0;
        if (begin < end)
            quantize_group(source, begin, end, q, scale);
    }
    for (int k = 0; k < a->n_sums; k++) {
        int64_t begin = (int64_t)k * a->sum_group;
        int64_t end = a->sum_group ? begin + a->sum_group : a->stride;
        int32_t sum = 0;
        for (int64_t i = begin; i < end && i < a->stride; i++)
            sum += q[i];
        a->sum[(int64_t)t * a->n_sums + k] = sum;
    }
}

#endif
