#include <immintrin.h>

#include "kernels/kernels.h"
#include "kernels/top_k_list.h"

/* False when none of 32 floats can enter the list. A NaN counts as if it could. */
static bool has_candidate(const float *x, float worst)
{
    __m256 limit = _mm256_set1_ps(worst);
    __m256 found = _mm256_setzero_ps();
    for (int i = 0; i < 32; i += 8)
        found = _mm256_or_ps(found, _mm256_cmp_ps(_mm256_loadu_ps(x + i), limit, _CMP_NLE_UQ));
    return _mm256_movemask_ps(found) != 0;
}

void top_k_avx2(const union job *job, int begin, int end)
{
    const struct top_k_job *j = &job->top_k;
    for (int64_t row = begin; row < end; row++) {
        const float *x = j->x + row * j->x_stride;
        struct top_k_list list = {0, j->k, j->ids + row * j->k, j->values + row * j->k};
        for (int i = 0; i < j->n; i += 32) {
            int n = i + 32 <= j->n ? 32 : j->n - i;
            if (n == 32 && list.n == list.k && !has_candidate(x + i, list.values[list.k - 1]))
                continue;
            for (int k = i; k < i + n; k++)
                top_k_offer(&list, x[k], k);
        }
    }
}
