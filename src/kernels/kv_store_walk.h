/* The walk of kv_store over tokens and heads; one row is stored by the instruction set's own
 * function. */
#ifndef TRINE_KERNELS_KV_STORE_WALK_H
#define TRINE_KERNELS_KV_STORE_WALK_H

#include "kernels/kv_page.h"

/* Stores head_dim floats as row `row` and zeroes the rest of it. */
typedef void kv_store_row(const struct kv_rows *rows, int row, const float *x, int head_dim);

static inline void kv_store_walk(const struct kv_store_job *j, int begin, int end,
                                 kv_store_row *store_row)
{
    struct kv_page_layout at = kv_page_layout(j->format, j->n_heads, j->head_dim);
    for (int t = begin; t < end; t++) {
        uint8_t *page = j->pages[t][j->position[t] / KV_PAGE];
        int row = j->position[t] % KV_PAGE;
        for (int h = 0; h < j->n_heads; h++) {
            int64_t x_at = t * j->stride + (int64_t)h * j->head_dim;
            struct kv_rows keys =
                kv_rows(j->format, at.head_pad, page, at.key_at, at.key_scale_at, h);
            struct kv_rows values =
                kv_rows(j->format, at.head_pad, page, at.value_at, at.value_scale_at, h);
            store_row(&keys, row, j->k + x_at, j->head_dim);
            store_row(&values, row, j->v + x_at, j->head_dim);
        }
    }
}

#endif
