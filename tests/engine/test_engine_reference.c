/* The engine against the plain forward pass: how far the roundings that are meant, of activations to
 * int8 and of the cache to f16 or q8_0, move its logits; and that nothing else does. */
#include "machine/cpu_features.h"
#include "rounded_pass.h"

#define KJV "models/trine-kjv.gguf"

static struct engine_options options_of(int n)
{
    return (struct engine_options){.isa = cpu_best_isa(),
                                   .n_threads = 2,
                                   .n_nodes = 1,
                                   .n_ctx = n,
                                   .n_batch = n,
                                   .n_logits = n};
}

/* Products with int8 inputs that lie between a token and its logits. q, k and v have one input, as gate
 * and up do. That of down counts four times: a product of two normal numbers has heavier tails, its
 * largest is 8 deviations instead of 4. */
static int count_int8_products(const struct model *model)
{
    struct engine *planned;
    struct engine_options options = options_of(1);
    assert_int_equal(engine_plan(&planned, model, &options, NULL), STATUS_OK);
    const struct node_slices *node = &engine_plan_of(planned)->slices.nodes[0];
    int n = !packing_needs(node->output.w.packing, node->output.w.group).is_float;
    for (int layer = 0; layer < model->config.n_layer; layer++) {
        const struct layer_slices *l = &node->layers[layer];
        const struct packed *all[] = {&l->q.w, &l->o.w, &l->gate_up.w, &l->down.w};
        for (int i = 0; i < 4; i++)
            n += !packing_needs(all[i]->packing, all[i]->group).is_float * (i == 3 ? 4 : 1);
    }
    engine_close(planned);
    return n;
}

/* Root mean square that a difference of logits may have, as a share of their deviation. A group of
 * normally distributed activations whose largest is 4 deviations is rounded in steps of 4/127, which
 * adds noise of 4/127/sqrt(12) = 0.9 %; noise of independent products adds up as squares. Beside it the
 * cache: the engine and the plain pass round it alike, but a float that differs in its last bits may
 * go to the next f16, which is at most 2^-10 of it away; those are few. A norm after attention makes
 * them larger: a mean of values is smaller than they are. n_more: other noise of that size. */
static double allowed_rms(const struct model *model, int n_more)
{
    double cache = model_has_sub_norms(model) ? 1.0 / 4096 : 1.0 / 8192;
    return sqrt(count_int8_products(model) + n_more) * 4 / 127 / sqrt(12) + cache;
}

/* Of a few thousand numbers of a normal distribution none is beyond 6 deviations. Where the logits
 * differ by d, KL is half the variance of d under p; twice that is allowed. */
static void expect_near(const struct model *model, const float *logits, const float *expected,
                        int n, double share, const char *what)
{
    struct distance d = distance_of(logits, expected, n, model->config.n_vocab);
    double rms = share * d.deviation;
    if (!(d.rms <= rms && d.max <= 6 * rms + d.deviation / 1024 && d.kl <= rms * rms))
        fail_msg("%s: deviation %g; rms %g, allowed %g; max %g; KL %g", what, d.deviation, d.rms,
                 rms, d.max, d.kl);
    assert_true(d.deviation > 1); /* not a model that says nothing */
}

/* n_more: as for allowed_rms. */
static void check_against_plain(const struct model *model, const int32_t *tokens, int n, int n_more,
                                const char *what)
{
    double share = allowed_rms(model, n_more);
    float *expected = run_reference(model, true, tokens, n);
    struct engine_options options = options_of(n);
    float *logits = run_engine(model, options, tokens, n, n);
    expect_near(model, logits, expected, n, share, what);
    free(logits);
    options.n_threads = 3;
    options.n_nodes = 2;
    logits = run_engine(model, options, tokens, n, n);
    expect_near(model, logits, expected, n, share, what);
    free(logits);
    free(expected);
}

static void test_every_type(void **state)
{
    (void)state;
    enum { N = 10 };
    static const char *const types[] = {
        "F32",    "Q4_0",  "Q6_K",  "TQ2_0", "F16",  "BF16",      "Q4_1",   "Q5_0",  "Q5_1",
        "Q8_0",   "Q2_K",  "Q3_K",  "Q4_K",  "Q5_K", "I2_S",      "Q1_0",   "Q2_0",  "IQ1_BN",
        "IQ2_BN", "TQ1_0", "TQ2_T", "TQK6",  "TQK7", "IQ2_BN_R4", "IQ4_NL", "IQ4_XS"};
    int n_types = IS_SANITISED ? 4 : (int)(sizeof types / sizeof types[0]);
    for (int i = 0; i < n_types; i++) {
        struct model model;
        int32_t tokens[N];
        open_tiny(&model, types[i]);
        fill_tokens(tokens, N, model.config.n_vocab, 3);
        check_against_plain(&model, tokens, N, 0, types[i]);
        model_close(&model);
    }
}

static const char *const archs[] = {"bitnet-b1.58", "qwen3", "bitnet", "qwen2", "bitnet-25"};
#define N_ARCHS (IS_SANITISED ? 2 : (int)(sizeof archs / sizeof archs[0]))

/* With int8, block and float products. */
static void test_every_architecture(void **state)
{
    (void)state;
    enum { N = 10 };
    static const char *const types[] = {"IQ2_BN", "Q2_0", "Q4_0", "F16"};
    for (int i = 0; i < N_ARCHS; i++)
        for (int k = 0; k < (IS_SANITISED ? 1 : 4); k++) {
            struct model model;
            int32_t tokens[N];
            char what[48];
            snprintf(what, sizeof what, "%s, %s", archs[i], types[k]);
            open_tiny_arch(&model, archs[i], types[k]);
            fill_tokens(tokens, N, model.config.n_vocab, 3);
            check_against_plain(&model, tokens, N, 0, what);
            model_close(&model);
        }
}

/* One layer in the exact widths of every public model, in a type that it is published in, or that its
 * widths allow (docs/models.md). */
static void test_public_models(void **state)
{
    (void)state;
    enum { N = 2 };
    static const char *const models[][2] = {
        {"falcon3-1b", "IQ2_BN"}, {"falcon3-3b", "TQ2_0"},    {"falcon3-10b", "I2_S"},
        {"llama3-8b", "TQ1_0"},   {"trilm-99m", "TQ2_0"},     {"trilm-190m", "TQ1_0"},
        {"trilm-390m", "IQ2_BN"}, {"trilm-560m", "TQ2_0"},    {"trilm-830m", "IQ1_BN"},
        {"trilm-1.1b", "TQ2_0"},  {"trilm-1.5b", "IQ2_BN"},   {"trilm-2.4b", "TQ2_0"},
        {"trilm-3.9b", "Q2_0"},   {"bitnet-large", "IQ2_BN"}, {"bitnet-xl", "F16"},
        {"bitnet-3b", "IQ2_BN"},  {"bitnet-2b4t", "I2_S"},    {"bonsai-1.7b", "Q2_0_G128"},
        {"bonsai-4b", "Q2_0"},    {"bonsai-8b", "Q2_0_G128"},
    };
    int step = IS_SANITISED ? 5 : 1;
    for (int i = 0; i < (int)(sizeof models / sizeof models[0]); i += step) {
        struct model model;
        int32_t tokens[N];
        char options[128];
        snprintf(options, sizeof options, "--shape %s --type %s --layers 1 --small-vocab",
                 models[i][0], models[i][1]);
        open_synth(&model, "public", options);
        fill_tokens(tokens, N, model.config.n_vocab, 3);
        /* of 23040 products the largest is further out than of 1024 */
        check_against_plain(&model, tokens, N, 4, models[i][0]);
        model_close(&model);
    }
}

static void test_stories(void **state)
{
    (void)state;
    enum { N = 64 };
    NEED(asset_path("stories260K.gguf"), "stories260K.gguf (make test ASSETS=DIR)");
    struct model model;
    int32_t tokens[N];
    open_model(&model, asset_path("stories260K.gguf"));
    fill_tokens(tokens, N, model.config.n_vocab, 4);
    check_against_plain(&model, tokens, N, 0, "stories260K");
    model_close(&model);
}

/* Prompt and continuation of the shipped model as its training computed them: the text is the same. */
static void test_shipped_model(void **state)
{
    (void)state;
    json_t *golden = json_load_file("models/trine-kjv.golden.json", 0, NULL);
    const json_t *prompt = json_object_get(golden, "prompt_ids");
    const json_t *greedy = json_object_get(golden, "greedy_ids");
    int n_prompt = (int)json_array_size(prompt), n_greedy = (int)json_array_size(greedy);
    struct model model;
    int32_t tokens[128];
    open_model(&model, KJV);
    assert_true(n_prompt > 0 && n_greedy == 64 && n_prompt < 64);
    for (int i = 0; i < n_prompt + n_greedy; i++) {
        const json_t *from = i < n_prompt ? prompt : greedy;
        size_t at = (size_t)(i < n_prompt ? i : i - n_prompt);
        tokens[i] = (int32_t)json_integer_value(json_array_get(from, at));
    }
    int n = n_prompt + n_greedy, n_vocab = model.config.n_vocab;
    check_against_plain(&model, tokens, n, 0, KJV);
    float *logits = run_engine(&model, options_of(n), tokens, n, n);
    for (int i = n_prompt; i < n; i++)
        assert_int_equal(best_of(logits + (size_t)(i - 1) * (size_t)n_vocab, n_vocab), tokens[i]);
    free(logits);
    model_close(&model);
    json_decref(golden);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sequences of n_each tokens with the same roundings in both: at half of the positions, and more, only
 * float noise is left. At the others an activation (or cached value) that lay on a rounding border went
 * the other way, which a double-precision sum cannot foresee. */
static void check_against_rounded(const struct model *model, int n_each, enum act_scale act_scale,
                                  const char *what)
{
    enum { N = 24 };
    int n = IS_SANITISED ? N / 2 : N, n_vocab = model->config.n_vocab;
    int32_t tokens[N];
    double worst[N];
    fill_tokens(tokens, n, n_vocab, 6);
    struct engine_options options = options_of(n);
    options.act_scale = act_scale;
    float *expected = run_rounded(model, options, tokens, n, n_each);
    float *logits = test_alloc((size_t)n * (size_t)n_vocab, sizeof *logits);
    struct engine *engine = open_engine(model, &options);
    struct session *session = open_session(engine);
    for (int at = 0; at < n; at += n_each) {
        session_rewind(session, 0);
        run_pieces(engine, session, n_vocab, tokens + at, n_each, n_each,
                   logits + (size_t)at * (size_t)n_vocab);
    }
    session_close(session);
    engine_close(engine);
    for (int t = 0; t < n; t++) {
        size_t at = (size_t)t * (size_t)n_vocab;
        worst[t] = worst_difference(logits + at, expected + at, n_vocab);
    }
    qsort(worst, (size_t)n, sizeof *worst, ascending);
    struct distance d = distance_of(logits, expected, n, n_vocab);
    if (!(worst[n / 2] < 1e-5 && worst[n - 1] < 0.1 * d.deviation))
        fail_msg("%s, sequences of %d: median of the worst differences %g, highest %g", what,
                 n_each, worst[n / 2], worst[n - 1]);
    free(logits);
    free(expected);
}

static void test_nothing_else_is_rounded(void **state)
{
    (void)state;
    static const char *const types[] = {"TQ2_0", "Q4_0", "Q6_K", "Q8_0", "I2_S", "Q2_0", "IQ2_BN"};
    struct model model;
    open_model(&model, KJV);
    assert_int_equal(count_int8_products(&model), 7 * model.config.n_layer + 1);
    check_against_rounded(&model, 1, ACT_SCALE_NODE, KJV);
    check_against_rounded(&model, 4, ACT_SCALE_NODE, KJV);
    model_close(&model);
    for (int i = 0; i < (IS_SANITISED ? 2 : 7); i++) {
        open_tiny(&model, types[i]);
        check_against_rounded(&model, 1, ACT_SCALE_NODE, types[i]);
        check_against_rounded(&model, 4, ACT_SCALE_NODE, types[i]);
        model_close(&model);
    }
}

static void test_nothing_else_is_rounded_in_other_architectures(void **state)
{
    (void)state;
    for (int i = 0; i < N_ARCHS; i++) {
        struct model model;
        char options
            [128]; /* a table of floats: rounding its activations too adds to what one flip moves */
        snprintf(
            options, sizeof options,
            "--shape tiny --arch %s --type TQ2_0 --embedding-type F16 --output-type F16 --biases",
            archs[i]);
        open_synth(&model, "rounded", options);
        check_against_rounded(&model, 1, ACT_SCALE_NODE, archs[i]);
        check_against_rounded(&model, 4, ACT_SCALE_NODE, archs[i]);
        model_close(&model);
    }
}

/* Activations with a scale per 256 inputs (128, 64): weights with one scale per row as f16 or f32, in the
 * widths that allow each group. */
static void test_groups_of_activations(void **state)
{
    (void)state;
    static const char *const types[] = {"IQ2_BN", "TQ2_0", "I2_S"};
    struct model model;
    open_model(&model, KJV);
    check_against_rounded(&model, 4, ACT_SCALE_GROUP, KJV);
    model_close(&model);
    for (int i = 0; i < (IS_SANITISED ? 1 : 3); i++) {
        open_tiny(&model, types[i]);
        check_against_rounded(&model, 1, ACT_SCALE_GROUP, types[i]);
        check_against_rounded(&model, 4, ACT_SCALE_GROUP, types[i]);
        model_close(&model);
    }
}

/* Keys and values in q8_0: noise of at most 0.9 % in both, of every layer. */
static void test_q8_0_cache(void **state)
{
    (void)state;
    enum { N = 24 };
    static const char *const types[] = {"F16", "TQ2_0"};
    for (int i = 0; i < (IS_SANITISED ? 1 : 2); i++) {
        struct model model;
        int32_t tokens[N];
        open_tiny(&model, types[i]);
        fill_tokens(tokens, N, model.config.n_vocab, 7);
        struct engine_options options = options_of(N);
        options.kv_format = KV_FORMAT_Q8_0;
        float *logits = run_engine(&model, options, tokens, N, N);
        float *expected = run_reference(&model, false, tokens, N);
        double share = allowed_rms(&model, 2 * model.config.n_layer);
        expect_near(&model, logits, expected, N, share, types[i]);
        struct distance d = distance_of(logits, expected, N, model.config.n_vocab);
        assert_true(d.rms > 1e-3); /* it is not an f16 cache */
        free(logits);
        free(expected);
        model_close(&model);
    }
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type),
        cmocka_unit_test(test_every_architecture),
        cmocka_unit_test(test_nothing_else_is_rounded_in_other_architectures),
        cmocka_unit_test(test_groups_of_activations),
        cmocka_unit_test(test_public_models),
        cmocka_unit_test(test_stories),
        cmocka_unit_test(test_shipped_model),
        cmocka_unit_test(test_nothing_else_is_rounded),
        cmocka_unit_test(test_q8_0_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
