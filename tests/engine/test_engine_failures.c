/* Everything that can fail, fails when an engine or a session is opened, with a status, and leaves
 * nothing behind (the leak checker of CONFIG=asan looks on); a forward pass needs nothing. */
#include <dirent.h>
#include <unistd.h>

#include "../fixture.h"
#include "base/clock.h"
#include "base/memory.h"
#include "engine/plan.h"
#include "engine_run.h"
#include "machine/cpu_features.h"
#include "machine/memory_info.h"
#include "machine/thread_team.h"

#define N_CTX 64

static struct model model;

static struct engine_options options_of(enum dataflow dataflow)
{
    return (struct engine_options){.isa = cpu_best_isa(),
                                   .n_threads = 3,
                                   .n_nodes = 2,
                                   .n_ctx = N_CTX,
                                   .n_batch = 16,
                                   .dataflow = dataflow,
                                   .act_scale = ACT_SCALE_TOKEN};
}

static int count_entries(const char *folder)
{
    int n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* Threads and open files of this process. */
static int count_held(void)
{
    return count_entries("/proc/self/task") + count_entries("/proc/self/fd");
}

/* A thread that was joined leaves /proc a moment later: what is held once that is over. */
static int held_after(int expected)
{
    int n = count_held();
    for (int i = 0; i < 1000 && n != expected; i++) {
        usleep(1000);
        n = count_held();
    }
    return n;
}

/* Bytes that the process has mapped. */
static long mapped_kib(void)
{
    size_t size;
    char *status = read_whole("/proc/self/status", &size);
    assert_non_null(status);
    const char *line = strstr(status, "VmSize:");
    assert_non_null(line);
    long kib = strtol(line + 7, NULL, 10);
    free(status);
    return kib;
}

static void expect_status(enum status status, enum status expected, const struct error *err)
{
    if (status != expected)
        fail_msg("status %d, expected %d: %s", (int)status, (int)expected, err->text);
    assert_true(err->text[0] != 0);
}

static void check_allocations(enum dataflow dataflow)
{
    struct engine_options options = options_of(dataflow);
    struct error err;
    int n_held = count_held();
    long n_failed = 0;
    for (;; n_failed++) {
        struct engine *engine = NULL;
        err = (struct error){0};
        memory_fail_after(n_failed);
        enum status status = engine_open(&engine, &model, &options, NULL, NULL, &err);
        memory_fail_after(-1);
        if (status == STATUS_OK) {
            engine_close(engine);
            break;
        }
        expect_status(status, STATUS_MEMORY, &err);
        assert_null(engine);
        assert_int_equal(held_after(n_held), n_held);
    }
    assert_true(n_failed > 20); /* the plan, the nodes' memory, the team, the executor ... */
    assert_int_equal(held_after(n_held), n_held);
}

static void test_each_allocation_fails(void **state)
{
    (void)state;
    check_allocations(DATAFLOW_COLUMN);
    check_allocations(DATAFLOW_ROW);
}

/* Memory of failed and closed engines is returned: twenty leave no more than one did. */
static void test_memory_is_returned(void **state)
{
    (void)state;
    if (IS_SANITISED)
        skip(); /* freed blocks are kept in quarantine */
    struct engine_options options = options_of(DATAFLOW_COLUMN);
    engine_close(open_engine(&model, &options));
    long before = mapped_kib();
    for (int i = 0; i < 20; i++) {
        struct engine *engine;
        struct error err;
        engine_close(open_engine(&model, &options));
        memory_fail_after(20);
        assert_int_equal(engine_open(&engine, &model, &options, NULL, NULL, &err), STATUS_MEMORY);
        memory_fail_after(-1);
    }
    assert_true(mapped_kib() < before + 4096);
}

static void test_each_thread_fails(void **state)
{
    (void)state;
    struct engine_options options = options_of(DATAFLOW_COLUMN);
    options.n_threads = 5;
    int n_held = count_held();
    for (int i = 0; i < 4; i++) {
        struct engine *engine = NULL;
        struct error err = {0};
        char number[32];
        team_fail_after(i);
        enum status status = engine_open(&engine, &model, &options, NULL, NULL, &err);
        team_fail_after(-1);
        expect_status(status, STATUS_LIMIT, &err);
        snprintf(number, sizeof number, "thread %d of 5", i + 2);
        assert_non_null(strstr(err.text, number));
        assert_null(engine);
        assert_int_equal(held_after(n_held), n_held);
    }
    engine_close(open_engine(&model, &options));
}

/* A session more than was planned; closing one makes room again. */
static void test_sessions(void **state)
{
    (void)state;
    struct engine_options options = options_of(DATAFLOW_COLUMN);
    options.n_sessions = 2;
    struct engine *engine = open_engine(&model, &options);
    struct session *a = open_session(engine), *b = open_session(engine), *c = NULL;
    struct error err = {0};
    expect_status(session_open(&c, engine, &err), STATUS_LIMIT, &err);
    assert_non_null(strstr(err.text, "2 sequences"));
    assert_null(c);
    session_close(a);
    a = open_session(engine);
    session_close(a);
    session_close(b);
    long n_failed = 0;
    for (;; n_failed++) {
        memory_fail_after(n_failed);
        enum status status = session_open(&c, engine, &err);
        memory_fail_after(-1);
        if (status == STATUS_OK)
            break;
        expect_status(status, STATUS_MEMORY, &err);
    }
    assert_true(n_failed >= 3);
    b = open_session(engine); /* the failures hold no room */
    session_close(b);
    session_close(c);
    engine_close(engine);
}

/* Prompt and single tokens, all logits, new sessions' worth of pages: no allocation. */
static void check_forward(struct engine_options options)
{
    enum { N = 40 };
    int32_t tokens[N];
    int n_vocab = model.config.n_vocab;
    fill_tokens(tokens, N, n_vocab, 1);
    options.n_logits = options.n_batch;
    struct engine *engine = open_engine(&model, &options);
    struct session *session = open_session(engine);
    float *expected = test_alloc((size_t)N * (size_t)n_vocab, sizeof *expected);
    float *logits = test_alloc((size_t)N * (size_t)n_vocab, sizeof *logits);
    run_pieces(engine, session, n_vocab, tokens, N, 16, expected);
    session_rewind(session, 0);
    memory_fail_after(0);
    run_pieces(engine, session, n_vocab, tokens, N / 2, 16, logits);
    run_pieces(engine, session, n_vocab, tokens + N / 2, N / 2, 1,
               logits + (size_t)(N / 2) * (size_t)n_vocab);
    session_rewind(session, 0);
    const float *last = session_prefill(session, tokens, N);
    memory_fail_after(-1);
    expect_same_bits(logits, expected, N, n_vocab, "without memory");
    expect_same_bits(last, expected + (size_t)(N - 1) * (size_t)n_vocab, 1, n_vocab, "prefill");
    session_close(session);
    engine_close(engine);
    free(expected);
    free(logits);
}

static void test_forward_allocates_nothing(void **state)
{
    (void)state;
    struct engine_options options = options_of(DATAFLOW_COLUMN);
    check_forward(options);
    options.kv_format = KV_FORMAT_Q8_0;
    check_forward(options);
    check_forward(options_of(DATAFLOW_ROW));
}

/* A context beyond the memory is refused at once, with the largest that fits, which then does. */
static void test_context_that_does_not_fit(void **state)
{
    (void)state;
    struct engine_options options = options_of(DATAFLOW_COLUMN);
    struct engine *engine = NULL;
    struct error err = {0};
    long before = mapped_kib();
    int64_t begin = clock_ns();
    options.n_nodes = 1;   /* no head is kept twice */
    options.n_threads = 4; /* one alone could not count so many chunks */
    options.n_ctx = INT32_MAX;
    expect_status(engine_open(&engine, &model, &options, NULL, NULL, &err), STATUS_LIMIT, &err);
    assert_true(IS_SANITISED || clock_ns() - begin < 1000000000);
    assert_true(IS_SANITISED || mapped_kib() < before + 65536);
    const char *advice = strstr(err.text, "-c ");
    assert_non_null(advice);
    int most = (int)strtol(advice + 3, NULL, 10);
    assert_true(most > N_CTX && most < INT32_MAX);

    /* what a position takes: keys and values of 2 layers and 128 elements in f16 */
    double expected = (double)memory_available() / (2 * 2 * 128 * 2);
    assert_true(most < expected && most > expected * 0.7);

    options.n_ctx = most / 10 * 9; /* others take memory meanwhile */
    assert_int_equal(engine_plan(&engine, &model, &options, &err), STATUS_OK);
    assert_int_equal(engine_plan_of(engine)->options.n_ctx, options.n_ctx);
    engine_close(engine);
    options.n_ctx = most / 10 * 13;
    expect_status(engine_plan(&engine, &model, &options, &err), STATUS_LIMIT, &err);
    options.n_ctx = most / 10 * 6; /* twice that is too much */
    options.n_sessions = 2;
    expect_status(engine_plan(&engine, &model, &options, &err), STATUS_LIMIT, &err);
}

/* Requests that cannot be met. */
static void test_requests(void **state)
{
    (void)state;
    struct engine *engine = NULL;
    struct error err = {0};
    struct engine_options options = options_of(DATAFLOW_COLUMN);
    options.n_nodes = 4;
    expect_status(engine_open(&engine, &model, &options, NULL, NULL, &err), STATUS_LIMIT, &err);
    assert_non_null(strstr(err.text, "4 nodes"));
    options = options_of(DATAFLOW_COLUMN);
    options.n_threads_a_node = 2;
    expect_status(engine_open(&engine, &model, &options, NULL, NULL, &err), STATUS_USAGE, &err);
    options = options_of(DATAFLOW_ROW);
    options.row_attention = ROW_ATTENTION_POSITION;
    options.kv_format = KV_FORMAT_Q8_0;
    expect_status(engine_open(&engine, &model, &options, NULL, NULL, &err), STATUS_USAGE, &err);
    assert_null(engine);
}

static int open_all(void **state)
{
    (void)state;
    struct error err;
    const char *path = scratch_path("failures.gguf");
    fixture_write(path, &(struct fixture){.format = FORMAT_TQ2_0, .real_output = true});
    if (model_open(&model, path, &err) == STATUS_OK)
        return 0;
    print_error("%s\n", err.text);
    return 1;
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
        cmocka_unit_test(test_each_allocation_fails),
        cmocka_unit_test(test_memory_is_returned),
        cmocka_unit_test(test_each_thread_fails),
        cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_forward_allocates_nothing),
        cmocka_unit_test(test_context_that_does_not_fit),
        cmocka_unit_test(test_requests),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
