/* The engine on tiny models of random weights with the logits that two other programs and a
 * double-precision pass computed. Allowances are those that the oracle's README states: with an f16
 * cache 0.03; with int8 activations rounded in another way than the stored ones a root mean square of
 * 0.12 and at most 0.6 (the logits have a deviation of 2). */
#include "machine/cpu_features.h"
#include "oracle_file.h"

#define NEED_ORACLE() NEED(oracle_path(""), "the oracle's files (make test ORACLE=DIR)")

/* A model's own weights are multiplied by floats, or by activations rounded to int8. */
enum rounding { ROUNDS_NOTHING, ROUNDS_INT8 };

static struct engine_options one_node(void)
{
    return (struct engine_options){
        .isa = cpu_best_isa(), .n_threads = 2, .n_nodes = 1, .act_scale = ACT_SCALE_TOKEN};
}

static struct engine_options two_nodes(enum dataflow dataflow)
{
    struct engine_options options = one_node();
    options.n_threads = 3;
    options.n_nodes = 2;
    options.dataflow = dataflow;
    return options;
}

/* Distance from all rows that an array has; returns their number. */
static int measure(const struct oracle *o, const float *logits, const char *array, double *max,
                   double *rms)
{
    int n = 0, n_vocab = o->model.config.n_vocab;
    double squares = 0;
    *max = 0;
    for (int pos = 0; pos < o->n_tokens; pos++) {
        const float *row = oracle_row(o, array, pos);
        if (!row)
            continue;
        struct distance d = distance_of(logits + (size_t)pos * (size_t)n_vocab, row, 1, n_vocab);
        *max = d.max <= *max ? *max : d.max;
        squares += d.rms * d.rms;
        n++;
    }
    *rms = n ? sqrt(squares / n) : 0;
    return n;
}

static int expect_near(const struct oracle *o, const float *logits, const char *array,
                       double most_rms, double most)
{
    double max, rms;
    int n = measure(o, logits, array, &max, &rms);
    if (!(max <= most && rms <= most_rms))
        fail_msg("%s: from %s: rms %g, allowed %g; max %g, allowed %g", o->name, array, rms,
                 most_rms, max, most);
    return n;
}

static void expect_logits(const struct oracle *o, const float *logits, enum rounding rounding)
{
    int n;
    if (rounding == ROUNDS_INT8) {
        n = expect_near(o, logits, "exact", 0.12, 0.6);
    } else {
        n = expect_near(o, logits, "exact", 0.03, 0.03);
        if (n < o->n_tokens) { /* F32: two programs that round nothing either */
            n = expect_near(o, logits, "lc.batch", 0.03, 0.03);
            n = n < o->n_tokens ? n : expect_near(o, logits, "ik.batch", 0.03, 0.03);
        }
    }
    assert_int_equal(n, o->n_tokens);
}

/* The plain pass with an f16 cache differs by float rounding, and where that moves a key or value to
 * the next f16, by 2^-10 of its size: no logit by more than that share of the deviation. */
static void expect_reference(const struct oracle *o, const float *logits)
{
    int n_vocab = o->model.config.n_vocab;
    float *expected = run_reference(&o->model, true, o->tokens, o->n_tokens);
    struct distance d = distance_of(logits, expected, o->n_tokens, n_vocab);
    if (!(d.max <= d.deviation / 1024))
        fail_msg("%s: %g from the plain pass, deviation %g", o->name, d.max, d.deviation);
    assert_int_equal(d.n_best, o->n_tokens);
    free(expected);
}

/* Greedy continuation as in double precision, as long as the lead is clear of what the f16 cache may
 * move; returns the number of tokens that were compared. */
static int expect_greedy(const struct oracle *o)
{
    const json_t *exact = json_object_get(o->index, "exact");
    const json_t *ids = json_object_get(exact, "greedy");
    const json_t *leads = json_object_get(exact, "greedy_margin");
    struct engine_options options = one_node();
    options.n_ctx = o->n_tokens + 16;
    struct engine *engine = open_engine(&o->model, &options);
    struct session *session = open_session(engine);
    const float *logits = session_prefill(session, o->tokens, o->n_tokens);
    int i = 0;
    for (; i < 16 && json_number_value(json_array_get(leads, (size_t)i)) > 2 * 0.03; i++) {
        int32_t token = best_of(logits, o->model.config.n_vocab);
        if (token != json_integer_value(json_array_get(ids, (size_t)i)))
            fail_msg("%s: greedy token %d is %d", o->name, i, token);
        logits = session_decode(session, token);
    }
    session_close(session);
    engine_close(engine);
    return i;
}

/* On one node in any pieces the same bits; on two nodes by rows too. Split by columns float sums end in
 * another order, except where they are sums of integers. Returns the logits of the whole prompt. */
static float *check_oracle(struct oracle *o, enum rounding rounding, bool is_ternary)
{
    int n = o->n_tokens, n_vocab = o->model.config.n_vocab;
    float *logits = run_engine(&o->model, one_node(), o->tokens, n, n);
    expect_logits(o, logits, rounding);
    if (rounding == ROUNDS_NOTHING)
        expect_reference(o, logits);
    for (int cut = 1; cut <= 7; cut += 6) {
        float *pieces = run_engine(&o->model, one_node(), o->tokens, n, cut);
        expect_same_bits(pieces, logits, n, n_vocab, o->name);
        free(pieces);
    }
    float *row = run_engine(&o->model, two_nodes(DATAFLOW_ROW), o->tokens, n, n);
    expect_same_bits(row, logits, n, n_vocab, o->name);
    float *column = run_engine(&o->model, two_nodes(DATAFLOW_COLUMN), o->tokens, n, 5);
    expect_logits(o, column, rounding);
    if (is_ternary)
        expect_same_bits(column, logits, n, n_vocab, o->name);
    free(row);
    free(column);
    return logits;
}

static void test_llama_variants(void **state)
{
    (void)state;
    NEED_ORACLE();
    static const char *const names[] = {"llama-plain",     "llama-bias",   "llama-gqa-tied",
                                        "llama-headdim",   "llama-linear", "llama-ropefreqs",
                                        "llama-yarn-attn", "llama-yarn"};
    int n_greedy = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct oracle o;
        oracle_open(&o, names[i]);
        free(check_oracle(&o, ROUNDS_NOTHING, false));
        n_greedy += expect_greedy(&o);
        oracle_close(&o);
    }
    assert_true(n_greedy >= 64);
}

static void test_other_architectures(void **state)
{
    (void)state;
    NEED_ORACLE();
    static const char *const names[] = {
        "bitnet", "bitnet-25", "bitnet-b1.58", "bitnet-b1.58-untied", "qwen2", "qwen3",
    };
    int n_greedy = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct oracle o;
        oracle_open(&o, names[i]);
        free(check_oracle(&o, ROUNDS_NOTHING, false));
        n_greedy += expect_greedy(&o);
        oracle_close(&o);
    }
    assert_true(n_greedy >= 48);
}

static void test_types(void **state)
{
    (void)state;
    NEED_ORACLE();
    static const struct {
        const char *name;
        enum rounding rounding;
    } files[] = {
        {"quant-bf16", ROUNDS_NOTHING}, {"quant-f16", ROUNDS_NOTHING},
        {"quant-iq4_nl", ROUNDS_INT8},  {"quant-iq4_xs", ROUNDS_INT8},
        {"quant-q2_k", ROUNDS_INT8},    {"quant-q4_0", ROUNDS_INT8},
        {"quant-q4_1", ROUNDS_INT8},    {"quant-q4_k", ROUNDS_INT8},
        {"quant-q5_0", ROUNDS_INT8},    {"quant-q5_1", ROUNDS_INT8},
        {"quant-q5_k", ROUNDS_INT8},    {"quant-q6_k", ROUNDS_INT8},
        {"quant-q8_0", ROUNDS_INT8},    {"bitnet-b1.58-iq2_bn", ROUNDS_INT8},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct oracle o;
        oracle_open(&o, files[i].name);
        free(check_oracle(&o, files[i].rounding, false));
        oracle_close(&o);
    }
}

/* Rounded per token, as the engine rounds, the stored logits must be much nearer than unrounded ones:
 * what is left is the f16 cache and the activations that it moves over a rounding border. Another rule
 * of rounding would be 1.4 times as far from row_int8 as from exact. */
static void expect_row_int8(const struct oracle *o, const float *logits)
{
    double max, rms, rms_exact;
    assert_int_equal(measure(o, logits, "exact", &max, &rms_exact), o->n_tokens);
    assert_int_equal(measure(o, logits, "row_int8", &max, &rms), o->n_tokens);
    if (!(rms < 0.75 * rms_exact))
        fail_msg("%s: rms %g from row_int8, %g from exact", o->name, rms, rms_exact);
}

/* Files of the same weights in different types: the same bits. The F16 file has no logits of rounded
 * activations beside it: no other program sees that its values are ternary. */
static void check_set(const char *const *names, int n_names)
{
    float *first = NULL;
    for (int i = 0; i < n_names; i++) {
        struct oracle o;
        oracle_open(&o, names[i]);
        float *logits = check_oracle(&o, ROUNDS_INT8, true);
        if (!first || oracle_row(&o, "row_int8", 0))
            expect_row_int8(&o, logits);
        if (first)
            expect_same_bits(logits, first, o.n_tokens, o.model.config.n_vocab, names[i]);
        oracle_close(&o);
        if (first)
            free(logits);
        else
            first = logits;
    }
    free(first);
}

static void test_ternary_types(void **state)
{
    (void)state;
    NEED_ORACLE();
    static const char *const names256[] = {"tern256-i2_s", "tern256-q2_0-g128", "tern256-q2_0-g64",
                                           "tern256-tq2_0", "tern256-f16"};
    static const char *const names512[] = {"tern512-iq1_bn", "tern512-iq2_bn", "tern512-tq2_0"};
    check_set(names256, 5);
    check_set(names512, 3);
}

/* 300 tokens, more than a page of the cache, through YaRN's stretched angles. */
static void test_long_run(void **state)
{
    (void)state;
    NEED_ORACLE();
    struct oracle o;
    oracle_open(&o, "llama-yarn");
    oracle_take_tokens(&o, true);
    assert_int_equal(o.n_tokens, 300);
    for (int cut = 300; cut > 0; cut -= 250) {
        float *logits = run_engine(&o.model, one_node(), o.tokens, o.n_tokens, cut);
        assert_true(expect_near(&o, logits, "long.exact", 0.03, 0.03) > 8);
        assert_true(expect_near(&o, logits, "long.lc.batch", 0.03, 0.03) > 8);
        free(logits);
    }
    oracle_close(&o);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama_variants), cmocka_unit_test(test_other_architectures),
        cmocka_unit_test(test_types),          cmocka_unit_test(test_ternary_types),
        cmocka_unit_test(test_long_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
