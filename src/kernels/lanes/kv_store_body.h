/* Keys and values by 16 lanes. Include after one of the lanes headers. */
#ifndef TRINE_KERNELS_LANES_KV_STORE_BODY_H
#define TRINE_KERNELS_LANES_KV_STORE_BODY_H

#include "kernels/kv_store_walk.h"
#include "kernels/lanes/quantize_body.h"

static inline void store_q8_0(const struct kv_rows *rows, int row, const float *x, int head_dim)
{
    struct token_source source = {.x = x};
    int8_t *q = rows->q8 + (int64_t)row * rows->head_pad;
    uint16_t *scales = rows->scales + (int64_t)row * (rows->head_pad / 32);
    int written = (head_dim + 15) / 16 * 16;
    memset(q + written, 0, (size_t)(rows->head_pad - written));
    for (int i = 0; i < head_dim; i += 32) {
        float scale;
        quantize_group(&source, i, i + 32 < head_dim ? i + 32 : head_dim, q, &scale);
        scales[i / 32] = f32_to_f16(scale);
    }
}

static inline void store_row(const struct kv_rows *rows, int row, const float *x, int head_dim)
{
    if (rows->format == KV_FORMAT_Q8_0) {
        store_q8_0(rows, row, x, head_dim);
        return;
    }
    uint16_t *out = rows->f16 + (int64_t)row * rows->head_pad;
    for (int i = 0; i < rows->head_pad; i += 16) {
        float padded[16] = {0};
        if (i < head_dim)
            lanes_store(padded, lanes_load_n(x + i, head_dim - i));
        f16_from_f32_16(padded, out + i);
    }
}

static inline void kv_store_body(const struct kv_store_job *j, int begin, int end)
{
    kv_store_walk(j, begin, end, store_row);
}

#endif
