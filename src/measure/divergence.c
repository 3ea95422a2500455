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
static double kl_term(double p_base, double log_base, double p, double log_p)
{
    return p_base * (log_base - log_p) - p_base + p;
}

/* The entries that are not kept, as one. */
static void add_tail(const struct base_row *base, double p, struct row_divergence *d)
{
    double p_base = fmin(fmax(p, base->tail_least), base->tail_most);
    d->kl += p_base > 0 && p > 0 ? kl_term(p_base, log(p_base), p, log(p)) : p;
    d->total_variation += fabs(p_base - p) / 2;
}

struct row_divergence row_divergence(const struct base_row *base, const float *logits, int n_vocab,
                                     int token)
{
    double norm = log_sum_exp(logits, n_vocab), tail = 0;
    int top = first_choice(logits, n_vocab);
    struct row_divergence d = {
        .nll = norm - (double)logits[token],
        .nll_base = -base->log_p[token],
        .is_same_top = base->log_p[top] == largest_of(base->log_p, n_vocab),
    };
    for (int i = 0; i < n_vocab; i++) {
        double log_p = (double)logits[i] - norm, p = exp(log_p), log_base = base->log_p[i];
        if (log_base > base->floor) {
            double p_base = exp(log_base);
            d.kl += kl_term(p_base, log_base, p, log_p);
            d.total_variation += fabs(p_base - p) / 2;
        } else {
            tail += p;
        }
    }
    if (base->floor > -INFINITY)
        add_tail(base, tail, &d);
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
