/* What `trine bench` is asked to measure, from its options to a list of tests. */
#ifndef TRINE_CLI_BENCH_TESTS_H
#define TRINE_CLI_BENCH_TESTS_H

#include "cli/engine_choice.h"

enum bench_output { BENCH_MD, BENCH_CSV, BENCH_JSON, BENCH_JSONL };

struct bench_options {
    const char *model, *shape, *type;
    const char *prompts, *gens, *prompt_gen, *depths, *seqs; /* lists of numbers */
    int64_t n_repetitions, n_batch;
    int kv_format; /* enum kv_format */
    int output;    /* enum bench_output */
    bool is_counted;
    struct engine_choice engine;
};

/* n_depth tokens of each of n_seq sequences lie in the cache; n_prompt more of each are run, then
 * n_gen of each, one of every sequence at a time. What is timed is the prompt and what follows. */
struct bench_test {
    int n_prompt, n_gen, n_depth, n_seq;
};

struct bench_tests {
    struct bench_test *all; /* owned: (n) */
    size_t n;
    int n_ctx; /* positions that the longest needs */
    int n_seq; /* most of any */
};

/* Tokens run and not timed before those that are. */
#define BENCH_WARM_UP 4

/* Every depth with every prompt length, then generated lengths for each number of sequences, then
 * the prompt with generation.
 * errors  USAGE: a list that cannot be read or asks for nothing; MEMORY */
enum status bench_tests_make(struct bench_tests *tests, const struct bench_options *options,
                             struct error *err);

/* Accepts a zeroed object. */
void bench_tests_done(struct bench_tests *tests);

/* "pp512", "tg128 @ d4096", "pg512+128", "tg128 x4" with four sequences; out holds 64 characters. */
const char *bench_test_name(const struct bench_test *test, char out[64]);

/* Tokens that are timed, of all sequences. */
int64_t bench_test_tokens(const struct bench_test *test);

#endif
