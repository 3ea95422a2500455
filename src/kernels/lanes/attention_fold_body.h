/* Elementwise steps of joining chunks, by 16 lanes. Include after one of the lanes headers. */
#ifndef TRINE_KERNELS_LANES_ATTENTION_FOLD_BODY_H
#define TRINE_KERNELS_LANES_ATTENTION_FOLD_BODY_H

#include <stdint.h>

static inline void fold_output(float *out, float a, const float *o, float b, int n)
{
    for (int i = 0; i < n; i += 16) {
        struct lanes kept = lanes_mul(lanes_load_n(out + i, n - i), lanes_set(a));
        struct lanes sum = lanes_fma(lanes_load_n(o + i, n - i), lanes_set(b), kept);
        lanes_store_n(out + i, sum, n - i);
    }
}

static inline void divide_output(float *out, float divisor, int n)
{
    for (int i = 0; i < n; i += 16) {
        struct lanes quotient = lanes_div(lanes_load_n(out + i, n - i), lanes_set(divisor));
        lanes_store_n(out + i, quotient, n - i);
    }
}

#endif
