#include "kernels/kv_store_walk.h"
#include "kernels/scalar/quantize_row_scalar.h"

static void store_q8_0(const struct kv_rows *rows, int row, const float *x, int head_dim)
{
    struct token_source source = {.x = x};
    int8_t *q = rows->q8 + (int64_t)row * rows->head_pad;
    uint16_t *scales = rows->scales + (int64_t)row * (rows->head_pad / 32);
    memset(q, 0, (size_t)rows->head_pad);
    for (int i = 0; i < rows->head_pad; i += 32) {
        float scale = 0;
        if (i < head_dim)
            quantize_group(&source, i, i + 32 < head_dim ? i + 32 : head_dim, q, &scale);
        scales[i / 32] = f32_to_f16(scale);
    }
}

static void store_row(const struct kv_rows *rows, int row, const float *x, int head_dim)
{
    if (rows->format == KV_FORMAT_Q8_0) {
        store_q8_0(rows, row, x, head_dim);
        return;
    }
    uint16_t *out = rows->f16 + (int64_t)row * rows->head_pad;
    for (int i = 0; i < rows->head_pad; i++)
        out[i] = i < head_dim ? f32_to_f16(x[i]) : 0;
}

void kv_store_scalar(const union job *job, int begin, int end)
{
    kv_store_walk(&job->kv_store, begin, end, store_row);
}
