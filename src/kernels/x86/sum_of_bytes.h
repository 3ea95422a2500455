#ifndef TRINE_KERNELS_X86_SUM_OF_BYTES_H
#define TRINE_KERNELS_X86_SUM_OF_BYTES_H

#include <immintrin.h>
#include <stdint.h>

/* n is a multiple of 16. Bytes are made unsigned, added by psadbw, and the 128s taken off again. */
static inline int32_t sum_of_bytes(const int8_t *q, int64_t n)
{
    __m128i sum = _mm_setzero_si128(), flip = _mm_set1_epi8(-128);
    for (int64_t i = 0; i < n; i += 16) {
        __m128i bytes = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(q + i)), flip);
        sum = _mm_add_epi64(sum, _mm_sad_epu8(bytes, _mm_setzero_si128()));
    }
    sum = _mm_add_epi64(sum, _mm_unpackhi_epi64(sum, sum));
    return (int32_t)(_mm_cvtsi128_si64(sum) - 128 * n);
}

#endif
