/* What is concluded from the runs of a comparison, its record and its plot. */
#include "../support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "measure/comparison_json.h"
#include "measure/comparison_plot.h"

static void near_to(double found, double expected, double tolerance)
{
    if (!(fabs(found - expected) <= tolerance))
        fail_msg("found %.12g, expected %.12g", found, expected);
}

static void begin(struct comparison *c, int n)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    assert_int_equal(comparison_init(c, NULL), STATUS_OK);
    for (int i = 0; i < n; i++)
        assert_int_equal(comparison_add_variant(c, names[i], "true", NULL), STATUS_OK);
}

static struct comparison_run *add(struct comparison *c, int round, int attempt, int variant,
                                  double value)
{
    struct comparison_run run = {.round = round,
                                 .attempt = attempt,
                                 .variant = variant,
                                 .value = value,
                                 .wall_s = 1,
                                 .foreign_cpus = 0.125,
                                 .stolen_cpus = 0,
                                 .read_gb_s = NAN,
                                 .begun = 1790000000};
    assert_int_equal(comparison_add_run(c, &run, NULL), STATUS_OK);
    return &c->runs[c->n_runs - 1];
}

static struct comparison_analysis analyse(const struct comparison *c, int base)
{
    struct comparison_analysis a;
    struct error err;
    if (comparison_analyse(c, base, &a, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return a;
}

/* Every variant runs at every place equally often. */
static void test_order(void **state)
{
    (void)state;
    for (int n = 2; n <= COMPARISON_MOST; n++) {
        struct comparison c;
        int counts[COMPARISON_MOST][COMPARISON_MOST] = {0};
        begin(&c, n);
        for (int round = 1; round <= 2 * n; round++)
            for (int place = 0; place < n; place++)
                counts[comparison_order(&c, round, place)][place]++;
        for (int v = 0; v < n; v++)
            for (int place = 0; place < n; place++)
                assert_int_equal(counts[v][place], 2);
        comparison_done(&c);
    }
}

/* The machine slows down to a third while b stays 0.9 of a: the medians say little, the ratios
 * all. */
static void test_drift(void **state)
{
    (void)state;
    struct comparison c;
    begin(&c, 2);
    for (int round = 1; round <= 7; round++) {
        double speed = 300.0 / (1 + (round - 1) / 3.0);
        add(&c, round, 1, 0, speed);
        add(&c, round, 1, 1, 0.9 * speed);
    }
    struct comparison_analysis a = analyse(&c, 0);
    near_to(a.variants[1].ratio, 0.9, 1e-12);
    near_to(a.variants[1].interval.low, 0.9, 1e-12);
    near_to(a.variants[1].interval.high, 0.9, 1e-12);
    near_to(a.variants[0].median, 150, 1e-9);
    near_to(a.variants[0].min, 100, 1e-9);
    near_to(a.variants[0].max, 300, 1e-9);
    assert_int_equal(a.variants[1].n_below, 7);
    assert_int_equal(a.variants[0].verdict, VERDICT_BASE);
    assert_int_equal(a.variants[1].verdict, VERDICT_WORSE);
    a = analyse(&c, 1);
    near_to(a.variants[0].ratio, 1 / 0.9, 1e-12);
    assert_int_equal(a.variants[0].verdict, VERDICT_BETTER);
    c.is_lower_better = true;
    assert_int_equal(analyse(&c, 1).variants[0].verdict, VERDICT_WORSE);
    assert_int_equal(analyse(&c, 0).variants[1].verdict, VERDICT_BETTER);
    comparison_done(&c);
}

/* How many of n_tries comparisons of n rounds call b different, and how many say worse. */
static void count_verdicts(int n, double true_ratio, double noise, int n_tries, int *n_different,
                           int *n_worse)
{
    struct random random;
    random_init(&random, (uint64_t)n);
    *n_different = *n_worse = 0;
    for (int t = 0; t < n_tries; t++) {
        struct comparison c;
        begin(&c, 2);
        for (int round = 1; round <= n; round++) {
            add(&c, round, 1, 0, 50 * exp(noise * random_normal(&random)));
            add(&c, round, 1, 1, 50 * true_ratio * exp(noise * random_normal(&random)));
        }
        enum comparison_verdict verdict = analyse(&c, 0).variants[1].verdict;
        *n_different += verdict == VERDICT_BETTER || verdict == VERDICT_WORSE;
        *n_worse += verdict == VERDICT_WORSE;
        comparison_done(&c);
    }
}

/* Equal programs are called different in 1 of 16 comparisons at most, and more rarely where no
 * count of rounds has just that chance: 2 / 2^7 of seven rounds. Here within four deviations of the
 * tries. */
static void test_equal_programs(void **state)
{
    (void)state;
    static const struct {
        int n;
        double chance;
    } cases[] = {{5, 2 / 32.0}, {7, 2 / 128.0}, {9, 20 / 512.0}, {12, 158 / 4096.0}};
    for (int i = 0; i < 4; i++) {
        int n_different, n_worse, n_tries = 150;
        double p = cases[i].chance;
        count_verdicts(cases[i].n, 1, 0.02, n_tries, &n_different, &n_worse);
        if (n_different > n_tries * (p + 4 * sqrt(p * (1 - p) / n_tries)))
            fail_msg("%d rounds: %d of %d equal ones called different", cases[i].n, n_different,
                     n_tries);
    }
}

/* A slowdown of 10 % with a noise of 1.5 % (2.1 % of a ratio) is five deviations in every round:
 * five rounds miss one in 10^5. */
static void test_planted_slowdown(void **state)
{
    (void)state;
    for (int n = 5; n <= 9; n += 2) {
        int n_different, n_worse;
        count_verdicts(n, 0.9, 0.015, 30, &n_different, &n_worse);
        assert_int_equal(n_worse, 30);
    }
}

static void test_too_few(void **state)
{
    (void)state;
    struct comparison c;
    struct comparison_analysis a;
    struct error err;
    begin(&c, 2);
    assert_int_equal(comparison_analyse(&c, 0, &a, &err), STATUS_LIMIT);
    add(&c, 1, 1, 0, 2);
    assert_int_equal(comparison_analyse(&c, 0, &a, &err), STATUS_LIMIT); /* half a round */
    for (int round = 1; round <= 5; round++) {
        if (round > 1)
            add(&c, round, 1, 0, 2);
        add(&c, round, 1, 1, 1);
        enum comparison_verdict expected = round < 5 ? VERDICT_TOO_FEW : VERDICT_WORSE;
        assert_int_equal(analyse(&c, 0).variants[1].verdict, expected);
    }
    comparison_done(&c);
}

/* Six of seven rounds below 1: the bootstrap interval excludes 1, but coins would do as much in one
 * of eight comparisons. */
static void test_sign_guards_the_interval(void **state)
{
    (void)state;
    struct comparison c;
    begin(&c, 2);
    for (int round = 1; round <= 7; round++) {
        add(&c, round, 1, 0, 100);
        add(&c, round, 1, 1, round == 4 ? 101 : 95 - round);
    }
    struct comparison_analysis a = analyse(&c, 0);
    assert_true(a.variants[1].interval.high < 1);
    assert_int_equal(a.variants[1].n_below, 6);
    assert_int_equal(a.variants[1].verdict, VERDICT_EQUAL);
    comparison_done(&c);
}

static void test_same_values(void **state)
{
    (void)state;
    struct comparison c;
    begin(&c, 2);
    for (int round = 1; round <= 9; round++)
        for (int v = 0; v < 2; v++)
            add(&c, round, 1, v, 10 * round);
    struct comparison_analysis a = analyse(&c, 0);
    assert_true(a.variants[1].ratio == 1 && a.variants[1].interval.low == 1);
    assert_int_equal(a.variants[1].verdict, VERDICT_EQUAL);
    comparison_done(&c);
}

/* Rounds 1 to 3 are clean, 4 was disturbed and repeated well, 5 stays disturbed, 6 is half. */
static void build_disturbed(struct comparison *c)
{
    begin(c, 2);
    for (int round = 1; round <= 3; round++) {
        add(c, round, 1, 0, 100);
        add(c, round, 1, 1, 100 + round);
    }
    add(c, 4, 1, 0, 1)->is_disturbed = true;
    add(c, 4, 2, 0, 100);
    add(c, 4, 2, 1, 104);
    add(c, 5, 1, 0, 7);
    add(c, 5, 1, 1, 9)->is_disturbed = true;
    add(c, 6, 1, 0, 1000);
    add(c, 1, 1, 0, 60)->is_cold = true;
    add(c, 1, 1, 1, 61)->is_cold = true;
}

static void test_disturbed(void **state)
{
    (void)state;
    struct comparison c;
    build_disturbed(&c);
    struct comparison_round r4 = comparison_round(&c, false, 4),
                            r5 = comparison_round(&c, false, 5);
    struct comparison_round r6 = comparison_round(&c, false, 6);
    assert_true(r4.n_attempts == 2 && r4.n_disturbed == 1 && r4.counts == 2 && !r4.is_disturbed);
    assert_true(r5.n_attempts == 1 && r5.n_disturbed == 1 && r5.counts == 1 && r5.is_disturbed);
    assert_true(r6.n_attempts == 1 && r6.counts == 0);
    struct comparison_analysis a = analyse(&c, 0);
    assert_true(a.n_rounds == 5 && a.n_clean == 4 && a.n_used == 4 && !a.uses_disturbed);
    assert_true(a.n_repeated == 1 && a.n_cold == 1);
    near_to(a.variants[1].median, 102.5, 1e-12);
    near_to(a.variants[1].mean, 102.5, 1e-12);
    near_to(a.variants[1].standard_error, sqrt(5.0 / 12), 1e-12); /* 1..4: n (n + 1) / 12 / n */
    near_to(a.variants[1].ratio, 1.025, 1e-12);
    near_to(a.variants[0].min, 100, 0);
    near_to(a.variants[0].max, 100, 0);
    near_to(a.variants[1].cold_median, 61, 0);
    near_to(a.foreign_max, 0.125, 0);
    assert_true(isnan(a.read_gb_s_min));
    for (size_t i = 0; i < c.n_runs; i++) {
        const struct comparison_run *run = &c.runs[i];
        bool is_used = !run->is_cold && (run->round < 4 || (run->round == 4 && run->attempt == 2));
        assert_int_equal(comparison_uses(&c, &a, run), is_used);
    }
    comparison_done(&c);
}

/* Two clean rounds of five are too few to leave out the others; two of four are not. */
static void test_mostly_disturbed(void **state)
{
    (void)state;
    struct comparison c;
    begin(&c, 2);
    for (int round = 1; round <= 5; round++) {
        add(&c, round, 1, 0, 10)->is_disturbed = round > 2;
        add(&c, round, 1, 1, round);
        struct comparison_analysis a = analyse(&c, 0);
        assert_int_equal(a.uses_disturbed, round == 5);
        assert_int_equal(a.n_used, round == 5 ? 5 : round < 2 ? round : 2);
    }
    near_to(analyse(&c, 0).variants[1].median, 3, 0);
    comparison_done(&c);
}

static void test_names(void **state)
{
    (void)state;
    struct comparison c;
    begin(&c, 2);
    static const char *const wrong[] = {"", "a", "x\ny",
                                        "12345678901234567890123456789012345678901"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(comparison_add_variant(&c, wrong[i], "true", NULL), STATUS_USAGE);
    assert_int_equal(comparison_add_variant(&c, "x", " ", NULL), STATUS_USAGE);
    assert_int_equal(
        comparison_add_variant(&c, "1234567890123456789012345678901234567890", "true", NULL),
        STATUS_OK);
    assert_int_equal(comparison_find(&c, "b"), 1);
    assert_int_equal(comparison_find(&c, "x"), -1);
    comparison_done(&c);
}

/* Texts that a record could not give back. */
static void test_texts(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",         " \t\n",        "\xff", "echo \xc3",
                                        "\xc0\xaf", "\xed\xa0\x80", "\x80", "\xf4\x90\x80\x80"};
    struct comparison c;
    begin(&c, 1);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(comparison_check_text(wrong[i], NULL), STATUS_USAGE);
        assert_int_equal(comparison_add_variant(&c, "x", wrong[i], NULL), STATUS_USAGE);
    }
    static char long_text[65537];
    memset(long_text, 'x', 65536);
    assert_int_equal(comparison_add_variant(&c, "x", long_text, NULL), STATUS_USAGE);
    long_text[65535] = 0;
    assert_int_equal(comparison_add_variant(&c, "x", long_text, NULL), STATUS_OK);
    assert_int_equal(comparison_check_text("\xc3\xa4 \xf0\x9f\x98\x80", NULL), STATUS_OK);
    comparison_done(&c);
}

/* Never a record with less in it than there is: it could not be read. */
static void test_incomplete_record(void **state)
{
    (void)state;
    struct comparison c;
    struct error err;
    begin(&c, 2);
    c.commands[1] = "\xff"; /* as if it had not been checked */
    const char *path = scratch_path("incomplete.json");
    assert_int_not_equal(comparison_write(&c, path, &err), STATUS_OK);
    assert_null(read_whole(path, NULL));
    comparison_done(&c);
}

static void test_record(void **state)
{
    (void)state;
    struct comparison c, back;
    struct error err;
    const char *path = scratch_path("record.json");
    build_disturbed(&c);
    c.runs[0].read_gb_s = 31.25;
    c.runs[1].foreign_cpus = NAN;
    c.runs[2].value = 1.0 / 3;
    assert_int_equal(comparison_write(&c, path, &err), STATUS_OK);
    if (comparison_read(&back, path, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(back.n_runs, c.n_runs);
    assert_string_equal(back.names[1], "b");
    assert_string_equal(back.commands[1], "true");
    for (size_t i = 0; i < c.n_runs; i++) {
        struct comparison_run *x = &c.runs[i], *y = &back.runs[i];
        near_to(y->value, x->value, 1e-14 * x->value);
        assert_true(x->round == y->round && x->attempt == y->attempt && x->variant == y->variant);
        assert_true(x->is_cold == y->is_cold && x->is_disturbed == y->is_disturbed);
        assert_true(isnan(x->foreign_cpus) == isnan(y->foreign_cpus) && x->begun == y->begun);
    }
    near_to(back.runs[0].read_gb_s, 31.25, 0);
    /* written again it is the same file */
    size_t n, m;
    char *first = read_whole(path, &n);
    assert_int_equal(comparison_write(&back, path, &err), STATUS_OK);
    char *second = read_whole(path, &m);
    assert_true(n == m && memcmp(first, second, n) == 0);
    free(first);
    free(second);
    comparison_done(&back);
    comparison_done(&c);
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text += strlen(what))
        n++;
    return n;
}

static char *plot(const struct comparison *c)
{
    struct comparison_analysis a = analyse(c, 0);
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    assert_non_null(out);
    comparison_plot(out, c, &a);
    fclose(out);
    return text;
}

/* Crosses: the two disturbed runs, and one in the legend. Each of them has its round beside it. */
static void test_plot(void **state)
{
    (void)state;
    struct comparison c;
    build_disturbed(&c);
    char *text = plot(&c);
    assert_int_equal(count(text, "stroke=\"#cc3311\""), 2 + 1);
    assert_int_equal(count(text, "class=\"alarm\""), 2);
    assert_int_equal(count(text, "<title>disturbed: "), 2);
    assert_non_null(strstr(text, ">5</text>"));
    assert_int_equal(count(text, "l5 5 l-5 5 l-5 -5 z"), 2 + 1); /* cold */
    assert_int_equal(count(text, "r=\"4.5\""), 8 + 1 + 1);       /* used; legend; a ratio */
    assert_int_equal(count(text, "r=\"4\""), 2 + 1);             /* left out: rounds 5 and 6 */
    assert_int_equal(count(text, "r=\"3\""), 4);                 /* ratios of rounds */
    assert_non_null(strstr(text, "1 of them disturbed and left out; 1 disturbed attempt "
                                 "repeated"));
    assert_true(strstr(text, "nan") == NULL && strstr(text, "inf") == NULL);
    free(text);
    comparison_done(&c);
}

/* Extreme numbers end, and stay well-formed. */
static void test_plot_extremes(void **state)
{
    (void)state;
    static const double values[][2] = {{1e18, 1e18}, {1e17, 1e17 + 16}, {1e-17, 1e17}, {5, 5}};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        struct comparison c;
        assert_int_equal(comparison_init(&c, NULL), STATUS_OK);
        comparison_add_variant(&c, "<a&b>", "true", NULL);
        comparison_add_variant(&c, "ääääääääääääääääääää", "true", NULL);
        add(&c, 1, 1, 0, values[i][0]);
        add(&c, 1, 1, 1, values[i][1]);
        char *text = plot(&c);
        assert_true(strlen(text) < 20000);
        assert_true(strstr(text, "nan") == NULL && strstr(text, "inf\"") == NULL);
        assert_true(strstr(text, "<a&") == NULL && strstr(text, "&lt;a&amp;b>"));
        free(text);
        comparison_done(&c);
    }
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_drift),
        cmocka_unit_test(test_equal_programs),
        cmocka_unit_test(test_planted_slowdown),
        cmocka_unit_test(test_too_few),
        cmocka_unit_test(test_sign_guards_the_interval),
        cmocka_unit_test(test_same_values),
        cmocka_unit_test(test_disturbed),
        cmocka_unit_test(test_mostly_disturbed),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_incomplete_record),
        cmocka_unit_test(test_record),
        cmocka_unit_test(test_plot),
        cmocka_unit_test(test_plot_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
