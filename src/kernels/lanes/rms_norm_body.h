/* rms_norm by 16 lanes. Include after one of the lanes headers. */
#ifndef TRINE_KERNELS_LANES_RMS_NORM_BODY_H
#define TRINE_KERNELS_LANES_RMS_NORM_BODY_H

#include "kernels/lanes/quantize_body.h"

static inline float norm_factor(const float *x, int n, float epsilon)
{
    struct lanes sum = lanes_set(0);
    for (int i = 0; i < n; i += 16) {
        struct lanes v = lanes_load_n(x + i, n - i);
        sum = lanes_fma(v, v, sum);
    }
    return 1 / sqrtf(lanes_sum(sum) / (float)n + epsilon);
}

static inline void rms_norm_body(const struct rms_norm_job *j, int begin, int end)
{
    for (int t = begin; t < end; t++) {
        const float *x = j->x + t * j->x_stride;
        struct token_source normed = {x, j->gain, norm_factor(x, j->n_cols, j->epsilon)};
        float *out = j->out ? j->out + t * j->out_stride : NULL;
        for (int i = 0; out && i < j->n_cols; i += 16)
            lanes_store_n(out + i, source_lanes(&normed, i, j->n_cols), j->n_cols - i);
        if (j->a.q && out)
            quantize_row(&(struct token_source){.x = out}, &j->a, t);
        else if (j->a.q)
            quantize_row(&normed, &j->a, t);
    }
}

#endif
