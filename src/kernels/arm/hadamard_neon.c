#include "kernels/arm/lanes_neon.h"

/* Signs of the lanes whose signs[i] is negative are turned. */
static struct lanes lanes_turn_signs(struct lanes a, const int8_t *signs)
{
    int8x16_t tops = vandq_s8(vld1q_s8(signs), vdupq_n_s8(-128));
    const int16x8_t halves[2] = {vshll_n_s8(vget_low_s8(tops), 8), vshll_high_n_s8(tops, 8)};
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        int16x8_t half = halves[i / 2];
        int32x4_t top = i % 2 ? vshll_high_n_s16(half, 16) : vshll_n_s16(vget_low_s16(half), 16);
        a.v[i] = vreinterpretq_f32_s32(veorq_s32(vreinterpretq_s32_f32(a.v[i]), top));
    }
    return a;
}

/* Those of length 1 and 2. */
static float32x4_t butterflies(float32x4_t x)
{
    static const float minus1[4] = {0.0f, -0.0f, 0.0f, -0.0f},
                       minus2[4] = {0.0f, 0.0f, -0.0f, -0.0f};
    uint32x4_t turn1 = vreinterpretq_u32_f32(vld1q_f32(minus1));
    uint32x4_t turn2 = vreinterpretq_u32_f32(vld1q_f32(minus2));
    uint32x4_t turned = veorq_u32(vreinterpretq_u32_f32(x), turn1);
    x = vaddq_f32(vrev64q_f32(x), vreinterpretq_f32_u32(turned));
    turned = veorq_u32(vreinterpretq_u32_f32(x), turn2);
    return vaddq_f32(vextq_f32(x, x, 2), vreinterpretq_f32_u32(turned));
}

/* Butterflies of length 1, 2, 4, 8 within the lanes: a + c where lane & length is 0, else a - c. */
static struct lanes lanes_butterflies(struct lanes a)
{
    float32x4_t v[4];
    for (int i = 0; i < 4; i++)
        v[i] = butterflies(a.v[i]);
    float32x4_t sum0 = vaddq_f32(v[0], v[1]), minus0 = vsubq_f32(v[0], v[1]);
    float32x4_t sum1 = vaddq_f32(v[2], v[3]), minus1 = vsubq_f32(v[2], v[3]);
    return (struct lanes){{vaddq_f32(sum0, sum1), vaddq_f32(minus0, minus1), vsubq_f32(sum0, sum1),
                           vsubq_f32(minus0, minus1)}};
}

#include "kernels/lanes/hadamard_body.h"

void hadamard_neon(const union job *job, int begin, int end)
{
    hadamard_body(&job->hadamard, begin, end);
}
