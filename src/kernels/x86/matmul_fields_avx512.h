/* Packings whose bytes are 4, 2 or 1 fields of 2, 4 or 8 bits, two groups of scales a unit: trits4,
 * q4_0, q8_0. Few tokens: a field is masked in place, so it counts 2^k times; every place has an
 * accumulator of its own, shifted back (exactly) where the group ends. */
#ifndef TRINE_KERNELS_X86_MATMUL_FIELDS_AVX512_H
#define TRINE_KERNELS_X86_MATMUL_FIELDS_AVX512_H

#include "kernels/x86/matmul_panel_avx512.h"

INLINE void fields_step(const uint8_t *step, const int8_t *q, int64_t stride, const int bits,
                        const int n_tokens, __m512i acc[MAX_FEW][4])
{
    __m512i v = _mm512_loadu_si512(step);
    UNROLL
    for (int f = 0; f < 8 / bits; f++) {
        const int mask = ((1 << bits) - 1) << f * bits;
        __m512i field = bits == 8 ? v : _mm512_and_si512(v, _mm512_set1_epi8((char)mask));
        UNROLL
        for (int t = 0; t < n_tokens; t++)
            acc[t][f] = add_quad(acc[t][f], field, q + t * stride + 4 * f);
    }
}

INLINE void fields_clear(const int n_tokens, __m512i acc[MAX_FEW][4])
{
    UNROLL
    for (int t = 0; t < n_tokens; t++) {
        UNROLL
        for (int f = 0; f < 4; f++)
            acc[t][f] = _mm512_setzero_si512();
    }
}

INLINE void fields_join(const int bits, const int n_tokens, __m512i acc[MAX_FEW][4],
                        __m512i sum[MAX_FEW])
{
    UNROLL
    for (int t = 0; t < n_tokens; t++) {
        sum[t] = acc[t][8 / bits - 1];
        UNROLL
        for (int f = 8 / bits - 1; f > 0; f--)
            sum[t] = _mm512_add_epi32(_mm512_srai_epi32(sum[t], bits), acc[t][f - 1]);
    }
}

/* One tile of a matrix with a scale per group. zero: the code of value 0. */
INLINE void fields_grouped_tile(const struct matmul_job *job, int64_t tile, int token,
                                const int bits, const int zero, const int n_tokens)
{
    const uint8_t *w = tile_at(job, tile), *scales = w;
    struct fetch fetch = fetch_behind(job, tile, token);
    const int8_t *q = job->a.q + token * job->a.stride;
    const int steps_at_once = n_tokens <= 2 ? 4 : 1;
    int n_steps = job->w.group * bits / 32; /* a multiple of 4 */
    __m512 y[MAX_FEW];
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        y[t] = _mm512_setzero_ps();
    for (int64_t g = 0; g < job->w.n_cols / job->w.group; g++) {
        if (g % 2 == 0) {
            scales = w;
            w += STEP_BYTES;
        }
        __m512i acc[MAX_FEW][4], sum[MAX_FEW];
        fields_clear(n_tokens, acc);
        fetch_lines(&fetch, n_steps);
        for (int s = 0; s < n_steps; s += steps_at_once) {
            UNROLL
            for (int i = 0; i < steps_at_once; i++) {
                fetch_ahead(w, n_tokens);
                fields_step(w, q, job->a.stride, bits, n_tokens, acc);
                w += STEP_BYTES;
                q += 32 / bits;
            }
        }
        fields_join(bits, n_tokens, acc, sum);
        add_group(&job->a, token, g, halves_at(scales + g % 2 * 32), n_tokens, zero, sum, y);
    }
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        finish_floats(job, tile, token + t, y[t]);
}

/* Unpacks n inputs from col0 (at a unit) of a tile: codes to every pitch-th byte of 64, scales to
 * every pitch-th float of 16. */
INLINE void fields_unpack(const struct matmul_job *job, int64_t tile, int64_t col0, int64_t n,
                          const int bits, int pitch, uint8_t *codes, float *scales)
{
    const int step_inputs = 32 / bits;
    int group = job->w.group;
    const uint8_t *w = tile_at(job, tile) + col0 / step_inputs * STEP_BYTES;
    w += group ? col0 / (2 * group) * STEP_BYTES : STEP_BYTES;
    __m512i mask = _mm512_set1_epi8((char)((1 << bits) - 1));
    for (int64_t i = 0; i < n; i += step_inputs, w += STEP_BYTES) {
        if (group && i % (2 * group) == 0) {
            for (int64_t k = 0; k < 2 && i + k * group < n; k++, scales += pitch * TILE_ROWS)
                _mm512_storeu_ps(scales, halves_at(w + 32 * k));
            w += STEP_BYTES;
        }
        prefetch(w);
        __m512i step = _mm512_loadu_si512(w);
        UNROLL
        for (int f = 0; f < 8 / bits; f++, codes += pitch * STEP_BYTES)
            _mm512_storeu_si512(
                codes,
                bits == 8 ? step : _mm512_and_si512(_mm512_srli_epi16(step, bits * f), mask));
    }
}

#endif
