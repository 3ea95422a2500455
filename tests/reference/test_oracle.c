/* Tiny models of random weights with the logits that two other programs and a double-precision
 * pass computed: every variant of the architecture, every type. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"
#include "model/model_load.h"
#include "reference/reference.h"

struct oracle {
    const char *name;
    json_t *index;
    char *arrays;
    struct model model;
};

static void open_oracle(struct oracle *o, const char *name)
{
    char file[96];
    o->name = name;
    snprintf(file, sizeof file, "%s.json", name);
    o->index = json_load_file(oracle_path(file), 0, NULL);
    snprintf(file, sizeof file, "%s.bin", name);
    o->arrays = read_whole(oracle_path(file), NULL);
    snprintf(file, sizeof file, "%s.gguf", name);
    struct error err;
    if (!o->index || !o->arrays)
        fail_msg("%s: cannot read the oracle's files", name);
    if (model_open(&o->model, oracle_path(file), &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static void close_oracle(struct oracle *o)
{
    model_close(&o->model);
    json_decref(o->index);
    free(o->arrays);
}

/* Row of array `name` at position pos, or NULL where the oracle has none. */
static const float *stored_row(const struct oracle *o, const char *name, int pos)
{
    const json_t *arrays = json_object_get(o->index, "arrays"), *a;
    size_t i;
    json_array_foreach(arrays, i, a)
    {
        if (strcmp(json_string_value(json_object_get(a, "name")), name) != 0)
            continue;
        const json_t *positions = json_object_get(a, "positions");
        int row = json_is_string(positions) ? pos : -1;
        for (size_t k = 0; k < json_array_size(positions); k++)
            if (json_integer_value(json_array_get(positions, k)) == pos)
                row = (int)k;
        if (row < 0)
            return NULL;
        json_int_t offset = json_integer_value(json_object_get(a, "offset"));
        return (const float *)(o->arrays + offset) + (size_t)row * (size_t)o->model.config.n_vocab;
    }
    return NULL;
}

static double worst_difference(const float *a, const float *b, int n)
{
    double worst = 0;
    for (int i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)a[i] - b[i]));
    return worst;
}

/* Runs `tokens` in pieces of `cut`, keeping all logits. */
static float *run(const struct oracle *o, const json_t *tokens, int cut, struct reference **ref)
{
    int n = (int)json_array_size(tokens), n_vocab = o->model.config.n_vocab;
    struct reference_options options = {.n_ctx = n + 20, .max_batch = cut};
    assert_int_equal(reference_open(ref, &o->model, &options, NULL), STATUS_OK);
    float *logits = malloc(sizeof *logits * (size_t)n * (size_t)n_vocab);
    int32_t ids[512];
    assert_true(logits && n <= 512);
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(tokens, (size_t)i));
    for (int at = 0; at < n; at += cut) {
        int piece = n - at < cut ? n - at : cut;
        reference_forward(*ref, ids + at, piece, logits + (size_t)at * (size_t)n_vocab, piece);
    }
    return logits;
}

/* Compares with every row that array `name` has; returns their number. */
static int compare(const struct oracle *o, const float *logits, int n, const char *name,
                   double tolerance)
{
    int n_compared = 0, n_vocab = o->model.config.n_vocab;
    for (int pos = 0; pos < n; pos++) {
        const float *expected = stored_row(o, name, pos);
        if (!expected)
            continue;
        double worst = worst_difference(logits + (size_t)pos * (size_t)n_vocab, expected, n_vocab);
        if (!(worst <= tolerance))
            fail_msg("%s: position %d differs from %s by %g, allowed %g", o->name, pos, name, worst,
                     tolerance);
        n_compared++;
    }
    return n_compared;
}

static int best_of(const float *logits, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* Greedy continuation against the double-precision pass. */
static void compare_greedy(const struct oracle *o, struct reference *ref, const float *last)
{
    const json_t *ids = json_object_get(json_object_get(o->index, "exact"), "greedy");
    int n_vocab = o->model.config.n_vocab;
    float *logits = malloc(sizeof *logits * (size_t)n_vocab);
    assert_non_null(logits);
    memcpy(logits, last, sizeof *logits * (size_t)n_vocab);
    assert_int_equal(json_array_size(ids), 16);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        int32_t token = best_of(logits, n_vocab);
        if (token != json_integer_value(json_array_get(ids, i)))
            fail_msg("%s: greedy token %zu is %d", o->name, i, token);
        reference_forward(ref, &token, 1, logits, 1);
    }
    free(logits);
}

/* Float files also agree with the two programs; others only with the pass that rounds no
 * activations. Whole prompt, token by token, and a cut in between. */
static void check_oracle(const char *name, bool is_float)
{
    struct oracle o;
    open_oracle(&o, name);
    const json_t *tokens = json_object_get(o.index, "tokens");
    int n = (int)json_array_size(tokens), cuts[] = {n, 1, 7};
    for (int k = 0; k < 3; k++) {
        struct reference *ref;
        float *logits = run(&o, tokens, cuts[k], &ref);
        int n_rows = compare(&o, logits, n, "exact", 5e-5);
        if (is_float) {
            n_rows += compare(&o, logits, n, "lc.batch", 5e-5);
            n_rows += compare(&o, logits, n, "ik.batch", 5e-5);
        }
        assert_true(n_rows >= n);
        if (k == 0)
            compare_greedy(&o, ref, logits + (size_t)(n - 1) * (size_t)o.model.config.n_vocab);
        free(logits);
        reference_close(ref);
    }
    close_oracle(&o);
}

/* The files that the float columns cover. */
static void test_llama_variants(void **state)
{
    (void)state;
    NEED(oracle_path(""), "the oracle's files (make test ORACLE=DIR)");
    static const char *const names[] = {"llama-plain",     "llama-bias",   "llama-gqa-tied",
                                        "llama-headdim",   "llama-linear", "llama-ropefreqs",
                                        "llama-yarn-attn", "llama-yarn"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        check_oracle(names[i], true);
}

/* bitnet-b1.58 and bitnet-25 are known to one of the two programs only: the other has no row. */
static void test_other_architectures(void **state)
{
    (void)state;
    NEED(oracle_path(""), "the oracle's files (make test ORACLE=DIR)");
    static const char *const names[] = {
        "bitnet", "bitnet-25", "bitnet-b1.58", "bitnet-b1.58-untied", "qwen2", "qwen3",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        check_oracle(names[i], true);
}

static void test_types(void **state)
{
    (void)state;
    NEED(oracle_path(""), "the oracle's files (make test ORACLE=DIR)");
    static const char *const names[] = {
        "quant-bf16",       "quant-f16",          "quant-iq4_nl",   "quant-iq4_xs",
        "quant-q2_k",       "quant-q4_0",         "quant-q4_1",     "quant-q4_k",
        "quant-q5_0",       "quant-q5_1",         "quant-q5_k",     "quant-q6_k",
        "quant-q8_0",       "tern256-f16",        "tern256-i2_s",   "tern256-q2_0-g128",
        "tern256-q2_0-g64", "tern256-tq2_0",      "tern512-iq1_bn", "tern512-iq2_bn",
        "tern512-tq2_0",    "bitnet-b1.58-iq2_bn"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        check_oracle(names[i], false);
}

/* 300 tokens through YaRN's stretched angles; the allowance is the oracle's own. */
static void test_long_run(void **state)
{
    (void)state;
    NEED(oracle_path(""), "the oracle's files (make test ORACLE=DIR)");
    struct oracle o;
    open_oracle(&o, "llama-yarn");
    const json_t *tokens = json_object_get(json_object_get(o.index, "long"), "tokens");
    struct reference *ref;
    int n = (int)json_array_size(tokens);
    float *logits = run(&o, tokens, 50, &ref);
    assert_int_equal(n, 300);
    assert_true(compare(&o, logits, n, "long.exact", 5e-5) > 0);
    assert_true(compare(&o, logits, n, "long.lc.batch", 3e-4) > 0);
    free(logits);
    reference_close(ref);
    close_oracle(&o);
}

/* A half-precision cache moves the logits, but by no more than the oracle allows. */
static void test_cache_f16(void **state)
{
    (void)state;
    NEED(oracle_path(""), "the oracle's files (make test ORACLE=DIR)");
    struct oracle o;
    open_oracle(&o, "llama-plain");
    const json_t *tokens = json_object_get(o.index, "tokens");
    int n = (int)json_array_size(tokens), n_vocab = o.model.config.n_vocab;
    struct reference_options options = {.n_ctx = n, .max_batch = n, .kv_f16 = true};
    struct reference *ref;
    assert_int_equal(reference_open(&ref, &o.model, &options, NULL), STATUS_OK);
    int32_t ids[512];
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(tokens, (size_t)i));
    float *logits = malloc(sizeof *logits * (size_t)n * (size_t)n_vocab);
    reference_forward(ref, ids, n, logits, n);
    assert_true(compare(&o, logits, n, "ik.batch", 0.03) == n);
    double moved = worst_difference(logits + (size_t)(n - 1) * (size_t)n_vocab,
                                    stored_row(&o, "exact", n - 1), n_vocab);
    assert_true(moved > 1e-4);
    free(logits);
    reference_close(ref);
    close_oracle(&o);
}

/* A mixture of experts would be run as a dense model by a program that ignores what it does not
 * know. */
static void test_experts_are_refused(void **state)
{
    (void)state;
    NEED(oracle_path(""), "the oracle's files (make test ORACLE=DIR)");
    struct model model;
    struct error err;
    assert_int_equal(model_open(&model, oracle_path("llama-moe.gguf"), &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "expert"));
    assert_int_equal(model_open(&model, oracle_path("qwen3moe.gguf"), &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "'qwen3moe'"));
}

/* Gated delta nets: a program that knew their attention layers only would run a quarter of them. */
static void test_hybrid_models_are_refused(void **state)
{
    (void)state;
    NEED(oracle_path(""), "the oracle's files (make test ORACLE=DIR)");
    static const char *const names[] = {"qwen35", "qwen35moe", "qwen3next"};
    for (int i = 0; i < 3; i++) {
        char file[32], quoted[32];
        snprintf(file, sizeof file, "%s.gguf", names[i]);
        snprintf(quoted, sizeof quoted, "'%s'", names[i]);
        struct model model;
        struct error err;
        assert_int_equal(model_open(&model, oracle_path(file), &err), STATUS_UNSUPPORTED);
        assert_non_null(strstr(err.text, quoted));
    }
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama_variants),
        cmocka_unit_test(test_other_architectures),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_long_run),
        cmocka_unit_test(test_cache_f16),
        cmocka_unit_test(test_experts_are_refused),
        cmocka_unit_test(test_hybrid_models_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
