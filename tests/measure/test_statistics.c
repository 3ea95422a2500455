/* Statistics against values in closed form. */
#include "../support.h"

#include <math.h>

#include "base/memory.h"
#include "base/random.h"
#include "measure/statistics.h"

static void near_to(double found, double expected, double tolerance)
{
    if (!(fabs(found - expected) <= tolerance))
        fail_msg("found %.12g, expected %.12g", found, expected);
}

static void test_quantiles(void **state)
{
    (void)state;
    double odd[] = {5, 1, 9, 3, 7}, even[] = {4, 1, 3, 2}, one[] = {6};
    sample_sort(odd, 5);
    sample_sort(even, 4);
    near_to(sorted_quantile(odd, 5, 0.5), 5, 0);
    near_to(sorted_quantile(even, 4, 0.5), 2.5, 0);
    near_to(sorted_quantile(one, 1, 0.5), 6, 0);
    near_to(sorted_quantile(odd, 5, 0), 1, 0);
    near_to(sorted_quantile(odd, 5, 1), 9, 0);
    near_to(sorted_quantile(odd, 5, 0.25), 3, 0);
    near_to(sorted_quantile(even, 4, 0.25), 1.75, 1e-15); /* h = 0.75 */
    near_to(sorted_quantile(even, 4, 0.9), 3.7, 1e-15);   /* h = 2.7 */
    assert_true(isnan(sorted_quantile(odd, 0, 0.5)));
}

/* 1..n: mean (n + 1) / 2, variance n (n + 1) / 12. */
static void test_mean(void **state)
{
    (void)state;
    double v[100];
    for (int n = 1; n <= 100; n++) {
        v[n - 1] = n;
        near_to(sample_mean(v, (size_t)n), (n + 1) / 2.0, 1e-12);
        if (n > 1)
            near_to(sample_standard_error(v, (size_t)n), sqrt((n + 1) / 12.0), 1e-12);
    }
    assert_true(isnan(sample_mean(v, 0)) && isnan(sample_standard_error(v, 1)));
}

/* Chance of at least k successes in n draws. */
static double at_least(int n, double p, int k)
{
    double sum = 0;
    for (int i = k; i <= n; i++)
        sum += exp(lgamma(n + 1) - lgamma(i + 1) - lgamma(n - i + 1) + i * log(p) +
                   (n - i) * log1p(-p));
    return sum;
}

/* Of an odd n the median of a resample is at most the kth value if at least (n + 1) / 2 draws are:
 * a binomial chance. The interval begins at the first k for which that reaches 2.5 %. Left out are
 * those n where the chance lies within four deviations of 10,000 draws of 2.5 %. */
static void test_bootstrap(void **state)
{
    (void)state;
    int n_tested = 0;
    for (int n = 3; n <= 31; n += 2) {
        double v[31], deviation = sqrt(0.025 * 0.975 / 10000), below = 0, chance = 0;
        struct interval found;
        int k = 0;
        for (int i = 0; i < n; i++)
            v[i] = (i + 1) * (i + 1);
        while (chance < 0.025) {
            below = chance;
            chance = at_least(n, (double)++k / n, (n + 1) / 2);
        }
        if (chance - 0.025 < 4 * deviation || 0.025 - below < 4 * deviation)
            continue;
        n_tested++;
        assert_int_equal(bootstrap_median(v, (size_t)n, &found, NULL), STATUS_OK);
        near_to(found.low, k * k, 0);
        near_to(found.high, (n + 1 - k) * (n + 1 - k), 0);
    }
    assert_true(n_tested >= 8);
}

static void test_bootstrap_edges(void **state)
{
    (void)state;
    struct interval found;
    double v[] = {2, 4};
    assert_int_equal(bootstrap_median(v, 1, &found, NULL), STATUS_OK);
    assert_true(found.low == 2 && found.high == 2);
    assert_int_equal(bootstrap_median(v, 2, &found, NULL), STATUS_OK);
    assert_true(found.low == 2 && found.high == 4); /* each is a quarter of the resamples */
    assert_int_equal(bootstrap_median(v, 0, &found, NULL), STATUS_OK);
    assert_true(isnan(found.low) && isnan(found.high));
    for (int i = 0; i < 2; i++) {
        memory_fail_after(i);
        struct error err;
        assert_int_equal(bootstrap_median(v, 2, &found, &err), STATUS_MEMORY);
        memory_fail_after(-1);
    }
}

/* How often the interval misses, as the header says: 2 * chance that n fair coins show fewer than k
 * heads, k as above. Here with real draws. */
static void test_bootstrap_misses(void **state)
{
    (void)state;
    static const struct {
        int n;
        double misses;
    } cases[] = {{5, 0.0625}, {7, 0.125}, {11, 134 / 2048.0}};
    for (int c = 0; c < 3; c++) {
        struct random random;
        random_init(&random, 99);
        int n = cases[c].n, n_missed = 0, n_tries = 250;
        for (int t = 0; t < n_tries; t++) {
            double v[11];
            struct interval found;
            for (int i = 0; i < n; i++)
                v[i] = random_normal(&random);
            sample_sort(v, (size_t)n);
            assert_int_equal(bootstrap_median(v, (size_t)n, &found, NULL), STATUS_OK);
            n_missed += found.low > 0 || found.high < 0;
        }
        double deviation = sqrt(cases[c].misses * (1 - cases[c].misses) / n_tries);
        near_to((double)n_missed / n_tries, cases[c].misses, 4 * deviation);
    }
}

static void test_sign(void **state)
{
    (void)state;
    near_to(sign_test(5, 5), 0.0625, 1e-15);
    near_to(sign_test(4, 5), 0.375, 1e-15);
    near_to(sign_test(3, 5), 1, 0);
    near_to(sign_test(2, 4), 1, 0);
    near_to(sign_test(8, 9), 20 / 512.0, 1e-15);
    near_to(sign_test(7, 7), 2 / 128.0, 1e-15);
    near_to(sign_test(0, 0), 1, 0);
    near_to(sign_test(600, 1000), 2 * at_least(1000, 0.5, 600), 1e-12);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantiles),        cmocka_unit_test(test_mean),
        cmocka_unit_test(test_bootstrap),        cmocka_unit_test(test_bootstrap_edges),
        cmocka_unit_test(test_bootstrap_misses), cmocka_unit_test(test_sign),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
