#include "kernels/float_ops.h"
#include "kernels/kernels.h"

void rope_scalar(const union job *job, int begin, int end)
{
    const struct rope_job *j = &job->rope;
    int half = j->n_rot / 2, step = j->is_adjacent ? 2 : 1, distance = j->is_adjacent ? 1 : half;
    for (int t = begin; t < end; t++)
        for (int h = 0; h < j->n_heads; h++) {
            float *head = j->x + t * j->x_stride + (int64_t)h * j->head_dim;
            const float *cosines = j->cosines + (int64_t)t * half;
            const float *sines = j->sines + (int64_t)t * half;
            for (int i = 0; i < half; i++) {
                float *a = head + i * step, turned[2];
                turn_pair(a[0], a[distance], cosines[i], sines[i], turned);
                a[0] = turned[0];
                a[distance] = turned[1];
            }
        }
}
