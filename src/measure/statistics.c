#include "measure/statistics.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"

#define N_RESAMPLES 10000
#define SEED        1

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void sample_sort(double *values, size_t n)
{
    if (n > 1)
        qsort(values, n, sizeof *values, compare_doubles);
}

double sorted_quantile(const double *values, size_t n, double p)
{
    if (n == 0)
        return NAN;
    double h = p * (double)(n - 1);
    size_t below = (size_t)h;
    if (below + 1 >= n)
        return values[n - 1];
    return values[below] + (h - (double)below) * (values[below + 1] - values[below]);
}

double sample_mean(const double *values, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += values[i];
    return n ? sum / (double)n : NAN;
}

double sample_standard_error(const double *values, size_t n)
{
    if (n < 2)
        return NAN;
    double mean = sample_mean(values, n), squares = 0;
    for (size_t i = 0; i < n; i++)
        squares += (values[i] - mean) * (values[i] - mean);
    return sqrt(squares / (double)(n - 1) / (double)n);
}

/* The value at this place of the ascending resample that holds values[i] drawn[i] times. */
static double drawn_value(const double *values, const int *drawn, size_t place)
{
    size_t i = 0;
    for (size_t seen = (size_t)drawn[0]; seen <= place; seen += (size_t)drawn[i])
        i++;
    return values[i];
}

/* The median of a resample: counted, not sorted. */
static double resample_median(const double *values, size_t n, int *drawn, struct random *random)
{
    for (size_t i = 0; i < n; i++)
        drawn[i] = 0;
    for (size_t i = 0; i < n; i++)
        drawn[(size_t)(random_unit(random) * (double)n)]++;
    double upper = drawn_value(values, drawn, n / 2);
    return n % 2 ? upper : (drawn_value(values, drawn, n / 2 - 1) + upper) / 2;
}

enum status bootstrap_median(const double *values, size_t n, struct interval *interval,
                             struct error *err)
{
    *interval = (struct interval){NAN, NAN};
    if (n == 0)
        return STATUS_OK;
    double *medians = memory_alloc(N_RESAMPLES, sizeof *medians);
    int *drawn = memory_alloc(n, sizeof *drawn);
    if (medians && drawn) {
        struct random random;
        random_init(&random, SEED);
        for (int i = 0; i < N_RESAMPLES; i++)
            medians[i] = resample_median(values, n, drawn, &random);
        sample_sort(medians, N_RESAMPLES);
        interval->low = sorted_quantile(medians, N_RESAMPLES, 0.025);
        interval->high = sorted_quantile(medians, N_RESAMPLES, 0.975);
    }
    enum status status = medians && drawn ? STATUS_OK : fail_memory(err, "bootstrap", n);
    memory_free(medians);
    memory_free(drawn);
    return status;
}

double sign_test(int most, int n)
{
    double chance = 0, ways = 1; /* n over k */
    for (int k = n; k >= most && k >= 0; k--) {
        chance += ways * pow(0.5, n);
        ways *= (double)k / (n - k + 1);
    }
    return fmin(1, 2 * chance);
}
