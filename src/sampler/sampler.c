#include "sampler/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct candidate {
    float logit;
    int32_t id;
    double weight; /* unnormalised probability */
};

struct sampler {
    struct sampler_options options;
    struct random random;
    int n_vocab;
    struct candidate *candidates; /* owned: n_vocab */
    int32_t *history;             /* owned */
    size_t n_history, history_size;
    int32_t *counts; /* owned: n_vocab; occurrences within the last repeat_last_n */
};

enum status sampler_open(struct sampler **sampler, const struct sampler_options *options,
                         int n_vocab, struct error *err)
{
    if (n_vocab < 1)
        return fail(err, STATUS_LIMIT, "the vocabulary is empty: nothing can be sampled");
    struct sampler *s = memory_alloc(1, sizeof *s);
    if (!s)
        return fail_memory(err, "sampler", sizeof *s);
    *s = (struct sampler){.options = *options, .n_vocab = n_vocab};
    s->candidates = memory_alloc((size_t)n_vocab, sizeof *s->candidates);
    s->counts = memory_alloc((size_t)n_vocab, sizeof *s->counts);
    if (!s->candidates || !s->counts) {
        sampler_close(s);
        return fail_memory(err, "sampler", (size_t)n_vocab * sizeof *s->candidates);
    }
    random_init(&s->random, options->seed);
    *sampler = s;
    return STATUS_OK;
}

void sampler_close(struct sampler *s)
{
    if (!s)
        return;
    memory_free(s->candidates);
    memory_free(s->counts);
    memory_free(s->history);
    memory_free(s);
}

enum status sampler_accept(struct sampler *s, int32_t token, struct error *err)
{
    if (s->n_history == s->history_size) {
        size_t size = s->history_size ? 2 * s->history_size : 256;
        int32_t *grown = memory_resize(s->history, size, sizeof *grown);
        if (!grown)
            return fail_memory(err, "sampler", size * sizeof *grown);
        s->history = grown;
        s->history_size = size;
    }
    s->history[s->n_history++] = token;
    s->counts[token]++;
    int last_n = s->options.repeat_last_n;
    if (last_n >= 0 && s->n_history > (size_t)last_n)
        s->counts[s->history[s->n_history - 1 - (size_t)last_n]]--;
    return STATUS_OK;
}

static float penalised(const struct sampler *s, float logit, int32_t count)
{
    const struct sampler_options *o = &s->options;
    if (count == 0)
        return logit;
    logit = logit > 0 ? logit / o->repeat_penalty : logit * o->repeat_penalty;
    return logit - (float)count * o->frequency_penalty - o->presence_penalty;
}

/* Higher logit first, then lower id. */
static int by_logit(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Restores the heap order (least likely candidate on top) below `at`. */
static void sift_down(struct candidate *heap, int n, int at)
{
    for (int child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && by_logit(&heap[child + 1], &heap[child]) > 0)
            child++;
        if (by_logit(&heap[at], &heap[child]) >= 0)
            return;
        struct candidate swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
    }
}

/* Moves the k most likely candidates to the front, sorted: a heap of k keeps it near linear. */
static int select_top(struct candidate *c, int n, int k)
{
    if (k < n) {
        for (int i = k / 2 - 1; i >= 0; i--)
            sift_down(c, k, i);
        for (int i = k; i < n; i++)
            if (by_logit(&c[i], &c[0]) < 0) {
                c[0] = c[i];
                sift_down(c, k, 0);
            }
        n = k;
    }
    qsort(c, (size_t)n, sizeof *c, by_logit);
    return n;
}

/* Weights exp((logit - highest) / temperature) of sorted candidates; returns their sum. */
static double weigh(struct candidate *c, int n, double temperature)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        c[i].weight = exp(((double)c[i].logit - c[0].logit) / temperature);
        sum += c[i].weight;
    }
    return sum;
}

static int keep_top_p(struct candidate *c, int n, float top_p)
{
    double whole = weigh(c, n, 1), sum = 0;
    for (int i = 0; i < n; i++) {
        sum += c[i].weight;
        if (sum >= top_p * whole)
            return i + 1;
    }
    return n;
}

static int keep_min_p(struct candidate *c, int n, float min_p)
{
    weigh(c, n, 1);
    int kept = 1;
    while (kept < n && c[kept].weight >= min_p)
        kept++;
    return kept;
}

static int32_t draw(struct sampler *s, struct candidate *c, int n)
{
    double left = random_unit(&s->random) * weigh(c, n, s->options.temperature);
    for (int i = 0; i < n; i++) {
        left -= c[i].weight;
        if (left < 0)
            return c[i].id;
    }
    return c[n - 1].id;
}

static int32_t most_likely(const struct candidate *c, int n)
{
    const struct candidate *best = &c[0];
    for (int i = 1; i < n; i++)
        if (by_logit(&c[i], best) < 0)
            best = &c[i];
    return best->id;
}

int32_t sampler_next(struct sampler *s, const float *logits)
{
    const struct sampler_options *o = &s->options;
    struct candidate *c = s->candidates;
    int n = s->n_vocab;
    for (int32_t id = 0; id < n; id++)
        c[id] = (struct candidate){.logit = penalised(s, logits[id], s->counts[id]), .id = id};
    if (o->temperature <= 0)
        return most_likely(c, n);
    n = select_top(c, n, o->top_k > 0 && o->top_k < n ? o->top_k : n);
    if (o->top_p < 1)
        n = keep_top_p(c, n, o->top_p);
    if (o->min_p > 0)
        n = keep_min_p(c, n, o->min_p);
    return draw(s, c, n);
}
