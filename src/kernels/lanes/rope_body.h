/* Rotation of pairs by 16 lanes. Include after one of the lanes headers, and after turn_8_apart and
 * turn_8_adjacent. */
#ifndef TRINE_KERNELS_LANES_ROPE_BODY_H
#define TRINE_KERNELS_LANES_ROPE_BODY_H

#include "kernels/lanes/rms_norm_body.h"

static inline void turn_head(float *head, int half, bool is_adjacent, const float *cosines,
                             const float *sines)
{
    int i = 0, step = is_adjacent ? 2 : 1, distance = is_adjacent ? 1 : half;
    for (; i + 8 <= half; i += 8)
        if (is_adjacent)
            turn_8_adjacent(head + 2 * i, cosines + i, sines + i);
        else
            turn_8_apart(head + i, head + half + i, cosines + i, sines + i);
    for (; i < half; i++) {
        float *a = head + i * step, turned[2];
        turn_pair(a[0], a[distance], cosines[i], sines[i], turned);
        a[0] = turned[0];
        a[distance] = turned[1];
    }
}

static inline void norm_head(const struct rope_job *j, float *head)
{
    struct token_source normed = {head, j->gain, norm_factor(head, j->head_dim, j->epsilon)};
    for (int i = 0; i < j->head_dim; i += 16)
        lanes_store_n(head + i, source_lanes(&normed, i, j->head_dim), j->head_dim - i);
}

static inline void store_head(const float *head, int head_dim, uint16_t *out)
{
    int i = 0;
    for (; i + 16 <= head_dim; i += 16)
        f16_from_f32_16(head + i, out + i);
    for (; i < head_dim; i++)
        out[i] = f32_to_f16(head[i]);
}

static inline void rope_body(const struct rope_job *j, int begin, int end)
{
    int half = j->n_rot / 2;
    for (int u = begin; u < end; u++) {
        int t = u / j->n_heads, h = u % j->n_heads;
        float *head = j->x + t * j->x_stride + (int64_t)h * j->head_dim;
        if (j->gain)
            norm_head(j, head);
        turn_head(head, half, j->is_adjacent, j->cosines + (int64_t)t * half,
                  j->sines + (int64_t)t * half);
        if (j->out_f16)
            store_head(head, j->head_dim, j->out_f16[t] + h * j->f16_head_stride);
    }
}

#endif
