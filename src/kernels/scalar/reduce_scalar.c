#include "kernels/kernels.h"

static float summed(const struct reduce_job *j, int t, int row)
{
    int64_t at = t * j->stride + row;
    if (j->is_int) {
        int32_t sum = 0;
        for (int k = 0; k < j->n_parts; k++)
            sum += ((const int32_t *)j->parts[k])[at];
        return (float)sum * (j->row_scale[row] * j->act_scale[t]);
    }
    float sum = ((const float *)j->parts[0])[at];
    for (int k = 1; k < j->n_parts; k++)
        sum += ((const float *)j->parts[k])[at];
    return sum;
}

static float affine(const struct reduce_job *j, int t, int row, float y)
{
    if (j->scale != 1.0f)
        y *= j->scale;
    if (j->token_scale)
        y *= j->token_scale[t];
    return j->bias ? y + j->bias[row] : y;
}

void reduce_scalar(const union job *job, int begin, int end)
{
    const struct reduce_job *j = &job->reduce;
    for (int t = 0; t < j->n_tokens; t++)
        for (int row = begin; row < end; row++) {
            float *out = j->out + t * j->out_stride + row;
            float y = affine(j, t, row, summed(j, t, row));
            *out = j->is_add ? *out + y : y;
        }
}
