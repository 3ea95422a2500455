/* Which packing ternary weights get, as commands tell it: what a timing chose, what one at load may still
 * choose, and `--trits` where it has no effect. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../fixture.h"
#include "../support.h"
#include "kernels/kernel_select.h"
#include "machine/cpu_features.h"

static const char *trine, *large, *small, *q4_0;

static struct outcome run_well(const char *command, const char *options)
{
    struct outcome o = run_command("%s %s %s", trine, command, options);
    if (o.status != 0)
        fail_msg("%s %s: status %d: %s", command, options, o.status, o.err);
    return o;
}

static json_t *json_of(const char *command, const char *options)
{
    struct outcome o = run_well(command, options);
    json_error_t problem;
    json_t *json = json_loads(o.out, 0, &problem);
    if (!json)
        fail_msg("%s %s: %s", command, options, problem.text);
    outcome_done(&o);
    return json;
}

static const char *text_in(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));
    if (!text)
        fail_msg("no %s", key);
    return text;
}

/* Whether this machine, and with it a run without --isa, chooses between the two. */
static bool has_both(void)
{
    return kernel_select(OP_matmul, PACKING_trits5, cpu_best_isa())->isa != ISA_scalar;
}

#define SHAPE "inspect --plan --shape falcon3-1b --type TQ2_0 --machine=tests/machine/machines/"
#define PLAN  SHAPE "ice_lake_snc2.xml --isa avx512vbmi "

static json_int_t weight_bytes(const json_t *plan)
{
    json_int_t bytes = 0;
    size_t i;
    const json_t *node;
    json_array_foreach(json_object_get(plan, "nodes"), i, node) bytes +=
        json_integer_value(json_object_get(node, "weight_bytes"));
    return bytes;
}

static void expect_plan(const char *options, const char *choice, json_int_t trits4_bytes)
{
    json_t *plan = json_of(PLAN, options);
    assert_string_equal(text_in(plan, "trits_choice"), choice);
    json_t *other = json_object_get(plan, "trits4_weight_bytes");
    assert_int_equal(json_integer_value(other), trits4_bytes);
    assert_true(trits4_bytes > 0 || json_is_null(other));
    json_decref(plan);
}

/* A plan alone says what a timing at load may make of it: the bytes of the plan with that packing. */
static void test_plan(void **state)
{
    (void)state;
    json_t *four = json_of(PLAN, "--trits trits4 --json");
    json_t *five = json_of(PLAN, "--trits trits5 --json"), *open = json_of(PLAN, "--json");
    assert_true(weight_bytes(four) > weight_bytes(five));
    assert_int_equal(weight_bytes(open), weight_bytes(five));
    char wanted[160];
    snprintf(wanted, sizeof wanted,
             "trits5, as planned here (weights %.1f MiB), and trits4 "
             "(weights %.1f MiB)\n",
             (double)weight_bytes(five) / 0x1p20, (double)weight_bytes(four) / 0x1p20);
    static const char *const texts[] = {"", "--predict --bandwidth 50"};
    for (int i = 0; i < 2; i++) {
        struct outcome o = run_well(PLAN, texts[i]);
        if (!strstr(o.out, wanted))
            fail_msg("'%s' is not in: %s", wanted, o.out);
        outcome_done(&o);
    }
    expect_plan("--json", "timing-at-load", weight_bytes(four));
    expect_plan("--trits trits5 --json", "option", 0);
    expect_plan("--isa avx512 --json", "default", 0);
    json_decref(four);
    json_decref(five);
    json_decref(open);
    json_t *tiny = json_of("inspect --plan --json", small); /* is not timed */
    assert_string_equal(text_in(tiny, "trits_choice"), "default");
    json_decref(tiny);
}

static void test_dry_run(void **state)
{
    (void)state;
    struct outcome o = run_command("%s run --dry-run %s", trine, large);
    assert_int_equal(o.status, 0);
    assert_int_equal(strstr(o.err, "a timing at load chooses between trits5") != NULL, has_both());
    outcome_done(&o);
    o = run_command("%s run --dry-run %s --trits trits4", trine, large);
    assert_int_equal(o.status, 0);
    assert_null(strstr(o.err, "timing"));
    outcome_done(&o);
}

static void expect_bench(const char *model, const char *options, const char *choice,
                         const char *name)
{
    char command[256];
    snprintf(command, sizeof command, "bench -m %s -t 1 -p 0 -n 1 -r 1 -o json", model);
    json_t *results = json_of(command, options), *result = json_array_get(results, 0);
    assert_string_equal(text_in(result, "trits_choice"), choice);
    const char *kernels = text_in(result, "kernels");
    if (strncmp(kernels, name, strlen(name)) != 0)
        fail_msg("%s %s: kernels '%s', not %s", model, options, kernels, name);
    json_decref(results);
}

/* The field of a timing names the kernel of the packing that it chose. */
static void test_bench(void **state)
{
    (void)state;
    expect_bench(small, "--trits trits4 --isa scalar", "option", "matmul_trits4_scalar");
    expect_bench(q4_0, "--isa scalar", "default", "matmul_q4_0_scalar");
    if (!has_both()) {
        print_message("skipped: needs avx512vbmi\n");
        return;
    }
    char command[256], packing[32];
    snprintf(command, sizeof command, "bench -m %s -t 1 -p 0 -n 1 -r 1 -o json", large);
    json_t *results = json_of(command, ""), *result = json_array_get(results, 0);
    assert_string_equal(text_in(result, "trits_choice"), "timing");
    snprintf(packing, sizeof packing, "matmul_%s_", text_in(result, "trits"));
    assert_int_equal(strncmp(text_in(result, "kernels"), packing, strlen(packing)), 0);
    json_decref(results);
}

/* note: NULL: nothing is said about the option. */
static void expect_note(const char *model, const char *options, const char *note)
{
    struct outcome o = run_command("%s run %s -p a -n 1 --temp 0 %s", trine, model, options);
    if (o.status != 0 || (note && !strstr(o.err, note)) || (!note && strstr(o.err, "--trits")))
        fail_msg("%s: status %d: %s", options, o.status, o.err);
    outcome_done(&o);
}

/* Said where it cannot do anything, and only there. */
static void test_without_effect(void **state)
{
    (void)state;
    expect_note(q4_0, "--trits trits4", "note: --trits trits4 has no effect: no matrix is ternary");
    expect_note(q4_0, "--trits trits5", "note: --trits trits5 has no effect: no matrix is ternary");
    expect_note(q4_0, "--trits auto", NULL);
    expect_note(small, "--trits trits4 --isa scalar",
                "note: --trits trits4 has no effect: scalar has no kernel for trits5");
    expect_note(small, "--trits trits5 --isa scalar",
                "note: --trits trits5 is slow: scalar has no kernel for it");
    if (!has_both())
        return;
    expect_note(small, "--trits trits4", NULL);
    expect_note(small, "--trits trits5", NULL);
}

/* Where every matrix holds +2 there is nothing to choose; nobody says there were. Changes both models. */
static void test_fourth_value(void **state)
{
    (void)state;
    fixture_add_fourth_value(small);
    fixture_add_fourth_value(large);
    static const char *const trits[] = {"trits4", "trits5"};
    for (int i = 0; i < 2; i++) {
        char option[32], note[128];
        snprintf(option, sizeof option, "--trits %s", trits[i]);
        snprintf(note, sizeof note, "note: %s has no effect: the ternary matrices hold a fourth",
                 option);
        expect_note(small, option, note);
    }
    expect_note(small, "--trits auto", NULL);
    struct outcome o = run_command("%s run --dry-run %s", trine, large);
    assert_int_equal(o.status, 0);
    assert_null(strstr(o.err, "chooses between"));
    outcome_done(&o);
    o = run_well("inspect --plan", large);
    assert_null(strstr(o.out, "chooses between"));
    outcome_done(&o);
    json_t *plan = json_of("inspect --plan --json", large);
    assert_string_equal(text_in(plan, "trits_choice"), "default");
    assert_true(json_is_null(json_object_get(plan, "trits4_weight_bytes")));
    json_decref(plan);
    expect_bench(large, "", "default", "matmul_trits4_");
}

static const char *synth(const char *name, const char *options)
{
    char *path = strdup(scratch_path(name));
    struct outcome o = run_command("%s synth %s -o %s", trine, options, path);
    if (o.status != 0)
        fail_msg("synth %s: %s", options, o.err);
    outcome_done(&o);
    return path;
}

static int make_models(void **state)
{
    (void)state;
    trine = build_path("trine");
    large = synth("large.gguf", "--shape falcon3-1b --type TQ2_0 --layers 1"); /* is timed */
    small = synth("small.gguf", "--shape tiny --type TQ2_0");
    q4_0 = synth("q4_0.gguf", "--shape tiny --type Q4_0");
    return 0;
}

static int free_names(void **state)
{
    (void)state;
    free((void *)(uintptr_t)large);
    free((void *)(uintptr_t)small);
    free((void *)(uintptr_t)q4_0);
    return 0;
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan),         cmocka_unit_test(test_dry_run),
        cmocka_unit_test(test_bench),        cmocka_unit_test(test_without_effect),
        cmocka_unit_test(test_fourth_value),
    };
    return cmocka_run_group_tests(tests, make_models, free_names);
}
