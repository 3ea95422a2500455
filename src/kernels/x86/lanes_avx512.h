/* 16 floats at once, in one register. lanes_avx2.h has the same functions on two registers, so that
 * kernels of the *_body.h files are written once. Each does one rounding per lane. */
#ifndef TRINE_KERNELS_X86_LANES_AVX512_H
#define TRINE_KERNELS_X86_LANES_AVX512_H

#include <immintrin.h>

#include "kernels/float_ops.h"
#include "kernels/x86/sum_of_bytes.h"

/* Attention: sums of keys that it keeps in registers, and rows of keys at most; tiles of 16 sums
 * that it adds up together; lanes of values for 4 queries; the registers of struct lanes; streams
 * in which the next rows are prefetched, and whether that is in the innermost loops. */
#define LANES_KEY_SUMS       16
#define LANES_KEY_ROWS       8
#define LANES_TILES          1
#define LANES_VALUE_WIDTH    4
#define LANES_PARTS          1
#define LANES_STREAMS        2
#define LANES_FETCH_IN_TURNS 1

struct lanes {
    __m512 v;
};

/* One of the LANES_PARTS registers of struct lanes: 16 / LANES_PARTS elements. Where the sums of a
 * tile as whole lanes would not fit the registers, a kernel finishes them part by part. */
struct part {
    __m512 v;
};

static inline struct part part_load(const float *x)
{
    return (struct part){_mm512_loadu_ps(x)};
}

/* In a register where that is worth saying. */
static inline struct part part_kept(struct part a)
{
    return a;
}

static inline struct part part_fma(struct part a, struct part b, struct part c)
{
    return (struct part){_mm512_fmadd_ps(a.v, b.v, c.v)};
}

static inline struct part part_from_f16(const uint16_t *x)
{
    return (struct part){_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)x))};
}

/* int8 times a scale. */
static inline struct part part_from_q8(const int8_t *q, float scale)
{
    __m512i wide = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)q));
    return (struct part){_mm512_mul_ps(_mm512_cvtepi32_ps(wide), _mm512_set1_ps(scale))};
}

static inline void lanes_put_part(struct lanes *a, int part, struct part x)
{
    (void)part;
    a->v = x.v;
}

static inline struct lanes lanes_set(float x)
{
    return (struct lanes){_mm512_set1_ps(x)};
}

static inline struct lanes lanes_load(const float *x)
{
    return (struct lanes){_mm512_loadu_ps(x)};
}

static inline void lanes_store(float *x, struct lanes a)
{
    _mm512_storeu_ps(x, a.v);
}

/* Lanes [first, first + n), n being 4, 8 or 16 and first a multiple of it. */
static inline void lanes_store_some(float *x, struct lanes a, int first, int n)
{
    __m256 half = first < 8 ? _mm512_castps512_ps256(a.v) : _mm512_extractf32x8_ps(a.v, 1);
    if (n == 16)
        _mm512_storeu_ps(x, a.v);
    else if (n == 8)
        _mm256_storeu_ps(x, half);
    else
        _mm_storeu_ps(x, first % 8 ? _mm256_extractf128_ps(half, 1) : _mm256_castps256_ps128(half));
}

static inline __mmask16 first_lanes(int64_t n)
{
    return (__mmask16)(n >= 16 ? 0xffff : (1 << n) - 1);
}

/* The first n, at least 1; lanes beyond are zero, or are not stored. */
static inline struct lanes lanes_load_n(const float *x, int64_t n)
{
    return (struct lanes){_mm512_maskz_loadu_ps(first_lanes(n), x)};
}

static inline void lanes_store_n(float *x, struct lanes a, int64_t n)
{
    _mm512_mask_storeu_ps(x, first_lanes(n), a.v);
}

static inline struct lanes lanes_add(struct lanes a, struct lanes b)
{
    return (struct lanes){_mm512_add_ps(a.v, b.v)};
}

static inline struct lanes lanes_sub(struct lanes a, struct lanes b)
{
    return (struct lanes){_mm512_sub_ps(a.v, b.v)};
}

static inline struct lanes lanes_mul(struct lanes a, struct lanes b)
{
    return (struct lanes){_mm512_mul_ps(a.v, b.v)};
}

static inline struct lanes lanes_div(struct lanes a, struct lanes b)
{
    return (struct lanes){_mm512_div_ps(a.v, b.v)};
}

static inline struct lanes lanes_max(struct lanes a, struct lanes b)
{
    return (struct lanes){_mm512_max_ps(a.v, b.v)};
}

/* a * b + c */
static inline struct lanes lanes_fma(struct lanes a, struct lanes b, struct lanes c)
{
    return (struct lanes){_mm512_fmadd_ps(a.v, b.v, c.v)};
}

/* Lanes from n on become x. */
static inline struct lanes lanes_fill_from(struct lanes a, int n, float x)
{
    return (struct lanes){_mm512_mask_mov_ps(_mm512_set1_ps(x), first_lanes(n), a.v)};
}

/* sum16. */
static inline float lanes_sum(struct lanes a)
{
    __m256 by8 = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
    __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
    return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
}

/* Lane l + lane l + 8 of both: 8 sums of a, 8 of b. */
static inline __m512 halves_added(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}

/* Of each 8 sums, l + (l + 4): 4 of each of the 4 vectors. */
static inline __m512 quarters_added(__m512 ab, __m512 cd)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
}

/* Lane i: sum16 of v[i]. The additions of the tree, on 16 trees at once. */
static inline struct lanes lanes_sum_each(const struct lanes v[16])
{
    __m512 x[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        x[i] =
            quarters_added(halves_added(v[i].v, v[i + 4].v), halves_added(v[i + 8].v, v[i + 12].v));
    __m512 y0 =
        _mm512_add_ps(_mm512_shuffle_ps(x[0], x[1], 0x44), _mm512_shuffle_ps(x[0], x[1], 0xee));
    __m512 y1 =
        _mm512_add_ps(_mm512_shuffle_ps(x[2], x[3], 0x44), _mm512_shuffle_ps(x[2], x[3], 0xee));
    return (struct lanes){
        _mm512_add_ps(_mm512_shuffle_ps(y0, y1, 0x88), _mm512_shuffle_ps(y0, y1, 0xdd))};
}

/* The highest lane, in any order. */
static inline float lanes_highest(struct lanes a)
{
    return _mm512_reduce_max_ps(a.v);
}

/* Per lane the larger of two magnitudes, compared as integers; b's sign is dropped. */
static inline struct lanes lanes_max_magnitude(struct lanes a, struct lanes b)
{
    __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(b.v), _mm512_set1_epi32(0x7fffffff));
    return (struct lanes){
        _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(a.v), magnitude))};
}

static inline uint32_t lanes_highest_bits(struct lanes a)
{
    return _mm512_reduce_max_epu32(_mm512_castps_si512(a.v));
}

/* 16 integers, to nearest, ties to even; each must fit int8. */
static inline void lanes_store_int8(int8_t *q, struct lanes a)
{
    _mm_storeu_si128((__m128i *)q, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a.v)));
}

static inline struct lanes lanes_from_int8(const int8_t *q)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)q);
    return (struct lanes){_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}

static inline struct lanes lanes_from_f16(const uint16_t *x)
{
    return (struct lanes){_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)x))};
}

/* trine_exp. scalef rounds p * 2^n once, as do its two products, the first being exact. */
static inline struct lanes lanes_exp(struct lanes a)
{
    __m512 x = a.v, round = _mm512_set1_ps(EXP_ROUND);
    __m512 c = _mm512_min_ps(_mm512_set1_ps(EXP_MAX), x);
    __m512 t = _mm512_add_ps(_mm512_mul_ps(c, _mm512_set1_ps(EXP_LOG2_E)), round);
    __m512 n = _mm512_sub_ps(t, round);
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-EXP_LN2_HIGH), c);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-EXP_LN2_LOW), r);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(EXP_C6), r, _mm512_set1_ps(EXP_C5));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    __mmask16 is_kept = _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_MIN), _CMP_NLT_UQ);
    return (struct lanes){_mm512_maskz_scalef_ps(is_kept, p, n)};
}

#endif
