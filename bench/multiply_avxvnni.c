#include "limits.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* As multiply_avx512, on 256 bits and in VEX encoding. */
uint64_t multiply_avxvnni(int64_t n)
{
    __m256i sum[PEAK_AVXVNNI_CHAINS], a = _mm256_set1_epi8(1), b = _mm256_set1_epi8(2);
#pragma GCC unroll 16
    for (int k = 0; k < PEAK_AVXVNNI_CHAINS; k++)
        sum[k] = _mm256_set1_epi32(k);
    for (int64_t i = 0; i < n; i++) {
#pragma GCC unroll 16
        for (int k = 0; k < PEAK_AVXVNNI_CHAINS; k++)
            __asm__ volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum[k]) : "x"(a), "x"(b));
    }
#pragma GCC unroll 16
    for (int k = 1; k < PEAK_AVXVNNI_CHAINS; k++)
        sum[0] = _mm256_add_epi32(sum[0], sum[k]);
    return (uint64_t)_mm256_extract_epi64(sum[0], 0);
}
#endif
