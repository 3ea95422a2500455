#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "cli/ppl.h"
#include "model/arch.h"

#define LOGITS_BYTES ((size_t)256 << 20) /* rows of logits that one batch may ask for */

/* No output may replace one of the files that a split model lies in. */
static enum status check_outputs(const struct ppl_model *m, struct error *err)
{
    const char *out = m->options->kl_base ? m->options->kl_base : m->options->greedy_out;
    for (int i = 0; out && i < m->model.file.n_shards; i++)
        TRY(cli_refuse_same_file(m->model.file.shards[i].path, out, err));
    return STATUS_OK;
}

/* What the tokenizer puts around a text, seen around a letter. */
static enum status probe_tokenizer(struct ppl_model *m, struct error *err)
{
    struct token_list list = {0};
    TRY(tokenizer_encode(m->tokenizer, text_of("a"), true, false, &list, err));
    m->adds_bos = list.n && list.ids[0] == tokenizer_bos(m->tokenizer);
    m->adds_eos = list.n > 1 && list.ids[list.n - 1] == tokenizer_eos(m->tokenizer);
    token_list_done(&list);
    return STATUS_OK;
}

enum status ppl_open(struct ppl_model *m, const struct ppl_options *options, struct error *err)
{
    *m = (struct ppl_model){.options = options};
    TRY(model_open_by(&m->model, options->model, i2s_layout_rule(options->engine.i2s_layout), err));
    TRY(check_outputs(m, err));
    TRY(tokenizer_open(&m->tokenizer, &m->model.file, options->model, options->pre_tokenizer, err));
    TRY(probe_tokenizer(m, err));
    return options->reference ? model_check_scales(&m->model, err) : STATUS_OK;
}

static int batch_of(const struct ppl_options *o)
{
    return o->n_batch ? (int)o->n_batch : o->reference ? 64 : ENGINE_MAX_BATCH;
}

static enum status start_engine(struct ppl_model *m, int n_ctx, struct error *err)
{
    const struct ppl_options *o = m->options;
    if (o->kv_type == PPL_CACHE_F32)
        return fail(err, STATUS_USAGE, "-ctk f32 is for --reference; the engine keeps f16 or q8_0");
    struct engine_options options = {.n_ctx = n_ctx,
                                     .n_batch = m->n_batch,
                                     .n_logits = m->n_logits,
                                     .n_sessions = m->n_sequences,
                                     .kv_format = o->kv_type == PPL_CACHE_Q8_0 ? KV_FORMAT_Q8_0
                                                                               : KV_FORMAT_F16};
    TRY(engine_choice_resolve(&o->engine, &options, err));
    TRY(engine_open(&m->engine, &m->model, &options, NULL, NULL, err));
    m->sessions = memory_alloc((size_t)m->n_sequences, sizeof *m->sessions);
    m->columns = memory_alloc((size_t)m->n_batch, sizeof *m->columns);
    if (!m->sessions || !m->columns)
        return fail_memory(err, o->model, (size_t)m->n_batch * sizeof *m->columns);
    for (int i = 0; i < m->n_sequences; i++)
        TRY(session_open(&m->sessions[i], m->engine, err));
    return STATUS_OK;
}

static enum status start_references(struct ppl_model *m, int n_ctx, struct error *err)
{
    const struct ppl_options *o = m->options;
    if (o->kv_type == PPL_CACHE_Q8_0)
        return fail(err, STATUS_USAGE, "-ctk q8_0: --reference keeps f32 or f16");
    size_t n_logits = (size_t)m->n_logits * (size_t)m->model.config.n_vocab;
    m->references = memory_alloc((size_t)m->n_sequences, sizeof *m->references);
    m->tokens = memory_alloc((size_t)m->n_batch, sizeof *m->tokens);
    m->logits = memory_alloc(n_logits, sizeof *m->logits);
    if (!m->references || !m->tokens || !m->logits)
        return fail_memory(err, o->model, n_logits * sizeof *m->logits);
    struct reference_options options = {
        .n_ctx = n_ctx, .max_batch = m->n_batch, .kv_f16 = o->kv_type == PPL_CACHE_F16};
    for (int i = 0; i < m->n_sequences; i++)
        TRY(reference_open(&m->references[i], &m->model, &options, err));
    return STATUS_OK;
}

static void describe(const struct ppl_model *m, int n_ctx)
{
    char text[512], path[256];
    text_printable(text_of(m->model.path), path, sizeof path);
    fprintf(stderr, "%s: %s, %d sequence%s of %d positions\n", path, m->model.config.arch->name,
            m->n_sequences, m->n_sequences == 1 ? "" : "s", n_ctx);
    if (m->engine)
        engine_describe(m->engine, text, sizeof text);
    fprintf(stderr, "%s\n", m->engine ? text : "reference path, 1 thread");
    if (m->engine)
        engine_choice_note(&m->options->engine, m->engine);
    if (n_ctx > m->model.config.n_ctx_train)
        fprintf(stderr, "note: %d positions are more than the %d that the model was trained for\n",
                n_ctx, m->model.config.n_ctx_train);
}

enum status ppl_start(struct ppl_model *m, int n_ctx, int n_sequences, struct error *err)
{
    size_t row = (size_t)m->model.config.n_vocab * sizeof(float);
    size_t n_logits = LOGITS_BYTES / row;
    m->n_batch = batch_of(m->options);
    m->n_logits = n_logits < 1 ? 1 : n_logits < (size_t)m->n_batch ? (int)n_logits : m->n_batch;
    m->n_sequences = n_sequences < m->n_logits ? n_sequences : m->n_logits;
    if (m->options->reference)
        TRY(start_references(m, n_ctx, err));
    else
        TRY(start_engine(m, n_ctx, err));
    if (!m->options->quiet)
        describe(m, n_ctx);
    return STATUS_OK;
}

/* The reference runs one sequence at a time. */
static void run_references(struct ppl_model *m, const struct ppl_column *columns, int n)
{
    float *row = m->logits;
    for (int i = 0, end; i < n; i = end) {
        int sequence = columns[i].sequence, n_wanted = 0;
        for (end = i; end < n && columns[end].sequence == sequence; end++) {
            m->tokens[end - i] = columns[end].token;
            n_wanted += columns[end].wants_logits;
        }
        reference_forward(m->references[sequence], m->tokens, end - i, row, n_wanted);
        row += (size_t)n_wanted * (size_t)m->model.config.n_vocab;
    }
}

static enum status check_finite(const struct ppl_model *m, const float *logits, int n_rows,
                                struct error *err)
{
    int64_t n_vocab = m->model.config.n_vocab;
    for (int64_t i = 0; i < n_rows * n_vocab; i++)
        if (!isfinite(logits[i]))
            return fail(err, STATUS_FORMAT,
                        "%s: logit %lld is %f: the weights are so large that the arithmetic "
                        "overflows; the file is damaged or was converted wrongly",
                        m->model.path, (long long)(i % n_vocab), logits[i]);
    return STATUS_OK;
}

enum status ppl_forward(struct ppl_model *m, const struct ppl_column *columns, int n,
                        const float **logits, struct error *err)
{
    int n_wanted = 0;
    for (int i = 0; i < n; i++)
        n_wanted += columns[i].wants_logits;
    if (m->engine) {
        for (int i = 0; i < n; i++)
            m->columns[i] = (struct engine_column){m->sessions[columns[i].sequence],
                                                   columns[i].token, columns[i].wants_logits};
        *logits = engine_forward(m->engine, m->columns, n);
    } else {
        run_references(m, columns, n);
        *logits = m->logits;
    }
    return check_finite(m, *logits, n_wanted, err);
}

void ppl_restart(struct ppl_model *m, int sequence)
{
    if (m->engine)
        session_rewind(m->sessions[sequence], 0);
    else
        reference_rewind(m->references[sequence], 0);
}

void ppl_close(struct ppl_model *m)
{
    for (int i = 0; i < m->n_sequences; i++) {
        if (m->sessions)
            session_close(m->sessions[i]);
        if (m->references)
            reference_close(m->references[i]);
    }
    engine_close(m->engine);
    memory_free(m->sessions);
    memory_free(m->references);
    memory_free(m->columns);
    memory_free(m->tokens);
    memory_free(m->logits);
    tokenizer_close(m->tokenizer);
    model_close(&m->model);
    *m = (struct ppl_model){0};
}

enum status ppl_encode(const struct ppl_model *m, struct text text, struct token_list *list,
                       struct error *err)
{
    TRY(tokenizer_encode(m->tokenizer, text, true, m->options->special, list, err));
    if (m->adds_eos)
        list->n--;
    return list->n ? STATUS_OK : ppl_put_bos(m, list, err);
}

enum status ppl_put_bos(const struct ppl_model *m, struct token_list *list, struct error *err)
{
    int32_t bos = tokenizer_bos(m->tokenizer);
    if (bos < 0)
        return fail(err, STATUS_LIMIT,
                    "the text is empty and the model has no beginning-of-text token");
    int32_t *ids = memory_resize(list->ids, list->n + 1, sizeof *ids);
    if (!ids)
        return fail_memory(err, "text", (list->n + 1) * sizeof *ids);
    memmove(ids + 1, ids, list->n * sizeof *ids);
    ids[0] = bos;
    *list = (struct token_list){ids, list->n + 1, list->n + 1};
    return STATUS_OK;
}

const char *ppl_error_text(double error, int n_digits, char out[32])
{
    out[0] = 0;
    if (!isnan(error))
        snprintf(out, 32, " +/- %.*f", n_digits, error);
    return out;
}
