/* Int8 of one token by 16 lanes. Include after one of the lanes headers. */
#ifndef TRINE_KERNELS_LANES_QUANTIZE_BODY_H
#define TRINE_KERNELS_LANES_QUANTIZE_BODY_H

#include <string.h>

#include "kernels/kernels.h"
#include "kernels/magnitude.h"
#include "kernels/token_source.h"

/* Elements i .. i + 15 of the source, zeros from `end` on. */
static inline struct lanes source_lanes(const struct token_source *source, int64_t i, int64_t end)
{
    struct lanes x = lanes_load_n(source->x + i, end - i);
    if (!source->gain)
        return x;
    return lanes_mul(lanes_mul(x, lanes_set(source->factor)),
                     lanes_load_n(source->gain + i, end - i));
}

/* Bits of the highest magnitude of inputs [begin, end). */
static inline uint32_t group_peak(const struct token_source *source, int64_t begin, int64_t end)
{
    struct lanes highest = lanes_set(0);
    for (int64_t i = begin; i < end; i += 16)
        highest = lanes_max_magnitude(highest, source_lanes(source, i, end));
    return lanes_highest_bits(highest);
}

/* Inputs [begin, end) and their scale. Writes whole 16s of q. peak: bits of amax. */
static inline void quantize_to_peak(const struct token_source *source, int64_t begin, int64_t end,
                                    uint32_t peak, int8_t *q, float *scale)
{
    float amax = f32_from_bits(peak);
    bool is_tiny = amax < 0x1p-120f;
    *scale = is_tiny ? 0 : amax / 127;
    if (is_tiny || peak >= 0x7f800000) {
        for (int64_t i = begin; i < end; i += 16)
            memset(q + i, 0, 16);
        return;
    }
    struct lanes factor = lanes_set(127 / amax);
    for (int64_t i = begin; i < end; i += 16)
        lanes_store_int8(q + i, lanes_mul(source_lanes(source, i, end), factor));
}

static inline void quantize_group(const struct token_source *source, int64_t begin, int64_t end,
                                  int8_t *q, float *scale)
{
    quantize_to_peak(source, begin, end, group_peak(source, begin, end), q, scale);
}

/* Token t. peak: bits of amax, where there is one scale; NULL: that of each group. */
static inline void quantize_row_to(const struct token_source *source, const struct activations *a,
                                   int t, const uint32_t *peak)
{
    int8_t *q = a->q + t * a->stride;
    int64_t written = (a->n_cols + 15) / 16 * 16;
    memset(q + written, 0, (size_t)(a->stride - written));
    for (int k = 0; k < a->n_scales; k++) {
        int64_t begin = (int64_t)k * a->group;
        int64_t end = a->group && begin + a->group < a->n_cols ? begin + a->group : a->n_cols;
        quantize_to_peak(source, begin, end, peak ? *peak : group_peak(source, begin, end), q,
                         a->scale + (int64_t)t * a->n_scales + k);
    }
    for (int k = 0; k < a->n_sums; k++) {
        int64_t begin = (int64_t)k * a->sum_group, n = a->sum_group ? a->sum_group : a->stride;
        n = begin + n <= a->stride ? n : a->stride - begin;
        a->sum[(int64_t)t * a->n_sums + k] = n > 0 ? sum_of_bytes(q + begin, n) : 0;
    }
}

static inline void quantize_row(const struct token_source *source, const struct activations *a,
                                int t)
{
    quantize_row_to(source, a, t, NULL);
}

static inline void quantize_body(const struct quantize_job *j, int begin, int end)
{
    for (int t = begin; t < end; t++) {
        struct token_source source = {j->x + t * j->x_stride, j->gain, 1};
        uint32_t peak = highest_peak(j->peaks, j->n_peaks, t);
        if (j->a.q)
            quantize_row_to(&source, &j->a, t, j->n_peaks > 0 ? &peak : NULL);
        for (int64_t i = 0; !j->a.q && i < j->a.n_cols; i += 16)
            lanes_store_n(j->a.x + t * j->a.stride + i, source_lanes(&source, i, j->a.n_cols),
                          j->a.n_cols - i);
    }
}

static inline void peak_body(const struct peak_job *j, int begin, int end)
{
    for (int t = begin; t < end; t++) {
        struct token_source source = {j->x + t * j->x_stride, j->gain, 1};
        j->peaks[t] = f32_from_bits(group_peak(&source, 0, j->n_cols));
    }
}

#endif
