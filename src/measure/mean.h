/* Means of numbers that come one at a time, and their standard errors. */
#ifndef TRINE_MEASURE_MEAN_H
#define TRINE_MEASURE_MEAN_H

#include <stdint.h>

/* A zeroed one is empty. The same numbers in the same order give the same bits. */
struct mean {
    int64_t n;
    double value;   /* of the numbers so far; 0: none */
    double squares; /* sum of squared distances from it */
};

void mean_add(struct mean *mean, double number);

/* Standard error of the mean; NAN for fewer than two numbers.
 *   sqrt((mean(x^2) - mean(x)^2) / (n - 1)) */
double mean_error(const struct mean *mean);

/* Standard error of the share n_hits / n of yes-or-no outcomes; NAN for n < 2.
 *   sqrt(p (1 - p) / (n - 1)) */
double share_error(int64_t n_hits, int64_t n);

#endif
