#include "measure/mean.h"

#include <math.h>

/* Welford's recurrence: no small difference of large sums. */
void mean_add(struct mean *mean, double number)
{
    double distance = number - mean->value;
    mean->n++;
    mean->value += distance / (double)mean->n;
    mean->squares += distance * (number - mean->value);
}

double mean_error(const struct mean *mean)
{
    if (mean->n < 2)
        return NAN;
    return sqrt(mean->squares / (double)mean->n / (double)(mean->n - 1));
}

double share_error(int64_t n_hits, int64_t n)
{
    if (n < 2)
        return NAN;
    double share = (double)n_hits / (double)n;
    return sqrt(share * (1 - share) / (double)(n - 1));
}
