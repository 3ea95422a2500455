/* Packings of blocks of 256 whose groups have a minimum beside their scale (q4_k, q5_k, q2_k), or a
 * signed scale and codes with an offset, which is a minimum as well (q3_k, iq4_xs). */
#ifndef TRINE_KERNELS_X86_MATMUL_MINS_AVX2_H
#define TRINE_KERNELS_X86_MATMUL_MINS_AVX2_H

#include "kernels/x86/matmul_avx2.h"
#include "kernels/x86/sub_sums.h"

/* Of up to 16 groups, for the rows of one half: a scale twice in each lane, and pairs of minimums in
 * the order of pair_sums. */
struct sub_scales {
    __m256i scale[16], min[8];
};

/* The four bytes of each lane as pairs of the same. */
ALWAYS_INLINE void split_scales(__m256i bytes, __m256i scale[4])
{
    const char no = -128; /* a zero */
    const __m256i first = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, no, 0, no, 4, no, 4, no, 8, no, 8, no, 12, no, 12, no));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        scale[i] = _mm256_shuffle_epi8(bytes, _mm256_add_epi8(first, _mm256_set1_epi16((short)i)));
}

ALWAYS_INLINE void split_mins(__m256i bytes, __m256i min[2])
{
    const __m256i even = _mm256_set1_epi16(255);
    min[0] = _mm256_and_si256(bytes, even);
    min[1] = _mm256_srli_epi16(bytes, 8);
}

/* Of q4_k and q5_k. lines: of the half. */
ALWAYS_INLINE void unpack_6_bit_scales(const uint8_t *lines, struct sub_scales *to)
{
    const __m256i low_6 = _mm256_set1_epi8(63), low_4 = _mm256_set1_epi8(15);
    const __m256i top_2 = _mm256_set1_epi8(48);
    __m256i scales = load_256(lines), mins = load_256(lines + STEP_BYTES);
    __m256i rest = load_256(lines + 2 * STEP_BYTES);
    split_scales(_mm256_and_si256(scales, low_6), to->scale);
    split_mins(_mm256_and_si256(mins, low_6), to->min);
    scales = _mm256_and_si256(_mm256_srli_epi16(scales, 2), top_2);
    mins = _mm256_and_si256(_mm256_srli_epi16(mins, 2), top_2);
    split_scales(_mm256_or_si256(scales, _mm256_and_si256(rest, low_4)), to->scale + 4);
    rest = _mm256_and_si256(_mm256_srli_epi16(rest, 4), low_4);
    split_mins(_mm256_or_si256(mins, rest), to->min + 2);
}

/* Of q2_k. */
ALWAYS_INLINE void unpack_4_bit_scales(const uint8_t *lines, struct sub_scales *to)
{
    const __m256i low_4 = _mm256_set1_epi8(15);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m256i line = load_256(lines + i * STEP_BYTES);
        split_scales(_mm256_and_si256(line, low_4), to->scale + 4 * i);
        split_mins(_mm256_and_si256(_mm256_srli_epi16(line, 4), low_4), to->min + 2 * i);
    }
}

/* split_scales and split_mins of signed bytes. */
ALWAYS_INLINE void split_signed(__m256i bytes, __m256i scale[4])
{
    const char no = -128;
    const __m256i first = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(no, 0, no, 0, no, 4, no, 4, no, 8, no, 8, no, 12, no, 12));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m256i place = _mm256_add_epi8(first, _mm256_set1_epi16((short)(i << 8)));
        scale[i] = _mm256_srai_epi16(_mm256_shuffle_epi8(bytes, place), 8);
    }
}

ALWAYS_INLINE void split_signed_mins(__m256i bytes, __m256i min[2])
{
    min[0] = _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8);
    min[1] = _mm256_srai_epi16(bytes, 8);
}

/* Of q3_k. lines: of the half. */
ALWAYS_INLINE void unpack_q3_k_scales(const uint8_t *lines, struct sub_scales *to)
{
    const __m256i low_4 = _mm256_set1_epi8(15), top_2 = _mm256_set1_epi8(48);
    __m256i high = load_256(lines + 2 * STEP_BYTES);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m256i low = load_256(lines + i % 2 * STEP_BYTES);
        low = _mm256_and_si256(_mm256_srli_epi16(low, i / 2 * 4), low_4);
        __m256i top =
            i < 2 ? _mm256_slli_epi16(high, 4 - 2 * i) : _mm256_srli_epi16(high, 2 * i - 4);
        __m256i scale = _mm256_or_si256(low, _mm256_and_si256(top, top_2));
        scale = _mm256_sub_epi8(scale, _mm256_set1_epi8(32));
        split_signed(scale, to->scale + 4 * i);
        split_signed_mins(scale, to->min + 2 * i);
    }
}

/* Of iq4_xs, for one half of the rows: each scale of 8 groups twice in each lane. */
ALWAYS_INLINE void unpack_iq4_xs_scales(const uint8_t *unit, int half, __m256i scale[8])
{
    const __m256i low_4 = _mm256_set1_epi8(15), top_2 = _mm256_set1_epi8(48);
    __m256i lower = load_256(unit + 64 + 32 * half);
    __m256i upper =
        _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(unit + 32 + 16 * half)));
    /* Nibble i to byte i. */
    upper = _mm256_or_si256(upper, _mm256_slli_epi32(upper, 8));
    upper = _mm256_and_si256(upper, _mm256_set1_epi32(0x00ff00ff));
    upper = _mm256_or_si256(upper, _mm256_slli_epi32(upper, 4));
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        __m256i top = _mm256_and_si256(_mm256_slli_epi32(upper, 4 - 2 * i), top_2);
        __m256i low = _mm256_and_si256(_mm256_srli_epi32(lower, 4 * i), low_4);
        __m256i bytes = _mm256_sub_epi8(_mm256_or_si256(top, low), _mm256_set1_epi8(32));
        split_signed(bytes, scale + 4 * i);
    }
}

/* low = - sum over the groups of a block of minimum * sum of activations. pairs: of those sums. */
ALWAYS_INLINE void mins_times(const struct sub_scales subs[2], const int32_t *pairs, int n_groups,
                              __m256i low[2])
{
    low[0] = low[1] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int i = 0; i < n_groups / 2; i++) {
        __m256i sums = _mm256_set1_epi32(pairs[i]);
        low[0] = _mm256_sub_epi32(low[0], _mm256_madd_epi16(subs[0].min[i], sums));
        low[1] = _mm256_sub_epi32(low[1], _mm256_madd_epi16(subs[1].min[i], sums));
    }
}

/* y += sum * d * act scale - (sum of minimum * sum of activations) * dmin * act scale. acc: the sums
 * over a block; its unit begins with d and dmin. pairs: sums of activations, pair_stride apart. */
ALWAYS_INLINE void add_min_pairs(const struct activations *a, const uint8_t *unit,
                                 const struct sub_scales subs[2], int n_groups, int block,
                                 int token, const int32_t *pairs, int pair_stride, int n,
                                 __m256i acc[][2], __m256 y[][2])
{
    const float *act_scale = a->scale + (int64_t)token * a->n_scales + block;
    __m256 d[2] = {f16_scales(unit), f16_scales(unit + 16)};
    __m256 dmin[2] = {f16_scales(unit + 32), f16_scales(unit + 48)};
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) {
        __m256i low[2];
        mins_times(subs, pairs + t * pair_stride, n_groups, low);
        float s = act_scale[(int64_t)t * a->n_scales];
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            y[t][h] = add_group(y[t][h], acc[t][h], d[h], s);
            y[t][h] = add_group(y[t][h], low[h], dmin[h], s);
        }
    }
}

ALWAYS_INLINE void add_min_block(const struct activations *a, const uint8_t *unit,
                                 const struct sub_scales subs[2], int n_groups, int block,
                                 int token, int n, __m256i acc[MAX_TOKENS][2],
                                 struct chains *chains)
{
    const int32_t *act_sum = a->sum + (int64_t)token * a->n_sums + (int64_t)block * n_groups;
    int32_t pairs[MAX_TOKENS][8];
#pragma GCC unroll 4
    for (int t = 0; t < n; t++)
        store_pair_sums(act_sum + (int64_t)t * a->n_sums, n_groups, pairs[t]);
    add_min_pairs(a, unit, subs, n_groups, block, token, pairs[0], 8, n, acc, chains->y);
}

#endif
