#include "kernels/scalar/quantize_row_scalar.h"

void quantize_scalar(const union job *job, int begin, int end)
{
    const struct quantize_job *j = &job->quantize;
    for (int t = begin; t < end; t++) {
        struct token_source source = {j->x + t * j->x_stride, j->gain, 1};
        uint32_t peak = highest_peak(j->peaks, j->n_peaks, t);
        if (j->a.q)
            quantize_row_to(&source, &j->a, t, j->n_peaks > 0 ? &peak : NULL);
        for (int64_t i = 0; !j->a.q && i < j->a.n_cols; i++)
            j->a.x[t * j->a.stride + i] = source_value(&source, i);
    }
}
