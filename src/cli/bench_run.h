/* Runs a test on an engine, and what its times mean. */
#ifndef TRINE_CLI_BENCH_RUN_H
#define TRINE_CLI_BENCH_RUN_H

#include <time.h>

#include "cli/bench_counters.h"
#include "cli/bench_model.h"

/* An engine with its sequences. The token at position p of sequence s is always the same random
 * number, so what lies in a cache stays valid, and a test's logits don't depend on those before. */
struct bench_run {
    const struct model *model; /* borrowed */
    struct engine *engine;
    int n_seq, n_ctx, n_batch;
    struct session **sessions;     /* owned: (n_seq) */
    int32_t *tokens;               /* owned: (n_seq, n_ctx) */
    struct engine_column *columns; /* owned: one batch */
    int n_repetitions;
    int64_t *samples_ns;            /* owned: (n_repetitions), of the last test */
    double bandwidth;               /* bytes a second, last measured; 0: not yet */
    struct bench_counters *counted; /* borrowed, or NULL: on while a sample is timed */
};

struct bench_result {
    struct bench_test test;
    time_t begun;
    int n_samples;
    const int64_t *samples_ns; /* borrowed from the run; valid until the next test */
    int64_t decode_ns;         /* of all samples: the part that generates */
    uint64_t hash;             /* 64-bit FNV-1a of the last logits of all sequences */
    double bandwidth; /* bytes a second that the threads read before or after: the higher */
    struct engine_report report;
};

/* errors  as engine_open; what the options say: USAGE */
enum status bench_run_open(struct bench_run *run, const struct model *model,
                           const struct bench_options *options, const struct bench_tests *tests,
                           struct error *err);

/* Accepts a zeroed object. */
void bench_run_close(struct bench_run *run);

/* errors  FORMAT: logits that are not finite, or not the same in every repetition; MEMORY */
enum status bench_run_test(struct bench_run *run, const struct bench_test *test,
                           struct bench_result *result, struct error *err);

/* Tokens a second of sample i; of all sequences together. */
double bench_sample_ts(const struct bench_result *r, int i);

/* Means over the samples, and their deviations (of the sample; 0 for one). */
struct bench_speed {
    double avg_ns, stddev_ns, avg_ts, stddev_ts;
    /* Of generation; NAN where none was timed. Bytes: weights, and what the cache reads at the
     * mean depth; a batch of sequences shares the weights. Share: of the bandwidth. */
    double bytes_per_token, gb_s, share;
};
void bench_speed_of(const struct bench_result *r, struct bench_speed *speed);

#endif
