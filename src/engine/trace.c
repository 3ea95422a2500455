#include "engine/trace.h"

#include <string.h>

enum status trace_open(struct trace *trace, const struct plan *plan, enum program_kind kind,
                       int n_batches, struct error *err)
{
    *trace = (struct trace){.kind = kind, .n_batches = n_batches};
    trace->n_threads = plan->layout->n_threads;
    trace->n_steps = plan->programs[kind][0].n_steps;
    size_t n = (size_t)n_batches * (size_t)trace->n_threads * (size_t)trace->n_steps;
    trace->steps = memory_alloc(n, sizeof *trace->steps);
    if (!trace->steps)
        return fail_memory(err, "trace", n * sizeof *trace->steps);
    memset(trace->steps, 0, n * sizeof *trace->steps); /* no page is new when a step is timed */
    return STATUS_OK;
}

void trace_close(struct trace *trace)
{
    memory_free(trace->steps);
    *trace = (struct trace){0};
}

/* Some threads at one step of one batch. */
struct gathering {
    const struct trace *trace;
    int batch, step, thread0, n_threads;
};

/* The last arrival among them, at most `until`; INT64_MIN: none. */
static int64_t last_arrival(const struct gathering *g, int64_t until)
{
    int64_t last = INT64_MIN;
    for (int i = g->thread0; i < g->thread0 + g->n_threads; i++) {
        int64_t done = trace_steps(g->trace, g->batch, i)[g->step].done;
        if (done <= until && done > last)
            last = done;
    }
    return last;
}

/* The last arrival that can have held up a thread that left at `left`. A barrier opens when the work
 * is finished, so threads without any may come later: these don't count. latest: last_arrival of
 * all. */
static int64_t counting_arrival(const struct gathering *g, int64_t latest, int64_t left)
{
    return latest <= left ? latest : last_arrival(g, left);
}

/* A thread's own times, divided at the last arrivals of its node and of all nodes. */
static void add_times(struct trace_sum *sum, const struct step *step, const struct trace_step *t,
                      int64_t own, int64_t all)
{
    own = own < t->done ? t->done : own;
    all = all < own ? own : all;
    sum->work += (double)(t->done - t->begun);
    *(step->is_leader ? &sum->leader : &sum->late_own) += (double)(own - t->done);
    sum->late_other += (double)(all - own);
    sum->latency += (double)(t->left - all);
    sum->total += (double)(t->left - t->begun);
}

/* The threads of one node at a step. latest: last arrival of all nodes. */
static void add_node(struct trace_sum *sum, const struct step *step, const struct gathering *all,
                     int64_t latest, const struct team_node *node)
{
    struct gathering own = *all;
    own.thread0 = node->thread0;
    own.n_threads = step->is_leader ? 1 : node->n_threads; /* nobody else has work */
    int64_t own_latest = last_arrival(&own, INT64_MAX);
    for (int i = node->thread0; i < node->thread0 + node->n_threads; i++) {
        const struct trace_step *t = &trace_steps(all->trace, all->batch, i)[all->step];
        if (step->units.sync == SYNC_NONE) {
            sum->work += (double)(t->left - t->begun);
            sum->total += (double)(t->left - t->begun);
            continue;
        }
        int64_t last = counting_arrival(&own, own_latest, t->left);
        bool is_node = step->units.sync == SYNC_NODE;
        add_times(sum, step, t, last, is_node ? last : counting_arrival(all, latest, t->left));
    }
}

static void add_scaled(struct trace_sum *to, const struct trace_sum *from, double scale)
{
    to->work += scale * from->work;
    to->late_own += scale * from->late_own;
    to->late_other += scale * from->late_other;
    to->latency += scale * from->latency;
    to->leader += scale * from->leader;
    to->total += scale * from->total;
}

int trace_n_written(const struct trace *trace)
{
    return trace->batch < trace->n_batches ? trace->batch : trace->n_batches;
}

void trace_sums(const struct trace *trace, const struct plan *plan, int first,
                struct trace_sum kinds[N_STEP_KINDS], struct trace_sum *all)
{
    const struct team_layout *layout = plan->layout;
    int n = trace_n_written(trace);
    /* nanoseconds of all threads: whole numbers, so the sums are exact */
    struct trace_sum sums[N_STEP_KINDS] = {{0}};
    for (int batch = first; batch < n; batch++) {
        for (int s = 0; s < trace->n_steps; s++) {
            const struct step *step = &plan->programs[trace->kind][0].steps[s];
            struct gathering everybody = {trace, batch, s, 0, trace->n_threads};
            int64_t latest = last_arrival(&everybody, INT64_MAX);
            for (int node = 0; node < layout->n_nodes; node++)
                add_node(&sums[step->kind], step, &everybody, latest, &layout->nodes[node]);
        }
    }
    double scale = n > first ? 1e-9 / ((double)(n - first) * trace->n_threads) : 0;
    *all = (struct trace_sum){0};
    for (int kind = 0; kind < N_STEP_KINDS; kind++) {
        kinds[kind] = (struct trace_sum){0};
        add_scaled(&kinds[kind], &sums[kind], scale);
        add_scaled(all, &sums[kind], scale);
    }
}
