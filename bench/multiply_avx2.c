#include "limits.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* The two instructions that multiply int8 and add into int16, which low-bit codes can do for many inputs
 * before they widen (full int8 cannot: it needs vpmaddwd and vpaddd each time and stays below this
 * peak). asm, so that none is hoisted. */
uint64_t multiply_avx2(int64_t n)
{
    __m256i sum[PEAK_AVX2_CHAINS], a = _mm256_set1_epi8(1), b = _mm256_set1_epi8(2), product;
#pragma GCC unroll 16
    for (int k = 0; k < PEAK_AVX2_CHAINS; k++)
        sum[k] = _mm256_set1_epi32(k);
    for (int64_t i = 0; i < n; i++) {
#pragma GCC unroll 16
        for (int k = 0; k < PEAK_AVX2_CHAINS; k++)
            __asm__ volatile("vpmaddubsw %3, %2, %1\n\t"
                             "vpaddw %1, %0, %0"
                             : "+x"(sum[k]), "=&x"(product)
                             : "x"(a), "x"(b));
    }
#pragma GCC unroll 16
    for (int k = 1; k < PEAK_AVX2_CHAINS; k++)
        sum[0] = _mm256_add_epi32(sum[0], sum[k]);
    return (uint64_t)_mm256_extract_epi64(sum[0], 0);
}
#endif
