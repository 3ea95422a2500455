/* Many texts cut into batches. Columns of all passages follow one another, and a batch takes what
 * fits, so that no batch is short because a passage ends. */
#include "base/memory.h"
#include "cli/ppl.h"
#include "measure/perplexity.h"

#define MAX_SEQUENCES 64

int ppl_sequences_for(const struct ppl_options *options, size_t n_passages, int n_shortest)
{
    if (options->reference)
        return 1; /* runs them one after the other */
    int batch = options->n_batch ? (int)options->n_batch : ENGINE_MAX_BATCH;
    int n = batch / (n_shortest > 1 ? n_shortest - 1 : 1) + 2; /* the first and the last in part */
    n = n < MAX_SEQUENCES ? n : MAX_SEQUENCES;
    return (size_t)n < n_passages ? n : (int)n_passages;
}

struct wanted {
    size_t passage;
    int position;
};

/* Place in the passages, and a batch being filled. */
struct walk {
    struct ppl_model *m;
    const struct passage *passages;
    size_t n, passage;
    int at; /* next token of the passage */
    struct ppl_column *columns;
    struct wanted *wanted;
    double *nll; /* of the wanted */
    int n_columns, n_wanted;
    const float *logits; /* of the batch */
};

/* Takes columns until the batch is full. A sequence serves one passage of a batch, because it can
 * only be restarted between batches. */
static void fill(struct walk *w)
{
    size_t first = w->passage;
    w->n_columns = w->n_wanted = 0;
    while (w->n_columns < w->m->n_batch && w->passage < w->n &&
           w->passage - first < (size_t)w->m->n_sequences) {
        const struct passage *p = &w->passages[w->passage];
        int sequence = (int)(w->passage % (size_t)w->m->n_sequences);
        bool is_wanted = w->at + 1 >= p->first;
        if (is_wanted && w->n_wanted == w->m->n_logits)
            return;
        if (w->at == 0)
            ppl_restart(w->m, sequence);
        w->columns[w->n_columns++] = (struct ppl_column){sequence, p->tokens[w->at], is_wanted};
        w->at++;
        if (is_wanted)
            w->wanted[w->n_wanted++] = (struct wanted){w->passage, w->at};
        if (w->at == p->n - 1) { /* nothing follows the last token */
            w->passage++;
            w->at = 0;
        }
    }
}

/* One row of the batch. */
static void score(void *context, int i)
{
    struct walk *w = context;
    int n_vocab = w->m->model.config.n_vocab;
    const float *logits = w->logits + (size_t)i * (size_t)n_vocab;
    const struct wanted *wanted = &w->wanted[i];
    int32_t token = w->passages[wanted->passage].tokens[wanted->position];
    w->nll[i] = log_sum_exp(logits, n_vocab) - (double)logits[token];
}

static void score_all(struct walk *w)
{
    if (w->m->engine)
        engine_share(w->m->engine, w->n_wanted, score, w);
    else
        for (int i = 0; i < w->n_wanted; i++)
            score(w, i);
}

static enum status walk(struct walk *w, passage_row *row, void *context, struct error *err)
{
    size_t n_vocab = (size_t)w->m->model.config.n_vocab;
    while (w->passage < w->n) {
        fill(w);
        TRY(ppl_forward(w->m, w->columns, w->n_columns, &w->logits, err));
        score_all(w);
        for (int i = 0; i < w->n_wanted; i++)
            TRY(row(context, w->wanted[i].passage, w->wanted[i].position,
                    w->logits + (size_t)i * n_vocab, w->nll[i], err));
    }
    return STATUS_OK;
}

enum status ppl_run_passages(struct ppl_model *m, const struct passage *passages, size_t n,
                             passage_row *row, void *context, struct error *err)
{
    size_t n_batch = (size_t)m->n_batch;
    struct walk w = {.m = m, .passages = passages, .n = n};
    w.columns = memory_alloc(n_batch, sizeof *w.columns);
    w.wanted = memory_alloc(n_batch, sizeof *w.wanted);
    w.nll = memory_alloc(n_batch, sizeof *w.nll);
    enum status status = w.columns && w.wanted && w.nll ? walk(&w, row, context, err)
                                                        : fail_memory(err, "batch", n_batch);
    memory_free(w.columns);
    memory_free(w.nll);
    memory_free(w.wanted);
    return status;
}
