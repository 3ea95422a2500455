/* Numbers of a sample. NAN for what a sample of that size does not have. */
#ifndef TRINE_MEASURE_STATISTICS_H
#define TRINE_MEASURE_STATISTICS_H

#include <stddef.h>

#include "base/error.h"

/* Ascending. No value may be NAN. */
void sample_sort(double *values, size_t n);

/* Of ascending values, p from 0 to 1: linear between the value at floor(h) and the next one,
 * h = p (n - 1); 0.5 is the median.
 * source  Hyndman and Fan 1996, definition 7 */
double sorted_quantile(const double *values, size_t n, double p);

double sample_mean(const double *values, size_t n);

/* Of the mean: sqrt(sum of squared differences / (n - 1) / n); NAN for less than two values. */
double sample_standard_error(const double *values, size_t n);

struct interval {
    double low, high;
};

/* The interval in which the median of 10,000 samples of n values, drawn from these n with
 * replacement, falls 95 % of the time (percentile bootstrap). The draws are the same every time.
 * Of few values it is too narrow: the chance that it misses the median of what the values were
 * drawn from is 6.25 % for 5 values, where it is just the lowest and the highest, 12.5 % for 7,
 * 6.5 % for 11. sign_test below has no such fault. Values are ascending; one is its own interval.
 * errors  MEMORY */
enum status bootstrap_median(const double *values, size_t n, struct interval *interval,
                             struct error *err);

/* The chance that of n fair coins at least `most` fall on the side on which most of them fall
 * (two-sided sign test); 1 for most <= n / 2. */
double sign_test(int most, int n);

#endif
