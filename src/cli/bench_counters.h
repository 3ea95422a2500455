/* What `trine bench --counters` counts: totals of each test, what a token took, and where two tests
 * differ in the number of generated tokens only, what one more token takes. */
#ifndef TRINE_CLI_BENCH_COUNTERS_H
#define TRINE_CLI_BENCH_COUNTERS_H

#include <jansson.h>

#include "cli/bench_tests.h"
#include "machine/counters.h"

struct bench_counters {
    struct counters *counters; /* owned; NULL: nothing is counted */
    size_t n;                  /* tests that have been counted */
    struct bench_counted {
        struct bench_test test;
        int n_samples;
        struct counter_reading readings[N_COUNTERS];
    } * tests; /* owned */
};

/* Call before the engine's threads start: they are counted because they start later.
 * errors  MEMORY */
enum status bench_counters_open(struct bench_counters *b, size_t n_tests, struct error *err);

/* Accepts a zeroed object. */
void bench_counters_close(struct bench_counters *b);

/* Keeps what the test that has just been run took in all its samples. */
void bench_counters_keep(struct bench_counters *b, const struct bench_test *test, int n_samples);

/* Of the test kept last: a new object, or NULL without memory. */
json_t *bench_counters_fields(const struct bench_counters *b);

/* Everything kept, on standard output: a table, and a line for each counter that is absent. */
void bench_counters_print(const struct bench_counters *b);

#endif
