/* Sums of parts by 16 lanes. Include after one of the lanes headers. */
#ifndef TRINE_KERNELS_LANES_REDUCE_BODY_H
#define TRINE_KERNELS_LANES_REDUCE_BODY_H

#include "kernels/kernels.h"

/* Rows row .. row + 15 of token t, those from `end` on as zeros. */
static inline struct lanes summed_floats(const struct reduce_job *j, int t, int row, int end)
{
    int64_t at = t * j->stride + row;
    struct lanes sum = lanes_load_n((const float *)j->parts[0] + at, end - row);
    for (int k = 1; k < j->n_parts; k++)
        sum = lanes_add(sum, lanes_load_n((const float *)j->parts[k] + at, end - row));
    return sum;
}

static inline struct lanes summed_ints(const struct reduce_job *j, int t, int row, int end)
{
    int64_t at = t * j->stride + row;
    struct lanes sum = lanes_set(0);     /* bits of integers */
    for (int k = 0; k < j->n_parts; k++) /* loads move bits, whatever the type */
        sum = lanes_add_int32(sum, lanes_load_n((const float *)j->parts[k] + at, end - row));
    sum = lanes_from_int32(sum);
    struct lanes row_scale = lanes_load_n(j->row_scale + row, end - row);
    return lanes_mul(sum, lanes_mul(row_scale, lanes_set(j->act_scale[t])));
}

static inline struct lanes affine(const struct reduce_job *j, int t, int row, int end,
                                  struct lanes y)
{
    if (j->scale != 1.0f)
        y = lanes_mul(y, lanes_set(j->scale));
    if (j->token_scale)
        y = lanes_mul(y, lanes_set(j->token_scale[t]));
    return j->bias ? lanes_add(y, lanes_load_n(j->bias + row, end - row)) : y;
}

static inline void reduce_body(const struct reduce_job *j, int begin, int end)
{
    for (int t = 0; t < j->n_tokens; t++)
        for (int row = begin; row < end; row += 16) {
            float *out = j->out + t * j->out_stride + row;
            struct lanes y =
                j->is_int ? summed_ints(j, t, row, end) : summed_floats(j, t, row, end);
            y = affine(j, t, row, end, y);
            if (j->is_add)
                y = lanes_add(lanes_load_n(out, end - row), y);
            lanes_store_n(out, y, end - row);
        }
}

#endif
