/* 16 floats at once, in four registers: the functions of lanes_avx512.h. */
#ifndef TRINE_KERNELS_ARM_LANES_NEON_H
#define TRINE_KERNELS_ARM_LANES_NEON_H

#include <arm_neon.h>
#include <string.h>

#include "kernels/float_ops.h"

/* What fits 32 registers; never timed on a processor. */
#define LANES_KEY_SUMS       16
#define LANES_KEY_ROWS       8
#define LANES_TILES          4
#define LANES_VALUE_WIDTH    1
#define LANES_PARTS          4
#define LANES_STREAMS        4
#define LANES_FETCH_IN_TURNS 0

struct lanes {
    float32x4_t v[4];
};

struct part {
    float32x4_t v;
};

static inline struct part part_load(const float *x)
{
    return (struct part){vld1q_f32(x)};
}

static inline struct part part_kept(struct part a)
{
    return a;
}

static inline struct part part_fma(struct part a, struct part b, struct part c)
{
    return (struct part){vfmaq_f32(c.v, a.v, b.v)};
}

static inline struct part part_from_f16(const uint16_t *x)
{
    return (struct part){f32_from_f16_4(x)};
}

/* 4 int8 as floats. */
static inline float32x4_t f32_from_int8_4(const int8_t *q)
{
    int32_t bytes;
    memcpy(&bytes, q, sizeof bytes);
    int16x8_t wide = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(bytes)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
}

static inline struct part part_from_q8(const int8_t *q, float scale)
{
    return (struct part){vmulq_n_f32(f32_from_int8_4(q), scale)};
}

static inline void lanes_put_part(struct lanes *a, int part, struct part x)
{
    a->v[part] = x.v;
}

/* A vector operation on each quarter, i. */
#define EACH_QUARTER(operation)                                                                    \
    struct lanes result;                                                                           \
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) result.v[i] = (operation);                 \
    return result

static inline struct lanes lanes_set(float x)
{
    EACH_QUARTER(vdupq_n_f32(x));
}

static inline struct lanes lanes_load(const float *x)
{
    EACH_QUARTER(vld1q_f32(x + 4 * i));
}

static inline void lanes_store(float *x, struct lanes a)
{
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        vst1q_f32(x + 4 * i, a.v[i]);
}

static inline void lanes_store_some(float *x, struct lanes a, int first, int n)
{
#pragma GCC unroll 4
    for (int i = 0; i < n / 4; i++)
        vst1q_f32(x + 4 * i, a.v[first / 4 + i]);
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
    EACH_QUARTER(vaddq_f32(a.v[i], b.v[i]));
}

/* Sums of int32, and int32 as floats: for reduce, which AVX-512 leaves to AVX2. */
static inline struct lanes lanes_add_int32(struct lanes a, struct lanes b)
{
    EACH_QUARTER(vreinterpretq_f32_s32(
        vaddq_s32(vreinterpretq_s32_f32(a.v[i]), vreinterpretq_s32_f32(b.v[i]))));
}

static inline struct lanes lanes_from_int32(struct lanes a)
{
    EACH_QUARTER(vcvtq_f32_s32(vreinterpretq_s32_f32(a.v[i])));
}

static inline struct lanes lanes_sub(struct lanes a, struct lanes b)
{
    EACH_QUARTER(vsubq_f32(a.v[i], b.v[i]));
}

static inline struct lanes lanes_mul(struct lanes a, struct lanes b)
{
    EACH_QUARTER(vmulq_f32(a.v[i], b.v[i]));
}

static inline struct lanes lanes_div(struct lanes a, struct lanes b)
{
    EACH_QUARTER(vdivq_f32(a.v[i], b.v[i]));
}

/* a > b ? a : b, also where one is not a number: vmaxq would return that. */
static inline float32x4_t larger(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

static inline struct lanes lanes_max(struct lanes a, struct lanes b)
{
    EACH_QUARTER(larger(a.v[i], b.v[i]));
}

static inline struct lanes lanes_fma(struct lanes a, struct lanes b, struct lanes c)
{
    EACH_QUARTER(vfmaq_f32(c.v[i], a.v[i], b.v[i]));
}

static inline struct lanes lanes_fill_from(struct lanes a, int n, float x)
{
    static const int32_t first[4] = {0, 1, 2, 3};
    int32x4_t lane = vld1q_s32(first);
    EACH_QUARTER(vbslq_f32(vcltq_s32(lane, vdupq_n_s32(n - 4 * i)), a.v[i], vdupq_n_f32(x)));
}

/* Lanes l + (l + 8), then + (l + 4). */
static inline float32x4_t sum_by_4(struct lanes a)
{
    return vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
}

static inline float lanes_sum(struct lanes a)
{
    float32x4_t by4 = sum_by_4(a);
    float32x2_t by2 = vadd_f32(vget_low_f32(by4), vget_high_f32(by4));
    return vget_lane_f32(by2, 0) + vget_lane_f32(by2, 1);
}

/* Lanes l + (l + 2) of a, then of b. */
static inline float32x4_t halves_added(float32x4_t a, float32x4_t b)
{
    float64x2_t wide_a = vreinterpretq_f64_f32(a), wide_b = vreinterpretq_f64_f32(b);
    return vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(wide_a, wide_b)),
                     vreinterpretq_f32_f64(vzip2q_f64(wide_a, wide_b)));
}

static inline float32x4_t sum_each_of_4(const struct lanes v[4])
{
    float32x4_t ab = halves_added(sum_by_4(v[0]), sum_by_4(v[1]));
    return vpaddq_f32(ab, halves_added(sum_by_4(v[2]), sum_by_4(v[3])));
}

static inline struct lanes lanes_sum_each(const struct lanes v[16])
{
    EACH_QUARTER(sum_each_of_4(v + 4 * i));
}

static inline float lanes_highest(struct lanes a)
{
    float32x4_t by4 = larger(larger(a.v[0], a.v[2]), larger(a.v[1], a.v[3]));
    float32x4_t by2 = larger(by4, vextq_f32(by4, by4, 2));
    return vgetq_lane_f32(larger(by2, vextq_f32(by2, by2, 1)), 0);
}

static inline float32x4_t max_magnitude(float32x4_t a, float32x4_t b)
{
    uint32x4_t magnitude = vbicq_u32(vreinterpretq_u32_f32(b), vdupq_n_u32(0x80000000));
    return vreinterpretq_f32_u32(vmaxq_u32(vreinterpretq_u32_f32(a), magnitude));
}

static inline struct lanes lanes_max_magnitude(struct lanes a, struct lanes b)
{
    EACH_QUARTER(max_magnitude(a.v[i], b.v[i]));
}

static inline uint32_t lanes_highest_bits(struct lanes a)
{
    uint32x4_t low = vmaxq_u32(vreinterpretq_u32_f32(a.v[0]), vreinterpretq_u32_f32(a.v[1]));
    uint32x4_t high = vmaxq_u32(vreinterpretq_u32_f32(a.v[2]), vreinterpretq_u32_f32(a.v[3]));
    return vmaxvq_u32(vmaxq_u32(low, high));
}

/* 8 floats as int16. */
static inline int16x8_t int16_of_8(float32x4_t low, float32x4_t high)
{
    return vcombine_s16(vmovn_s32(vcvtnq_s32_f32(low)), vmovn_s32(vcvtnq_s32_f32(high)));
}

static inline void lanes_store_int8(int8_t *q, struct lanes a)
{
    int16x8_t low = int16_of_8(a.v[0], a.v[1]), high = int16_of_8(a.v[2], a.v[3]);
    vst1q_s8(q, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

static inline struct lanes lanes_from_int8(const int8_t *q)
{
    EACH_QUARTER(f32_from_int8_4(q + 4 * i));
}

static inline struct lanes lanes_from_f16(const uint16_t *x)
{
    EACH_QUARTER(f32_from_f16_4(x + 4 * i));
}

static inline struct lanes lanes_exp(struct lanes a)
{
    EACH_QUARTER(exp_4(a.v[i]));
}

/* n is a multiple of 16. */
static inline int32_t sum_of_bytes(const int8_t *q, int64_t n)
{
    int32x4_t sum = vdupq_n_s32(0);
    for (int64_t i = 0; i < n; i += 16)
        sum = vdotq_s32(sum, vld1q_s8(q + i), vdupq_n_s8(1));
    return vaddvq_s32(sum);
}

#endif
