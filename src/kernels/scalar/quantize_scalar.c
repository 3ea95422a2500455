#include "kernels/scalar/quantize_row_scalar.h"

void quantize_scalar(const union job *job, int begin, int end)
{
    const struct quantize_job *j = &job->quantize;
    for (int t = begin; t < end; t++)
        quantize_row(&(struct token_source){.x = j->x + t * j->x_stride}, &j->a, t);
}
