#include "kernels/kernels.h"

void embed_scalar(const union job *job, int begin, int end)
{
    const struct embed_job *j = &job->embed;
    for (int t = begin; t < end; t++) {
        float *out = j->out + t * j->out_stride;
        tensor_decode(j->table, j->tokens[t], (int64_t)j->tokens[t] + 1, out);
        for (int i = 0; i < j->n_cols; i++)
            out[i] *= j->scale;
    }
}
