/* Sums of squares of 16 lanes each. Include after one of the lanes headers. */
#ifndef TRINE_KERNELS_LANES_SQUARES_BODY_H
#define TRINE_KERNELS_LANES_SQUARES_BODY_H

#include "kernels/kernels.h"

static inline void squares_body(const struct squares_job *j, int begin, int end)
{
    for (int t = begin; t < end; t++)
        for (int i = 0; i < j->n_cols; i += SQUARES_BLOCK) {
            struct lanes x = lanes_load_n(j->x + t * j->x_stride + i, j->n_cols - i);
            j->squares[t * j->stride + i / SQUARES_BLOCK] = lanes_sum(lanes_mul(x, x));
        }
}

#endif
