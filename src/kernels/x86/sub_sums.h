/* Sums of activations over the groups of a block of 256, for a multiply-add of int16 pairs. */
#ifndef TRINE_KERNELS_X86_SUB_SUMS_H
#define TRINE_KERNELS_X86_SUB_SUMS_H

#include <immintrin.h>
#include <stdint.h>

/* 8 sums over 16 or 32 (at most 32 * 127) as pairs of int16: 0 and 2, 1 and 3, 4 and 6, 5 and 7. That is
 * the order in which the bytes of a 32-bit lane, masked and shifted, become pairs too. */
static inline __m128i pair_sums(const int32_t *sums)
{
    __m256i low = _mm256_loadu_si256((const __m256i *)sums);
    __m256i high = _mm256_slli_epi32(_mm256_shuffle_epi32(low, 0x0e), 16);
    __m256i pairs = _mm256_blend_epi16(low, high, 0xaa);
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(pairs, 0x08));
}

/* The same of n sums, a multiple of 8. */
static inline void store_pair_sums(const int32_t *sums, int64_t n, int32_t *pairs)
{
    for (int64_t i = 0; i < n; i += 8)
        _mm_storeu_si128((__m128i *)(pairs + i / 2), pair_sums(sums + i));
}

#endif
