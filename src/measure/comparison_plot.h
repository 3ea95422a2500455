/* A comparison as a picture. */
#ifndef TRINE_MEASURE_COMPARISON_PLOT_H
#define TRINE_MEASURE_COMPARISON_PLOT_H

#include <stdio.h>

#include "measure/comparison.h"

/* Writes SVG. Left: every run as a mark over its variant, rounds from left to right, a line at the
 * median; runs of disturbed rounds, of cold ones and of attempts that were repeated have marks of
 * their own, and the disturbed run itself says its round. Right: the ratios to the base of the
 * rounds that count, their median and its 95 % interval. */
void comparison_plot(FILE *out, const struct comparison *c, const struct comparison_analysis *a);

#endif
