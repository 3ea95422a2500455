/* Perplexity of a text, in chunks; and the divergence from predictions that a file holds. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "cli/json_out.h"
#include "cli/ppl.h"
#include "cli/ppl_progress.h"
#include "measure/json_finite.h"
#include "measure/logits_file.h"
#include "measure/perplexity.h"

#define DEFAULT_CHUNK  512
#define MAX_TEXT_BYTES ((size_t)1 << 30)

struct text_run {
    const struct ppl_options *options;
    struct ppl_model m;
    char *text; /* owned */
    size_t n_bytes;
    struct token_list tokens; /* as in the text */
    struct logits_shape shape;
    int32_t *run_tokens;      /* owned: the chunks, beginning with BOS where the model wants it */
    struct passage *passages; /* owned: n_chunk */
    struct logits_reader base;
    struct logits_writer writer;
    struct mean nll;
    struct divergence divergence;
    struct ppl_progress progress;
};

/* One newline at the end is dropped, as llama-perplexity does. */
static enum status read_stream(struct text_run *r, FILE *stream, const char *name,
                               struct error *err)
{
    size_t size = 0, got;
    do {
        if (size - r->n_bytes < 4096) {
            size = size ? 2 * size : 1 << 20;
            char *grown = memory_resize(r->text, size, 1);
            if (!grown)
                return fail_memory(err, name, size);
            r->text = grown;
        }
        if (r->n_bytes > MAX_TEXT_BYTES)
            return fail(err, STATUS_LIMIT, "%s: has more than 1 GiB; give a shorter text", name);
        got = fread(r->text + r->n_bytes, 1, size - r->n_bytes, stream);
        r->n_bytes += got;
    } while (got > 0);
    if (ferror(stream))
        return fail(err, STATUS_IO, "%s: cannot read: %s", name, strerror(errno));
    if (r->n_bytes && r->text[r->n_bytes - 1] == '\n')
        r->n_bytes--;
    return STATUS_OK;
}

static enum status read_text(struct text_run *r, struct error *err)
{
    const char *path = r->options->file;
    if (strcmp(path, "-") == 0)
        return read_stream(r, stdin, "standard input", err);
    FILE *stream = fopen(path, "rb");
    if (!stream)
        return fail(err, STATUS_IO, "%s: cannot open the text: %s", path, strerror(errno));
    enum status status = read_stream(r, stream, path, err);
    fclose(stream);
    return status;
}

static enum status tokenize(struct text_run *r, struct error *err)
{
    struct text text = {r->text, r->n_bytes};
    TRY(tokenizer_encode(r->m.tokenizer, text, true, r->options->special, &r->tokens, err));
    size_t n_needed = 2 * (size_t)r->shape.n_ctx;
    if (r->tokens.n < n_needed)
        return fail(err, STATUS_LIMIT,
                    "%s: has %zu tokens; 2 chunks of %d need %zu: give a longer text or a smaller "
                    "-c",
                    r->options->file, r->tokens.n, r->shape.n_ctx, n_needed);
    size_t n_chunk = r->tokens.n / (size_t)r->shape.n_ctx;
    r->shape.n_chunk = n_chunk < INT32_MAX ? (int)n_chunk : INT32_MAX;
    return STATUS_OK;
}

/* The file's tokens stand for the text, or must begin as it does. */
static enum status compare_text(struct text_run *r, struct error *err)
{
    const struct logits_shape *base = &r->base.shape;
    size_t n = (size_t)base->n_ctx * (size_t)base->n_chunk;
    if (base->n_chunk > r->shape.n_chunk)
        return fail(err, STATUS_FORMAT,
                    "%s: holds %d chunks, but %s has only %d: it was made from another text",
                    r->base.path, base->n_chunk, r->options->file, r->shape.n_chunk);
    for (size_t i = 0; i < n; i++)
        if (r->tokens.ids[i] != r->base.tokens[i])
            return fail(err, STATUS_FORMAT,
                        "%s: token %zu is %d, but %d in %s: it was made from another text, or with "
                        "another tokenizer",
                        r->base.path, i, r->base.tokens[i], r->tokens.ids[i], r->options->file);
    return STATUS_OK;
}

static enum status open_base(struct text_run *r, struct error *err)
{
    const struct ppl_options *o = r->options;
    TRY(logits_reader_open(&r->base, o->kl, err));
    const struct logits_shape *base = &r->base.shape;
    if (base->n_vocab != r->m.model.config.n_vocab)
        return fail(err, STATUS_FORMAT, "%s: is over a vocabulary of %d, but %s has one of %d",
                    o->kl, base->n_vocab, o->model, r->m.model.config.n_vocab);
    if (o->n_ctx && o->n_ctx != base->n_ctx)
        return fail(err, STATUS_FORMAT, "%s: has chunks of %d tokens, not %lld; give -c %d", o->kl,
                    base->n_ctx, (long long)o->n_ctx, base->n_ctx);
    r->shape.n_ctx = base->n_ctx;
    return STATUS_OK;
}

/* Which tokens are run: those of the text, or without one those of the base. */
static enum status choose_tokens(struct text_run *r, struct error *err)
{
    const struct ppl_options *o = r->options;
    r->shape.n_ctx = o->n_ctx ? (int)o->n_ctx : DEFAULT_CHUNK;
    r->shape.n_vocab = r->m.model.config.n_vocab;
    if (o->kl)
        TRY(open_base(r, err));
    if (o->file) {
        TRY(read_text(r, err));
        TRY(tokenize(r, err));
    }
    if (o->kl && o->file)
        TRY(compare_text(r, err));
    if (o->kl)
        r->shape.n_chunk = r->base.shape.n_chunk;
    if (o->n_chunks && o->n_chunks < r->shape.n_chunk)
        r->shape.n_chunk = (int)o->n_chunks;
    return STATUS_OK;
}

static enum status make_passages(struct text_run *r, struct error *err)
{
    size_t n_chunk = (size_t)r->shape.n_chunk, n_ctx = (size_t)r->shape.n_ctx;
    const int32_t *tokens = r->options->file ? r->tokens.ids : r->base.tokens;
    r->passages = memory_alloc(n_chunk, sizeof *r->passages);
    r->run_tokens = memory_alloc(n_chunk * n_ctx, sizeof *r->run_tokens);
    if (!r->passages || !r->run_tokens)
        return fail_memory(err, "chunks", n_chunk * n_ctx * sizeof *r->run_tokens);
    memcpy(r->run_tokens, tokens, n_chunk * n_ctx * sizeof *tokens);
    for (size_t i = 0; i < n_chunk; i++) {
        int32_t *chunk = r->run_tokens + i * n_ctx;
        if (r->m.adds_bos)
            chunk[0] = tokenizer_bos(r->m.tokenizer);
        r->passages[i] = (struct passage){chunk, (int)n_ctx, chunk_first((int)n_ctx)};
    }
    if (r->options->kl_base)
        TRY(logits_writer_open(&r->writer, r->options->kl_base, &r->shape, tokens, err));
    return STATUS_OK;
}

static enum status score_against_base(struct text_run *r, const float *logits, int32_t token,
                                      struct error *err)
{
    struct base_row base;
    TRY(logits_reader_next(&r->base, &base, err));
    struct row_divergence row = row_divergence(&base, logits, r->shape.n_vocab, token);
    return divergence_add(&r->divergence, &row, err);
}

static enum status score_row(void *context, size_t chunk, int position, const float *logits,
                             double nll, struct error *err)
{
    struct text_run *r = context;
    mean_add(&r->nll, nll);
    if (r->options->kl_base)
        TRY(logits_writer_add(&r->writer, logits, err));
    if (r->options->kl)
        TRY(score_against_base(r, logits, r->passages[chunk].tokens[position], err));
    if (position == r->shape.n_ctx - 1) {
        char value[64];
        snprintf(value, sizeof value, "[%zu]%.4f", chunk + 1, perplexity_of(&r->nll));
        progress_step(&r->progress, chunk + 1, value);
    }
    return STATUS_OK;
}

static void print_divergence(struct text_run *r)
{
    struct divergence *d = &r->divergence;
    struct kl_spread kl = divergence_spread(d);
    double same = (double)d->n_same_top / (double)d->n;
    double same_error = share_error(d->n_same_top, (int64_t)d->n);
    char e[5][32];
    printf("Base:           PPL = %.4f%s, ln(PPL/PPL(base)) = %.6f%s\n"
           "KL divergence:  mean %.6f%s, median %.6f, 99 %% %.6f, maximum %.6f\n"
           "Same top token: %.3f%s %%\n"
           "Total variation: mean %.6f%s, maximum %.6f\n",
           perplexity_of(&d->nll_base), ppl_error_text(perplexity_error(&d->nll_base), 5, e[0]),
           d->log_ratio.value, ppl_error_text(mean_error(&d->log_ratio), 6, e[1]), d->kl.value,
           ppl_error_text(mean_error(&d->kl), 6, e[2]), kl.median, kl.p99, kl.maximum, 100 * same,
           ppl_error_text(100 * same_error, 3, e[3]), d->total_variation.value,
           ppl_error_text(mean_error(&d->total_variation), 6, e[4]), d->max_variation);
}

static json_t *divergence_json(struct text_run *r)
{
    struct divergence *d = &r->divergence;
    struct kl_spread kl = divergence_spread(d);
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:f, s:o, s:f, s:o, s:f}", "ppl_base",
        json_finite(perplexity_of(&d->nll_base)), "ppl_base_error",
        json_finite(perplexity_error(&d->nll_base)), "ln_ratio", json_finite(d->log_ratio.value),
        "ln_ratio_error", json_finite(mean_error(&d->log_ratio)), "mean", json_finite(d->kl.value),
        "error", json_finite(mean_error(&d->kl)), "median", kl.median, "p99", kl.p99, "maximum",
        kl.maximum, "same_top", (double)d->n_same_top / (double)d->n, "same_top_error",
        json_finite(share_error(d->n_same_top, (int64_t)d->n)), "total_variation",
        d->total_variation.value, "total_variation_error",
        json_finite(mean_error(&d->total_variation)), "total_variation_maximum", d->max_variation);
}

static enum status print_json(struct text_run *r, struct error *err)
{
    json_t *result = json_pack(
        "{s:s, s:s?, s:s, s:i, s:i, s:I, s:o, s:o, s:o, s:o}", "model", r->options->model, "file",
        r->options->file, "pass", r->options->reference ? "reference" : "engine", "n_ctx",
        r->shape.n_ctx, "n_chunk", r->shape.n_chunk, "n_scored", (json_int_t)r->nll.n, "ppl",
        json_finite(perplexity_of(&r->nll)), "ppl_error", json_finite(perplexity_error(&r->nll)),
        "nll", json_finite(r->nll.value), "nll_error", json_finite(mean_error(&r->nll)));
    if (result && r->options->kl)
        json_object_set_new(result, "kl", divergence_json(r));
    return json_out(stdout, result, 0, err);
}

static enum status print_result(struct text_run *r, struct error *err)
{
    if (r->options->json)
        return print_json(r, err);
    if (r->options->kl)
        print_divergence(r);
    char error[32];
    printf("Final estimate: PPL = %.4f%s\n", perplexity_of(&r->nll),
           ppl_error_text(perplexity_error(&r->nll), 5, error));
    return STATUS_OK;
}

static enum status measure(struct text_run *r, struct error *err)
{
    size_t n_chunk;
    TRY(ppl_open(&r->m, r->options, err));
    TRY(choose_tokens(r, err));
    TRY(make_passages(r, err));
    n_chunk = (size_t)r->shape.n_chunk;
    TRY(ppl_start(&r->m, r->shape.n_ctx, ppl_sequences_for(r->options, n_chunk, r->shape.n_ctx),
                  err));
    progress_begin(&r->progress, n_chunk, r->options->quiet);
    r->progress.shows_all = true;
    enum status status = ppl_run_passages(&r->m, r->passages, n_chunk, score_row, r, err);
    progress_end(&r->progress);
    TRY(status);
    if (r->options->kl_base)
        TRY(logits_writer_commit(&r->writer, err));
    return print_result(r, err);
}

enum status ppl_text(const struct ppl_options *options, struct error *err)
{
    struct text_run r = {.options = options};
    enum status status = measure(&r, err);
    logits_writer_close(&r.writer);
    logits_reader_close(&r.base);
    divergence_done(&r.divergence);
    memory_free(r.passages);
    memory_free(r.run_tokens);
    token_list_done(&r.tokens);
    memory_free(r.text);
    ppl_close(&r.m);
    return status;
}
