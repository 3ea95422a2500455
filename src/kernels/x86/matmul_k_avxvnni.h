/* Many tokens of packings whose blocks of 256 inputs have a scale for every group of 16 or 32: q6_k,
 * q4_k, q5_k, q2_k. */
#ifndef TRINE_KERNELS_X86_MATMUL_K_AVXVNNI_H
#define TRINE_KERNELS_X86_MATMUL_K_AVXVNNI_H

#include "kernels/x86/matmul_panel_avxvnni.h"

enum { BLOCK = 256, BLOCK_QUADS = 64 };

/* sum += over the groups of a block, scale * (sum of code * q, plus what p->sums has for the group
 * if is_prepared). lines: the scales. is_narrow: sums fit int16, so that one multiply-add of int16 pairs
 * scales and adds, the upper half of a sum being multiplied by that of the scale, zero. */
ALWAYS_INLINE void panel_block(const struct panel *p, int block, int token, const uint8_t *lines,
                               int group_quads, bool is_prepared, bool is_narrow, int n,
                               __m256i sum[PANEL_TOKENS][2])
{
    const int n_groups = BLOCK_QUADS / group_quads;
    const int64_t stride = p->sum_stride;
    const int8_t *q = p->q + token * PANEL_INPUTS + block * BLOCK;
    const uint8_t *codes = p->codes + block * BLOCK_QUADS * STEP_BYTES;
    const int32_t *start = p->sums + token * stride + block * n_groups;
    for (int g = 0; g < n_groups; g++, lines += STEP_BYTES) {
        __m256i acc[PANEL_TOKENS][2];
#pragma GCC unroll 6
        for (int t = 0; t < n; t++)
            acc[t][0] = acc[t][1] = _mm256_set1_epi32(is_prepared ? start[t * stride + g] : 0);
#pragma GCC unroll 2
        for (int i = 0; i < group_quads; i += 4, codes += 4 * STEP_BYTES, q += 16)
            panel_quads(codes, q, 4, n, acc);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256i scale = load_256(lines + 32 * h);
#pragma GCC unroll 6
            for (int t = 0; t < n; t++)
                sum[t][h] = is_narrow
                                ? _mm256_dpwssd_avx_epi32(sum[t][h], acc[t][h], scale)
                                : _mm256_add_epi32(sum[t][h], _mm256_mullo_epi32(acc[t][h], scale));
        }
    }
}

/* sum += over pairs of groups of a block, minimum * sum of activations. lines: the pairs of minimums;
 * p->sums: those of the sums. */
ALWAYS_INLINE void panel_mins(const struct panel *p, int block, int token, const uint8_t *lines,
                              int n_pairs, int n, __m256i sum[PANEL_TOKENS][2])
{
    const int32_t *pairs = p->sums + token * p->sum_stride + block * n_pairs;
#pragma GCC unroll 8
    for (int i = 0; i < n_pairs; i++, lines += STEP_BYTES) {
        __m256i min[2] = {load_256(lines), load_256(lines + 32)};
#pragma GCC unroll 6
        for (int t = 0; t < n; t++) {
            __m256i sums = _mm256_set1_epi32(pairs[t * p->sum_stride + i]);
            sum[t][0] = _mm256_dpwssd_avx_epi32(sum[t][0], min[0], sums);
            sum[t][1] = _mm256_dpwssd_avx_epi32(sum[t][1], min[1], sums);
        }
    }
}

ALWAYS_INLINE void clear_sums(__m256i sum[PANEL_TOKENS][2], int n)
{
#pragma GCC unroll 6
    for (int t = 0; t < n; t++)
        sum[t][0] = sum[t][1] = _mm256_setzero_si256();
}

/* state += or -= sum * scale * act scale. */
ALWAYS_INLINE void panel_floats(const float *scales, const float *act_scale, int64_t act_stride,
                                bool is_minus, int n, __m256i sum[PANEL_TOKENS][2],
                                __m256 state[][2])
{
#pragma GCC unroll 6
    for (int t = 0; t < n; t++) {
        __m256 act = _mm256_set1_ps(act_scale[t * act_stride]);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256 scale = _mm256_mul_ps(_mm256_load_ps(scales + 8 * h), act);
            __m256 s = _mm256_cvtepi32_ps(sum[t][h]), y = state[t][h];
            state[t][h] = is_minus ? _mm256_fnmadd_ps(s, scale, y) : _mm256_fmadd_ps(s, scale, y);
        }
    }
}

ALWAYS_INLINE void put_line(void *line, int half, __m256i v)
{
    _mm256_store_si256((__m256i *)((uint8_t *)line + 32 * half), v);
}

#endif
