/* The sampler against distributions that can be worked out by hand. */
#include <math.h>
#include <string.h>

#include "../support.h"
#include "base/memory.h"
#include "sampler/sampler.h"

static const struct sampler_options neutral = {.temperature = 1,
                                               .top_k = 0,
                                               .top_p = 1,
                                               .min_p = 0,
                                               .repeat_last_n = 64,
                                               .repeat_penalty = 1,
                                               .seed = 11};

/* Logits of the probabilities 0.5, 0.3, 0.15, 0.05. */
static const float four[] = {-0.6931472f, -1.2039728f, -1.8971200f, -2.9957323f};

/* Draws n tokens and writes their shares. */
static void shares(const struct sampler_options *options, int n, double share[4])
{
    struct sampler *s;
    int counts[4] = {0};
    assert_int_equal(sampler_open(&s, options, 4, NULL), STATUS_OK);
    for (int i = 0; i < n; i++)
        counts[sampler_next(s, four)]++;
    sampler_close(s);
    for (int i = 0; i < 4; i++)
        share[i] = (double)counts[i] / n;
}

/* Four standard deviations of a share near one half over 40,000 draws. */
#define NEAR 0.01

static void expect_shares(const struct sampler_options *options, double a, double b, double c,
                          double d)
{
    double share[4], expected[] = {a, b, c, d};
    shares(options, 40000, share);
    for (int i = 0; i < 4; i++)
        if (!(fabs(share[i] - expected[i]) < NEAR) || (expected[i] == 0 && share[i] > 0))
            fail_msg("token %d drawn %.4f of the time, expected %.4f", i, share[i], expected[i]);
}

static void test_temperature(void **state)
{
    (void)state;
    struct sampler_options o = neutral;
    expect_shares(&o, 0.5, 0.3, 0.15, 0.05);
    o.temperature = 0.5; /* probabilities squared: 0.25 0.09 0.0225 0.0025, sum 0.365 */
    expect_shares(&o, 0.68493, 0.24658, 0.06164, 0.00685);
    o.temperature = 0;
    expect_shares(&o, 1, 0, 0, 0);
}

static void test_top_k(void **state)
{
    (void)state;
    struct sampler_options o = neutral;
    o.top_k = 2;
    expect_shares(&o, 0.625, 0.375, 0, 0);
    o.top_k = 1;
    expect_shares(&o, 1, 0, 0, 0);
    o.top_k = 100;
    expect_shares(&o, 0.5, 0.3, 0.15, 0.05);
}

static void test_top_p(void **state)
{
    (void)state;
    struct sampler_options o = neutral;
    o.top_p = 0.79f; /* 0.5 is too little, 0.8 is enough */
    expect_shares(&o, 0.625, 0.375, 0, 0);
    o.top_p = 0.81f;
    expect_shares(&o, 0.52632, 0.31579, 0.15789, 0);
    o.top_p = 0;
    expect_shares(&o, 1, 0, 0, 0);
}

static void test_min_p(void **state)
{
    (void)state;
    struct sampler_options o = neutral;
    o.min_p = 0.29f; /* at least 0.145 */
    expect_shares(&o, 0.52632, 0.31579, 0.15789, 0);
    o.min_p = 1;
    expect_shares(&o, 1, 0, 0, 0);
}

static void test_ties_go_to_the_lower_id(void **state)
{
    (void)state;
    struct sampler *s;
    struct sampler_options o = neutral;
    const float logits[] = {1, 3, 3, 2};
    o.temperature = 0;
    assert_int_equal(sampler_open(&s, &o, 4, NULL), STATUS_OK);
    assert_int_equal(sampler_next(s, logits), 1);
    sampler_close(s);
    o.temperature = 1;
    o.top_k = 1;
    assert_int_equal(sampler_open(&s, &o, 4, NULL), STATUS_OK);
    assert_int_equal(sampler_next(s, logits), 1);
    sampler_close(s);
}

/* Greedy token after token 0 was seen `times` times. */
static int32_t after_seen(struct sampler_options o, int times, const float *logits)
{
    struct sampler *s;
    o.temperature = 0;
    assert_int_equal(sampler_open(&s, &o, 4, NULL), STATUS_OK);
    for (int i = 0; i < times; i++)
        assert_int_equal(sampler_accept(s, 0, NULL), STATUS_OK);
    int32_t token = sampler_next(s, logits);
    sampler_close(s);
    return token;
}

static void test_penalties(void **state)
{
    (void)state;
    struct sampler_options o = neutral;
    const float positive[] = {3, 2, 0, 0}, negative[] = {-2, -3, -9, -9};
    o.repeat_penalty = 1.4f;
    assert_int_equal(after_seen(o, 1, positive), 0); /* 3 / 1.4 > 2 */
    o.repeat_penalty = 1.6f;
    assert_int_equal(after_seen(o, 1, positive), 1);
    assert_int_equal(after_seen(o, 1, negative), 1); /* -2 * 1.6 < -3 */
    o = neutral;
    o.presence_penalty = 1.5f;
    assert_int_equal(after_seen(o, 1, positive), 1);
    assert_int_equal(after_seen(o, 0, positive), 0);
    o = neutral;
    o.frequency_penalty = 0.4f;
    assert_int_equal(after_seen(o, 2, positive), 0); /* 3 - 0.8 > 2 */
    assert_int_equal(after_seen(o, 3, positive), 1);
}

static void test_penalties_forget(void **state)
{
    (void)state;
    struct sampler *s;
    struct sampler_options o = neutral;
    const float logits[] = {3, 2, 0, 0};
    o.temperature = 0;
    o.presence_penalty = 2;
    o.repeat_last_n = 2;
    assert_int_equal(sampler_open(&s, &o, 4, NULL), STATUS_OK);
    sampler_accept(s, 0, NULL);
    sampler_accept(s, 3, NULL);
    assert_int_equal(sampler_next(s, logits), 1);
    sampler_accept(s, 3, NULL);
    assert_int_equal(sampler_next(s, logits), 0);
    sampler_close(s);
    o.repeat_last_n = 0;
    assert_int_equal(after_seen(o, 3, logits), 0);
    o.repeat_last_n = -1;
    assert_int_equal(after_seen(o, 500, logits), 1);
}

static void test_seed(void **state)
{
    (void)state;
    struct sampler *a, *b;
    struct sampler_options o = neutral, other = neutral;
    other.seed = 12;
    assert_int_equal(sampler_open(&a, &o, 4, NULL), STATUS_OK);
    assert_int_equal(sampler_open(&b, &o, 4, NULL), STATUS_OK);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(sampler_next(a, four), sampler_next(b, four));
    sampler_close(b);
    assert_int_equal(sampler_open(&b, &other, 4, NULL), STATUS_OK);
    int n_equal = 0;
    for (int i = 0; i < 1000; i++)
        n_equal += sampler_next(a, four) == sampler_next(b, four);
    assert_true(n_equal < 500); /* chance: 0.5^2 + 0.3^2 + ... = 0.365 */
    sampler_close(a);
    sampler_close(b);
}

/* Choosing the best k by a heap gives the same as sorting everything. */
static void test_top_k_of_many(void **state)
{
    (void)state;
    enum { N = 5000 };
    static float logits[N];
    struct sampler *s;
    struct sampler_options o = neutral;
    struct random random;
    random_init(&random, 5);
    for (int i = 0; i < N; i++)
        logits[i] = (float)(random_bits(&random) % 1000) / 100; /* with many ties */
    o.top_k = 40;
    assert_int_equal(sampler_open(&s, &o, N, NULL), STATUS_OK);
    for (int draw = 0; draw < 2000; draw++) {
        int32_t id = sampler_next(s, logits);
        int better = 0;
        for (int i = 0; i < N; i++)
            better += logits[i] > logits[id] || (logits[i] == logits[id] && i < id);
        assert_true(better < 40);
    }
    sampler_close(s);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    struct sampler *s;
    for (long n = 0; n < 3; n++) {
        memory_fail_after(n);
        assert_int_equal(sampler_open(&s, &neutral, 4, NULL), STATUS_MEMORY);
    }
    memory_fail_after(-1);
    assert_int_equal(sampler_open(&s, &neutral, 0, NULL), STATUS_LIMIT);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_temperature),
        cmocka_unit_test(test_top_k),
        cmocka_unit_test(test_top_p),
        cmocka_unit_test(test_min_p),
        cmocka_unit_test(test_ties_go_to_the_lower_id),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_penalties_forget),
        cmocka_unit_test(test_seed),
        cmocka_unit_test(test_top_k_of_many),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
