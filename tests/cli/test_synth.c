/* `trine synth` and `trine inspect`: files in published shapes, and what is said of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"
#include "gguf/gguf_metadata.h"
#include "model/model_load.h"
#include "model/model_shapes.h"
#include "reference/reference.h"

static const char *trine;

/* Mean and deviation of the logits of some tokens. */
static void logit_spread(const char *path, double *mean, double *deviation)
{
    enum { N = 12 };
    struct model model;
    struct reference *ref;
    struct error err;
    if (model_open(&model, path, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    int n_vocab = model.config.n_vocab;
    struct reference_options options = {.n_ctx = N, .max_batch = N};
    assert_int_equal(reference_open(&ref, &model, &options, NULL), STATUS_OK);
    float *logits = malloc(sizeof *logits * (size_t)n_vocab * N);
    int32_t tokens[N];
    for (int i = 0; i < N; i++)
        tokens[i] = (i * 37 + 5) % n_vocab;
    reference_forward(ref, tokens, N, logits, N);
    double sum = 0, squares = 0;
    for (int i = 0; i < n_vocab * N; i++) {
        assert_true(isfinite(logits[i]));
        sum += logits[i];
        squares += (double)logits[i] * logits[i];
    }
    *mean = sum / (n_vocab * N);
    *deviation = sqrt(squares / (n_vocab * N) - *mean * *mean);
    free(logits);
    reference_close(ref);
    model_close(&model);
}

static void test_tiny_in_every_type(void **state)
{
    (void)state;
    static const char *const types[] = {
        "F32",  "F16",  "BF16",   "Q4_0",   "Q4_1",      "Q5_0",   "Q5_1",  "Q8_0",  "Q2_K",
        "Q3_K", "Q4_K", "Q5_K",   "Q6_K",   "IQ4_NL",    "IQ4_XS", "TQ1_0", "TQ2_0", "I2_S",
        "Q1_0", "Q2_0", "IQ1_BN", "IQ2_BN", "IQ2_BN_R4", "TQ2_T",  "TQK6",  "TQK7"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const char *path = scratch_path("tiny.gguf");
        struct outcome o =
            run_command("%s synth --shape tiny --type %s -o %s", trine, types[i], path);
        if (o.status != 0)
            fail_msg("%s: %s", types[i], o.err);
        outcome_done(&o);
        double mean, deviation;
        logit_spread(path, &mean, &deviation);
        if (!(fabs(mean) < 0.3 && deviation > 1.6 && deviation < 2.4))
            fail_msg("%s: logits of mean %.2f and deviation %.2f", types[i], mean, deviation);
    }
}

static void test_tiny_of_every_architecture(void **state)
{
    (void)state;
    static const char *const archs[] = {"llama",     "bitnet", "bitnet-b1.58",
                                        "bitnet-25", "qwen2",  "qwen3"};
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        const char *path = scratch_path("arch.gguf");
        struct outcome o = run_command("%s synth --shape tiny --arch %s --type IQ2_BN -o %s", trine,
                                       archs[i], path);
        if (o.status != 0)
            fail_msg("%s: %s", archs[i], o.err);
        outcome_done(&o);
        double mean, deviation;
        logit_spread(path, &mean, &deviation);
        if (!(fabs(mean) < 0.3 && deviation > 1.6 && deviation < 2.4))
            fail_msg("%s: logits of mean %.2f and deviation %.2f", archs[i], mean, deviation);
    }
}

static void test_seed(void **state)
{
    (void)state;
    const char *a = scratch_path("seed-a.gguf"), *b = scratch_path("seed-b.gguf");
    size_t n_a, n_b;
    for (int seed = 1; seed <= 2; seed++) {
        struct outcome o =
            run_command("%s synth --shape tiny --type TQ2_0 -o %s --seed 1", trine, a);
        assert_int_equal(o.status, 0);
        outcome_done(&o);
        o = run_command("%s synth --shape tiny --type TQ2_0 -o %s --seed %d", trine, b, seed);
        assert_int_equal(o.status, 0);
        outcome_done(&o);
        char *x = read_whole(a, &n_a), *y = read_whole(b, &n_b);
        assert_int_equal(n_a, n_b);
        assert_int_equal(memcmp(x, y, n_a) == 0, seed == 1);
        free(x);
        free(y);
    }
}

/* Numbers of published configurations, and a vocabulary that encodes and decodes. */
static void test_falcon3_1b(void **state)
{
    (void)state;
    const char *path = scratch_path("falcon3-1b.gguf");
    struct outcome o = run_command("%s synth --shape falcon3-1b --type IQ1_BN -o %s", trine, path);
    if (o.status != 0)
        fail_msg("%s", o.err);
    if (!IS_SANITISED)
        assert_true(o.seconds < 30);
    outcome_done(&o);
    struct model model;
    assert_int_equal(model_open(&model, path, NULL), STATUS_OK);
    const struct model_config *c = &model.config;
    assert_int_equal(c->n_embd, 2048);
    assert_int_equal(c->n_layer, 18);
    assert_int_equal(c->n_head, 8);
    assert_int_equal(c->n_head_kv, 4);
    assert_int_equal(c->head_dim, 256);
    assert_int_equal(c->n_ff, 8192);
    assert_int_equal(c->n_vocab, 131072);
    assert_int_equal(c->n_ctx_train, 8192);
    assert_true(c->rope.freq_base == 1000042);
    model_close(&model);
    o = run_command("%s inspect --json %s", trine, path);
    assert_int_equal(o.status, 0);
    json_t *report = json_loads(o.out, 0, NULL);
    assert_non_null(report);
    assert_true(json_is_true(json_object_get(report, "runs")));
    /* 18 layers of 4 attention and 3 feed-forward matrices, two tables, 37 norms */
    assert_int_equal(json_array_size(json_object_get(report, "tensors")), 18 * 9 + 3);
    assert_int_equal(json_integer_value(json_object_get(report, "weights")),
                     18 * (2 * 2048 * 2048 + 2 * 1024 * 2048 + 3 * 2048 * 8192 + 2 * 2048) +
                         2 * 131072LL * 2048 + 2048);
    json_decref(report);
    outcome_done(&o);
}

static void test_shapes_are_listed(void **state)
{
    (void)state;
    static const char *const names[] = {"falcon3-1b",   "llama3-8b",   "falcon3-10b", "bonsai-8b",
                                        "tiny",         "bonsai-1.7b", "bonsai-4b",   "bitnet-2b4t",
                                        "bitnet-large", "bitnet-3b"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_non_null(model_shape_find(names[i]));
    const struct model_shape *bonsai = model_shape_find("bonsai-8b");
    assert_string_equal(bonsai->arch, "qwen3");
    assert_int_equal(bonsai->n_ff, 12288);
    assert_null(model_shape_find("falcon3-2b"));
}

static int find_trine(void **state)
{
    (void)state;
    trine = build_path("trine");
    return 0;
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny_in_every_type),
        cmocka_unit_test(test_tiny_of_every_architecture),
        cmocka_unit_test(test_seed),
        cmocka_unit_test(test_falcon3_1b),
        cmocka_unit_test(test_shapes_are_listed),
    };
    return cmocka_run_group_tests(tests, find_trine, NULL);
}
