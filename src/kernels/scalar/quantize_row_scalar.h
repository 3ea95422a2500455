/* Int8 of one token, as kernels.h defines it. */
#ifndef TRINE_KERNELS_SCALAR_QUANTIZE_ROW_SCALAR_H
#define TRINE_KERNELS_SCALAR_QUANTIZE_ROW_SCALAR_H

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/magnitude.h"
#include "kernels/token_source.h"

/* Bits of the highest magnitude of inputs [begin, end). */
static inline uint32_t group_peak(const struct token_source *source, int64_t begin, int64_t end)
{
    uint32_t highest = 0;
    for (int64_t i = begin; i < end; i++)
        highest = higher_magnitude(highest, source_value(source, i));
    return highest;
}

/* q, zero so far, of inputs [begin, end) and their scale. peak: bits of amax. */
static inline void quantize_to_peak(const struct token_source *source, int64_t begin, int64_t end,
                                    uint32_t peak, int8_t *q, float *scale)
{
    float amax = f32_from_bits(peak);
    bool is_tiny = amax < 0x1p-120f;
    *scale = is_tiny ? 0 : amax / 127;
    if (is_tiny || peak >= 0x7f800000)
        return;
    float factor = 127 / amax;
    for (int64_t i = begin; i < end; i++)
        q[i] = (int8_t)rintf(source_value(source, i) * factor);
}

static inline void quantize_group(const struct token_source *source, int64_t begin, int64_t end,
                                  int8_t *q, float *scale)
{
    quantize_to_peak(source, begin, end, group_peak(source, begin, end), q, scale);
}

/* q, scales and sums of token t. peak: bits of amax, where there is one scale; NULL: that of each
 * group. */
static inline void quantize_row_to(const struct token_source *source, const struct activations *a,
                                   int t, const uint32_t *peak)
{
    int8_t *q = a->q + t * a->stride;
    memset(q, 0, (size_t)a->stride);
    for (int k = 0; k < a->n_scales; k++) {
        int64_t begin = (int64_t)k * a->group;
        int64_t end = a->group && begin + a->group < a->n_cols ? begin + a->group : a->n_cols;
        quantize_to_peak(source, begin, end, peak ? *peak : group_peak(source, begin, end), q,
                         a->scale + (int64_t)t * a->n_scales + k);
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

static inline void quantize_row(const struct token_source *source, const struct activations *a,
                                int t)
{
    quantize_row_to(source, a, t, NULL);
}

#endif
