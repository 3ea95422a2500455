#include "kernels/float_ops.h"
#include "kernels/kernels.h"

static void turn_head(const struct rope_job *j, int t, float *head)
{
    int half = j->n_rot / 2, step = j->is_adjacent ? 2 : 1, distance = j->is_adjacent ? 1 : half;
    const float *cosines = j->cosines + (int64_t)t * half;
    const float *sines = j->sines + (int64_t)t * half;
    for (int i = 0; i < half; i++) {
        float *a = head + i * step, turned[2];
        turn_pair(a[0], a[distance], cosines[i], sines[i], turned);
        a[0] = turned[0];
        a[distance] = turned[1];
    }
}

static void norm_head(const struct rope_job *j, float *head)
{
    struct rms_norm_job norm = {.x = head, .gain = j->gain, .n_cols = j->head_dim, .out = head};
    norm.epsilon = j->epsilon;
    rms_norm_scalar(&(union job){.rms_norm = norm}, 0, 1);
}

void rope_scalar(const union job *job, int begin, int end)
{
    const struct rope_job *j = &job->rope;
    for (int u = begin; u < end; u++) {
        int t = u / j->n_heads, h = u % j->n_heads;
        float *head = j->x + t * j->x_stride + (int64_t)h * j->head_dim;
        if (j->gain)
            norm_head(j, head);
        turn_head(j, t, head);
        for (int i = 0; j->out_f16 && i < j->head_dim; i++)
            j->out_f16[t][h * j->f16_head_stride + i] = f32_to_f16(head[i]);
    }
}
