#include "limits.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* 128 bytes of a stream per turn. */
#define TURN_BYTES 128

static inline __m256i read_turn(const uint8_t *p, __m256i sum)
{
    const __m256i *v = (const __m256i *)p;
    __m256i low = _mm256_xor_si256(_mm256_load_si256(v), _mm256_load_si256(v + 1));
    __m256i high = _mm256_xor_si256(_mm256_load_si256(v + 2), _mm256_load_si256(v + 3));
    return _mm256_xor_si256(sum, _mm256_xor_si256(low, high));
}

static inline uint64_t read_streams(const uint8_t *bytes, size_t n, size_t prefetch, int n_streams)
{
    size_t part = n / (size_t)n_streams;
    __m256i sum[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                      _mm256_setzero_si256()};
    for (size_t i = 0; i < part; i += TURN_BYTES) {
#pragma GCC unroll 4
        for (int s = 0; s < n_streams; s++) {
            const uint8_t *p = bytes + (size_t)s * part + i;
            if (prefetch) {
                _mm_prefetch((const char *)p + prefetch, _MM_HINT_T0);
                _mm_prefetch((const char *)p + prefetch + 64, _MM_HINT_T0);
            }
            sum[s] = read_turn(p, sum[s]);
        }
    }
    __m256i all =
        _mm256_xor_si256(_mm256_xor_si256(sum[0], sum[1]), _mm256_xor_si256(sum[2], sum[3]));
    __m128i half = _mm_xor_si128(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    return (uint64_t)_mm_cvtsi128_si64(half) ^ (uint64_t)_mm_extract_epi64(half, 1);
}

/* Constants for the compiler to unroll by. */
#define READ_LOOP(name, n_streams)                                                                 \
    uint64_t name(const uint8_t *bytes, size_t n, size_t prefetch)                                 \
    {                                                                                              \
        if (prefetch)                                                                              \
            return read_streams(bytes, n, prefetch, n_streams);                                    \
        return read_streams(bytes, n, 0, n_streams);                                               \
    }
READ_LOOP(read_avx2_1, 1)
READ_LOOP(read_avx2_2, 2)
READ_LOOP(read_avx2_4, 4)
#endif
