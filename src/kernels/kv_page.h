/* Where one head's rows lie in a page of the KV cache. */
#ifndef TRINE_KERNELS_KV_PAGE_H
#define TRINE_KERNELS_KV_PAGE_H

#include "kernels/kernels.h"

/* Keys, or values, of one head: KV_PAGE rows of head_pad elements. */
struct kv_rows {
    enum kv_format format;
    int head_pad;
    uint16_t *f16;
    int8_t *q8;       /* q8_0 instead of f16 */
    uint16_t *scales; /* (KV_PAGE, head_pad / 32) */
};

/* data_at, scale_at: key_at and key_scale_at of the layout, or value_at and value_scale_at. */
static inline struct kv_rows kv_rows(enum kv_format format, int head_pad, uint8_t *page,
                                     int64_t data_at, int64_t scale_at, int head)
{
    int64_t first = (int64_t)head * KV_PAGE * head_pad;
    struct kv_rows rows = {.format = format, .head_pad = head_pad};
    if (format == KV_FORMAT_F16) {
        rows.f16 = (uint16_t *)(page + data_at) + first;
    } else {
        rows.q8 = (int8_t *)(page + data_at) + first;
        rows.scales = (uint16_t *)(page + scale_at) + first / 32;
    }
    return rows;
}

#endif
