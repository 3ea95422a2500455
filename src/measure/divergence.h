/* How far the predictions of a model lie from those of a base, position by position. Where the base
 * is known in part, both measures are lower bounds. */
#ifndef TRINE_MEASURE_DIVERGENCE_H
#define TRINE_MEASURE_DIVERGENCE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "measure/mean.h"

/* What the base says at one position. Entries at or below the floor were too small to be kept: of
 * them only the limits of their sum are known. */
struct base_row {
    double *log_p; /* owned by whoever fills it: n_vocab */
    double floor;  /* -INFINITY: every entry is kept */
    /* sum of the probabilities that are not kept; 0 and 0 if all are */
    double tail_least, tail_most;
};

struct row_divergence {
    double kl;              /* Kullback and Leibler's, of base from model, in nats */
    double total_variation; /* half the sum of |p_base - p|: 0 to 1 */
    double nll, nll_base;   /* -log p of the token that follows in the text */
    /* the model's first choice is one of the base, which may have several after rounding */
    bool is_same_top;
};

/*   kl = sum of p_base log(p_base / p) - p_base + p
 * over the entries that are kept, and over the others taken as one whose p_base is, within its
 * limits, the nearest to p. The last two terms cancel where the probabilities sum to 1. With them
 * no term is below 0, and an error e in log p_base counts as e^2, so that a model differs by
 * nothing from its own rounded predictions.
 * bound  how the entries that are not kept differ one from another is not seen: kl and
 *        total_variation are at most the true ones. n of them, 16 below a first choice of
 *        probability q, hold at most n q e^-16: 150,000 up to 1.7 %. Where they hold so much, a
 *        model that puts all of it on the wrong ones among them differs by nothing.
 * logits: of the model, (n_vocab). token: the one that follows. */
struct row_divergence row_divergence(const struct base_row *base, const float *logits, int n_vocab,
                                     int token);

/* All positions. A zeroed one is empty. */
struct divergence {
    double *kls; /* owned */
    size_t n, size;
    struct mean kl, total_variation, nll_base;
    struct mean log_ratio; /* nll - nll_base: log of the ratio of perplexities */
    double max_variation;
    int64_t n_same_top;
};

/* errors: MEMORY */
enum status divergence_add(struct divergence *all, const struct row_divergence *row,
                           struct error *err);
void divergence_done(struct divergence *all);

struct kl_spread {
    double median, p99, maximum;
};

/* Of at least one position. Sorts the list. */
struct kl_spread divergence_spread(struct divergence *all);

#endif
