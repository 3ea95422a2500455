/* Threads on one CPU each that run a function together, timed from the first start to the last end.
 */
#ifndef TRINE_BENCH_TEAM_H
#define TRINE_BENCH_TEAM_H

#include <stdint.h>

/* Work of one thread of n. */
typedef void team_work(void *context, int thread, int n_threads);

/* CPUs that this process may use. */
int team_allowed_cpus(void);

/* Starts n threads, the caller being the first, pinned to the allowed CPUs in turn. Once. */
void team_start(int n_threads);
void team_stop(void);

/* Runs work on the first n threads; returns nanoseconds. */
int64_t team_run(team_work *work, void *context, int n_threads);

#endif
