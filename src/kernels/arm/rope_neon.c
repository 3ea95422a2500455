#include "kernels/arm/lanes_neon.h"

/* (a c - b s, a s + b c) of 4 pairs. */
static inline void turn_4(float32x4_t *a, float32x4_t *b, const float *cosines, const float *sines)
{
    float32x4_t c = vld1q_f32(cosines), s = vld1q_f32(sines), x = *a;
    *a = vfmaq_f32(vnegq_f32(vmulq_f32(*b, s)), x, c);
    *b = vfmaq_f32(vmulq_f32(*b, c), x, s);
}

/* 8 pairs (a[i], b[i]). */
static void turn_8_apart(float *a, float *b, const float *cosines, const float *sines)
{
    for (int i = 0; i < 8; i += 4) {
        float32x4_t x = vld1q_f32(a + i), y = vld1q_f32(b + i);
        turn_4(&x, &y, cosines + i, sines + i);
        vst1q_f32(a + i, x);
        vst1q_f32(b + i, y);
    }
}

/* 8 pairs side by side. */
static void turn_8_adjacent(float *x, const float *cosines, const float *sines)
{
    for (int i = 0; i < 8; i += 4) {
        float32x4x2_t pairs = vld2q_f32(x + 2 * i);
        turn_4(&pairs.val[0], &pairs.val[1], cosines + i, sines + i);
        vst2q_f32(x + 2 * i, pairs);
    }
}

#include "kernels/lanes/rope_body.h"

void rope_neon(const union job *job, int begin, int end)
{
    rope_body(&job->rope, begin, end);
}
