/* `trine bench --counters` and `trine inspect --machine`: every counter has a number or a reason; and
 * what is made of recorded readings, because most machines that run tests have no counters. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"

#include "cli/bench_counters.h"

#define MODEL "models/trine-kjv.gguf"

static const char *trine;
static const char *const names[] = {"core_frequency_hz",    "energy_package_j",
                                    "energy_dram_j",        "memory_read_bytes",
                                    "memory_written_bytes", "cross_socket_bytes"};
#define N_NAMES (sizeof names / sizeof names[0])

static json_t *run_json(const char *arguments)
{
    struct outcome o = run_command("%s %s", trine, arguments);
    json_t *root = json_loads(o.out, JSON_REJECT_DUPLICATES, NULL);
    if (o.status != 0 || !root)
        fail_msg("%s: status %d, output '%s', messages: %s", arguments, o.status, o.out, o.err);
    outcome_done(&o);
    return root;
}

/* A number for the run, for a token and, compared with another length, for one more; or a reason. */
static void check_counter(json_t *counter, double n_tokens, bool is_rate, bool is_compared)
{
    double value = json_number_value(json_object_get(counter, "value"));
    double token = json_number_value(json_object_get(counter, "per_token"));
    if (json_object_get(counter, "reason")) {
        assert_true(json_is_null(json_object_get(counter, "value")));
        assert_true(strlen(json_string_value(json_object_get(counter, "reason"))) > 10);
        return;
    }
    assert_true(value >= 0 &&
                fabs(is_rate ? token - value : token * n_tokens - value) <= 1e-9 * value);
    assert_true(strlen(json_string_value(json_object_get(counter, "source"))) > 0);
    assert_true(json_is_boolean(json_object_get(counter, "estimated")));
    assert_true(json_is_boolean(json_object_get(counter, "includes_other_programs")));
    assert_int_equal(json_object_get(counter, "per_further_token") != NULL, is_compared);
}

/* Three repetitions of a prompt of 4, of 2 and of 12 tokens; the last is compared with the second. */
static void test_bench(void **state)
{
    (void)state;
    json_t *results = run_json("bench " MODEL " -p 4 -n 2,12 -r 3 --counters -o json");
    static const int n_tokens[] = {12, 6, 36};
    assert_int_equal(json_array_size(results), 3);
    for (size_t i = 0; i < 3; i++) {
        json_t *counters = json_object_get(json_array_get(results, i), "counters");
        assert_int_equal(json_integer_value(json_object_get(counters, "n_tokens")), n_tokens[i]);
        json_t *other = json_object_get(counters, "compared_with_n_gen");
        assert_int_equal(other ? json_integer_value(other) : 0, i == 2 ? 2 : 0);
        for (size_t k = 0; k < N_NAMES; k++)
            check_counter(json_object_get(counters, names[k]), n_tokens[i], k == 0, i == 2);
    }
    json_decref(results);
}

static void test_table(void **state)
{
    (void)state;
    struct outcome o = run_command("%s bench %s -p 0 -n 4,2 -r 1 --counters", trine, MODEL);
    static const char *const texts[] = {"core frequency", "energy, package", "energy, DRAM",
                                        "memory read",    "memory written",  "between sockets"};
    assert_int_equal(o.status, 0);
    for (size_t i = 0; i < N_NAMES; i++)
        assert_non_null(strstr(o.out, texts[i]));
    outcome_done(&o);
    o = run_command("%s bench %s -p 0 -n 4 -r 1", trine, MODEL);
    assert_null(strstr(o.out, "absent"));
    outcome_done(&o);
}

static void test_csv_is_refused(void **state)
{
    (void)state;
    struct outcome o = run_command("%s bench %s --counters -o csv", trine, MODEL);
    assert_int_equal(o.status, 2);
    assert_int_equal(o.out_bytes, 0);
    assert_non_null(strstr(o.err, "json"));
    outcome_done(&o);
}

static void test_inspect(void **state)
{
    (void)state;
    json_t *machine = run_json("inspect --machine --json");
    json_t *counters = json_object_get(machine, "counters");
    for (size_t i = 0; i < N_NAMES; i++) {
        json_t *counter = json_object_get(counters, names[i]);
        bool is_present = json_is_true(json_object_get(counter, "present"));
        const char *text =
            json_string_value(json_object_get(counter, is_present ? "source" : "reason"));
        assert_true(text && text[0]);
    }
    json_decref(machine);
}

/* Three samples each of 512 tokens read, of 128 and of 640 generated, of 128 by each of four sequences,
 * of 32 generated. Of energy a sample takes 20 J before its tokens and then 2 J a token. The core runs at
 * 3 GHz in the first second and at 2 GHz in the tokens, 100 a second. Memory: 1 GB a token. */
#define PRESENT(a, s)                                                                              \
    {                                                                                              \
        .is_present = true, .amount = 3 * (a), .seconds = 3 * (s), .source = "meter"               \
    }
#define ABSENT                                                                                     \
    {                                                                                              \
        .reason = "not recorded"                                                                   \
    }
#define OF_MACHINE(energy, dram, bytes)                                                            \
    [COUNTER_ENERGY_PACKAGE] = energy, [COUNTER_ENERGY_DRAM] = dram,                               \
    [COUNTER_MEMORY_READ] = bytes, [COUNTER_MEMORY_WRITTEN] = ABSENT,                              \
    [COUNTER_CROSS_SOCKET] = ABSENT
static struct bench_counted recorded[] = {
    {{512, 0, 0, 1}, 3, {ABSENT, OF_MACHINE(PRESENT(256, 0), ABSENT, ABSENT)}},
    {{0, 128, 0, 1},
     3,
     {PRESENT(3e9 + 1.28 * 2e9, 1 + 1.28),
      OF_MACHINE(PRESENT(20 + 2 * 128, 0), PRESENT(64, 0), PRESENT(128e9, 0))}},
    {{0, 640, 0, 1},
     3,
     {PRESENT(3e9 + 6.4 * 2e9, 1 + 6.4),
      OF_MACHINE(PRESENT(20 + 2 * 640, 0), ABSENT, PRESENT(640e9, 0))}},
    {{0, 128, 0, 4}, 3, {ABSENT, OF_MACHINE(PRESENT(1024, 0), ABSENT, ABSENT)}},
    {{0, 32, 0, 1}, 3, {ABSENT, OF_MACHINE(PRESENT(20 + 2 * 32, 0), ABSENT, ABSENT)}},
};

#define N_RECORDED (sizeof recorded / sizeof recorded[0])

static void expect_number(json_t *fields, const char *counter, const char *key, double expected)
{
    json_t *value = json_object_get(json_object_get(fields, counter), key);
    if (!json_is_number(value) ||
        fabs(json_number_value(value) - expected) > 1e-12 * fabs(expected))
        fail_msg("%s, %s: %.12g, expected %.12g", counter, key, json_number_value(value), expected);
}

/* The fields after the first n tests. */
static json_t *fields_of(size_t n)
{
    struct bench_counters b = {.n = n, .tests = recorded};
    json_t *fields = bench_counters_fields(&b);
    assert_non_null(fields);
    return fields;
}

/* Energies by test: in all, a token, a further token, and the length it is compared with (0: none). 32
 * tokens are compared with the 640, which differ most. */
static void test_recorded_energy(void **state)
{
    (void)state;
    static const struct {
        int n_tokens;
        double all, token;
        int partner;
    } expected[N_RECORDED] = {{1536, 768, 0.5, 0},
                              {384, 828, 2.15625, 0},
                              {1920, 3900, 2.03125, 128},
                              {1536, 3072, 2, 0},
                              {96, 252, 2.625, 640}};
    for (size_t i = 0; i < N_RECORDED; i++) {
        json_t *f = fields_of(i + 1), *partner = json_object_get(f, "compared_with_n_gen");
        assert_int_equal(json_integer_value(json_object_get(f, "n_tokens")), expected[i].n_tokens);
        assert_int_equal(partner ? json_integer_value(partner) : 0, expected[i].partner);
        expect_number(f, "energy_package_j", "value", expected[i].all);
        expect_number(f, "energy_package_j", "per_token", expected[i].token);
        if (expected[i].partner)
            expect_number(f, "energy_package_j", "per_further_token", 2);
        json_decref(f);
    }
}

static void test_recorded_rest(void **state)
{
    (void)state;
    json_t *f = fields_of(3);
    expect_number(f, "core_frequency_hz", "value", 15.8e9 / 7.4);
    expect_number(f, "core_frequency_hz", "per_token", 15.8e9 / 7.4);
    expect_number(f, "core_frequency_hz", "per_further_token", 2e9);
    expect_number(f, "memory_read_bytes", "value", 1920e9);
    expect_number(f, "memory_read_bytes", "per_further_token", 1e9);
    json_t *dram = json_object_get(f, "energy_dram_j"); /* 128 tokens have it, 640 do not */
    assert_true(json_is_null(json_object_get(dram, "value")));
    assert_string_equal(json_string_value(json_object_get(dram, "reason")), "not recorded");
    json_decref(f);
    f = fields_of(N_RECORDED); /* 640 tokens have a frequency, 32 do not */
    assert_true(json_is_null(json_object_get(json_object_get(f, "core_frequency_hz"), "value")));
    json_decref(f);
}

/* What bench_counters_print prints of the first n tests; freed by the caller. */
static char *printed(size_t n)
{
    struct bench_counters b = {.n = n, .tests = recorded};
    char *text;
    size_t size;
    FILE *screen = stdout;
    stdout = open_memstream(&text, &size);
    assert_non_null(stdout);
    bench_counters_print(&b);
    fclose(stdout);
    stdout = screen;
    return text;
}

static void test_recorded_table(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "| tg128            | energy, package | J    |         828 |       2.156 |               - "
        "|                  | machine | meter |\n",
        "| tg128            | energy, DRAM    | J    |         192 |         0.5 |               - "
        "|                  | machine | meter |\n",
        "| tg640            | core frequency  | GHz  |       2.135 |       2.135 |               2 "
        "| tg128            | process | meter |\n",
        "| tg640            | energy, package | J    |        3900 |       2.031 |               2 "
        "| tg128            | machine | meter |\n",
        "| tg640            | memory read     | GB   |        1920 |           1 |               1 "
        "| tg128            | machine | meter; estimated: counted for a part of the time |\n",
        "| tg32             | energy, package | J    |         252 |       2.625 |               2 "
        "| tg640            | machine | meter |\n",
        "\nabsent in tg32: energy, DRAM: not recorded\n",
        "\nabsent: memory written: not recorded\n",
    };
    recorded[2].readings[COUNTER_MEMORY_READ].is_estimated = true;
    char *text = printed(N_RECORDED);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (!strstr(text, rows[i]))
            fail_msg("no '%s' in:\n%s", rows[i], text);
    assert_null(strstr(text, "absent: energy, package"));
    free(text);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    trine = build_path("trine");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bench),           cmocka_unit_test(test_table),
        cmocka_unit_test(test_csv_is_refused),  cmocka_unit_test(test_inspect),
        cmocka_unit_test(test_recorded_energy), cmocka_unit_test(test_recorded_rest),
        cmocka_unit_test(test_recorded_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
