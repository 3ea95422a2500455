/* Many tokens on AVX2: bytes of codes times int8 in int16 pairs, four tokens at a time. Tokens in the
 * lanes and broadcast codes instead are as fast within 1 %, but need activations in another order and
 * eight tokens at a time (docs/measurements/kernels.md). */
#ifndef TRINE_KERNELS_X86_MATMUL_PANEL_AVX2_H
#define TRINE_KERNELS_X86_MATMUL_PANEL_AVX2_H

#define PANEL_TOKENS 4 /* of a run */
#include "kernels/x86/matmul_panel_256.h"

/* name_1 ... name_4 from an inlined body(panel, token, state, ..., n). */
#define PANEL_RUNS(name, ...)                                                                      \
    PANEL_RUN(name, 1, __VA_ARGS__)                                                                \
    PANEL_RUN(name, 2, __VA_ARGS__)                                                                \
    PANEL_RUN(name, 3, __VA_ARGS__)                                                                \
    PANEL_RUN(name, 4, __VA_ARGS__)
#define PANEL_NAMES(name)                                                                          \
    {                                                                                              \
        name##_1, name##_2, name##_3, name##_4                                                     \
    }

/* acc[t] += products of 4 quads of codes and of n tokens, as int16 pairs; is_first: acc[t] = them. */
ALWAYS_INLINE void panel_quads(const uint8_t *codes, const int8_t *q, int64_t stride, bool is_first,
                               int n, __m256i acc[PANEL_TOKENS][2])
{
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        __m256i codes0 = load_256(codes + k * STEP_BYTES);
        __m256i codes1 = load_256(codes + k * STEP_BYTES + 32);
#pragma GCC unroll 4
        for (int t = 0; t < n; t++) {
            __m256i quad = broadcast_quad(q + t * stride + 4 * k);
            if (is_first && k == 0) {
                acc[t][0] = _mm256_maddubs_epi16(codes0, quad);
                acc[t][1] = _mm256_maddubs_epi16(codes1, quad);
                continue;
            }
            acc[t][0] = add_quad_16(acc[t][0], codes0, quad);
            acc[t][1] = add_quad_16(acc[t][1], codes1, quad);
        }
    }
}

/* acc = products of n_quads quads, a multiple of 4. */
ALWAYS_INLINE void panel_chunk(const uint8_t *codes, const int8_t *q, int64_t stride, int n_quads,
                               int n, __m256i acc[PANEL_TOKENS][2])
{
    panel_quads(codes, q, stride, true, n, acc);
    for (int k = 4; k < n_quads; k += 4)
        panel_quads(codes + k * STEP_BYTES, q + 4 * k, stride, false, n, acc);
}

/* Fields of `bits` bits of both halves of a step to one quad each. */
ALWAYS_INLINE void panel_unpack_step(const uint8_t *step, int bits, uint8_t *codes)
{
    const __m256i mask = _mm256_set1_epi8((char)((1 << bits) - 1));
    _mm_prefetch((const char *)step + PREFETCH_AHEAD, _MM_HINT_T0);
#pragma GCC unroll 2
    for (int half = 0; half < STEP_BYTES; half += 32) {
        __m256i w = load_256(step + half);
#pragma GCC unroll 4
        for (int shift = 0; shift < 8; shift += bits, w = _mm256_srli_epi16(w, bits))
            _mm256_store_si256((__m256i *)(codes + shift / bits * STEP_BYTES + half),
                               _mm256_and_si256(w, mask));
    }
}

/* y = fma((float)sums, scale * act scale, y) of group g, and y = fma(minimum, sum, y) if there are
 * minimums. */
ALWAYS_INLINE void panel_add_group(const struct panel *p, int token, int group, int g, bool has_min,
                                   int n, const __m256i sums[PANEL_TOKENS][2], __m256 state[][2])
{
    const struct activations *a = &p->job->a;
    const float *act_scale = a->scale + (int64_t)token * a->n_scales + p->col0 / group + g;
    __m256 scale0 = _mm256_load_ps(p->scales + g * TILE_ROWS);
    __m256 scale1 = _mm256_load_ps(p->scales + g * TILE_ROWS + 8);
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) {
        float s = act_scale[(int64_t)t * a->n_scales];
        state[t][0] = add_group(state[t][0], sums[t][0], scale0, s);
        state[t][1] = add_group(state[t][1], sums[t][1], scale1, s);
    }
    const float *mins = (const float *)p->extra + g * TILE_ROWS;
    const float *act_sums = (const float *)p->sums + token * p->sum_stride + g;
#pragma GCC unroll 4
    for (int t = 0; has_min && t < n; t++) {
        __m256 sum = _mm256_broadcast_ss(act_sums + t * p->sum_stride);
        state[t][0] = _mm256_fmadd_ps(_mm256_load_ps(mins), sum, state[t][0]);
        state[t][1] = _mm256_fmadd_ps(_mm256_load_ps(mins + 8), sum, state[t][1]);
    }
}

/* Groups with one scale each, and a zero: sum of (code - zero) * q = sum of code * q + zero sum; or a
 * minimum, which panel.extra has. chunk: the quads that int16 pairs can add. */
ALWAYS_INLINE void panel_groups(const struct panel *p, int token, __m256 state[][2], int group,
                                int chunk, bool has_min, int n)
{
    const int32_t *zero_sums = p->sums + token * p->sum_stride;
    const uint8_t *codes = p->codes;
    const int8_t *q = p->q + token * p->stride;
    for (int g = 0; g < p->n / group; g++) {
        __m256i acc[PANEL_TOKENS][2], sums[PANEL_TOKENS][2];
#pragma GCC unroll 4
        for (int t = 0; t < n && !has_min; t++)
            sums[t][0] = sums[t][1] = _mm256_set1_epi32(zero_sums[t * p->sum_stride + g]);
        for (int k = 0; k < group / 4; k += chunk, codes += chunk * STEP_BYTES, q += 4 * chunk) {
            panel_chunk(codes, q, p->stride, chunk, n, acc);
#pragma GCC unroll 4
            for (int t = 0; t < n; t++) {
                __m256i sum[2] = {sum_pairs(acc[t][0]), sum_pairs(acc[t][1])};
                bool is_first = has_min && k == 0;
                sums[t][0] = is_first ? sum[0] : _mm256_add_epi32(sums[t][0], sum[0]);
                sums[t][1] = is_first ? sum[1] : _mm256_add_epi32(sums[t][1], sum[1]);
            }
        }
        panel_add_group(p, token, group, g, has_min, n, sums, state);
    }
}

#endif
