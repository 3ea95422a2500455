#include "kernels/attention_walk.h"
#include "kernels/scalar/attention_fold_scalar.h"

static float row_value(const struct kv_rows *rows, int row, int i)
{
    int64_t at = (int64_t)row * rows->head_pad + i;
    if (rows->format == KV_FORMAT_F16)
        return f16_to_f32(rows->f16[at]);
    return (float)rows->q8[at] * f16_to_f32(rows->scales[at / 32]);
}

static float dot(const float *q, const struct kv_rows *keys, int row)
{
    float lanes[16] = {0};
    for (int i = 0; i < keys->head_pad; i++)
        lanes[i % 16] = fmaf(q[i], row_value(keys, row, i), lanes[i % 16]);
    return sum16(lanes);
}

/* One query over `visible` positions. */
static void attend_one(struct query_block *block, int i)
{
    float e[KV_PAGE], lanes[16] = {0}, m = -INFINITY, *o = block->o[i];
    int n = block->visible[i], head_pad = block->keys.head_pad;
    for (int p = 0; p < n; p++) {
        e[p] = dot(block->q[i], &block->keys, p) * block->scale;
        m = e[p] > m ? e[p] : m;
    }
    m += 0.0f; /* no -0, whichever of two zeros came first */
    for (int p = 0; p < n; p++) {
        e[p] = trine_exp(e[p] - m);
        lanes[p % 16] += e[p];
    }
    memset(o, 0, (size_t)head_pad * sizeof *o);
    for (int p = 0; p < n; p++)
        for (int d = 0; d < head_pad; d++)
            o[d] = fmaf(e[p], row_value(&block->values, p, d), o[d]);
    block->state[i] = (struct fold_state){m, sum16(lanes)};
}

static void attend(struct query_block *block)
{
    for (int i = 0; i < block->n; i++)
        attend_one(block, i);
}

void attention_scalar(const union job *job, int begin, int end)
{
    static const struct attention_steps steps = {attend, fold_output, divide_output};
    attention_walk(&job->attention, &steps, begin, end);
}
