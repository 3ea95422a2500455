/* Greedy continuations of many prompts that are decoded together, and a comparison with others. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/json_out.h"
#include "cli/ppl.h"
#include "cli/ppl_progress.h"
#include "measure/greedy_file.h"
#include "measure/statistics.h"

#define DEFAULT_PREDICT  256
#define DEFAULT_PARALLEL 32

/* One that is being written. */
struct writing {
    struct continuation result;
    char *line; /* owned: the prompt */
    struct token_list prompt;
    size_t n_run; /* tokens of the prompt that have been run */
};

struct greedy_run {
    const struct ppl_options *options;
    struct ppl_model m;
    struct writing *writings; /* owned */
    size_t n, size, next;     /* prompts; the next one that no sequence has taken */
    int n_predict;            /* tokens of each at most */
    size_t *of_sequence;      /* owned: n_sequences; SIZE_MAX: free */
    struct ppl_column *columns;
    size_t *wanted; /* owned: whose logits come; n_batch */
    size_t n_done;
    struct continuation *other; /* owned: n, of the file to compare with, or NULL */
    struct output_file out;
    struct ppl_progress progress;
};

static bool is_utf8(const char *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        int length = utf8_decode(bytes + at, n - at, NULL);
        if (!length || !bytes[at])
            return false;
        at += (size_t)length;
    }
    return true;
}

static enum status add_prompt(struct greedy_run *r, const char *line, size_t n, long number,
                              struct error *err)
{
    if (!is_utf8(line, n))
        return fail(err, STATUS_FORMAT, "%s: line %ld is not UTF-8 text", r->options->greedy,
                    number);
    if (r->n == r->size) {
        size_t size = r->size ? 2 * r->size : 64;
        struct writing *grown = memory_resize(r->writings, size, sizeof *grown);
        if (!grown)
            return fail_memory(err, r->options->greedy, size * sizeof *grown);
        r->writings = grown;
        r->size = size;
    }
    struct writing *w = &r->writings[r->n++];
    *w = (struct writing){.line = memory_alloc(n, 1)};
    size_t n_tokens = (size_t)r->n_predict;
    w->result.tokens = memory_alloc(n_tokens, sizeof *w->result.tokens);
    if (!w->line || !w->result.tokens)
        return fail_memory(err, r->options->greedy, n_tokens * sizeof *w->result.tokens);
    memcpy(w->line, line, n);
    w->result.prompt = (struct text){w->line, n};
    return ppl_encode(&r->m, w->result.prompt, &w->prompt, err);
}

static enum status read_lines(struct greedy_run *r, FILE *stream, char **line, struct error *err)
{
    size_t size = 0;
    ssize_t n;
    errno = 0;
    for (long number = 1; (n = getline(line, &size, stream)) >= 0; number++) {
        while (n && strchr("\r\n", (*line)[n - 1]) && (*line)[n - 1])
            n--;
        if (n)
            TRY(add_prompt(r, *line, (size_t)n, number, err));
    }
    if (ferror(stream) || errno == ENOMEM)
        return fail(err, STATUS_IO, "%s: cannot read: %s", r->options->greedy, strerror(errno));
    if (r->n == 0)
        return fail(err, STATUS_LIMIT, "%s: has no prompts; expected one a line",
                    r->options->greedy);
    return STATUS_OK;
}

static enum status read_prompts(struct greedy_run *r, struct error *err)
{
    char *line = NULL;
    FILE *stream = fopen(r->options->greedy, "rb");
    if (!stream)
        return fail(err, STATUS_IO, "%s: cannot open the prompts: %s", r->options->greedy,
                    strerror(errno));
    enum status status = read_lines(r, stream, &line, err);
    free(line);
    fclose(stream);
    return status;
}

/* Programs do not agree on whether the end token is part of a text. */
static void drop_end(const struct tokenizer *t, struct continuation *c)
{
    while (c->n && tokenizer_is_end(t, c->tokens[c->n - 1]))
        c->n--;
}

static enum status read_other(struct greedy_run *r, struct error *err)
{
    struct continuation *own = memory_alloc(r->n, sizeof *own);
    r->other = memory_alloc(r->n, sizeof *r->other);
    enum status status = STATUS_OK;
    if (!own || !r->other)
        status = fail_memory(err, r->options->against, r->n * sizeof *own);
    for (size_t i = 0; status == STATUS_OK && i < r->n; i++)
        own[i] = r->writings[i].result;
    if (status == STATUS_OK)
        status = greedy_file_read(r->options->against, own, r->other, r->n, r->n_predict, err);
    for (size_t i = 0; status == STATUS_OK && i < r->n; i++)
        drop_end(r->m.tokenizer, &r->other[i]);
    memory_free(own);
    return status;
}

static enum status start(struct greedy_run *r, struct error *err)
{
    const struct ppl_options *o = r->options;
    size_t longest = 0, n = o->n_parallel ? (size_t)o->n_parallel : DEFAULT_PARALLEL;
    for (size_t i = 0; i < r->n; i++)
        longest = r->writings[i].prompt.n > longest ? r->writings[i].prompt.n : longest;
    if (longest > (size_t)(INT32_MAX / 2))
        return fail(err, STATUS_LIMIT, "%s: a prompt has %zu tokens", o->greedy, longest);
    n = o->reference ? 1 : n < r->n ? n : r->n;
    if (o->n_batch && n > (size_t)o->n_batch)
        n = (size_t)o->n_batch;
    TRY(ppl_start(&r->m, (int)longest + r->n_predict, (int)n, err));
    n = (size_t)r->m.n_sequences;
    r->of_sequence = memory_alloc(n, sizeof *r->of_sequence);
    r->columns = memory_alloc((size_t)r->m.n_batch, sizeof *r->columns);
    r->wanted = memory_alloc((size_t)r->m.n_batch, sizeof *r->wanted);
    if (!r->of_sequence || !r->columns || !r->wanted)
        return fail_memory(err, o->greedy, (size_t)r->m.n_batch * sizeof *r->columns);
    for (size_t i = 0; i < n; i++)
        r->of_sequence[i] = SIZE_MAX;
    return STATUS_OK;
}

/* Columns of one sequence: what is left of the prompt as far as it fits, or its newest token. Each
 * of the n_later sequences behind it gets at least one. */
static int add_columns(struct greedy_run *r, int sequence, int at, int n_later, int *n_wanted)
{
    struct writing *w = &r->writings[r->of_sequence[sequence]];
    int room = r->m.n_batch - at - n_later;
    if (w->n_run == w->prompt.n) {
        int32_t newest = w->result.tokens[w->result.n - 1];
        r->columns[at++] = (struct ppl_column){sequence, newest, true};
        r->wanted[(*n_wanted)++] = r->of_sequence[sequence];
        return at;
    }
    for (; w->n_run < w->prompt.n && room > 0; room--) {
        bool is_last = w->n_run + 1 == w->prompt.n;
        r->columns[at++] = (struct ppl_column){sequence, w->prompt.ids[w->n_run++], is_last};
        if (is_last)
            r->wanted[(*n_wanted)++] = r->of_sequence[sequence];
    }
    return at;
}

static int fill(struct greedy_run *r, int *n_wanted)
{
    int n = 0;
    *n_wanted = 0;
    for (int i = 0; i < r->m.n_sequences; i++) {
        if (r->of_sequence[i] == SIZE_MAX && r->next < r->n) {
            r->of_sequence[i] = r->next++;
            ppl_restart(&r->m, i);
        }
        if (r->of_sequence[i] != SIZE_MAX)
            n = add_columns(r, i, n, r->m.n_sequences - 1 - i, n_wanted);
    }
    return n;
}

/* Of equals the first: the token with the smallest id. */
static int32_t most_likely(const float *logits, int n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* Takes the next token. Frees the sequence when the text ends; its end token is not part of it. */
static void take_token(struct greedy_run *r, size_t prompt, const float *logits)
{
    struct writing *w = &r->writings[prompt];
    int32_t token = most_likely(logits, r->m.model.config.n_vocab);
    bool is_end = tokenizer_is_end(r->m.tokenizer, token);
    if (!is_end)
        w->result.tokens[w->result.n++] = token;
    if (!is_end && w->result.n < r->n_predict)
        return;
    for (int i = 0; i < r->m.n_sequences; i++)
        if (r->of_sequence[i] == prompt)
            r->of_sequence[i] = SIZE_MAX;
    progress_step(&r->progress, ++r->n_done, "prompts");
}

static enum status decode(struct greedy_run *r, struct error *err)
{
    while (r->n_done < r->n) {
        const float *logits;
        int n_wanted, n = fill(r, &n_wanted);
        TRY(ppl_forward(&r->m, r->columns, n, &logits, err));
        for (int i = 0; i < n_wanted; i++)
            take_token(r, r->wanted[i], logits + (size_t)i * (size_t)r->m.model.config.n_vocab);
    }
    return STATUS_OK;
}

/* The continuation as text, whole characters. */
static enum status write_continuation(struct greedy_run *r, const struct continuation *c,
                                      struct error *err)
{
    size_t most = tokenizer_longest(r->m.tokenizer) + 16, n = 0;
    size_t size = ((size_t)c->n + 1) * most;
    char *text = memory_alloc(size, 1);
    if (!text)
        return fail_memory(err, r->options->greedy_out, size);
    struct detokenizer d;
    detokenizer_init(&d, r->m.tokenizer, false, false);
    for (int i = 0; i < c->n; i++)
        n += detokenizer_next(&d, c->tokens[i], text + n, most);
    n += detokenizer_finish(&d, text + n, most);
    struct text whole = {text, n};
    enum status status = greedy_file_add(&r->out, c, whole, err);
    memory_free(text);
    return status;
}

static enum status write_file(struct greedy_run *r, struct error *err)
{
    for (size_t i = 0; i < r->n; i++)
        TRY(write_continuation(r, &r->writings[i].result, err));
    return output_file_commit(&r->out, err);
}

struct greedy_difference {
    double *places; /* owned: positions of the first differences, sorted */
    size_t n_other;
    json_t *list; /* owned: a position for each prompt, null: none */
};

static enum status compare(struct greedy_run *r, struct greedy_difference *d, struct error *err)
{
    d->places = memory_alloc(r->n, sizeof *d->places);
    d->list = json_array();
    if (!d->places || !d->list)
        return fail_memory(err, r->options->against, r->n * sizeof *d->places);
    for (size_t i = 0; i < r->n; i++) {
        int place = first_difference(&r->writings[i].result, &r->other[i]);
        if (place >= 0)
            d->places[d->n_other++] = place;
        json_array_append_new(d->list, place >= 0 ? json_integer(place) : json_null());
    }
    sample_sort(d->places, d->n_other);
    return STATUS_OK;
}

static void print_difference(const struct greedy_run *r, const struct greedy_difference *d)
{
    printf("Same greedy text: %zu of %zu prompt%s (%.2f %%)\n", r->n - d->n_other, r->n,
           r->n == 1 ? "" : "s", 100.0 * (double)(r->n - d->n_other) / (double)r->n);
    if (d->n_other)
        printf("First difference: at token %.0f to %.0f, median %.1f (the first token is 0)\n",
               d->places[0], d->places[d->n_other - 1],
               sorted_quantile(d->places, d->n_other, 0.5));
}

static json_t *difference_json(const struct greedy_run *r, const struct greedy_difference *d)
{
    double median = d->n_other ? sorted_quantile(d->places, d->n_other, 0.5) : 0;
    return json_pack("{s:s, s:I, s:o, s:O}", "file", r->options->against, "n_same",
                     (json_int_t)(r->n - d->n_other), "median_first_difference",
                     d->n_other ? json_real(median) : json_null(), "first_differences", d->list);
}

static enum status print_result(const struct greedy_run *r, const struct greedy_difference *d,
                                struct error *err)
{
    int64_t n_tokens = 0;
    for (size_t i = 0; i < r->n; i++)
        n_tokens += r->writings[i].result.n;
    if (r->options->json) {
        json_t *result =
            json_pack("{s:s, s:s, s:I, s:I}", "model", r->options->model, "prompts",
                      r->options->greedy, "n", (json_int_t)r->n, "n_tokens", (json_int_t)n_tokens);
        if (result && r->options->against)
            json_object_set_new(result, "against", difference_json(r, d));
        return json_out(stdout, result, 0, err);
    }
    printf("%zu prompt%s, %lld token%s\n", r->n, r->n == 1 ? "" : "s", (long long)n_tokens,
           n_tokens == 1 ? "" : "s");
    if (r->options->against)
        print_difference(r, d);
    return STATUS_OK;
}

static enum status finish(struct greedy_run *r, struct error *err)
{
    struct greedy_difference d = {0};
    enum status status = STATUS_OK;
    if (r->options->against)
        status = compare(r, &d, err);
    if (status == STATUS_OK && r->options->greedy_out)
        status = write_file(r, err);
    if (status == STATUS_OK)
        status = print_result(r, &d, err);
    memory_free(d.places);
    json_decref(d.list);
    return status;
}

static enum status measure(struct greedy_run *r, struct error *err)
{
    TRY(ppl_open(&r->m, r->options, err));
    TRY(read_prompts(r, err));
    if (r->options->against)
        TRY(read_other(r, err));
    if (r->options->greedy_out)
        TRY(output_file_open(&r->out, r->options->greedy_out, err));
    TRY(start(r, err));
    progress_begin(&r->progress, r->n, r->options->quiet);
    enum status status = decode(r, err);
    progress_end(&r->progress);
    return status == STATUS_OK ? finish(r, err) : status;
}

enum status ppl_greedy(const struct ppl_options *options, struct error *err)
{
    struct greedy_run r = {.options = options, .n_predict = DEFAULT_PREDICT};
    if (options->n_predict)
        r.n_predict = (int)options->n_predict;
    enum status status = measure(&r, err);
    for (size_t i = 0; i < r.n; i++) {
        memory_free(r.writings[i].line);
        memory_free(r.writings[i].result.tokens);
        token_list_done(&r.writings[i].prompt);
        if (r.other)
            memory_free(r.other[i].tokens);
    }
    memory_free(r.other);
    memory_free(r.writings);
    memory_free(r.of_sequence);
    memory_free(r.columns);
    memory_free(r.wanted);
    output_file_close(&r.out);
    ppl_close(&r.m);
    return status;
}
