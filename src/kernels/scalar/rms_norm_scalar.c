#include "kernels/float_ops.h"
#include "kernels/scalar/quantize_row_scalar.h"

static float norm_factor(const float *x, int n, float epsilon)
{
    float lanes[16] = {0};
    for (int i = 0; i < n; i++)
        lanes[i % 16] = fmaf(x[i], x[i], lanes[i % 16]);
    return 1 / sqrtf(sum16(lanes) / (float)n + epsilon);
}

void rms_norm_scalar(const union job *job, int begin, int end)
{
    const struct rms_norm_job *j = &job->rms_norm;
    for (int t = begin; t < end; t++) {
        const float *x = j->x + t * j->x_stride;
        struct token_source source = {x, j->gain, norm_factor(x, j->n_cols, j->epsilon)};
        if (j->out) {
            float *out = j->out + t * j->out_stride;
            for (int i = 0; i < j->n_cols; i++)
                out[i] = source_value(&source, i);
            source = (struct token_source){.x = out};
        }
        if (j->a.q)
            quantize_row(&source, &j->a, t);
    }
}
