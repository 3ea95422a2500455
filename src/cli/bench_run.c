#include "cli/bench_run.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "engine/plan.h"

/* What measuring bandwidth after a test takes of the test's own time; limits in seconds. */
#define BANDWIDTH_PART  0.1
#define BANDWIDTH_LEAST 0.1
#define BANDWIDTH_MOST  1.0

static enum status take_memory(struct bench_run *run, const char *what, struct error *err)
{
    size_t n_seq = (size_t)run->n_seq, n_tokens = n_seq * (size_t)run->n_ctx;
    size_t n_columns = (size_t)(run->n_batch > run->n_seq ? run->n_batch : run->n_seq);
    run->sessions = memory_alloc(n_seq, sizeof *run->sessions);
    run->tokens = memory_alloc(n_tokens, sizeof *run->tokens);
    run->columns = memory_alloc(n_columns, sizeof *run->columns);
    run->samples_ns = memory_alloc((size_t)run->n_repetitions, sizeof *run->samples_ns);
    if (!run->sessions || !run->tokens || !run->columns || !run->samples_ns)
        return fail_memory(err, what, n_tokens * sizeof *run->tokens);
    return STATUS_OK;
}

/* Sequence s has the seed s + 1. */
static void choose_tokens(struct bench_run *run)
{
    for (int s = 0; s < run->n_seq; s++) {
        struct random random;
        random_init(&random, (uint64_t)s + 1);
        for (int p = 0; p < run->n_ctx; p++)
            run->tokens[(int64_t)s * run->n_ctx + p] =
                (int32_t)(random_bits(&random) % (uint64_t)run->model->config.n_vocab);
    }
}

enum status bench_run_open(struct bench_run *run, const struct model *model,
                           const struct bench_options *options, const struct bench_tests *tests,
                           struct error *err)
{
    *run = (struct bench_run){.model = model,
                              .n_seq = tests->n_seq,
                              .n_ctx = tests->n_ctx,
                              .n_batch = (int)options->n_batch,
                              .n_repetitions = (int)options->n_repetitions};
    struct engine_options engine = {
        .n_ctx = run->n_ctx,
        .n_sessions = run->n_seq,
        .n_batch = run->n_batch > run->n_seq ? run->n_batch : run->n_seq,
        .n_logits = run->n_seq,
        .kv_format = (enum kv_format)options->kv_format,
    };
    TRY(engine_choice_resolve(&options->engine, &engine, err));
    TRY(engine_open(&run->engine, model, &engine, NULL, NULL, err));
    TRY(take_memory(run, model->path, err));
    for (int s = 0; s < run->n_seq; s++)
        TRY(session_open(&run->sessions[s], run->engine, err));
    choose_tokens(run);
    return STATUS_OK;
}

void bench_run_close(struct bench_run *run)
{
    for (int s = 0; run->sessions && s < run->n_seq; s++)
        session_close(run->sessions[s]);
    engine_close(run->engine);
    memory_free(run->sessions);
    memory_free(run->tokens);
    memory_free(run->columns);
    memory_free(run->samples_ns);
    *run = (struct bench_run){0};
}

/* The next column of sequence s. */
static struct engine_column next_column(const struct bench_run *run, int s, int ahead,
                                        bool wants_logits)
{
    struct session *session = run->sessions[s];
    int64_t position = session_position(session) + ahead;
    return (struct engine_column){session, run->tokens[(int64_t)s * run->n_ctx + position],
                                  wants_logits};
}

/* The next n tokens of sequence s in batches; logits of the last. */
static const float *run_prompt(struct bench_run *run, int s, int n)
{
    const float *logits = NULL;
    for (int at = 0; at < n;) {
        int n_now = n - at < run->n_batch ? n - at : run->n_batch;
        for (int i = 0; i < n_now; i++)
            run->columns[i] = next_column(run, s, i, at + i == n - 1);
        logits = engine_forward(run->engine, run->columns, n_now);
        at += n_now;
    }
    return logits;
}

/* The next token of each of n_seq sequences, n times; logits of the last ones. */
static const float *run_decode(struct bench_run *run, int n_seq, int n)
{
    const float *logits = NULL;
    for (int i = 0; i < n; i++) {
        for (int s = 0; s < n_seq; s++)
            run->columns[s] = next_column(run, s, 0, true);
        logits = engine_forward(run->engine, run->columns, n_seq);
    }
    return logits;
}

/* Brings every sequence of the test to its depth. */
static void go_to_depth(struct bench_run *run, const struct bench_test *test)
{
    for (int s = 0; s < test->n_seq; s++) {
        int position = session_position(run->sessions[s]);
        if (position > test->n_depth)
            session_rewind(run->sessions[s], test->n_depth);
        else
            run_prompt(run, s, test->n_depth - position);
    }
}

static void warm_up(struct bench_run *run, const struct bench_test *test)
{
    if (test->n_prompt)
        run_prompt(run, 0, test->n_prompt);
    go_to_depth(run, test);
    if (test->n_gen)
        run_decode(run, test->n_seq, BENCH_WARM_UP);
    go_to_depth(run, test);
}

/* source  FNV-1a, Fowler, Noll and Vo, 64 bits */
static uint64_t hash_bytes(const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ at[i]) * 1099511628211u;
    return hash;
}

/* The logits of the last batch: of all sequences after decoding, of one after a prompt. */
static enum status take_hash(const struct bench_run *run, const struct bench_result *r,
                             const float *logits, uint64_t *hash, struct error *err)
{
    char name[64];
    size_t n = (size_t)r->test.n_seq * (size_t)run->model->config.n_vocab;
    for (size_t i = 0; i < n; i++)
        if (!isfinite(logits[i]))
            return fail(err, STATUS_FORMAT,
                        "%s: %s: a logit is not finite; the file is damaged or was converted "
                        "wrongly",
                        run->model->path, bench_test_name(&r->test, name));
    *hash = hash_bytes(logits, n * sizeof *logits);
    return STATUS_OK;
}

static enum status run_sample(struct bench_run *run, struct bench_result *r, struct error *err)
{
    const struct bench_test *test = &r->test;
    const float *logits = NULL;
    if (run->counted)
        counters_start(run->counted->counters);
    int64_t begin = clock_ns();
    for (int s = 0; test->n_prompt && s < test->n_seq; s++)
        logits = run_prompt(run, s, test->n_prompt);
    int64_t middle = test->n_prompt ? clock_ns() : begin;
    if (test->n_gen)
        logits = run_decode(run, test->n_seq, test->n_gen);
    int64_t end = clock_ns();
    if (run->counted)
        counters_stop(run->counted->counters);
    uint64_t hash = 0;
    TRY(take_hash(run, r, logits, &hash, err));
    char name[64];
    if (r->n_samples && hash != r->hash)
        return fail(err, STATUS_FORMAT,
                    "%s: repetition %d gave logits of hash %016" PRIx64 ", those before %016" PRIx64
                    "; the same tokens must give the same bits: please report this",
                    bench_test_name(test, name), r->n_samples + 1, hash, r->hash);
    r->hash = hash;
    r->decode_ns += end - middle;
    run->samples_ns[r->n_samples++] = end - begin;
    go_to_depth(run, test);
    return STATUS_OK;
}

/* test_s: what a test took in all. */
static enum status measure_bandwidth(struct bench_run *run, double test_s, struct error *err)
{
    double seconds = fmin(fmax(test_s * BANDWIDTH_PART, BANDWIDTH_LEAST), BANDWIDTH_MOST);
    return engine_bandwidth(run->engine, seconds, &run->bandwidth, err);
}

enum status bench_run_test(struct bench_run *run, const struct bench_test *test,
                           struct bench_result *result, struct error *err)
{
    *result = (struct bench_result){.test = *test, .samples_ns = run->samples_ns};
    if (run->bandwidth == 0)
        TRY(measure_bandwidth(run, 0, err));
    double before = run->bandwidth;
    int64_t begin = clock_ns();
    go_to_depth(run, test);
    warm_up(run, test);
    result->begun = time(NULL);
    if (run->counted)
        counters_clear(run->counted->counters);
    for (int i = 0; i < run->n_repetitions; i++)
        TRY(run_sample(run, result, err));
    if (run->counted)
        bench_counters_keep(run->counted, test, result->n_samples);
    TRY(measure_bandwidth(run, (double)(clock_ns() - begin) / 1e9, err));
    result->bandwidth = before > run->bandwidth ? before : run->bandwidth;
    engine_report(run->engine, &result->report);
    return STATUS_OK;
}

double bench_sample_ts(const struct bench_result *r, int i)
{
    return (double)bench_test_tokens(&r->test) * 1e9 / (double)r->samples_ns[i];
}

static double deviation(double sum_of_squares, int n)
{
    return n > 1 ? sqrt(sum_of_squares / (n - 1)) : 0;
}

void bench_speed_of(const struct bench_result *r, struct bench_speed *speed)
{
    *speed = (struct bench_speed){.bytes_per_token = NAN, .gb_s = NAN, .share = NAN};
    int n = r->n_samples;
    for (int i = 0; i < n; i++) {
        speed->avg_ns += (double)r->samples_ns[i] / n;
        speed->avg_ts += bench_sample_ts(r, i) / n;
    }
    double squares_ns = 0, squares_ts = 0;
    for (int i = 0; i < n; i++) {
        squares_ns += pow((double)r->samples_ns[i] - speed->avg_ns, 2);
        squares_ts += pow(bench_sample_ts(r, i) - speed->avg_ts, 2);
    }
    speed->stddev_ns = deviation(squares_ns, n);
    speed->stddev_ts = deviation(squares_ts, n);
    const struct bench_test *t = &r->test;
    if (!t->n_gen)
        return;
    double mean_depth = t->n_depth + t->n_prompt + (t->n_gen + 1) / 2.0; /* its own position too */
    speed->bytes_per_token =
        (double)r->report.token_bytes / t->n_seq + (double)r->report.kv_token_bytes * mean_depth;
    double n_decoded = (double)n * t->n_seq * t->n_gen;
    speed->gb_s = speed->bytes_per_token * n_decoded / (double)r->decode_ns;
    speed->share = speed->gb_s * 1e9 / r->bandwidth;
}
