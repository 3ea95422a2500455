/* `trine bench`: what it reports, and that the same tokens have the same hash however they run. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../support.h"
#include "base/random.h"
#include "model/model_load.h"

#define MODEL "models/trine-kjv.gguf"

static const char *trine;

/* The results of a run that succeeds. The caller decrefs. */
static json_t *bench(const char *arguments)
{
    struct outcome o = run_command("%s bench %s -o json", trine, arguments);
    json_error_t problem;
    json_t *results = json_loads(o.out, JSON_REJECT_DUPLICATES, &problem);
    if (o.status != 0 || !json_is_array(results))
        fail_msg("bench %s: status %d, %s; output '%s', messages: %s", arguments, o.status,
                 problem.text, o.out, o.err);
    outcome_done(&o);
    return results;
}

/* The same as JSON lines: one object a line. */
static json_t *bench_lines(const char *arguments)
{
    struct outcome o = run_command("%s bench %s -o jsonl", trine, arguments);
    if (o.status != 0)
        fail_msg("bench %s: %s", arguments, o.err);
    json_t *results = json_array();
    for (char *line = o.out, *end; *line; line = end + 1) {
        json_error_t problem;
        end = strchr(line, '\n');
        assert_non_null(end);
        json_t *result = json_loadb(line, (size_t)(end - line), 0, &problem);
        if (!result)
            fail_msg("bench %s: %s: '%s'", arguments, problem.text, line);
        json_array_append_new(results, result);
    }
    outcome_done(&o);
    return results;
}

static json_int_t integer_of(json_t *result, const char *name)
{
    if (!json_is_integer(json_object_get(result, name)))
        fail_msg("%s is no integer", name);
    return json_integer_value(json_object_get(result, name));
}

static double number_of(json_t *result, const char *name)
{
    if (!json_is_real(json_object_get(result, name)))
        fail_msg("%s is no number", name);
    return json_real_value(json_object_get(result, name));
}

static const char *text_in(json_t *result, const char *name)
{
    if (!json_is_string(json_object_get(result, name)))
        fail_msg("%s is no text", name);
    return json_string_value(json_object_get(result, name));
}

static void check_names(json_t *result)
{
    static const char *const texts[] = {
        "build_commit", "cpu_info", "gpu_info", "backends",  "model_type", "type_k", "type_v",
        "test_time",    "dataflow", "isa",      "act_scale", "barrier",    "rows",   "logits_hash"};
    static const char *const integers[] = {
        "build_number", "model_size", "model_n_params", "n_batch", "n_ubatch",
        "n_threads",    "n_prompt",   "n_gen",          "n_depth", "avg_ns",
        "stddev_ns",    "n_seq",      "n_nodes"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        text_in(result, texts[i]);
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++)
        integer_of(result, integers[i]);
    assert_string_equal(text_in(result, "model_filename"), MODEL);
    assert_string_equal(text_in(result, "backends"), "CPU");
    assert_true(number_of(result, "load_s") > 0);
    assert_true(number_of(result, "read_bandwidth_gb_s") > 0);
    assert_true(json_object_get(result, "placed") && json_object_get(result, "migrated_pages"));
    int year, month, day, hour, minute, second, length = 0;
    const char *time = text_in(result, "test_time");
    assert_int_equal(sscanf(time, "%4d-%2d-%2dT%2d:%2d:%2dZ%n", &year, &month, &day, &hour, &minute,
                            &second, &length),
                     6);
    assert_int_equal(length, 20);
}

/* Samples belong together with their means, and nanoseconds with tokens a second. */
static void check_samples(json_t *result, int n, int n_tokens)
{
    json_t *ns = json_object_get(result, "samples_ns"), *ts = json_object_get(result, "samples_ts");
    assert_int_equal(json_array_size(ns), n);
    assert_int_equal(json_array_size(ts), n);
    double sum_ns = 0, sum_ts = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        double one_ns = json_number_value(json_array_get(ns, (size_t)i));
        double one_ts = json_real_value(json_array_get(ts, (size_t)i));
        assert_true(one_ns > 0 && fabs(one_ts * one_ns / 1e9 / n_tokens - 1) < 1e-9);
        sum_ns += one_ns;
        sum_ts += one_ts;
    }
    for (int i = 0; i < n; i++)
        squares += pow(json_real_value(json_array_get(ts, (size_t)i)) - sum_ts / n, 2);
    double stddev = n > 1 ? sqrt(squares / (n - 1)) : 0, mean = sum_ts / n;
    assert_true(fabs((double)integer_of(result, "avg_ns") - sum_ns / n) <= 1);
    assert_true(fabs(number_of(result, "avg_ts") - mean) < 1e-9 * mean);
    assert_true(fabs(number_of(result, "stddev_ts") - stddev) < 1e-9 * mean);
}

/* Decoding knows its bytes; of a prompt nothing is claimed. */
static void check_bytes(json_t *result)
{
    if (integer_of(result, "n_gen") == 0) {
        assert_true(json_is_null(json_object_get(result, "bytes_per_token")));
        assert_true(json_is_null(json_object_get(result, "gb_s")));
        assert_true(json_is_null(json_object_get(result, "share")));
        return;
    }
    double gb_s = number_of(result, "gb_s");
    assert_true(fabs(number_of(result, "share") * number_of(result, "read_bandwidth_gb_s") - gb_s) <
                1e-6 * gb_s);
    if (integer_of(result, "n_prompt") > 0)
        return;
    double seconds = (double)integer_of(result, "avg_ns") / 1e9;
    double n_tokens = (double)(integer_of(result, "n_gen") * integer_of(result, "n_seq"));
    double expected = number_of(result, "bytes_per_token") * n_tokens / seconds / 1e9;
    assert_true(fabs(gb_s - expected) < 1e-5 * gb_s); /* avg_ns is a whole number */
}

/* 64-bit FNV-1a of more bytes. */
static uint64_t hash_more(uint64_t hash, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (uint8_t)bytes[i]) * 0x100000001b3u;
    return hash;
}

/* The same of the logits after n of the tokens that `bench` runs, as `logits` writes them. */
static uint64_t hash_of_logits(uint64_t hash, uint64_t seed, int n, int n_vocab)
{
    const char *path = scratch_path("logits");
    char tokens[256] = "";
    struct random random;
    random_init(&random, seed);
    for (int i = 0; i < n; i++)
        snprintf(tokens + strlen(tokens), sizeof tokens - strlen(tokens), "%s%d", i ? "," : "",
                 (int)(random_bits(&random) % (uint64_t)n_vocab));
    struct outcome o =
        run_command("%s logits %s --tokens %s -o %s -t 1", trine, MODEL, tokens, path);
    if (o.status != 0)
        fail_msg("logits: %s", o.err);
    outcome_done(&o);
    size_t size, row = sizeof(float) * (size_t)n_vocab;
    char *logits = read_whole(path, &size);
    assert_int_equal(size, row * (size_t)n);
    hash = hash_more(hash, logits + size - row, row);
    free(logits);
    return hash;
}

static void expect_hash(json_t *results, size_t i, uint64_t hash)
{
    char text[24];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    assert_string_equal(text_in(json_array_get(results, i), "logits_hash"), text);
}

static const uint64_t empty_hash = 0xcbf29ce484222325u;
static int n_vocab;    /* of the model */
static uint64_t hash8; /* of the logits after 8 tokens */

/* The offset basis, and the published hash of "foobar". */
static void test_the_hash_itself(void **state)
{
    (void)state;
    assert_true(hash_more(empty_hash, "foobar", 6) == 0x85944171f73967e8u);
}

/* Prompt, generation and both: 8 tokens each, and so the same logits as `logits` writes. */
static void test_fields(void **state)
{
    (void)state;
    json_t *results = bench("-m " MODEL " -t 1 -p 8 -n 8 -pg 3,5 -r 3 -b 4");
    static const int expected[3][2] = {{8, 0}, {0, 8}, {3, 5}};
    assert_int_equal(json_array_size(results), 3);
    for (size_t i = 0; i < 3; i++) {
        json_t *result = json_array_get(results, i);
        check_names(result);
        check_samples(result, 3, 8);
        check_bytes(result);
        assert_int_equal(integer_of(result, "n_prompt"), expected[i][0]);
        assert_int_equal(integer_of(result, "n_gen"), expected[i][1]);
        assert_int_equal(integer_of(result, "n_threads"), 1);
        assert_int_equal(integer_of(result, "n_batch"), 4);
        assert_string_equal(text_in(result, "type_k"), "f16");
        expect_hash(results, i, hash8);
    }
    json_decref(results);
}

/* Tokens 6 and 7 after a depth of 6 are those of a prompt of 8; after a depth of 5 they are not. */
static void test_depth(void **state)
{
    (void)state;
    json_t *results = bench_lines(MODEL " -t 2 -p 0 -n 2 -d 6,5 -r 2 --rows static --barrier flat");
    assert_int_equal(json_array_size(results), 2);
    json_t *six = json_array_get(results, 0), *five = json_array_get(results, 1);
    assert_int_equal(integer_of(six, "n_depth"), 6);
    assert_int_equal(integer_of(six, "n_threads"), 2);
    assert_string_equal(text_in(six, "rows"), "static");
    assert_string_equal(text_in(six, "barrier"), "flat");
    expect_hash(results, 0, hash8);
    assert_string_not_equal(text_in(six, "logits_hash"), text_in(five, "logits_hash"));
    /* one position less in the cache of each layer */
    assert_true(number_of(six, "bytes_per_token") > number_of(five, "bytes_per_token"));
    check_bytes(five);
    json_decref(results);
}

static void test_nodes(void **state)
{
    (void)state;
    json_t *results = bench(MODEL " --nodes 2 -t 2 --act-scale token -p 8 -n 0 -r 1");
    json_t *result = json_array_get(results, 0);
    assert_int_equal(integer_of(result, "n_nodes"), 2);
    assert_string_equal(text_in(result, "act_scale"), "token");
    check_samples(result, 1, 8);
    expect_hash(results, 0, hash8);
    json_decref(results);
}

/* Two sequences share the weights; their logits are hashed one after the other. */
static void test_sequences(void **state)
{
    (void)state;
    json_t *results = bench(MODEL " -t 1 -p 0 -n 8 -npl 1,2 -r 1");
    json_t *one = json_array_get(results, 0), *two = json_array_get(results, 1);
    expect_hash(results, 0, hash8);
    expect_hash(results, 1, hash_of_logits(hash8, 2, 8, n_vocab));
    assert_int_equal(integer_of(two, "n_seq"), 2);
    check_samples(two, 1, 16);
    check_bytes(two);
    double saved = 2 * (number_of(one, "bytes_per_token") - number_of(two, "bytes_per_token"));
    assert_true(saved > 0 && saved < (double)integer_of(one, "model_size") * 4);
    json_decref(results);
}

/* Columns of a line of CSV; quotes are doubled within quotes. */
static int n_columns(const char *line)
{
    int n = 1;
    bool is_quoted = false;
    for (; *line && *line != '\n'; line++) {
        is_quoted ^= *line == '"';
        n += *line == ',' && !is_quoted;
    }
    return n;
}

static void test_csv(void **state)
{
    (void)state;
    struct outcome o = run_command("%s bench %s -p 0 -n 2 -d 0,1 -r 1 -o csv", trine, MODEL);
    assert_int_equal(o.status, 0);
    assert_memory_equal(o.out, "build_commit,build_number,", 26);
    int n_lines = 0, n = n_columns(o.out);
    assert_true(n > 30);
    for (const char *line = o.out; *line; line = strchr(line, '\n') + 1, n_lines++)
        assert_int_equal(n_columns(line), n);
    assert_int_equal(n_lines, 3);
    outcome_done(&o);
}

/* The number of entries of a folder besides . and .. */
static int n_entries(const char *path)
{
    DIR *folder = opendir(path);
    assert_non_null(folder);
    int n = -2;
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

/* Random weights leave nothing behind. The table shows their number and what was measured. */
static void test_shape(void **state)
{
    (void)state;
    const char *folder = scratch_path("tmp");
    assert_int_equal(mkdir(folder, 0700), 0);
    struct outcome o = run_command(
        "env TMPDIR=%s %s bench --shape tiny --type TQ2_0 -p 4 -n 2 -d 3 -r 2", folder, trine);
    if (o.status != 0)
        fail_msg("%s", o.err);
    /* 4 layers of 2,359,296 and two norms, embedding and output of 288 x 512, a norm */
    assert_non_null(strstr(o.out, "| llama 9.7M TQ2_0 "));
    assert_non_null(strstr(o.out, " 9.74 M |"));
    const char *prompt = strstr(o.out, "| pp4 @ d3 "), *decode = strstr(o.out, "| tg2 @ d3 ");
    assert_non_null(prompt);
    assert_true(decode && decode > prompt);
    assert_non_null(strstr(decode, "\xc2\xb1"));
    assert_non_null(strstr(decode, " % |"));
    assert_int_equal(n_entries(folder), 0);
    outcome_done(&o);

    o = run_command("env TMPDIR=%s/absent %s bench --shape tiny --type TQ2_0 -p 4 -n 0", folder,
                    trine);
    assert_int_equal(o.status, 1);
    assert_non_null(strstr(o.err, "TMPDIR"));
    outcome_done(&o);
}

static void test_output_that_ends(void **state)
{
    (void)state;
    struct outcome o = run_command("{ %s bench %s -p 4 -n 0 -d 0,1,2,3,4,5,6,7 -r 1 -o jsonl ; "
                                   "echo status $? >&2 ; } | head -c 1",
                                   trine, MODEL);
    assert_string_equal(o.out, "{");
    assert_non_null(strstr(o.err, "status 0"));
    assert_true(strstr(o.err, "cannot write") == NULL);
    outcome_done(&o);
}

static void expect_refusal(const char *arguments, int status)
{
    struct outcome o = run_command("%s bench %s", trine, arguments);
    const char *newline = strchr(o.err, '\n');
    if (o.status != status || o.out_bytes || !newline || newline[1])
        fail_msg("bench %s: status %d, output '%s', messages: %s", arguments, o.status, o.out,
                 o.err);
    outcome_done(&o);
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",
                                        "-p 4",
                                        MODEL " -p 0 -n 0",
                                        MODEL " -p ''",
                                        MODEL " -p 4,",
                                        MODEL " -p 4,,4",
                                        MODEL " -p 4,0",
                                        MODEL " -p -4",
                                        MODEL " -p ' 4'",
                                        MODEL " -n x",
                                        MODEL " -n 99999999999999999999",
                                        MODEL " -d ''",
                                        MODEL " -npl 0",
                                        MODEL " -pg 4",
                                        MODEL " -pg 4,0",
                                        MODEL " -pg 4,4,4",
                                        MODEL " -r 0",
                                        MODEL " -b 0",
                                        MODEL " -b 513",
                                        MODEL " -ctk f32",
                                        MODEL " -o xml",
                                        MODEL " --type TQ2_0",
                                        MODEL " --shape tiny --type TQ2_0",
                                        "--shape tiny",
                                        "--shape none --type TQ2_0",
                                        "--shape tiny --type TQ9",
                                        MODEL " -t 1 --threads-per-node 1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        expect_refusal(wrong[i], 2);
    expect_refusal(MODEL ".absent", 1);
    expect_refusal(MODEL " -p 0 -n 4 -npl 512 -d 16000000", 1); /* caches of 30 TB */
}

static int prepare(void **state)
{
    (void)state;
    trine = build_path("trine");
    struct model model;
    struct error err;
    if (model_open(&model, MODEL, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    n_vocab = model.config.n_vocab;
    model_close(&model);
    hash8 = hash_of_logits(empty_hash, 1, 8, n_vocab);
    return 0;
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_hash_itself), cmocka_unit_test(test_fields),
        cmocka_unit_test(test_depth),           cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_sequences),       cmocka_unit_test(test_csv),
        cmocka_unit_test(test_shape),           cmocka_unit_test(test_output_that_ends),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
