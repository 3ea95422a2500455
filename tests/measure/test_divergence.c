/* Divergences that are known in closed form. */
#include <math.h>

#include "../support.h"
#include "base/memory.h"
#include "base/random.h"
#include "measure/divergence.h"
#include "measure/perplexity.h"

#define N_VOCAB 1000

static void assert_near(double found, double expected, double most)
{
    if (!(fabs(found - expected) <= most))
        fail_msg("%.17g instead of %.17g", found, expected);
}

static void test_known_values(void **state)
{
    (void)state;
    double log_p[] = {log(0.5), log(0.25), log(0.25)};
    static const float flat[] = {7, 7, 7};
    struct base_row base = {.log_p = log_p, .floor = -INFINITY};
    struct row_divergence d = row_divergence(&base, flat, 3, 1);
    assert_near(d.kl, 0.5 * log(1.5) + 0.5 * log(0.75), 1e-15);
    assert_near(d.total_variation, 1.0 / 6, 1e-15);
    assert_near(d.nll, log(3), 1e-15);
    assert_near(d.nll_base, log(4), 1e-15);
    assert_true(d.is_same_top);
    static const float other[] = {0, 1, 0};
    assert_false(row_divergence(&base, other, 3, 1).is_same_top);
    log_p[1] = log_p[0]; /* two first choices */
    assert_true(row_divergence(&base, other, 3, 1).is_same_top);
}

static void random_row(float *logits, double *log_p, uint64_t seed)
{
    struct random random;
    random_init(&random, seed);
    for (int i = 0; i < N_VOCAB; i++)
        logits[i] = (float)(3 * random_normal(&random));
    double norm = log_sum_exp(logits, N_VOCAB);
    for (int i = 0; i < N_VOCAB; i++)
        log_p[i] = logits[i] - norm;
}

/* One logit wrong by d: with p its probability and z = 1 + p (e^d - 1),
 *   KL = log z - p d,   total variation = |p e^d / z - p|,   nll of that token: log z - d more */
static void test_planted_logit(void **state)
{
    (void)state;
    static float logits[N_VOCAB];
    static double log_p[N_VOCAB];
    static const float errors[] = {0.01f, -0.5f, 1, 4, -12};
    random_row(logits, log_p, 5);
    struct base_row base = {.log_p = log_p, .floor = -INFINITY};
    assert_near(row_divergence(&base, logits, N_VOCAB, 0).kl, 0, 1e-15);
    assert_near(row_divergence(&base, logits, N_VOCAB, 0).total_variation, 0, 1e-15);
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        int token = (int)(97 * i + 3);
        float right = logits[token];
        logits[token] += errors[i];
        double d = (double)logits[token] - right, p = exp(log_p[token]), z = 1 + p * expm1(d);
        struct row_divergence found = row_divergence(&base, logits, N_VOCAB, token);
        assert_near(found.kl, log(z) - p * d, 1e-13);
        assert_near(found.total_variation, fabs(p * exp(d) / z - p), 1e-13);
        assert_near(found.nll - found.nll_base, log(z) - d, 1e-12);
        logits[token] = right;
    }
}

/* What a file does not keep counts as one entry, and as the nearest that it may have been. */
static void test_tail(void **state)
{
    (void)state;
    double log_p[] = {log(0.5), log(0.3), -20, -20};
    struct base_row base = {.log_p = log_p, .floor = -20, .tail_least = 0.1, .tail_most = 0.25};
    const float inside[] = {logf(0.5f), logf(0.3f), logf(0.1f), logf(0.1f)};
    assert_near(row_divergence(&base, inside, 4, 0).kl, 0, 1e-7);
    const float above[] = {logf(0.3f), logf(0.2f), logf(0.1f), logf(0.4f)};
    struct row_divergence d = row_divergence(&base, above, 4, 0);
    double kept = 0.5 * log(0.5 / 0.3) - 0.2 + 0.3 * log(0.3 / 0.2) - 0.1;
    assert_near(d.kl, kept + 0.25 * log(0.25 / 0.5) + 0.25, 1e-7);
    assert_near(d.total_variation, (0.2 + 0.1 + 0.25) / 2, 1e-7);
    base.tail_least = base.tail_most = 0;
    assert_near(row_divergence(&base, above, 4, 0).kl, kept + 0.5, 1e-7);
}

/* A model that gives less than the smallest double to what must hold 0.1 and more. */
static void test_underflow(void **state)
{
    (void)state;
    double log_p[] = {log(0.5), log(0.4), -20, -20};
    struct base_row base = {.log_p = log_p, .floor = -20, .tail_least = 0.1, .tail_most = 0.2};
    static const float logits[] = {0, 0, -1000, -1000};
    struct row_divergence d = row_divergence(&base, logits, 4, 0);
    double kept = 0.5 * log(0.5 / 0.5) + 0.4 * log(0.4 / 0.5) - 0.4 + 0.5;
    /* log p of the tail is log(2 e^-1000 / 2) */
    assert_near(d.kl, kept + 0.1 * (log(0.1) + 1000) - 0.1, 1e-9);
    assert_near(d.total_variation, 0.1, 1e-9);
}

/* Rounding may leave probabilities that sum to more than 1; the distance stays one. */
static void test_largest_distance(void **state)
{
    (void)state;
    double log_p[] = {1e-4, -800};
    struct base_row base = {.log_p = log_p, .floor = -INFINITY};
    static const float logits[] = {-800, 0};
    assert_near(row_divergence(&base, logits, 2, 0).total_variation, 1, 0);
}

static void test_summary(void **state)
{
    (void)state;
    struct divergence all = {0};
    struct error err;
    for (int i = 100; i >= 0; i--) {
        struct row_divergence row = {.kl = i,
                                     .total_variation = i / 200.0,
                                     .nll = 2,
                                     .nll_base = i % 2 ? 1 : 2,
                                     .is_same_top = i % 4 == 0};
        assert_int_equal(divergence_add(&all, &row, &err), STATUS_OK);
    }
    struct kl_spread kl = divergence_spread(&all);
    assert_near(kl.median, 50, 0);
    assert_near(kl.p99, 99, 1e-12);
    assert_near(kl.maximum, 100, 0);
    assert_near(all.kl.value, 50, 1e-12);
    assert_near(mean_error(&all.kl), sqrt((3350.0 - 2500) / 100), 1e-12);
    assert_near(all.max_variation, 0.5, 0);
    assert_near(all.log_ratio.value, 50.0 / 101, 1e-14);
    assert_int_equal(all.n_same_top, 26);
    memory_fail_after(0);
    enum status status = STATUS_OK;
    for (int i = 0; i < 2000 && status == STATUS_OK; i++)
        status = divergence_add(&all, &(struct row_divergence){0}, &err);
    memory_fail_after(-1);
    assert_int_equal(status, STATUS_MEMORY);
    divergence_done(&all);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_planted_logit),
        cmocka_unit_test(test_tail),
        cmocka_unit_test(test_underflow),
        cmocka_unit_test(test_largest_distance),
        cmocka_unit_test(test_summary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
