/* `trine inspect --plan --predict`: machines that are not this one, what it reads of them, and what it
 * refuses. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"

#define MACHINES  "tests/machine/machines/"
#define ICE_LAKE  MACHINES "ice_lake_snc2.xml"
#define EMERALD   MACHINES "emerald_rapids_snc2.xml"
#define TINY      "--shape tiny --type tq2_0"
#define ELSEWHERE "inspect --plan --predict " TINY " --machine " ICE_LAKE

static const char *trine;

static json_t *json_of(const char *command)
{
    struct outcome o = run_command("%s %s --json", trine, command);
    if (o.status != 0)
        fail_msg("%s: status %d: %s", command, o.status, o.err);
    json_error_t problem;
    json_t *json = json_loads(o.out, 0, &problem);
    if (!json)
        fail_msg("%s: line %d: %s", command, problem.line, problem.text);
    outcome_done(&o);
    return json;
}

static double number(const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);
    if (!json_is_number(value))
        fail_msg("no number %s", key);
    return json_number_value(value);
}

static void expect_refused(const char *command, int status, const char *text)
{
    struct outcome o = run_command("%s %s", trine, command);
    if (o.status != status || !strstr(o.err, text) || o.out_bytes > 0)
        fail_msg("%s: status %d, said: %s", command, o.status, o.err);
    outcome_done(&o);
}

/* The paper's servers, and the bytes a token that it computed from the headers of its files: 2.19,
 * 2.73 and 0.51 GB of weights and cache in 2 bits a weight, which trits4 has. */
static void test_servers(void **state)
{
    (void)state;
    static const struct {
        const char *xml;
        int n_threads;
    } servers[] = {{ICE_LAKE, 64}, {EMERALD, 104}};
    static const struct {
        const char *shape;
        double gb;
    } models[] = {{"llama3-8b", 2.19}, {"falcon3-10b", 2.73}, {"falcon3-1b", 0.51}};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 3; k++) {
            char command[256];
            snprintf(command, sizeof command,
                     "inspect --plan --predict --shape %s --type iq2_bn --isa avx512 --machine %s "
                     "--bandwidth 100",
                     models[k].shape, servers[i].xml);
            json_t *p = json_of(command);
            assert_true(json_is_true(json_object_get(p, "is_prediction")));
            assert_int_equal(number(p, "threads"), servers[i].n_threads);
            assert_int_equal(json_array_size(json_object_get(p, "nodes")), 4);
            if (fabs(number(p, "bytes") / 1e9 - models[k].gb) > 0.015)
                fail_msg("%s: %.3f GB", models[k].shape, number(p, "bytes") / 1e9);
            assert_true(number(p, "bandwidth_share") < 0.91 && number(p, "bandwidth_share") > 0.5);
            json_decref(p);
        }
}

/* Without anything but memory a token takes its bytes over the bandwidth of all four nodes; barriers
 * and their switches come on top. tiny: 4 layers. */
static void test_sums(void **state)
{
    (void)state;
#define FREE ELSEWHERE " --bandwidth 10 --core-bandwidth 1000000 --kernel-share 100 --imbalance 0"
    json_t *p = json_of(FREE " --barrier-us 1,100 -t 4");
    const json_t *time = json_object_get(p, "time");
    assert_true(fabs(number(time, "stream_s") - number(p, "bytes") / 40e9) < 1e-3 * 1e-3);
    assert_true(fabs(number(time, "global_barriers_s") - (4 * 2 + 1) * 100e-6) < 1e-12);
    assert_true(number(time, "node_barriers_s") == 0); /* a thread a node */
    json_decref(p);
    p = json_of(FREE " --barrier-us 1,100,1000 -t 8 --barrier flat --extra-barriers 5");
    time = json_object_get(p, "time");
    assert_true(fabs(number(time, "global_barriers_s") - (4 * 7 + 1) * 1e-3) < 1e-12);
    assert_true(fabs(number(time, "node_barriers_s") - (4 * 5 + 1) * 1e-6) < 1e-12);
    json_decref(p);
    p = json_of(FREE " --barrier-us 1,100 -t 4 --bandwidth 10,10,10,5");
    json_t *nodes = json_object_get(p, "nodes");
    assert_true(number(json_array_get(nodes, 3), "read_bytes_s") == 5e9);
    assert_true(number(json_object_get(p, "time"), "stream_s") > number(p, "bytes") / 40e9 * 1.5);
    json_decref(p);
}

static void test_text(void **state)
{
    (void)state;
    struct outcome o = run_command("%s %s --bandwidth 80", trine, ELSEWHERE);
    assert_int_equal(o.status, 0);
    assert_true(strncmp(o.out, "prediction, not a measurement: ", 31) == 0);
    assert_non_null(strstr(o.out, ICE_LAKE));
    assert_non_null(strstr(o.out, "(given)"));
    assert_non_null(strstr(o.out, "assumed: the paper's range is 1.4 to 4.4 us"));
    outcome_done(&o);
}

static void test_refusals(void **state)
{
    (void)state;
    expect_refused(ELSEWHERE, 2, "give --bandwidth");
    static const char *const lists[] = {"0",         "a",   "-5", "1,2,3", "1,",    ",1",
                                        "1,2,3,4,5", "1;2", "",   "0x10",  "1e-300"};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        char command[256];
        snprintf(command, sizeof command, ELSEWHERE " --bandwidth '%s'", lists[i]);
        expect_refused(command, 2, "neither one number of GB/s nor one for each of the plan's 4");
    }
    static const char *const barriers[] = {"1", "1,2,3,4", "1,x", "0,1", "0x1,2", "1,1e-300", ""};
    for (size_t i = 0; i < sizeof barriers / sizeof barriers[0]; i++) {
        char command[256];
        snprintf(command, sizeof command, ELSEWHERE " --bandwidth 80 --barrier-us '%s'",
                 barriers[i]);
        expect_refused(command, 2, "--barrier-us");
    }
    static const char *const small[] = {"--core-bandwidth", "--cache-bandwidth", "--kernel-share"};
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++) {
        char command[256];
        snprintf(command, sizeof command, ELSEWHERE " --bandwidth 80 %s 1e-300", small[i]);
        expect_refused(command, 2, "1e-300 is too small: give 0 (for none) or 0.001 and more");
    }
    expect_refused(ELSEWHERE " --bandwidth 80 --kv-placement one-node", 2, "local memory only");
    expect_refused("inspect --predict " TINY, 2, "--predict goes with --plan");
    expect_refused("inspect --plan " TINY " --bandwidth 80", 2, "go with --plan --predict");
    expect_refused("inspect --plan --predict --format svg " TINY, 2, "no picture");
    expect_refused("inspect --plan --shape tiny", 2, "go together");
    expect_refused("inspect " TINY, 2, "--shape goes with --plan");
    expect_refused("inspect --plan models/trine-kjv.gguf " TINY, 2, "not both");
    expect_refused("inspect --plan --shape huge --type tq2_0", 2, "unknown shape 'huge'");
    expect_refused("inspect --plan --shape tiny --type Q9", 2, "'Q9' is not a weight type");
    expect_refused("inspect --plan " TINY " --machine /nonexistent/m.xml", 1, "/nonexistent/m.xml");
    expect_refused("inspect --plan " TINY " --machine=models/trine-kjv.gguf", 1,
                   "models/trine-kjv.gguf: no topology: expected an XML file as lstopo writes it");
    expect_refused("inspect --plan " TINY " --machine " ICE_LAKE " --nodes 5 -t 3", 1, "nodes");
    write_whole(scratch_path("half.xml"), "<topology version=\"2.0\">", 24);
    char command[512];
    snprintf(command, sizeof command, "inspect --machine %s", scratch_path("half.xml"));
    expect_refused(command, 1, "half.xml");
}

/* `--machine` alone shows this one, with a file that one, before a dash and at the end alike. A word that
 * does not end in .xml is no value but what it would be without --machine. */
static void test_machine(void **state)
{
    (void)state;
    json_t *here = json_of("inspect --machine");
    assert_true(number(here, "read_bytes_s") > 0);
    json_decref(here);
    expect_refused("inspect --machine models/trine-kjv.gguf", 2, "leave models/trine-kjv.gguf out");
    here = json_of("inspect --plan --machine models/trine-kjv.gguf -t 1");
    assert_true(json_is_array(json_object_get(here, "nodes")));
    json_decref(here);
    static const char *const forms[] = {"inspect --machine " EMERALD, "inspect --machine=" EMERALD};
    for (int i = 0; i < 2; i++) {
        json_t *there = json_of(forms[i]);
        assert_int_equal(number(there, "cores"), 104);
        assert_int_equal(number(there, "l3_bytes"), 130 << 20);
        assert_true(json_is_null(json_object_get(there, "read_bytes_s")));
        assert_true(json_is_false(json_object_get(json_object_get(there, "layout"), "pinned")));
        json_decref(there);
    }
    struct outcome o = run_command("%s inspect --machine %s", trine, ICE_LAKE);
    assert_int_equal(o.status, 0);
    assert_non_null(strstr(o.out, "64 cores"));
    assert_non_null(strstr(o.out, "unknown: another machine"));
    outcome_done(&o);
}

/* A shape is planned as the file of random weights would be. */
static void test_shape_is_the_file(void **state)
{
    (void)state;
    static const char *const types[] = {"tq2_0", "iq2_bn", "i2_s", "tq1_0", "q4_0", "f16"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const char *path = scratch_path("shape.gguf");
        struct outcome o =
            run_command("%s synth --shape tiny --type %s -o %s", trine, types[i], path);
        assert_int_equal(o.status, 0);
        outcome_done(&o);
        struct outcome file = run_command("%s inspect --plan --json %s", trine, path);
        struct outcome shape =
            run_command("%s inspect --plan --json --shape tiny --type %s", trine, types[i]);
        assert_int_equal(file.status, 0);
        assert_int_equal(shape.status, 0);
        assert_string_equal(shape.out, file.out);
        outcome_done(&file);
        outcome_done(&shape);
    }
}

/* One thread: what its core reads is not the share that was given. */
static void test_share_is_not_the_core(void **state)
{
    (void)state;
    json_t *p = json_of("inspect --plan --predict models/trine-kjv.gguf -t 1 --kernel-share 50 "
                        "--bandwidth 10 --barrier-us 1,2");
    const json_t *from = json_object_get(p, "from");
    assert_string_equal(json_string_value(json_object_get(from, "share")), "given");
    assert_string_equal(json_string_value(json_object_get(from, "core")), "measured");
    json_decref(p);
}

/* This machine is measured. */
static void test_here(void **state)
{
    (void)state;
    json_t *p = json_of("inspect --plan --predict models/trine-kjv.gguf -t 2 --depth 100");
    const json_t *from = json_object_get(p, "from");
    static const char *const origins[] = {"bandwidth", "core", "share", "barriers"};
    for (int i = 0; i < 4; i++)
        assert_string_equal(json_string_value(json_object_get(from, origins[i])), "measured");
    assert_true(number(from, "core_bytes_s") > 1e6 && number(from, "node_barrier_s") > 1e-9);
    assert_true(number(p, "tokens_s") > 1);
    json_decref(p);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    char path[512];
    snprintf(path, sizeof path, "%s", build_path("trine"));
    trine = path;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_servers), cmocka_unit_test(test_sums),
        cmocka_unit_test(test_text),    cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_machine), cmocka_unit_test(test_shape_is_the_file),
        cmocka_unit_test(test_here),    cmocka_unit_test(test_share_is_not_the_core),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
