/* NEON twins of trine_exp and silu, part of float_ops.h, which has the order of operations. */
#ifndef TRINE_KERNELS_ARM_EXP_NEON_H
#define TRINE_KERNELS_ARM_EXP_NEON_H

/* 4 halves as floats. */
static inline float32x4_t f32_from_f16_4(const uint16_t *x)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x)));
}

/* 2^e, from -126 to 127. */
static inline float32x4_t power_of_2_4(int32x4_t e)
{
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(e, vdupq_n_s32(127)), 23));
}

/* trine_exp of 4 floats. */
static inline float32x4_t exp_4(float32x4_t x)
{
    float32x4_t most = vdupq_n_f32(EXP_MAX), round = vdupq_n_f32(EXP_ROUND);
    float32x4_t c = vbslq_f32(vcltq_f32(most, x), most, x);
    float32x4_t t = vaddq_f32(vmulq_n_f32(c, EXP_LOG2_E), round);
    float32x4_t n = vsubq_f32(t, round);
    float32x4_t r = vfmaq_f32(c, n, vdupq_n_f32(-EXP_LN2_HIGH));
    r = vfmaq_f32(r, n, vdupq_n_f32(-EXP_LN2_LOW));
    float32x4_t p = vfmaq_f32(vdupq_n_f32(EXP_C5), vdupq_n_f32(EXP_C6), r);
    p = vfmaq_f32(vdupq_n_f32(EXP_C4), p, r);
    p = vfmaq_f32(vdupq_n_f32(EXP_C3), p, r);
    p = vfmaq_f32(vdupq_n_f32(EXP_C2), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    int32x4_t k = vsubq_s32(vreinterpretq_s32_f32(t), vreinterpretq_s32_f32(round));
    int32x4_t half = vshrq_n_s32(k, 1);
    float32x4_t y = vmulq_f32(p, power_of_2_4(half));
    y = vmulq_f32(y, power_of_2_4(vsubq_s32(k, half)));
    return vbslq_f32(vcltq_f32(x, vdupq_n_f32(EXP_MIN)), vdupq_n_f32(0), y);
}

/* silu of 4 floats. */
static inline float32x4_t silu_4(float32x4_t x)
{
    return vdivq_f32(x, vaddq_f32(vdupq_n_f32(1.0f), exp_4(vnegq_f32(x))));
}

#endif
