/* What comes out of a column depends on nothing but the tokens of its sequence before it: not on how
 * the prompt was cut, what else was in the batch, or what the session held before. */
#include "engine_run.h"
#include "machine/cpu_features.h"

#define N_TOKENS   520 /* three pages of the cache */
#define N_SESSIONS 4

static struct model model;
static int32_t tokens[N_SESSIONS][N_TOKENS];

static struct engine_options options_of(enum kv_format kv_format)
{
    return (struct engine_options){.isa = cpu_best_isa(),
                                   .n_threads = 3,
                                   .n_nodes = 2,
                                   .n_ctx = N_TOKENS,
                                   .n_sessions = N_SESSIONS,
                                   .n_logits = ENGINE_MAX_BATCH,
                                   .kv_format = kv_format};
}

/* Passes of 1, 3 and 33 columns are of different programs, as those of 512. */
static void check_cuts(enum kv_format kv_format, int n)
{
    static const int cuts[] = {1, 3, 33};
    char what[64];
    struct engine_options options = options_of(kv_format);
    float *whole = run_engine(&model, options, tokens[0], n, 512);
    for (int i = 0; i < 3; i++) {
        snprintf(what, sizeof what, "%s cache, pieces of %d", kv_format ? "q8_0" : "f16", cuts[i]);
        float *pieces = run_engine(&model, options, tokens[0], n, cuts[i]);
        expect_same_bits(pieces, whole, n, model.config.n_vocab, what);
        free(pieces);
    }
    free(whole);
}

static void test_cuts_of_a_prompt(void **state)
{
    (void)state;
    check_cuts(KV_FORMAT_F16, IS_SANITISED ? 280 : N_TOKENS);
    check_cuts(KV_FORMAT_Q8_0, IS_SANITISED ? 280 : N_TOKENS);
}

/* Sequences of different lengths that run together. */
struct crowd {
    int n[N_SESSIONS];           /* tokens of each */
    float *alone[N_SESSIONS];    /* owned: (n, n_vocab) logits of the sequence in its own engine */
    float *together[N_SESSIONS]; /* owned: likewise, of columns in mixed batches */
    struct session *sessions[N_SESSIONS];
};

/* One batch of columns that the random numbers choose; the logits of those that are wanted are put
 * where they belong. Returns its size, 0 when all sequences have ended. */
static int run_mixed(struct crowd *c, struct engine *engine, struct random *random)
{
    struct engine_column columns[40];
    float *to[40];
    int at[N_SESSIONS], n_columns = 0, n_wanted = 0, most = 1 + (int)(random_bits(random) % 40);
    size_t n_vocab = (size_t)model.config.n_vocab;
    for (int i = 0; i < N_SESSIONS; i++)
        at[i] = session_position(c->sessions[i]);
    for (int tries = 0; tries < 100 && n_columns < most; tries++) {
        int i = (int)(random_bits(random) >> 40) % N_SESSIONS;
        if (at[i] == c->n[i])
            continue;
        bool is_wanted = random_bits(random) >> 63;
        columns[n_columns++] = (struct engine_column){c->sessions[i], tokens[i][at[i]], is_wanted};
        if (is_wanted)
            to[n_wanted++] = c->together[i] + (size_t)at[i] * n_vocab;
        at[i]++;
    }
    if (n_columns == 0)
        return 0;
    const float *logits = engine_forward(engine, columns, n_columns);
    for (int k = 0; k < n_wanted; k++)
        memcpy(to[k], logits + (size_t)k * n_vocab, n_vocab * sizeof *logits);
    return n_columns;
}

/* Rows that nobody wanted are still zero. */
static int expect_alone(const struct crowd *c, int i)
{
    int n_compared = 0, n_vocab = model.config.n_vocab;
    char what[64];
    for (int t = 0; t < c->n[i]; t++) {
        const float *row = c->together[i] + (size_t)t * (size_t)n_vocab;
        if (row[0] == 0 && row[1] == 0)
            continue;
        snprintf(what, sizeof what, "sequence %d, position %d", i, t);
        expect_same_bits(row, c->alone[i] + (size_t)t * (size_t)n_vocab, 1, n_vocab, what);
        n_compared++;
    }
    return n_compared;
}

static void check_crowd(struct engine_options options)
{
    struct crowd c = {.n = {300, 17, 140, 1}};
    struct random random;
    random_init(&random, 8);
    for (int i = 0; i < N_SESSIONS; i++) {
        c.alone[i] = run_engine(&model, options, tokens[i], c.n[i], 64);
        c.together[i] = test_alloc((size_t)c.n[i] * (size_t)model.config.n_vocab, sizeof(float));
    }
    struct engine *engine = open_engine(&model, &options);
    for (int i = 0; i < N_SESSIONS; i++)
        c.sessions[i] = open_session(engine);
    while (run_mixed(&c, engine, &random) > 0)
        ;
    int n_compared = 0;
    for (int i = 0; i < N_SESSIONS; i++) {
        assert_int_equal(session_position(c.sessions[i]), c.n[i]);
        n_compared += expect_alone(&c, i);
        session_close(c.sessions[i]);
        free(c.alone[i]);
        free(c.together[i]);
    }
    engine_close(engine);
    assert_in_range(n_compared, 458 * 2 / 5, 458 * 3 / 5); /* about half of all columns */
}

static void test_other_sequences_in_the_batch(void **state)
{
    (void)state;
    check_crowd(options_of(KV_FORMAT_F16));
    check_crowd(options_of(KV_FORMAT_Q8_0));
    struct engine_options options = options_of(KV_FORMAT_F16);
    options.dataflow = DATAFLOW_ROW;
    options.row_attention = ROW_ATTENTION_POSITION;
    check_crowd(options);
}

/* Where one sequence ended and another begins, nothing is left of the first: neither after a rewind
 * nor in the pages of a session that was closed. */
static void test_rewind_and_reuse(void **state)
{
    (void)state;
    enum { N = 270, KEPT = 100 };
    int n_vocab = model.config.n_vocab;
    struct engine_options options = options_of(KV_FORMAT_F16);
    options.n_sessions = 1;
    int32_t mixed[N];
    memcpy(mixed, tokens[1], KEPT * sizeof *mixed);
    memcpy(mixed + KEPT, tokens[2], (N - KEPT) * sizeof *mixed);
    float *expected = run_engine(&model, options, mixed, N, 64);
    float *logits = test_alloc((size_t)N * (size_t)n_vocab, sizeof *logits);

    struct engine *engine = open_engine(&model, &options);
    struct session *session = open_session(engine);
    run_pieces(engine, session, n_vocab, tokens[1], N, 64, logits);
    session_rewind(session, KEPT);
    assert_int_equal(session_position(session), KEPT);
    run_pieces(engine, session, n_vocab, mixed + KEPT, N - KEPT, 7, logits);
    expect_same_bits(logits, expected + (size_t)KEPT * (size_t)n_vocab, N - KEPT, n_vocab,
                     "after a rewind");
    session_rewind(session, 0);
    run_pieces(engine, session, n_vocab, mixed, N, 64, logits);
    expect_same_bits(logits, expected, N, n_vocab, "after a rewind to the start");
    session_close(session);

    session = open_session(engine);
    assert_int_equal(session_position(session), 0);
    assert_int_equal(session_n_ctx(session), N_TOKENS);
    run_pieces(engine, session, n_vocab, mixed, N, 64, logits);
    expect_same_bits(logits, expected, N, n_vocab, "in used pages");
    session_close(session);
    engine_close(engine);
    free(expected);
    free(logits);
}

/* session_prefill and session_decode are the same columns, and only the last logits. */
static void test_prefill_and_decode(void **state)
{
    (void)state;
    enum { N = 70 };
    size_t n_vocab = (size_t)model.config.n_vocab;
    struct engine_options options = options_of(KV_FORMAT_F16);
    options.n_batch = 32; /* pieces of 32, 32 and 6 */
    options.n_logits = 32;
    float *expected = run_engine(&model, options, tokens[3], N + 1, 9);
    options.n_logits = 1;
    struct engine *engine = open_engine(&model, &options);
    struct session *session = open_session(engine);
    assert_null(session_prefill(session, tokens[3], 0));
    const float *logits = session_prefill(session, tokens[3], N);
    expect_same_bits(logits, expected + (N - 1) * n_vocab, 1, (int)n_vocab, "prefill");
    logits = session_decode(session, tokens[3][N]);
    expect_same_bits(logits, expected + N * n_vocab, 1, (int)n_vocab, "decode");
    session_close(session);
    engine_close(engine);
    free(expected);
}

static void count_call(void *context, int i)
{
    _Atomic int *n_calls = context;
    n_calls[i]++;
}

/* Work on all threads: each number once, whether there are fewer than threads or more. */
static void test_shared_work(void **state)
{
    (void)state;
    struct engine_options options = options_of(KV_FORMAT_F16);
    struct engine *engine = open_engine(&model, &options);
    static const int numbers[] = {0, 1, 2, 3, 100};
    for (int k = 0; k < 5; k++) {
        _Atomic int n_calls[101] = {0};
        engine_share(engine, numbers[k], count_call, n_calls);
        for (int i = 0; i < 101; i++)
            assert_int_equal(n_calls[i], i < numbers[k]);
    }
    engine_close(engine);
}

static int open_all(void **state)
{
    (void)state;
    struct error err;
    if (model_open(&model, "models/trine-kjv.gguf", &err) != STATUS_OK) {
        print_error("%s\n", err.text);
        return 1;
    }
    for (int i = 0; i < N_SESSIONS; i++)
        fill_tokens(tokens[i], N_TOKENS, model.config.n_vocab, (uint64_t)i + 20);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    model_close(&model);
    return 0;
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts_of_a_prompt),
        cmocka_unit_test(test_other_sequences_in_the_batch),
        cmocka_unit_test(test_rewind_and_reuse),
        cmocka_unit_test(test_prefill_and_decode),
        cmocka_unit_test(test_shared_work),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
