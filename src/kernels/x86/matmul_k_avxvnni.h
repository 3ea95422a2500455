/* Packings whose blocks of 256 inputs have a scale for every group of 16 or 32. */
#ifndef TRINE_KERNELS_X86_MATMUL_K_AVXVNNI_H
#define TRINE_KERNELS_X86_MATMUL_K_AVXVNNI_H

#include "kernels/x86/matmul_codes_256.h"
#include "kernels/x86/matmul_panel_avxvnni.h"

enum { BLOCK = 256, BLOCK_QUADS = 64 };

/* -zero * the sums of activations of n_groups groups, a multiple of 8. */
ALWAYS_INLINE void start_groups(const int32_t *act_sum, int n_groups, int zero, int32_t *start)
{
    for (int i = 0; i < n_groups; i += 8) {
        __m256i sums = _mm256_mullo_epi32(load_256(act_sum + i), _mm256_set1_epi32(-zero));
        _mm256_storeu_si256((__m256i *)(start + i), sums);
    }
}

/* Groups of 16 or 32 inputs. */
#define K_GROUP_QUADS(kind) ((kind) == Q2_K || (kind) == Q3_K ? 4 : 8)

/* acc += scale * (start + sum of code * q) over the groups of 32 inputs and n tokens. scale: of each half;
 * start: 0 if NULL, 16 apart. Sums of groups of 16 fit int16, so that one multiply-add of int16 pairs
 * scales and adds, the upper half of a sum being multiplied by that of the scale, zero. */
ALWAYS_INLINE void add_part(enum k_kind kind, const uint8_t *part, const int8_t *q, int64_t stride,
                            const __m256i *scale0, const __m256i *scale1, const int32_t *start,
                            int n, __m256i acc[MAX_TOKENS][2])
{
    const int group_quads = K_GROUP_QUADS(kind);
#pragma GCC unroll 2
    for (int g = 0; g < 8 / group_quads; g++) {
        __m256i dot[MAX_TOKENS][2];
#pragma GCC unroll 4
        for (int t = 0; t < n; t++)
            dot[t][0] = dot[t][1] =
                start ? _mm256_set1_epi32(start[16 * t + g]) : _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int k = g * group_quads; k < (g + 1) * group_quads; k++) {
            __m256i codes0 = unpack_k_quad(kind, part, k);
            __m256i codes1 = unpack_k_quad(kind, part + 32, k);
#pragma GCC unroll 4
            for (int t = 0; t < n; t++)
                add_token_quad(dot[t], codes0, codes1, q + t * stride + 4 * k);
        }
#pragma GCC unroll 4
        for (int t = 0; t < n; t++)
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                __m256i scale = h ? scale1[g] : scale0[g];
                acc[t][h] = group_quads == 4
                                ? _mm256_dpwssd_avx_epi32(acc[t][h], dot[t][h], scale)
                                : _mm256_add_epi32(acc[t][h], _mm256_mullo_epi32(dot[t][h], scale));
            }
    }
}

/* sum (is_first: =, else +=) scale * (sum of code * q over a group, from what start has for it if
 * is_prepared, or SUM_START). line: scales as floats. */
ALWAYS_INLINE void panel_group(const uint8_t *codes, const int8_t *q, const int32_t *start,
                               int64_t start_stride, const float *line, int group_quads,
                               bool is_prepared, bool is_first, int n, __m256 sum[PANEL_TOKENS][2])
{
    __m256i acc[PANEL_TOKENS][2];
#pragma GCC unroll 6
    for (int t = 0; t < n; t++)
        acc[t][0] = acc[t][1] =
            _mm256_set1_epi32(is_prepared ? start[t * start_stride] : SUM_START);
    panel_quads(codes, q, group_quads, n, acc);
#pragma GCC unroll 6
    for (int t = 0; t < n; t++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256 s = float_of_sum(acc[t][h]), scale = _mm256_load_ps(line + 8 * h);
            sum[t][h] = is_first ? _mm256_mul_ps(s, scale) : _mm256_fmadd_ps(s, scale, sum[t][h]);
        }
}

/* sum = that of n_groups groups. Exact, if every sum is below 2^22 and every partial one of the products with
 * scales below 2^24: one fused multiply-add where integers take the two of vpmulld and an addition. */
ALWAYS_INLINE void panel_part(const uint8_t *codes, const int8_t *q, const int32_t *start,
                              int64_t start_stride, const float *lines, int n_groups,
                              int group_quads, bool is_prepared, int n, __m256 sum[PANEL_TOKENS][2])
{
    panel_group(codes, q, start, start_stride, lines, group_quads, is_prepared, true, n, sum);
    for (int g = 1; g < n_groups; g++)
        panel_group(codes + g * group_quads * STEP_BYTES, q + 4 * g * group_quads, start + g,
                    start_stride, lines + g * TILE_ROWS, group_quads, is_prepared, false, n, sum);
}

/* sum = the same over a block, rounded once. n_exact: the groups that panel_part may add. */
ALWAYS_INLINE void panel_block(const struct panel *p, int block, int token, const float *lines,
                               int group_quads, int n_exact, bool is_prepared, int n,
                               __m256 sum[PANEL_TOKENS][2])
{
    const int n_groups = BLOCK_QUADS / group_quads, n_parts = n_groups / n_exact;
    const int64_t stride = p->sum_stride;
    const int8_t *q = p->q + token * PANEL_INPUTS + block * BLOCK;
    const uint8_t *codes = p->codes + block * BLOCK_QUADS * STEP_BYTES;
    const int32_t *start = p->sums + token * stride + block * n_groups;
    const int part_quads = n_exact * group_quads;
    __m256 part[PANEL_TOKENS][2];
    if (n_parts == 2) { /* the sum of two floats is rounded once */
        panel_part(codes, q, start, stride, lines, n_exact, group_quads, is_prepared, n, part);
        panel_part(codes + part_quads * STEP_BYTES, q + 4 * part_quads, start + n_exact, stride,
                   lines + n_exact * TILE_ROWS, n_exact, group_quads, is_prepared, n, sum);
#pragma GCC unroll 6
        for (int t = 0; t < n; t++) {
            sum[t][0] = _mm256_add_ps(part[t][0], sum[t][0]);
            sum[t][1] = _mm256_add_ps(part[t][1], sum[t][1]);
        }
        return;
    }
    __m256i total[PANEL_TOKENS][2];
#pragma GCC unroll 6
    for (int t = 0; t < n; t++)
        total[t][0] = total[t][1] = _mm256_setzero_si256();
    for (int i = 0; i < n_parts; i++, lines += n_exact * TILE_ROWS, start += n_exact) {
        panel_part(codes, q, start, stride, lines, n_exact, group_quads, is_prepared, n, part);
        codes += part_quads * STEP_BYTES;
        q += 4 * part_quads;
#pragma GCC unroll 6
        for (int t = 0; t < n; t++)
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++)
                total[t][h] = _mm256_add_epi32(total[t][h], _mm256_cvtps_epi32(part[t][h]));
    }
#pragma GCC unroll 6
    for (int t = 0; t < n; t++) {
        sum[t][0] = _mm256_cvtepi32_ps(total[t][0]);
        sum[t][1] = _mm256_cvtepi32_ps(total[t][1]);
    }
}

/* sum = the same where codes are products with scales already. */
ALWAYS_INLINE void panel_products(const struct panel *p, int block, int token, int n,
                                  __m256 sum[PANEL_TOKENS][2])
{
    const int8_t *q = p->q + token * PANEL_INPUTS + block * BLOCK;
    const uint8_t *codes = p->codes + block * BLOCK_QUADS * STEP_BYTES;
    __m256i acc[PANEL_TOKENS][2];
#pragma GCC unroll 6
    for (int t = 0; t < n; t++)
        acc[t][0] = acc[t][1] = _mm256_set1_epi32(SUM_START);
    for (int i = 0; i < BLOCK_QUADS; i += 8, codes += 8 * STEP_BYTES, q += 32)
        panel_quads(codes, q, 8, n, acc);
#pragma GCC unroll 6
    for (int t = 0; t < n; t++) {
        sum[t][0] = float_of_sum(acc[t][0]);
        sum[t][1] = float_of_sum(acc[t][1]);
    }
}

/* Bytes of codes (of 8 rows) times an int16 scale twice in each lane, and `more`: all results are bytes. */
ALWAYS_INLINE __m256i scaled_codes(__m256i codes, __m256i scale, __m256i more)
{
    __m256i even = _mm256_and_si256(codes, _mm256_set1_epi16(255));
    __m256i odd = _mm256_srli_epi16(codes, 8);
    even = _mm256_add_epi16(_mm256_mullo_epi16(even, scale), more);
    odd = _mm256_add_epi16(_mm256_mullo_epi16(odd, scale), more);
    return _mm256_or_si256(even, _mm256_slli_epi16(odd, 8));
}

/* sum = over pairs of groups of a block, minimum * sum of activations, below 2^22. lines: the pairs of
 * minimums; p->sums: those of the sums. */
ALWAYS_INLINE void panel_mins(const struct panel *p, int block, int token, const uint8_t *lines,
                              int n_pairs, int n, __m256 sum[PANEL_TOKENS][2])
{
    const int32_t *pairs = p->sums + token * p->sum_stride + block * n_pairs;
    __m256i acc[PANEL_TOKENS][2];
#pragma GCC unroll 6
    for (int t = 0; t < n; t++)
        acc[t][0] = acc[t][1] = _mm256_set1_epi32(SUM_START);
#pragma GCC unroll 8
    for (int i = 0; i < n_pairs; i++, lines += STEP_BYTES) {
        __m256i min[2] = {load_256(lines), load_256(lines + 32)};
#pragma GCC unroll 6
        for (int t = 0; t < n; t++)
            add_token_pair(acc[t], min[0], min[1], pairs + t * p->sum_stride + i);
    }
#pragma GCC unroll 6
    for (int t = 0; t < n; t++) {
        sum[t][0] = float_of_sum(acc[t][0]);
        sum[t][1] = float_of_sum(acc[t][1]);
    }
}

/* state += or -= sum * scale * act scale. */
ALWAYS_INLINE void panel_floats(const float *scales, const float *act_scale, int64_t act_stride,
                                bool is_minus, int n, __m256 sum[PANEL_TOKENS][2],
                                __m256 state[][2])
{
#pragma GCC unroll 6
    for (int t = 0; t < n; t++) {
        __m256 act = _mm256_set1_ps(act_scale[t * act_stride]);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256 scale = _mm256_mul_ps(_mm256_load_ps(scales + 8 * h), act);
            __m256 s = sum[t][h], y = state[t][h];
            state[t][h] = is_minus ? _mm256_fnmadd_ps(s, scale, y) : _mm256_fmadd_ps(s, scale, y);
        }
    }
}

/* Eight integers of a scale, as floats. */
ALWAYS_INLINE __m256i float_line(__m256i scale)
{
    return _mm256_castps_si256(_mm256_cvtepi32_ps(scale));
}

ALWAYS_INLINE void put_line(void *line, int half, __m256i v)
{
    _mm256_store_si256((__m256i *)((uint8_t *)line + 32 * half), v);
}

#endif
