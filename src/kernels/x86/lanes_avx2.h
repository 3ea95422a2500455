/* 16 floats at once, in two registers: the functions of lanes_avx512.h. */
#ifndef TRINE_KERNELS_X86_LANES_AVX2_H
#define TRINE_KERNELS_X86_LANES_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "kernels/float_ops.h"
#include "kernels/x86/sum_of_bytes.h"

#define LANES_KEY_SUMS       8
#define LANES_KEY_ROWS       4
#define LANES_TILES          4
#define LANES_VALUE_WIDTH    1
#define LANES_PARTS          2
#define LANES_STREAMS        4
#define LANES_FETCH_IN_TURNS 0

struct lanes {
    __m256 low, high;
};

struct part {
    __m256 v;
};

static inline struct part part_load(const float *x)
{
    return (struct part){_mm256_loadu_ps(x)};
}

/* In a register: as a memory operand of two fma it would be loaded twice. 8 fma with 8 such loads
 * and 2 conversions take 5.1 cycles, with 4 loads 4.0 (Zen 3, December 2026). */
static inline struct part part_kept(struct part a)
{
    __asm__("" : "+x"(a.v));
    return a;
}

static inline struct part part_fma(struct part a, struct part b, struct part c)
{
    return (struct part){_mm256_fmadd_ps(a.v, b.v, c.v)};
}

static inline struct part part_from_f16(const uint16_t *x)
{
    return (struct part){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)x))};
}

static inline struct part part_from_q8(const int8_t *q, float scale)
{
    __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)q));
    return (struct part){_mm256_mul_ps(_mm256_cvtepi32_ps(wide), _mm256_set1_ps(scale))};
}

static inline void lanes_put_part(struct lanes *a, int part, struct part x)
{
    *(part ? &a->high : &a->low) = x.v;
}

static inline struct lanes lanes_set(float x)
{
    return (struct lanes){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

static inline struct lanes lanes_load(const float *x)
{
    return (struct lanes){_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)};
}

static inline void lanes_store(float *x, struct lanes a)
{
    _mm256_storeu_ps(x, a.low);
    _mm256_storeu_ps(x + 8, a.high);
}

static inline void lanes_store_some(float *x, struct lanes a, int first, int n)
{
    __m256 half = first < 8 ? a.low : a.high;
    if (n == 16)
        lanes_store(x, a);
    else if (n == 8)
        _mm256_storeu_ps(x, half);
    else
        _mm_storeu_ps(x, first % 8 ? _mm256_extractf128_ps(half, 1) : _mm256_castps256_ps128(half));
}

static inline struct lanes lanes_load_n(const float *x, int64_t n)
{
    if (n >= 16)
        return lanes_load(x);
    float padded[16] = {0};
    memcpy(padded, x, (size_t)n * sizeof *x);
    return lanes_load(padded);
}

static inline void lanes_store_n(float *x, struct lanes a, int64_t n)
{
    if (n >= 16) {
        lanes_store(x, a);
        return;
    }
    float padded[16];
    lanes_store(padded, a);
    memcpy(x, padded, (size_t)n * sizeof *x);
}

static inline struct lanes lanes_add(struct lanes a, struct lanes b)
{
    return (struct lanes){_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}

/* Sums of int32, and int32 as floats: for reduce, which AVX-512 leaves to AVX2. */
static inline struct lanes lanes_add_int32(struct lanes a, struct lanes b)
{
    __m256i low = _mm256_add_epi32(_mm256_castps_si256(a.low), _mm256_castps_si256(b.low));
    __m256i high = _mm256_add_epi32(_mm256_castps_si256(a.high), _mm256_castps_si256(b.high));
    return (struct lanes){_mm256_castsi256_ps(low), _mm256_castsi256_ps(high)};
}

static inline struct lanes lanes_from_int32(struct lanes a)
{
    return (struct lanes){_mm256_cvtepi32_ps(_mm256_castps_si256(a.low)),
                          _mm256_cvtepi32_ps(_mm256_castps_si256(a.high))};
}

static inline struct lanes lanes_sub(struct lanes a, struct lanes b)
{
    return (struct lanes){_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}

static inline struct lanes lanes_mul(struct lanes a, struct lanes b)
{
    return (struct lanes){_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}

static inline struct lanes lanes_div(struct lanes a, struct lanes b)
{
    return (struct lanes){_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}

static inline struct lanes lanes_max(struct lanes a, struct lanes b)
{
    return (struct lanes){_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}

static inline struct lanes lanes_fma(struct lanes a, struct lanes b, struct lanes c)
{
    return (struct lanes){_mm256_fmadd_ps(a.low, b.low, c.low),
                          _mm256_fmadd_ps(a.high, b.high, c.high)};
}

static inline struct lanes lanes_fill_from(struct lanes a, int n, float x)
{
    __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), first = _mm256_set1_epi32(n - 1);
    __m256i high = _mm256_add_epi32(low, _mm256_set1_epi32(8));
    __m256 fill = _mm256_set1_ps(x);
    __m256 from_low = _mm256_castsi256_ps(_mm256_cmpgt_epi32(low, first));
    __m256 from_high = _mm256_castsi256_ps(_mm256_cmpgt_epi32(high, first));
    return (struct lanes){_mm256_blendv_ps(a.low, fill, from_low),
                          _mm256_blendv_ps(a.high, fill, from_high)};
}

static inline float lanes_sum(struct lanes a)
{
    __m256 by8 = _mm256_add_ps(a.low, a.high);
    __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
    __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
    return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
}

/* Lane i: sum16 of v[i], i < 8. */
static inline __m256 sum_each_of_8(const struct lanes *v)
{
    __m256 x[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m256 a = _mm256_add_ps(v[i].low, v[i].high);
        __m256 b = _mm256_add_ps(v[i + 4].low, v[i + 4].high);
        x[i] =
            _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    }
    __m256 y0 =
        _mm256_add_ps(_mm256_shuffle_ps(x[0], x[1], 0x44), _mm256_shuffle_ps(x[0], x[1], 0xee));
    __m256 y1 =
        _mm256_add_ps(_mm256_shuffle_ps(x[2], x[3], 0x44), _mm256_shuffle_ps(x[2], x[3], 0xee));
    return _mm256_add_ps(_mm256_shuffle_ps(y0, y1, 0x88), _mm256_shuffle_ps(y0, y1, 0xdd));
}

static inline struct lanes lanes_sum_each(const struct lanes v[16])
{
    return (struct lanes){sum_each_of_8(v), sum_each_of_8(v + 8)};
}

static inline float lanes_highest(struct lanes a)
{
    __m256 by8 = _mm256_max_ps(a.low, a.high);
    __m128 by4 = _mm_max_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
    __m128 by2 = _mm_max_ps(by4, _mm_movehl_ps(by4, by4));
    return _mm_cvtss_f32(_mm_max_ss(by2, _mm_movehdup_ps(by2)));
}

static inline __m256 max_magnitude(__m256 a, __m256 b)
{
    __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(b), _mm256_set1_epi32(0x7fffffff));
    return _mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(a), magnitude));
}

static inline struct lanes lanes_max_magnitude(struct lanes a, struct lanes b)
{
    return (struct lanes){max_magnitude(a.low, b.low), max_magnitude(a.high, b.high)};
}

static inline uint32_t lanes_highest_bits(struct lanes a)
{
    __m256i by8 = _mm256_max_epu32(_mm256_castps_si256(a.low), _mm256_castps_si256(a.high));
    __m128i by4 = _mm_max_epu32(_mm256_castsi256_si128(by8), _mm256_extracti128_si256(by8, 1));
    __m128i by2 = _mm_max_epu32(by4, _mm_shuffle_epi32(by4, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(by2, _mm_shuffle_epi32(by2, 0xb1)));
}

/* 8 floats as int16. */
static inline __m128i int16_of_8(__m256 x)
{
    __m256i wide = _mm256_cvtps_epi32(x);
    return _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
}

static inline void lanes_store_int8(int8_t *q, struct lanes a)
{
    _mm_storeu_si128((__m128i *)q, _mm_packs_epi16(int16_of_8(a.low), int16_of_8(a.high)));
}

static inline struct lanes lanes_from_int8(const int8_t *q)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)q);
    return (struct lanes){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}

static inline struct lanes lanes_from_f16(const uint16_t *x)
{
    return (struct lanes){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)x)),
                          _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + 8)))};
}

static inline struct lanes lanes_exp(struct lanes a)
{
    return (struct lanes){exp_8(a.low), exp_8(a.high)};
}

#endif
