#include "kernels/scalar/quantize_row_scalar.h"

void peak_scalar(const union job *job, int begin, int end)
{
    const struct peak_job *j = &job->peak;
    for (int t = begin; t < end; t++) {
        struct token_source source = {j->x + t * j->x_stride, j->gain, 1};
        j->peaks[t] = f32_from_bits(group_peak(&source, 0, j->n_cols));
    }
}
