#include "kernels/scalar/quantize_row_scalar.h"

void quantize_scalar(const union job *job, int begin, int end)
{
    const struct quantize_job *j = &job->quantize;
    for (int t = begin; t < end; t++) {
        uint32_t peak = highest_peak(j->peaks, j->n_peaks, t);
        quantize_row_to(&(struct token_source){.x = j->x + t * j->x_stride}, &j->a, t,
                        j->n_peaks > 0 ? &peak : NULL);
    }
}
