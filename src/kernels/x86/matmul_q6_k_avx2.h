/* Layout of q6_k and how 256-bit kernels unpack it. */
#ifndef TRINE_KERNELS_X86_MATMUL_Q6_K_AVX2_H
#define TRINE_KERNELS_X86_MATMUL_Q6_K_AVX2_H

#include "kernels/x86/matmul_avx2.h"

enum { SUBS = 16, SUB_BYTES = 3 * STEP_BYTES };
enum { SCALES_AT = 64, CODES_AT = 64 + 512, UNIT_BYTES = CODES_AT + 2 * SUBS * SUB_BYTES };

/* The codes of one half and 16 inputs: two steps of low nibbles, one of high bits. */
ALWAYS_INLINE void unpack_codes(const uint8_t *half, __m256i codes[4])
{
    const __m256i nibble = _mm256_set1_epi8(15), top = _mm256_set1_epi8(48);
    __m256i low01 = load_256(half), low23 = load_256(half + STEP_BYTES);
    __m256i high = load_256(half + 2 * STEP_BYTES);
    codes[0] = _mm256_and_si256(low01, nibble);
    codes[1] = _mm256_and_si256(_mm256_srli_epi16(low01, 4), nibble);
    codes[2] = _mm256_and_si256(low23, nibble);
    codes[3] = _mm256_and_si256(_mm256_srli_epi16(low23, 4), nibble);
    codes[0] = _mm256_or_si256(codes[0], _mm256_and_si256(_mm256_slli_epi16(high, 4), top));
    codes[1] = _mm256_or_si256(codes[1], _mm256_and_si256(_mm256_slli_epi16(high, 2), top));
    codes[2] = _mm256_or_si256(codes[2], _mm256_and_si256(high, top));
    codes[3] = _mm256_or_si256(codes[3], _mm256_and_si256(_mm256_srli_epi16(high, 2), top));
}

/* int8 scales of 8 rows, each as an int16 pair. */
ALWAYS_INLINE __m256i scale_pairs(const uint8_t *scales)
{
    __m128i bytes = _mm_loadl_epi64((const __m128i *)scales);
    return _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(bytes, bytes));
}

#endif
