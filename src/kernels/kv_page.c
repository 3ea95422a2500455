#include "kernels/kernels.h"

struct kv_page_layout kv_page_layout(enum kv_format format, int n_heads, int head_dim)
{
    struct kv_page_layout layout = {.head_pad = (head_dim + 31) / 32 * 32};
    int64_t elements = (int64_t)n_heads * KV_PAGE * layout.head_pad;
    int64_t bytes = format == KV_FORMAT_F16 ? 2 * elements : elements;
    int64_t scale_bytes = format == KV_FORMAT_F16 ? 0 : elements / 32 * 2;
    layout.key_at = 0;
    layout.key_scale_at = bytes;
    layout.value_at = bytes + scale_bytes;
    layout.value_scale_at = layout.value_at + bytes;
    layout.bytes = layout.value_scale_at + scale_bytes;
    return layout;
}
