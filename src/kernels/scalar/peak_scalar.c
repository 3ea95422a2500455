#include "kernels/kernels.h"
#include "kernels/magnitude.h"

void peak_scalar(const union job *job, int begin, int end)
{
    const struct peak_job *j = &job->peak;
    for (int t = begin; t < end; t++) {
        const float *x = j->x + t * j->x_stride;
        uint32_t highest = 0;
        for (int i = 0; i < j->n_cols; i++)
            highest = higher_magnitude(highest, x[i]);
        j->peaks[t] = f32_from_bits(highest);
    }
}
