#include "kernels/x86/lanes_avx2.h"

#include "kernels/kernels.h"

void squares_avx2(const union job *job, int begin, int end)
{
    const struct squares_job *j = &job->squares;
    for (int t = begin; t < end; t++)
        for (int i = 0; i < j->n_cols; i += SQUARES_BLOCK) {
            struct lanes x = lanes_load_n(j->x + t * j->x_stride + i, j->n_cols - i);
            j->squares[t * j->stride + i / SQUARES_BLOCK] = lanes_sum(lanes_mul(x, x));
        }
}
