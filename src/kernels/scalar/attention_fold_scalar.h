/* Elementwise steps of joining chunks. */
#ifndef TRINE_KERNELS_SCALAR_ATTENTION_FOLD_SCALAR_H
#define TRINE_KERNELS_SCALAR_ATTENTION_FOLD_SCALAR_H

#include <math.h>

static inline void fold_output(float *out, float a, const float *o, float b, int n)
{
    for (int i = 0; i < n; i++) {
        float kept = out[i] * a;
        out[i] = fmaf(o[i], b, kept);
    }
}

static inline void divide_output(float *out, float divisor, int n)
{
    for (int i = 0; i < n; i++)
        out[i] /= divisor;
}

#endif
