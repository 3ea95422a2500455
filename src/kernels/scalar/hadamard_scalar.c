#include "kernels/scalar/quantize_row_scalar.h"

static void transform(float *x, int block)
{
    for (int len = 1; len < block; len *= 2)
        for (int i = 0; i < block; i++)
            if (!(i & len)) {
                float a = x[i], c = x[i + len];
                x[i] = a + c;
                x[i + len] = a - c;
            }
    float scale = 1 / sqrtf((float)block);
    for (int i = 0; i < block; i++)
        x[i] *= scale;
}

void hadamard_scalar(const union job *job, int begin, int end)
{
    const struct hadamard_job *j = &job->hadamard;
    for (int t = begin; t < end; t++) {
        const float *x = j->x + t * j->x_stride;
        float *out = j->out + t * j->out_stride;
        for (int i = 0; i < j->n_cols; i++)
            out[i] = j->signs && j->signs[i] < 0 ? -x[i] : x[i];
        for (int at = 0; at < j->n_cols; at += j->block)
            transform(out + at, j->block);
        if (j->a.q)
            quantize_row(&(struct token_source){.x = out}, &j->a, t);
    }
}
