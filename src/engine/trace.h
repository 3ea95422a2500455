/* When every thread began, ended and left every step of some batches. */
#ifndef TRINE_ENGINE_TRACE_H
#define TRINE_ENGINE_TRACE_H

#include "base/memory.h"
#include "engine/plan.h"

/* One step of one thread; nanoseconds of clock_ns. In a step without a barrier it leaves when it is
 * done. */
struct trace_step {
    int64_t begun; /* after the barrier before it */
    int64_t done;  /* its last unit is finished, and not yet reported: it waits */
    int64_t left;  /* the barrier let it go */
};

/* Times of one batch: (n_threads, n_steps), written by the threads themselves. */
struct trace {
    int n_threads, n_steps, n_batches; /* room for n_batches */
    enum program_kind kind;
    int batch;                /* being written; from n_batches on nothing is */
    struct trace_step *steps; /* owned: (n_batches, n_threads, n_steps) */
};

/* Room for n_batches of a program.
 * errors  MEMORY */
enum status trace_open(struct trace *trace, const struct plan *plan, enum program_kind kind,
                       int n_batches, struct error *err);
void trace_close(struct trace *trace);

static inline struct trace_step *trace_steps(const struct trace *trace, int batch, int thread)
{
    return trace->steps + ((int64_t)batch * trace->n_threads + thread) * trace->n_steps;
}

/* Batches that have been written. */
int trace_n_written(const struct trace *trace);

/* Where the time of a batch goes, mean over batches and threads, in seconds. */
struct trace_sum {
    double work;       /* units, and what threads prepare for themselves */
    double late_own;   /* waiting for a later thread of the own node */
    double late_other; /* waiting for a later thread of another node */
    double latency;    /* from the last arrival to leaving */
    double leader;     /* waiting while the first thread of the node prepares */
    double total;
};

/* Sums of each kind of step and of all; batches from `first` on. Whether a step has a barrier is
 * taken from the plan as it was fitted to the last batch. A thread that arrives when others have left
 * already held nobody up (it had no work: barrier.h) and does not count as late. */
void trace_sums(const struct trace *trace, const struct plan *plan, int first,
                struct trace_sum kinds[N_STEP_KINDS], struct trace_sum *all);

#endif
