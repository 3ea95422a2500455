#include "limits.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* 256 bytes of a stream per turn. */
#define TURN_BYTES 256

static inline __m512i read_turn(const uint8_t *p, __m512i sum)
{
    const __m512i *v = (const __m512i *)p;
    __m512i low = _mm512_xor_si512(_mm512_load_si512(v), _mm512_load_si512(v + 1));
    __m512i high = _mm512_xor_si512(_mm512_load_si512(v + 2), _mm512_load_si512(v + 3));
    return _mm512_ternarylogic_epi64(sum, low, high, 0x96);
}

static inline uint64_t read_streams(const uint8_t *bytes, size_t n, size_t prefetch, int n_streams)
{
    size_t part = n / (size_t)n_streams;
    __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                      _mm512_setzero_si512()};
    for (size_t i = 0; i < part; i += TURN_BYTES) {
#pragma GCC unroll 4
        for (int s = 0; s < n_streams; s++) {
            const uint8_t *p = bytes + (size_t)s * part + i;
#pragma GCC unroll 4
            for (size_t line = 0; prefetch && line < TURN_BYTES; line += 64)
                _mm_prefetch((const char *)p + prefetch + line, _MM_HINT_T0);
            sum[s] = read_turn(p, sum[s]);
        }
    }
    __m512i all =
        _mm512_xor_si512(_mm512_xor_si512(sum[0], sum[1]), _mm512_xor_si512(sum[2], sum[3]));
    return (uint64_t)_mm512_reduce_add_epi64(all);
}

/* Constants for the compiler to unroll by. */
#define READ_LOOP(name, n_streams)                                                                 \
    uint64_t name(const uint8_t *bytes, size_t n, size_t prefetch)                                 \
    {                                                                                              \
        if (prefetch)                                                                              \
            return read_streams(bytes, n, prefetch, n_streams);                                    \
        return read_streams(bytes, n, 0, n_streams);                                               \
    }
READ_LOOP(read_avx512_1, 1)
READ_LOOP(read_avx512_2, 2)
READ_LOOP(read_avx512_4, 4)
#endif
