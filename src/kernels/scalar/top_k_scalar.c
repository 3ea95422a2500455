#include "kernels/kernels.h"
#include "kernels/top_k_list.h"

void top_k_scalar(const union job *job, int begin, int end)
{
    const struct top_k_job *j = &job->top_k;
    for (int64_t row = begin; row < end; row++) {
        struct top_k_list list = {0, j->k, j->ids + row * j->k, j->values + row * j->k};
        for (int i = 0; i < j->n; i++)
            top_k_offer(&list, j->x[row * j->x_stride + i], i);
    }
}
