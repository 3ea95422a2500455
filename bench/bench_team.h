/* A team of threads that runs a function on some of its members, timed from the first start to the
 * last end. */
#ifndef TRINE_BENCH_BENCH_TEAM_H
#define TRINE_BENCH_BENCH_TEAM_H

#include <stdint.h>

/* Work of one thread of n. */
typedef void bench_work(void *context, int thread, int n_threads);

/* Physical cores that this process may use. */
int bench_team_cores(void);

/* Starts n threads, the caller being the first, one per core as far as there are cores. Once. */
void bench_team_start(int n_threads);
void bench_team_stop(void);

/* Runs work on the first n threads; returns nanoseconds. */
int64_t bench_team_run(bench_work *work, void *context, int n_threads);

#endif
