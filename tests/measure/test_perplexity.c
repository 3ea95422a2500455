/* Means and perplexity against their equations. */
#include <math.h>

#include "../support.h"
#include "measure/perplexity.h"

static void assert_near(double found, double expected, double relative)
{
    if (!(fabs(found - expected) <= relative * fabs(expected)))
        fail_msg("%.17g instead of %.17g", found, expected);
}

static void test_log_sum_exp(void **state)
{
    (void)state;
    float zeros[8] = {0}, high[8];
    for (int i = 0; i < 8; i++)
        high[i] = 3000; /* exp overflows even in double */
    assert_near(log_sum_exp(zeros, 8), log(8), 1e-15);
    assert_near(log_sum_exp(high, 8), 3000 + log(8), 1e-15);
    static const float low[] = {-1000, -1000.5f, -2000};
    assert_near(log_sum_exp(low, 3), -1000 + log1p(exp(-0.5)), 1e-15);
}

/* A model that knows nothing has the perplexity of its vocabulary, without doubt. */
static void test_uniform(void **state)
{
    (void)state;
    static const float logits[50] = {0};
    struct mean nll = {0};
    for (int i = 0; i < 100; i++)
        mean_add(&nll, log_sum_exp(logits, 50) - (double)logits[i % 50]);
    assert_near(perplexity_of(&nll), 50, 1e-12);
    assert_true(perplexity_error(&nll) < 1e-12);
}

/* 1 and 3: mean 2, sqrt((5 - 4) / (2 - 1)) = 1; a large offset changes nothing. */
static void test_error(void **state)
{
    (void)state;
    struct mean nll = {0}, far = {0};
    mean_add(&nll, 1);
    assert_true(isnan(mean_error(&nll)));
    mean_add(&nll, 3);
    mean_add(&far, 1e9 + 1);
    mean_add(&far, 1e9 + 3);
    assert_near(mean_error(&nll), 1, 1e-15);
    assert_near(mean_error(&far), 1, 1e-15);
    assert_near(perplexity_of(&nll), exp(2), 1e-15);
    assert_near(perplexity_error(&nll), exp(2), 1e-15);
}

static void test_shares(void **state)
{
    (void)state;
    assert_near(share_error(3, 10), sqrt(0.3 * 0.7 / 9), 1e-15);
    assert_near(share_error(10, 10) + 1, 1, 1e-15);
    assert_true(isnan(share_error(1, 1)));
}

/* llama-perplexity scores what follows positions n_ctx / 2 to n_ctx - 2 of a chunk. */
static void test_scored_half(void **state)
{
    (void)state;
    static const int sizes[][3] = {{512, 257, 255}, {3, 2, 1}, {4, 3, 1}, {5, 3, 2}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(chunk_first(sizes[i][0]), sizes[i][1]);
        assert_int_equal(chunk_scored(sizes[i][0]), sizes[i][2]);
    }
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_sum_exp), cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_error),       cmocka_unit_test(test_shares),
        cmocka_unit_test(test_scored_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
