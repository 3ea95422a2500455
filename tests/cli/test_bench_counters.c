/* `trine bench --counters` and `trine inspect --machine`: every counter has a number or a reason. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../support.h"

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

int main(int argc, char **argv)
{
    support_init(argc, argv);
    trine = build_path("trine");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bench),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_csv_is_refused),
        cmocka_unit_test(test_inspect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
