/* Multiple-choice items: the likelihood of every ending. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "cli/json_out.h"
#include "cli/ppl.h"
#include "cli/ppl_progress.h"
#include "measure/choice_tasks.h"
#include "measure/json_finite.h"
#include "measure/perplexity.h"

struct task_run {
    const struct ppl_options *options;
    struct ppl_model m;
    struct choice_tasks tasks;
    struct token_list *lists; /* owned: one for each choice of each item */
    struct passage *passages; /* owned */
    size_t n, at;             /* choices; choice whose item is being scored */
    size_t item;
    double likelihoods[MAX_CHOICES]; /* of the item */
    struct choice_score scores[N_CHOICE_KINDS], all;
    struct ppl_progress progress;
};

static enum status encode_joined(struct task_run *r, const char *context, const char *ending,
                                 struct token_list *list, struct error *err)
{
    size_t n_context = strlen(context), n_ending = strlen(ending);
    char *joined = memory_alloc(n_context + 1 + n_ending, 1);
    if (!joined)
        return fail_memory(err, r->options->tasks, n_context + 1 + n_ending);
    memcpy(joined, context, n_context);
    joined[n_context] = ' ';
    memcpy(joined + n_context + 1, ending, n_ending);
    struct text text = {joined, n_context + 1 + n_ending};
    enum status status = ppl_encode(&r->m, text, list, err);
    memory_free(joined);
    return status;
}

/* Tokens of the context. One without any begins with BOS, and then the joined text does too. */
static enum status measure_context(struct task_run *r, const char *text, struct token_list *joined,
                                   size_t *n, struct error *err)
{
    struct token_list context = {0};
    TRY(ppl_encode(&r->m, text_of(text), &context, err));
    int32_t bos = tokenizer_bos(r->m.tokenizer);
    bool is_alone = context.n == 1 && context.ids[0] == bos;
    *n = context.n;
    token_list_done(&context);
    return is_alone && joined->ids[0] != bos ? ppl_put_bos(&r->m, joined, err) : STATUS_OK;
}

/* The ending's tokens are those behind as many as the context alone has. */
static enum status make_passage(struct task_run *r, const struct choice_item *item, int choice,
                                struct error *err)
{
    struct token_list *list = &r->lists[r->n];
    struct passage *passage = &r->passages[r->n++];
    size_t first;
    TRY(encode_joined(r, item->contexts[choice], item->endings[choice], list, err));
    TRY(measure_context(r, item->contexts[choice], list, &first, err));
    if (list->n < 2 || list->n > INT32_MAX / 2)
        return fail(err, STATUS_LIMIT,
                    "%s: line %ld: choice %d and its context have %zu tokens, which cannot be "
                    "scored",
                    r->options->tasks, item->line, choice + 1, list->n);
    first = first < list->n ? first : list->n - 1; /* the ending has melted into the context */
    *passage = (struct passage){list->ids, (int)list->n, first ? (int)first : 1};
    return STATUS_OK;
}

static enum status make_passages(struct task_run *r, struct error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < r->tasks.n; i++)
        n += (size_t)r->tasks.items[i].n;
    r->lists = memory_alloc(n, sizeof *r->lists);
    r->passages = memory_alloc(n, sizeof *r->passages);
    if (!r->lists || !r->passages)
        return fail_memory(err, r->options->tasks, n * sizeof *r->lists);
    for (size_t i = 0; i < r->tasks.n; i++)
        for (int choice = 0; choice < r->tasks.items[i].n; choice++)
            TRY(make_passage(r, &r->tasks.items[i], choice, err));
    return STATUS_OK;
}

static void finish_item(struct task_run *r, const struct choice_item *item)
{
    char value[64];
    choice_score_add(&r->scores[item->kind], item, r->likelihoods);
    choice_score_add(&r->all, item, r->likelihoods);
    r->at += (size_t)item->n;
    r->item++;
    memset(r->likelihoods, 0, sizeof r->likelihoods);
    snprintf(value, sizeof value, "acc %.4f", (double)r->all.n_right / (double)r->all.n);
    progress_step(&r->progress, r->item, value);
}

static enum status score_row(void *context, size_t passage, int position, const float *logits,
                             double nll, struct error *err)
{
    (void)logits, (void)err;
    struct task_run *r = context;
    const struct choice_item *item = &r->tasks.items[r->item];
    const struct passage *p = &r->passages[passage];
    size_t choice = passage - r->at;
    r->likelihoods[choice] -= nll;
    if (position == p->n - 1 && (int)choice == item->n - 1)
        finish_item(r, item);
    return STATUS_OK;
}

static void print_score(const char *name, const struct choice_score *s)
{
    double n = (double)s->n;
    char error[32], error_norm[32];
    printf("%-10s %6lld %-5s  acc %.4f%s  acc_norm %.4f%s\n", name, (long long)s->n,
           s->n == 1 ? "item" : "items", (double)s->n_right / n,
           ppl_error_text(share_error(s->n_right, s->n), 4, error), (double)s->n_right_norm / n,
           ppl_error_text(share_error(s->n_right_norm, s->n), 4, error_norm));
}

static json_t *score_json(const char *name, const struct choice_score *s)
{
    double n = (double)s->n;
    return json_pack("{s:s, s:I, s:f, s:o, s:f, s:o}", "kind", name, "n", (json_int_t)s->n, "acc",
                     (double)s->n_right / n, "acc_error",
                     json_finite(share_error(s->n_right, s->n)), "acc_norm",
                     (double)s->n_right_norm / n, "acc_norm_error",
                     json_finite(share_error(s->n_right_norm, s->n)));
}

static enum status print_result(const struct task_run *r, struct error *err)
{
    json_t *list = json_array();
    for (int kind = 0; kind < N_CHOICE_KINDS; kind++) {
        const struct choice_score *score = &r->scores[kind];
        if (score->n && r->options->json)
            json_array_append_new(list, score_json(choice_kind_name(kind), score));
        else if (score->n)
            print_score(choice_kind_name(kind), score);
    }
    if (r->options->json)
        return json_out(stdout, list, 0, err);
    json_decref(list);
    return STATUS_OK;
}

static enum status measure(struct task_run *r, struct error *err)
{
    TRY(ppl_open(&r->m, r->options, err));
    TRY(choice_tasks_read(&r->tasks, r->options->tasks, err));
    TRY(make_passages(r, err));
    int shortest = INT32_MAX, longest = 0;
    for (size_t i = 0; i < r->n; i++) {
        shortest = r->passages[i].n < shortest ? r->passages[i].n : shortest;
        longest = r->passages[i].n > longest ? r->passages[i].n : longest;
    }
    TRY(ppl_start(&r->m, longest, ppl_sequences_for(r->options, r->n, shortest), err));
    progress_begin(&r->progress, r->tasks.n, r->options->quiet);
    enum status status = ppl_run_passages(&r->m, r->passages, r->n, score_row, r, err);
    progress_end(&r->progress);
    return status == STATUS_OK ? print_result(r, err) : status;
}

enum status ppl_tasks(const struct ppl_options *options, struct error *err)
{
    struct task_run r = {.options = options};
    enum status status = measure(&r, err);
    for (size_t i = 0; i < r.n; i++)
        token_list_done(&r.lists[i]);
    memory_free(r.lists);
    memory_free(r.passages);
    choice_tasks_done(&r.tasks);
    ppl_close(&r.m);
    return status;
}
