/* Same bits for any number of threads and nodes, both dataflows and every experiment: a prompt and a
 * greedy continuation of the shipped model, and of random ones of other architectures, across the border between two pages of the cache. More
 * threads run than the machine has cores. */
#include "engine/plan.h"
#include "engine_run.h"
#include "machine/cpu_features.h"

#define N_PROMPT 200
#define N_GREEDY 64

static struct model model;
static int32_t prompt[N_PROMPT];

/* What a configuration says: the tokens, and all logits they were chosen from. */
struct text_run {
    int32_t tokens[N_GREEDY];
    float *logits; /* owned: (N_GREEDY, n_vocab) */
};

static struct text_run expected;

static struct engine_options base_options(void)
{
    return (struct engine_options){.isa = cpu_best_isa(),
                                   .n_threads = 1,
                                   .n_nodes = 1,
                                   .n_ctx = N_PROMPT + N_GREEDY,
                                   .n_batch = 128,
                                   .act_scale = ACT_SCALE_TOKEN};
}

static void run_text(struct text_run *run, const struct model *m,
                     const struct engine_options *options)
{
    size_t n_vocab = (size_t)m->config.n_vocab;
    struct engine *engine = open_engine(m, options);
    struct session *session = open_session(engine);
    run->logits = test_alloc(N_GREEDY * n_vocab, sizeof *run->logits);
    const float *logits = session_prefill(session, prompt, N_PROMPT);
    for (int i = 0; i < N_GREEDY; i++) {
        memcpy(run->logits + (size_t)i * n_vocab, logits, n_vocab * sizeof *logits);
        run->tokens[i] = best_of(logits, m->config.n_vocab);
        if (i + 1 < N_GREEDY)
            logits = session_decode(session, run->tokens[i]);
    }
    session_close(session);
    engine_close(engine);
}

static void expect_same(const struct text_run *wanted, const struct model *m,
                        const struct engine_options *options, const char *what)
{
    struct text_run run;
    char text[160];
    snprintf(text, sizeof text, "%s, %d threads, %d nodes, %s", what, options->n_threads,
             options->n_nodes, options->dataflow == DATAFLOW_ROW ? "row" : "column");
    run_text(&run, m, options);
    for (int i = 0; i < N_GREEDY; i++)
        if (run.tokens[i] != wanted->tokens[i])
            fail_msg("%s: greedy token %d is %d, expected %d", text, i, run.tokens[i],
                     wanted->tokens[i]);
    expect_same_bits(run.logits, wanted->logits, N_GREEDY, m->config.n_vocab, text);
    free(run.logits);
}

/* Both dataflows on 3 threads in 2 nodes, which are uneven, with one option changed. */
static void expect_option(struct engine_options options, const char *what)
{
    options.n_threads = 3;
    options.n_nodes = 2;
    for (int flow = DATAFLOW_COLUMN; flow <= DATAFLOW_ROW; flow++) {
        options.dataflow = (enum dataflow)flow;
        expect_same(&expected, &model, &options, what);
    }
}

static void expect_teams(const int *threads, int n)
{
    for (int i = 0; i < n; i++)
        for (int nodes = 1; nodes <= 5 && nodes <= threads[i]; nodes++)
            for (int flow = DATAFLOW_COLUMN; flow <= DATAFLOW_ROW; flow++) {
                if (IS_SANITISED && (nodes == 2 || nodes == 4))
                    continue;
                struct engine_options options = base_options();
                options.n_threads = threads[i];
                options.n_nodes = nodes;
                options.dataflow = (enum dataflow)flow;
                expect_same(&expected, &model, &options, "plain");
            }
}

static void test_threads_and_nodes(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 3, 7};
    expect_teams(threads, 4);
}

static void test_few_threads_and_nodes(void **state)
{
    (void)state;
    static const int threads[] = {3};
    expect_teams(threads, 1);
}

/* More nodes than heads: some have no attention. With a node a head two nodes have half of the queries of
 * a KV head each. */
static void test_many_nodes(void **state)
{
    (void)state;
    const int n_nodes[] = {model.config.n_head, model.config.n_head + 8};
    for (int i = 0; i < 2; i++) {
        struct engine_options options = base_options();
        options.n_nodes = options.n_threads = n_nodes[i];
        expect_same(&expected, &model, &options, "many nodes");
        options.dataflow = DATAFLOW_ROW;
        expect_same(&expected, &model, &options, "many nodes");
        options.row_attention = ROW_ATTENTION_POSITION;
        expect_same(&expected, &model, &options, "many nodes, attention by position");
    }
}

static void test_threads_a_node(void **state)
{
    (void)state;
    struct engine_options options = base_options();
    options.n_threads = 0;
    options.n_threads_a_node = 2;
    options.n_nodes = 2;
    expect_same(&expected, &model, &options, "2 threads a node");
    options.is_unpinned = true;
    expect_same(&expected, &model, &options, "2 threads a node, not pinned");
}

/* Who does what when. */
static void test_execution_options(void **state)
{
    (void)state;
    struct engine_options o = base_options();
    o.is_static_rows = true;
    expect_option(o, "static rows");
    o = base_options();
    o.is_flat_barrier = true;
    expect_option(o, "flat barrier");
    static const char *const names[] = {"quantise auto", "quantise each", "quantise leader",
                                        "quantise split"};
    for (int q = QUANTISE_EACH; q <= QUANTISE_SPLIT; q++) {
        o = base_options();
        o.quantise = (enum quantise)q;
        expect_option(o, names[q]);
    }
    o = base_options();
    o.n_extra_barriers = 2;
    expect_option(o, "extra barriers");
    o = base_options();
    o.n_promoted_barriers = 3;
    expect_option(o, "promoted barriers");
    o = base_options();
    o.is_attention_whole = true;
    expect_option(o, "attention whole");
    o = base_options();
    o.prefetch_wait_kib = 64;
    expect_option(o, "prefetch while waiting");
}

/* Where things are. */
static void test_placement_options(void **state)
{
    (void)state;
    struct engine_options o = base_options();
    o.row_scatter = ROW_SCATTER_COPY;
    expect_option(o, "row scatter by copies");
    o = base_options();
    o.row_attention = ROW_ATTENTION_POSITION;
    expect_option(o, "row attention by position");
    for (int p = PLACEMENT_INTERLEAVE; p <= PLACEMENT_ONE_NODE; p++) {
        o = base_options();
        o.kv_placement = o.weights_placement = (enum placement)p;
        expect_option(o, p == PLACEMENT_INTERLEAVE ? "interleaved" : "on one node");
    }
}

/* Options in combination: what each of them assumes of the others. */
static void test_combined_options(void **state)
{
    (void)state;
    struct engine_options o = base_options();
    o.row_attention = ROW_ATTENTION_POSITION;
    o.row_scatter = ROW_SCATTER_COPY;
    o.quantise = QUANTISE_SPLIT;
    o.is_flat_barrier = true;
    expect_option(o, "position, copy, split, flat");
    o.is_static_rows = true;
    o.is_attention_whole = true;
    o.quantise = QUANTISE_LEADER;
    expect_option(o, "position, copy, leader, flat, static, whole");
    o = base_options();
    o.quantise = QUANTISE_EACH;
    o.is_static_rows = true;
    o.n_promoted_barriers = 64;
    o.prefetch_wait_kib = 16;
    expect_option(o, "each, static, all barriers global, prefetch");
}

/* Whether a plan for these options divides the tokens of some product. */
static bool has_token_ranges(const struct engine_options *options)
{
    struct engine *engine;
    struct error err;
    bool is_found = false;
    if (engine_plan(&engine, &model, options, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    const struct program *program = engine_plan_of(engine)->programs[PROGRAM_MANY];
    for (int s = 0; s < program->n_steps; s++)
        for (int i = 0; i < program->steps[s].n_parts; i++)
            is_found |= program->steps[s].parts[i].n_token_blocks > 1;
    engine_close(engine);
    return is_found;
}

/* Batches so long, and threads so many, that tokens are divided in ranges too, and a last batch that is
 * shorter than one range. The logits of every position. */
static void test_token_ranges(void **state)
{
    (void)state;
    enum { N = 500, CUT = 430 };
    int32_t tokens[N];
    fill_tokens(tokens, N, model.config.n_vocab, 12);
    struct engine_options options = base_options();
    options.n_ctx = N;
    float *wanted = run_engine(&model, options, tokens, N, 128);
    options.n_batch = ENGINE_MAX_BATCH;
    options.n_threads = 12;
    for (int is_static = 0; is_static < 2; is_static++)
        for (int flow = DATAFLOW_COLUMN; flow <= DATAFLOW_ROW; flow++)
            for (options.n_nodes = IS_SANITISED ? 3 : 1; options.n_nodes <= 3;
                 options.n_nodes += 2) {
                options.dataflow = (enum dataflow)flow;
                options.is_static_rows = is_static;
                assert_true(has_token_ranges(&options));
                float *logits = run_engine(&model, options, tokens, N, CUT);
                expect_same_bits(logits, wanted, N, model.config.n_vocab,
                                 is_static ? "ranges of tokens, static" : "ranges of tokens");
                free(logits);
            }
    free(wanted);
}

/* Row-owned, nothing is summed over nodes: the same bits for types with scales per block too. On one
 * node dataflows do not differ. */
static void test_block_types(void **state)
{
    (void)state;
    static const char *const types[] = {"Q4_0", "Q6_K", "Q8_0", "Q3_K", "IQ4_XS", "BF16"};
    for (int i = 0; i < (IS_SANITISED ? 1 : 6); i++) {
        struct model tiny;
        struct text_run one;
        int32_t saved[N_PROMPT];
        memcpy(saved, prompt, sizeof saved);
        open_tiny(&tiny, types[i]);
        fill_tokens(prompt, N_PROMPT, tiny.config.n_vocab, 11);
        struct engine_options options = base_options();
        run_text(&one, &tiny, &options);
        options.n_threads = 3;
        expect_same(&one, &tiny, &options, types[i]);
        options.dataflow = DATAFLOW_ROW;
        options.n_threads = 4;
        for (options.n_nodes = 1; options.n_nodes <= 4; options.n_nodes += 3)
            expect_same(&one, &tiny, &options, types[i]);
        free(one.logits);
        model_close(&tiny);
        memcpy(prompt, saved, sizeof saved);
    }
}

/* What all others are compared with: one thread. Not all tokens are alike, or little would be seen. */
static int run_expected(void)
{
    fill_tokens(prompt, N_PROMPT, model.config.n_vocab, 5);
    struct engine_options options = base_options();
    run_text(&expected, &model, &options);
    int n_changes = 0;
    for (int i = 1; i < N_GREEDY; i++)
        n_changes += expected.tokens[i] != expected.tokens[i - 1];
    return n_changes > N_GREEDY / 2 ? 0 : 1;
}

static int open_shipped(void **state)
{
    (void)state;
    open_model(&model, "models/trine-kjv.gguf");
    return run_expected();
}

/* Sub-norms and squared ReLU; heads that are normed; biases. */
static int open_bitnet(void **state)
{
    (void)state;
    open_tiny_arch(&model, "bitnet-b1.58", "TQ2_0");
    return run_expected();
}

static int open_qwen3(void **state)
{
    (void)state;
    open_tiny_arch(&model, "qwen3", "IQ2_BN");
    return run_expected();
}

static int open_qwen2(void **state)
{
    (void)state;
    open_tiny_arch(&model, "qwen2", "IQ2_BN");
    return run_expected();
}

static int close_all(void **state)
{
    (void)state;
    free(expected.logits);
    model_close(&model);
    return 0;
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_and_nodes), cmocka_unit_test(test_many_nodes),
        cmocka_unit_test(test_threads_a_node),    cmocka_unit_test(test_execution_options),
        cmocka_unit_test(test_placement_options), cmocka_unit_test(test_combined_options),
        cmocka_unit_test(test_token_ranges),      cmocka_unit_test(test_block_types),
    };
    const struct CMUnitTest other_tests[] = {
        cmocka_unit_test(test_few_threads_and_nodes), cmocka_unit_test(test_many_nodes),
        cmocka_unit_test(test_execution_options),     cmocka_unit_test(test_placement_options),
        cmocka_unit_test(test_combined_options),      cmocka_unit_test(test_token_ranges),
    };
    int n_failed = cmocka_run_group_tests(tests, open_shipped, close_all);
    n_failed += cmocka_run_group_tests_name("bitnet-b1.58", other_tests, open_bitnet, close_all);
    n_failed += cmocka_run_group_tests_name("qwen3", other_tests, open_qwen3, close_all);
    n_failed += cmocka_run_group_tests_name("qwen2", other_tests, open_qwen2, close_all);
    return n_failed;
}
