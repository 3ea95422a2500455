#include <math.h>

#include "kernels/float_ops.h"
#include "kernels/kernels.h"

void squares_scalar(const union job *job, int begin, int end)
{
    const struct squares_job *j = &job->squares;
    for (int t = begin; t < end; t++)
        for (int i = 0; i < j->n_cols; i += SQUARES_BLOCK) {
            const float *x = j->x + t * j->x_stride + i;
            float lanes[SQUARES_BLOCK] = {0};
            for (int l = 0; l < SQUARES_BLOCK && i + l < j->n_cols; l++)
                lanes[l] = x[l] * x[l];
            j->squares[t * j->stride + i / SQUARES_BLOCK] = sum16(lanes);
        }
}

void norm_factor_scalar(const union job *job, int begin, int end)
{
    const struct norm_factor_job *j = &job->norm_factor;
    int n_blocks = (j->n_cols + SQUARES_BLOCK - 1) / SQUARES_BLOCK;
    for (int t = begin; t < end; t++) {
        const float *squares = j->squares + t * j->stride;
        float lanes[16] = {0};
        for (int k = 0; k < n_blocks; k++)
            lanes[k % 16] += squares[k];
        j->factor[t] = 1 / sqrtf(sum16(lanes) / (float)j->n_cols + j->epsilon);
    }
}
