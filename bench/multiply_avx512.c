#include "limits.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* vpdpbusd in more independent chains than its latency times two per cycle; asm, so that compilers
 * neither hoist nor copy. */
uint64_t multiply_avx512(int64_t n)
{
    __m512i sum[PEAK_AVX512_CHAINS], a = _mm512_set1_epi8(1), b = _mm512_set1_epi8(2);
#pragma GCC unroll 16
    for (int k = 0; k < PEAK_AVX512_CHAINS; k++)
        sum[k] = _mm512_set1_epi32(k);
    for (int64_t i = 0; i < n; i++) {
#pragma GCC unroll 16
        for (int k = 0; k < PEAK_AVX512_CHAINS; k++)
            __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(sum[k]) : "v"(a), "v"(b));
    }
#pragma GCC unroll 16
    for (int k = 1; k < PEAK_AVX512_CHAINS; k++)
        sum[0] = _mm512_add_epi32(sum[0], sum[k]);
    return (uint64_t)_mm512_reduce_add_epi64(sum[0]);
}
#endif
