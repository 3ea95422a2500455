#include "subject.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_team.h"
#include "limits.h"
#include "machine/cpu_features.h"

#define CACHED_NS 5e6 /* a measurement from cache repeats the job for at least that long */

struct data *data_of(struct data *all, int *n, const struct kernel_row *row,
                     const struct large *large)
{
    for (int i = 0; i < *n; i++)
        if (all[i].op == row->op && all[i].packing == row->packing &&
            memcmp(&all[i].large, large, sizeof *large) == 0)
            return &all[i];
    struct data *own = &all[*n];
    if (!check_large(&own->check, row, large)) {
        check_done(&own->check);
        return NULL;
    }
    own->op = row->op;
    own->packing = row->packing;
    own->large = *large;
    ++*n;
    return own;
}

/* Scratch is a thread's own. */
static uint8_t *scratch_of(int thread, size_t bytes)
{
    static struct {
        uint8_t *memory;
        size_t bytes;
    } own[1024];
    if (own[thread].bytes < bytes) {
        free(own[thread].memory);
        own[thread].memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        if (!own[thread].memory)
            abort();
        memset(own[thread].memory, 0, bytes);
        own[thread].bytes = bytes;
    }
    return own[thread].memory;
}

static void run_part(void *context, int thread, int n_threads)
{
    const struct subject *s = context;
    const struct check *c = &s->data->check;
    int grain = s->row->grain;
    int64_t n_grains = (c->n_units + grain - 1) / grain;
    int begin = (int)(n_grains * thread / n_threads) * grain;
    int end = (int)(n_grains * (thread + 1) / n_threads) * grain;
    end = end < c->n_units ? end : c->n_units;
    for (int repeat = 0; repeat < s->repeats; repeat++)
        for (int i = 0; i < c->n_jobs && begin < end; i++) {
            union job job = c->jobs[i];
            if (s->row->op == OP_matmul)
                job.matmul.scratch = scratch_of(thread, MATMUL_SCRATCH_BYTES);
            if (s->row->op == OP_pack)
                job.pack.scratch = scratch_of(thread, PACK_SCRATCH(job.pack.source[0]->n_cols));
            s->row->run(&job, begin, end);
        }
}

/* Nanoseconds of one pass over the data. */
static double run_once(struct subject *s)
{
    return (double)bench_team_run(run_part, s, s->n_threads) / s->repeats;
}

static double look_at_limits(const struct subject *s)
{
    if (s->is_read_bound)
        return limits_read(s->n_threads, false);
    limits_peak(s->row->isa, s->n_threads);
    return limits_peak(s->is_capped ? s->row->isa : cpu_best_isa(), s->n_threads);
}

/* One round: passes for at least min_ns; the best of them counts, and the better of the looks at the
 * limit before and after. */
static void measure_round(struct subject *s, int round, double min_ns)
{
    double total = 0, best = 0;
    double before = look_at_limits(s);
    do {
        double ns = run_once(s);
        total += ns * s->repeats;
        best = best == 0 || ns < best ? ns : best;
    } while (total < min_ns);
    double after = look_at_limits(s);
    s->limit[round] = before > after ? before : after;
    s->ns[round] = best;
    s->best_ns = s->best_ns == 0 || best < s->best_ns ? best : s->best_ns;
}

/* The first pass warms up, tells how often to repeat, and is all there is for slow subjects. */
static void start_subject(struct subject *s, double most_ns)
{
    s->repeats = 1;
    double ns = run_once(s);
    if (s->is_cached && ns < CACHED_NS)
        s->repeats = (int)(CACHED_NS / ns) + 1;
    s->is_slow = ns > most_ns;
    if (s->is_slow)
        s->ns[0] = s->best_ns = ns;
}

void subjects_measure(struct subject *subjects, int n, int n_rounds, double seconds)
{
    for (struct subject *s = subjects; s < subjects + n; s++)
        if (s->row)
            start_subject(s, 4 * seconds * 1e9 / n_rounds);
    for (int round = 0; round < n_rounds; round++)
        for (int i = 0; i < n; i++) {
            struct subject *s = &subjects[(i + round) % n];
            if (s->row && !s->is_slow)
                measure_round(s, round, seconds * 1e9 / n_rounds);
        }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, ascending);
    return n == 0 ? 0 : n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

double subject_median_ns(const struct subject *s)
{
    double ns[MAX_ROUNDS];
    int n = 0;
    for (int i = 0; i < MAX_ROUNDS; i++)
        if (s->ns[i] > 0)
            ns[n++] = s->ns[i];
    return median(ns, n);
}

double subject_share(const struct subject *s)
{
    const struct workload *work = &s->data->check.work;
    double amount = (double)(s->is_read_bound ? work->bytes_read : work->macs), shares[MAX_ROUNDS];
    int n = 0;
    for (int i = 0; i < MAX_ROUNDS; i++)
        if (s->ns[i] > 0 && s->limit[i] > 0)
            shares[n++] = amount * 1e9 / s->ns[i] / s->limit[i];
    return median(shares, n);
}

double subject_ratio(const struct subject *a, const struct subject *b, int n_rounds)
{
    double ratios[MAX_ROUNDS];
    double a_units = (double)a->data->check.work.units, b_units = (double)b->data->check.work.units;
    int n = 0;
    for (int i = 0; i < n_rounds; i++)
        if (a->ns[i] > 0 && b->ns[i] > 0)
            ratios[n++] = a_units / a->ns[i] * (b->ns[i] / b_units);
    return median(ratios, n);
}
