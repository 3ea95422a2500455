/* Packings of blocks of 256 whose groups have a minimum beside their scale (q4_k, q5_k, q2_k), or a
 * signed scale and codes with an offset, which is a minimum as well (q3_k, iq4_xs). */
#ifndef TRINE_KERNELS_X86_MATMUL_MINS_AVX512_H
#define TRINE_KERNELS_X86_MATMUL_MINS_AVX512_H

#include "kernels/x86/matmul_panel_walk_avx512.h"
#include "kernels/x86/sub_sums.h"

/* Sum over the n_groups groups of a block of minimum * sum of activations. min: n_groups / 2 pairs in
 * the order of pair_sums. */
INLINE __m512i mins_times(const __m512i *min, const int32_t *act_sum, const int n_groups)
{
    __m512i low = _mm512_setzero_si512();
    UNROLL
    for (int i = 0; i < n_groups / 8; i++) {
        __m512i all = _mm512_broadcast_i32x4(pair_sums(act_sum + 8 * i));
        low = _mm512_dpwssd_epi32(low, min[4 * i], _mm512_shuffle_epi32(all, 0x00));
        low = _mm512_dpwssd_epi32(low, min[4 * i + 1], _mm512_shuffle_epi32(all, 0x55));
        low = _mm512_dpwssd_epi32(low, min[4 * i + 2], _mm512_shuffle_epi32(all, 0xaa));
        low = _mm512_dpwssd_epi32(low, min[4 * i + 3], _mm512_shuffle_epi32(all, 0xff));
    }
    return low;
}

/* y += sum * d * act scale - (sum of minimum * sum of activations) * dmin * act scale, of block b
 * whose unit begins with d and dmin. */
INLINE void few_min_block(const struct activations *a, int token, int64_t b, const uint8_t *unit,
                          const __m512i *min, const int n_groups, const __m512i sum[MAX_FEW],
                          const int n_tokens, __m512 y[MAX_FEW])
{
    __m512 d = halves_at(unit), dmin = halves_at(unit + 32);
    UNROLL
    for (int t = 0; t < n_tokens; t++) {
        const int32_t *act_sum = a->sum + (int64_t)(token + t) * a->n_sums + b * n_groups;
        __m512 act_scale = _mm512_set1_ps(a->scale[(int64_t)(token + t) * a->n_scales + b]);
        __m512i low = mins_times(min, act_sum, n_groups);
        y[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[t]), _mm512_mul_ps(d, act_scale), y[t]);
        y[t] = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(low), _mm512_mul_ps(dmin, act_scale), y[t]);
    }
}

/* y += (sum - 2^shift * sum of scale * sum of activations) * d * act scale, of block b whose unit begins
 * with d: sum is of codes that are 2^shift too large. scale: as the minimums above. */
INLINE void few_signed_block(const struct activations *a, int token, int64_t b, const uint8_t *unit,
                             const __m512i *scale, const int n_groups, const int shift,
                             const __m512i sum[MAX_FEW], const int n_tokens, __m512 y[MAX_FEW])
{
    __m512 d = halves_at(unit);
    UNROLL
    for (int t = 0; t < n_tokens; t++) {
        const int32_t *act_sum = a->sum + (int64_t)(token + t) * a->n_sums + b * n_groups;
        __m512 act_scale = _mm512_set1_ps(a->scale[(int64_t)(token + t) * a->n_scales + b]);
        __m512i offset = _mm512_slli_epi32(mins_times(scale, act_sum, n_groups), shift);
        __m512i s = _mm512_sub_epi32(sum[t], offset);
        y[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s), _mm512_mul_ps(d, act_scale), y[t]);
    }
}

/* Signed bytes of each lane as pairs of int16 in the order of pair_sums. */
INLINE void signed_pairs(__m512i bytes, __m512i pair[2])
{
    pair[0] = _mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8);
    pair[1] = _mm512_srai_epi16(bytes, 8);
}

/* Byte i of each lane, four times. */
INLINE __m512i spread_byte(__m512i bytes, int i)
{
    const __m512i first =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
    return _mm512_shuffle_epi8(bytes, _mm512_add_epi8(first, _mm512_set1_epi8((char)i)));
}

/* `to` + weight where bit `bit` of each byte is set. */
INLINE __m512i add_where(__m512i to, __m512i bytes, const int bit, __m512i weight)
{
    __mmask64 is_set = _mm512_test_epi8_mask(bytes, _mm512_set1_epi8((char)(1 << bit)));
    return _mm512_mask_add_epi8(to, is_set, to, weight);
}

/* Accumulators of a run of blocks; runs of 2 tiles x 7 tokens have two sets of them. */
typedef __m512i panel_sums[PANEL_TOKENS][PANEL_TILES];

INLINE void set_sums(const int value, const int n_tiles, const int n_tokens, panel_sums sum)
{
    UNROLL
    for (int t = 0; t < n_tokens; t++) {
        UNROLL
        for (int k = 0; k < n_tiles; k++)
            sum[t][k] = _mm512_set1_epi32(value);
    }
}

/* sum += over a block, byte * q: bytes that hold scale * code. */
INLINE void panel_scaled_codes(const struct panel *p, int64_t b, int token, const int n_tiles,
                               const int n_tokens, panel_sums sum)
{
    struct token_rows rows = token_rows(p, token, b * 256, n_tokens);
    const uint8_t *codes = p->codes + b * 64 * n_tiles * STEP_BYTES;
    for (int i = 0; i < 256; i += 16, codes += 4 * n_tiles * STEP_BYTES)
        panel_quads(codes, &rows, n_tiles, n_tokens, sum);
}

/* sum += over the groups of block b, minimum * sum of activations; mins: n_pairs lines of a tile. */
INLINE void panel_mins(const struct panel *p, int64_t b, int token, const int16_t *mins,
                       const int n_pairs, const int n_tiles, const int n_tokens, panel_sums sum)
{
    struct token_rows pairs =
        rows_at(p->zero_sums + token * p->zero_stride + b * n_pairs, p->zero_stride * 4, n_tokens);
    for (int i = 0; i < n_pairs; i++) {
        __m512i min[PANEL_TILES];
        UNROLL
        for (int k = 0; k < n_tiles; k++, mins += 2 * TILE_ROWS)
            min[k] = _mm512_loadu_si512(mins);
        UNROLL
        for (int t = 0; t < n_tokens; t++) {
            __m512i sums = quad_at(row_of(&pairs, t));
            UNROLL
            for (int k = 0; k < n_tiles; k++)
                __asm__("vpdpwssd %2, %1, %0" : "+v"(sum[t][k]) : "v"(min[k]), "v"(sums));
        }
        rows_advance(&pairs, n_tokens, 4);
    }
}

/* y += or -= sum * scale * act scale, of block b. */
INLINE void panel_floats(const struct panel *p, int64_t b, int token, const float *scales,
                         const bool is_minus, const int n_tiles, const int n_tokens, panel_sums sum,
                         __m512i *state)
{
    const struct activations *a = &p->job->a;
    const float *first = a->scale + (int64_t)token * a->n_scales + p->col0 / 256 + b;
    struct token_rows act_scales = rows_at(first, (int64_t)a->n_scales * 4, n_tokens);
    UNROLL
    for (int t = 0; t < n_tokens; t++) {
        __m512 x = _mm512_castsi512_ps(quad_at(row_of(&act_scales, t)));
        UNROLL
        for (int k = 0; k < n_tiles; k++) {
            __m512 scale = _mm512_mul_ps(_mm512_loadu_ps(scales + k * TILE_ROWS), x);
            __m512 s = _mm512_cvtepi32_ps(sum[t][k]), *y = (__m512 *)state + t * n_tiles + k;
            *y = is_minus ? _mm512_fnmadd_ps(s, scale, *y) : _mm512_fmadd_ps(s, scale, *y);
        }
    }
}

/* Pairs of the sums of a panel's activations. */
static inline void panel_pair_sums(const struct panel *p, int n_groups)
{
    const struct activations *a = &p->job->a;
    int64_t n = p->n / 256 * n_groups;
    for (int t = 0; t < p->job->n_tokens; t++) {
        const int32_t *sums = a->sum + (int64_t)t * a->n_sums + p->col0 / 256 * n_groups;
        store_pair_sums(sums, n, p->zero_sums + t * p->zero_stride);
    }
}

#endif
