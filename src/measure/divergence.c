#include "measure/divergence.h"

#include <math.h>

#include "base/memory.h"
#include "measure/perplexity.h"
#include "measure/statistics.h"

static int first_choice(const float *logits, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static double largest_of(const double *numbers, int n)
{
    double largest = numbers[0];
    for (int i = 1; i < n; i++)
        largest = numbers[i] > largest ? numbers[i] : largest;
    return largest;
}

/* One term, of p_base = exp(log_base) and p = exp(log_p). */
static void add_term(struct row_divergence *d, double p_base, double log_base, double log_p)
{
    double p = exp(log_p);
    d->kl += p_base > 0 ? p_base * (log_base - log_p) - p_base + p : p;
    d->total_variation += fabs(p_base - p) / 2;
}

/* log(sum of exp(logits[i])) of the entries that are not kept; -INFINITY without any. Their
 * probabilities may all be too small for a double. */
static double tail_log_sum(const struct base_row *base, const float *logits, int n_vocab)
{
    double largest = -INFINITY, sum = 0;
    for (int i = 0; i < n_vocab; i++)
        if (base->log_p[i] <= base->floor)
            largest = fmax(largest, logits[i]);
    for (int i = 0; i < n_vocab; i++)
        if (base->log_p[i] <= base->floor)
            sum += exp(logits[i] - largest);
    return largest + log(sum);
}

/* The entries that are not kept, as one. */
static void add_tail(struct row_divergence *d, const struct base_row *base, double log_p)
{
    double p = exp(log_p), p_base = fmin(fmax(p, base->tail_least), base->tail_most);
    add_term(d, p_base, p_base == p ? log_p : log(p_base), log_p);
}

struct row_divergence row_divergence(const struct base_row *base, const float *logits, int n_vocab,
                                     int token)
{
    double norm = log_sum_exp(logits, n_vocab);
    int top = first_choice(logits, n_vocab);
    struct row_divergence d = {
        .nll = norm - (double)logits[token],
        .nll_base = -base->log_p[token],
        .is_same_top = base->log_p[top] == largest_of(base->log_p, n_vocab),
    };
    for (int i = 0; i < n_vocab; i++)
        if (base->log_p[i] > base->floor)
            add_term(&d, exp(base->log_p[i]), base->log_p[i], (double)logits[i] - norm);
    if (base->floor > -INFINITY)
        add_tail(&d, base, tail_log_sum(base, logits, n_vocab) - norm);
    d.total_variation = fmin(d.total_variation, 1); /* rounded probabilities may sum to more */
    return d;
}

enum status divergence_add(struct divergence *all, const struct row_divergence *row,
                           struct error *err)
{
    if (all->n == all->size) {
        size_t size = all->size ? 2 * all->size : 1024;
        double *grown = memory_resize(all->kls, size, sizeof *grown);
        if (!grown)
            return fail_memory(err, "divergences", size * sizeof *grown);
        all->kls = grown;
        all->size = size;
    }
    all->kls[all->n++] = row->kl;
    mean_add(&all->kl, row->kl);
    mean_add(&all->total_variation, row->total_variation);
    mean_add(&all->nll_base, row->nll_base);
    mean_add(&all->log_ratio, row->nll - row->nll_base);
    all->max_variation = fmax(all->max_variation, row->total_variation);
    all->n_same_top += row->is_same_top;
    return STATUS_OK;
}

void divergence_done(struct divergence *all)
{
    memory_free(all->kls);
    *all = (struct divergence){0};
}

struct kl_spread divergence_spread(struct divergence *all)
{
    sample_sort(all->kls, all->n);
    return (struct kl_spread){.median = sorted_quantile(all->kls, all->n, 0.5),
                              .p99 = sorted_quantile(all->kls, all->n, 0.99),
                              .maximum = all->kls[all->n - 1]};
}
