/* Magnitudes as integers: their order is that of the numbers, and NaN comes above infinity. */
#ifndef TRINE_KERNELS_MAGNITUDE_H
#define TRINE_KERNELS_MAGNITUDE_H

#include "base/float16.h"

static inline uint32_t higher_magnitude(uint32_t highest, float x)
{
    uint32_t magnitude = bits_from_f32(x) & 0x7fffffff;
    return magnitude > highest ? magnitude : highest;
}

/* The highest of peaks[i][t], i < n_peaks. */
static inline uint32_t highest_peak(const float *const *peaks, int n_peaks, int t)
{
    uint32_t highest = 0;
    for (int i = 0; i < n_peaks; i++)
        highest = higher_magnitude(highest, peaks[i][t]);
    return highest;
}

#endif
