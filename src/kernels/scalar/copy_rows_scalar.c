#include <string.h>

#include "kernels/kernels.h"

void copy_rows_scalar(const union job *job, int begin, int end)
{
    const struct copy_rows_job *j = &job->copy_rows;
    for (int i = begin; i < end; i++)
        memcpy(j->out + i * j->out_stride, j->x + j->rows[i] * j->x_stride,
               (size_t)j->n_cols * sizeof *j->out);
}
