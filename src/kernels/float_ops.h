/* Float functions with one order of operations. Kernels of every instruction set get the same bits
 * when they do the same steps; a vector version takes each line below as one instruction. fmaf and
 * plain arithmetic only. */
#ifndef TRINE_KERNELS_FLOAT_OPS_H
#define TRINE_KERNELS_FLOAT_OPS_H

#include <math.h>
#include <stdint.h>

#include "base/float16.h"

/* Vector twins of the functions that run once per tile and token; the rest is left to compilers. */
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define FLOAT_OPS_AVX2
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD) /* in files of `neon` and above */
#define FLOAT_OPS_NEON
#include <arm_neon.h>
#endif

#define EXP_MAX      88.7f   /* above: the value there, 3.3e38, so that nothing becomes infinite */
#define EXP_MIN      -103.0f /* below: 0 */
#define EXP_LOG2_E   0x1.715476p+0f
#define EXP_LN2_HIGH 0x1.62e43p-1f
#define EXP_LN2_LOW  -0x1.05c61p-29f
#define EXP_ROUND    0x1.8p23f /* adding it leaves the integer in the low bits, ties to even */
#define EXP_C2       0x1.fffffcp-2f
#define EXP_C3       0x1.555492p-3f
#define EXP_C4       0x1.5558f2p-5f
#define EXP_C5       0x1.123a2p-7f
#define EXP_C6       0x1.6a23dp-10f

/* exp(x). Order:
 *   c = EXP_MAX < x ? EXP_MAX : x                      (_mm_min_ps(EXP_MAX, x): NaN stays)
 *   t = c * EXP_LOG2_E + EXP_ROUND                     a product, then a sum; n = t - EXP_ROUND is
 *   n = t - EXP_ROUND                                  c * log2 e rounded to an integer
 *   r = fma(n, -LN2_HIGH, c); r = fma(n, -LN2_LOW, r)  |r| <= ln 2 / 2
 *   p = fma(C6, r, C5); p = fma(p, r, C4) ... C3, C2, 1, 1
 *   k = bits(t) - bits(EXP_ROUND), as int32            = n
 *   half = k >> 1 (arithmetic)
 *   y = (p * 2^half) * 2^(k - half)                    powers as (e + 127) << 23: two factors,
 *   y = x < EXP_MIN ? 0 : y                            because k may be 128 or below -126
 * accuracy  relative error < 3e-7 from -87.3 to EXP_MAX; below, denormals within one unit of 2^-149
 */
static inline float trine_exp(float x)
{
    float c = EXP_MAX < x ? EXP_MAX : x;
    float product = c * EXP_LOG2_E;
    float t = product + EXP_ROUND;
    float n = t - EXP_ROUND;
    float r = fmaf(n, -EXP_LN2_HIGH, c);
    r = fmaf(n, -EXP_LN2_LOW, r);
    float p = fmaf(EXP_C6, r, EXP_C5);
    p = fmaf(p, r, EXP_C4);
    p = fmaf(p, r, EXP_C3);
    p = fmaf(p, r, EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    int32_t k = (int32_t)(bits_from_f32(t) - bits_from_f32(EXP_ROUND));
    int32_t half = k >> 1;
    float y = p * f32_from_bits((uint32_t)(half + 127) << 23);
    y *= f32_from_bits((uint32_t)(k - half + 127) << 23);
    return x < EXP_MIN ? 0.0f : y;
}

/* x / (1 + exp(-x)): a sign change, trine_exp, a sum, a division. */
static inline float silu(float x)
{
    return x / (1.0f + trine_exp(-x));
}

#ifdef FLOAT_OPS_AVX2
/* trine_exp of 8 floats. */
static inline __m256 exp_8(__m256 x)
{
    __m256 c = _mm256_min_ps(_mm256_set1_ps(EXP_MAX), x);
    __m256 t = _mm256_mul_ps(c, _mm256_set1_ps(EXP_LOG2_E));
    t = _mm256_add_ps(t, _mm256_set1_ps(EXP_ROUND));
    __m256 n = _mm256_sub_ps(t, _mm256_set1_ps(EXP_ROUND));
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-EXP_LN2_HIGH), c);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-EXP_LN2_LOW), r);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(EXP_C6), r, _mm256_set1_ps(EXP_C5));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    __m256i k = _mm256_castps_si256(t);
    k = _mm256_sub_epi32(k, _mm256_castps_si256(_mm256_set1_ps(EXP_ROUND)));
    __m256i half = _mm256_srai_epi32(k, 1), rest = _mm256_sub_epi32(k, half);
    half = _mm256_slli_epi32(_mm256_add_epi32(half, _mm256_set1_epi32(127)), 23);
    rest = _mm256_slli_epi32(_mm256_add_epi32(rest, _mm256_set1_epi32(127)), 23);
    __m256 y = _mm256_mul_ps(p, _mm256_castsi256_ps(half));
    y = _mm256_mul_ps(y, _mm256_castsi256_ps(rest));
    return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(EXP_MIN), _CMP_LT_OQ), y);
}

/* silu of 8 floats. */
static inline __m256 silu_8(__m256 x)
{
    __m256 e = exp_8(_mm256_xor_ps(x, _mm256_set1_ps(-0.0f)));
    return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}
#elif defined(FLOAT_OPS_NEON)
#include "kernels/arm/exp_neon.h"
#endif

/* out[i] = silu(y[2 i]) * y[2 i + 1], 8 of them. */
static inline void silu_mul_8(const float y[16], float out[8])
{
#ifdef FLOAT_OPS_AVX2
    __m256 low = _mm256_loadu_ps(y), high = _mm256_loadu_ps(y + 8);
    __m256 gate = _mm256_shuffle_ps(low, high, 0x88), up = _mm256_shuffle_ps(low, high, 0xdd);
    __m256d product = _mm256_castps_pd(_mm256_mul_ps(silu_8(gate), up)); /* pairs 0, 2, 1, 3 */
    _mm256_storeu_pd((double *)out, _mm256_permute4x64_pd(product, 0xd8));
#elif defined(FLOAT_OPS_NEON)
    for (int i = 0; i < 8; i += 4) {
        float32x4x2_t pairs = vld2q_f32(y + 2 * i); /* gates, ups */
        vst1q_f32(out + i, vmulq_f32(silu_4(pairs.val[0]), pairs.val[1]));
    }
#else
    for (int i = 0; i < 8; i++)
        out[i] = silu(y[2 * i]) * y[2 * i + 1];
#endif
}

/* max(x, 0)^2: x > 0 ? x : 0, then a product. */
static inline float relu_squared(float x)
{
    float positive = x > 0.0f ? x : 0.0f;
    return positive * positive;
}

/* Turns (a, b) by an angle: fma(a, cosine, -(b * sine)) and fma(a, sine, b * cosine). */
static inline void turn_pair(float a, float b, float cosine, float sine, float out[2])
{
    float b_sine = b * sine, b_cosine = b * cosine;
    out[0] = fmaf(a, cosine, -b_sine);
    out[1] = fmaf(a, sine, b_cosine);
}

/* Sum of 16 lanes: lane l += lane l + 8, then l + 4, l + 2, l + 1. */
static inline float sum16(const float lanes[16])
{
    float by8[8], by4[4];
    for (int l = 0; l < 8; l++)
        by8[l] = lanes[l] + lanes[l + 8];
    for (int l = 0; l < 4; l++)
        by4[l] = by8[l] + by8[l + 4];
    float even = by4[0] + by4[2], odd = by4[1] + by4[3];
    return even + odd;
}

/* 16 floats as f16, to nearest, ties to even. */
static inline void f16_from_f32_16(const float x[16], uint16_t out[16])
{
#ifdef FLOAT_OPS_AVX2
    _mm_storeu_si128((__m128i *)out,
                     _mm256_cvtps_ph(_mm256_loadu_ps(x), _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(out + 8),
                     _mm256_cvtps_ph(_mm256_loadu_ps(x + 8), _MM_FROUND_TO_NEAREST_INT));
#elif defined(FLOAT_OPS_NEON)
    for (int i = 0; i < 16; i += 4)
        vst1_u16(out + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x + i))));
#else
    for (int i = 0; i < 16; i++)
        out[i] = f32_to_f16(x[i]);
#endif
}

#endif
