/* Many tokens on AVX2 of codes that fill a byte: int16 codes and activations, whose products are joined
 * into int32. As many instructions as |code| times the activation with its sign takes (two vpmaddwd and two
 * vpaddd for 32 products), but two of them on the ports of multiplication instead of three. */
#ifndef TRINE_KERNELS_X86_MATMUL_WIDE_AVX2_H
#define TRINE_KERNELS_X86_MATMUL_WIDE_AVX2_H

#include "kernels/x86/matmul_panel_avx2.h"

/* The signed bytes of half a step as int16: inputs 0 and 1, then 2 and 3. */
ALWAYS_INLINE void widen_codes(__m256i codes, __m256i pairs[2])
{
    const char no = -128; /* a zero */
    const __m256i first = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(no, 0, no, 1, no, 4, no, 5, no, 8, no, 9, no, 12, no, 13));
    const __m256i second = _mm256_add_epi8(first, _mm256_set1_epi16(2 << 8));
    pairs[0] = _mm256_srai_epi16(_mm256_shuffle_epi8(codes, first), 8);
    pairs[1] = _mm256_srai_epi16(_mm256_shuffle_epi8(codes, second), 8);
}

/* to: half a line of the panel; the second pairs are in the next. */
ALWAYS_INLINE void store_wide(uint8_t *to, __m256i codes)
{
    __m256i pairs[2];
    widen_codes(codes, pairs);
    _mm256_store_si256((__m256i *)to, pairs[0]);
    _mm256_store_si256((__m256i *)(to + STEP_BYTES), pairs[1]);
}

__attribute__((unused)) static void copy_wide(const struct panel *p)
{
    const struct activations *a = &p->job->a;
    for (int t = 0; t < p->job->n_tokens; t++)
        for (int i = 0; i < p->n; i += 16) {
            const int8_t *from = a->q + t * a->stride + p->col0 + i;
            __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)from));
            _mm256_store_si256((__m256i *)(p->q + t * p->stride + 2 * i), wide);
        }
}

/* sums[t] += products of 4 pairs of inputs; is_first: sums[t] = them. */
ALWAYS_INLINE void wide_pairs(const uint8_t *pairs, const int8_t *q, int64_t stride, bool is_first,
                              int n, __m256i sums[PANEL_TOKENS][2])
{
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        __m256i pairs0 = load_256(pairs + k * STEP_BYTES);
        __m256i pairs1 = load_256(pairs + k * STEP_BYTES + 32);
#pragma GCC unroll 4
        for (int t = 0; t < n; t++) {
            __m256i pair = broadcast_quad(q + t * stride + 4 * k);
            __m256i product0 = _mm256_madd_epi16(pairs0, pair);
            __m256i product1 = _mm256_madd_epi16(pairs1, pair);
            bool is_new = is_first && k == 0;
            sums[t][0] = is_new ? product0 : _mm256_add_epi32(sums[t][0], product0);
            sums[t][1] = is_new ? product1 : _mm256_add_epi32(sums[t][1], product1);
            __asm__("" : "+x"(sums[t][0]), "+x"(sums[t][1]));
        }
    }
}

/* Groups of inputs with one scale each. */
ALWAYS_INLINE void run_wide(const struct panel *p, int token, __m256 state[][2], int group, int n)
{
    const uint8_t *pairs = p->codes;
    const int8_t *q = p->q + token * p->stride;
    for (int g = 0; g < p->n / group; g++) {
        __m256i sums[PANEL_TOKENS][2];
        wide_pairs(pairs, q, p->stride, true, n, sums);
        for (int k = 4; k < group / 2; k += 4)
            wide_pairs(pairs + k * STEP_BYTES, q + 4 * k, p->stride, false, n, sums);
        panel_add_group(p, token, group, g, false, n, sums, state);
        pairs += group / 2 * STEP_BYTES;
        q += 2 * group;
    }
}

#endif
