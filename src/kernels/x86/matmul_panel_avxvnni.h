/* Many tokens on AVX-VNNI, six at a time: 12 of 16 registers are sums. */
#ifndef TRINE_KERNELS_X86_MATMUL_PANEL_AVXVNNI_H
#define TRINE_KERNELS_X86_MATMUL_PANEL_AVXVNNI_H

#include "kernels/x86/matmul_avxvnni.h"
#include "kernels/x86/sum_as_float.h"

#define PANEL_TOKENS 6 /* of a run at most */
#include "kernels/x86/matmul_panel_256.h"

/* name_1 ... name_6 from an inlined body(panel, token, state, ..., n). */
#define PANEL_RUNS(name, ...)                                                                      \
    PANEL_RUN(name, 1, __VA_ARGS__)                                                                \
    PANEL_RUN(name, 2, __VA_ARGS__)                                                                \
    PANEL_RUN(name, 3, __VA_ARGS__)                                                                \
    PANEL_RUN(name, 4, __VA_ARGS__)                                                                \
    PANEL_RUN(name, 5, __VA_ARGS__)                                                                \
    PANEL_RUN(name, 6, __VA_ARGS__)
#define PANEL_NAMES(name)                                                                          \
    {                                                                                              \
        name##_1, name##_2, name##_3, name##_4, name##_5, name##_6                                 \
    }

/* acc += n_quads quads of codes times n tokens. */
ALWAYS_INLINE void panel_quads(const uint8_t *codes, const int8_t *q, int n_quads, int n,
                               __m256i acc[PANEL_TOKENS][2])
{
#pragma GCC unroll 8
    for (int i = 0; i < n_quads; i++) {
        __m256i codes0 = load_256(codes + i * STEP_BYTES);
        __m256i codes1 = load_256(codes + i * STEP_BYTES + 32);
#pragma GCC unroll 6
        for (int t = 0; t < n; t++)
            add_token_quad(acc[t], codes0, codes1, q + t * PANEL_INPUTS + 4 * i);
    }
}

/* Of a sum below 2^22 that began with SUM_START (less zero * sum of q). */
ALWAYS_INLINE __m256 float_of_sum(__m256i sum)
{
    return _mm256_sub_ps(_mm256_castsi256_ps(sum), _mm256_set1_ps(SUM_START_FLOAT));
}

/* Groups with one scale each, and starts of sums or minimums, which panel.extra has; the state is
 * floats. It is added to in memory: as a copy of its own gcc moved it by `rep movs`, which took as long
 * as a quarter of the products. */
ALWAYS_INLINE void panel_groups(const struct panel *p, int token, __m256 state[][2], int group,
                                bool has_min, int n)
{
    const int64_t act_stride = p->job->a.n_scales, stride = p->sum_stride;
    const int8_t *q = p->q + token * PANEL_INPUTS;
    const float *act_scale = p->job->a.scale + token * act_stride + p->col0 / group;
    const int32_t *start = p->sums + token * stride;
    const uint8_t *codes = p->codes;
    const float *scales = p->scales, *end = scales + p->n / group * TILE_ROWS;
    const float *mins = (const float *)p->extra;
    for (; scales < end; scales += TILE_ROWS, mins += TILE_ROWS, start++, act_scale++) {
        __m256i acc[PANEL_TOKENS][2];
#pragma GCC unroll 6
        for (int t = 0; t < n; t++)
            acc[t][0] = acc[t][1] = _mm256_set1_epi32(has_min ? SUM_START : start[t * stride]);
#pragma GCC unroll 2
        for (int i = 0; i < group; i += 16, codes += 4 * STEP_BYTES, q += 16)
            panel_quads(codes, q, 4, n, acc);
#pragma GCC unroll 6
        for (int t = 0; t < n; t++) {
            __m256 act = _mm256_set1_ps(act_scale[t * act_stride]);
            __m256 sum = _mm256_castsi256_ps(_mm256_set1_epi32(start[t * stride]));
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                __m256 scale = _mm256_mul_ps(_mm256_load_ps(scales + 8 * h), act);
                __m256 y = _mm256_fmadd_ps(float_of_sum(acc[t][h]), scale, state[t][h]);
                state[t][h] = has_min ? _mm256_fmadd_ps(_mm256_load_ps(mins + 8 * h), sum, y) : y;
            }
        }
    }
}

#endif
