/* hadamard by 16 lanes. Include after one of the lanes headers, and after lanes_turn_signs and
 * lanes_butterflies. */
#ifndef TRINE_KERNELS_LANES_HADAMARD_BODY_H
#define TRINE_KERNELS_LANES_HADAMARD_BODY_H

#include "kernels/lanes/quantize_body.h"

/* Butterflies of lengths len and 2 len, 16 or more. */
static inline void two_butterflies(float *x, int block, int len)
{
    for (int at = 0; at < block; at += 4 * len)
        for (float *p = x + at; p < x + at + len; p += 16) {
            struct lanes a = lanes_load(p), b = lanes_load(p + len);
            struct lanes c = lanes_load(p + 2 * len), d = lanes_load(p + 3 * len);
            struct lanes ab = lanes_add(a, b), cd = lanes_add(c, d);
            a = lanes_sub(a, b);
            c = lanes_sub(c, d);
            lanes_store(p, lanes_add(ab, cd));
            lanes_store(p + len, lanes_add(a, c));
            lanes_store(p + 2 * len, lanes_sub(ab, cd));
            lanes_store(p + 3 * len, lanes_sub(a, c));
        }
}

/* The last ones, where only one length is left. */
static inline void last_butterfly(float *x, int len)
{
    for (float *p = x; p < x + len; p += 16) {
        struct lanes a = lanes_load(p), b = lanes_load(p + len);
        lanes_store(p, lanes_add(a, b));
        lanes_store(p + len, lanes_sub(a, b));
    }
}

static inline void transform_block(const float *x, const int8_t *signs, int block, float *out)
{
    for (int i = 0; i < block; i += 16) {
        struct lanes v = lanes_load(x + i);
        v = signs ? lanes_turn_signs(v, signs + i) : v;
        lanes_store(out + i, lanes_butterflies(v));
    }
    int len = 16;
    for (; 4 * len <= block; len *= 4)
        two_butterflies(out, block, len);
    if (len < block)
        last_butterfly(out, len);
    struct lanes scale = lanes_set(1 / sqrtf((float)block));
    for (int i = 0; i < block; i += 16)
        lanes_store(out + i, lanes_mul(lanes_load(out + i), scale));
}

static inline void hadamard_body(const struct hadamard_job *j, int begin, int end)
{
    for (int t = begin; t < end; t++) {
        const float *x = j->x + t * j->x_stride;
        float *out = j->out + t * j->out_stride;
        for (int at = 0; at < j->n_cols; at += j->block)
            transform_block(x + at, j->signs ? j->signs + at : NULL, j->block, out + at);
        if (j->a.q)
            quantize_row(&(struct token_source){.x = out}, &j->a, t);
    }
}

#endif
