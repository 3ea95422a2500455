#include "cli/generation.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cli/status_line.h"
#include "engine/plan_print.h"
#include "model/arch.h"

#define MAX_PROMPT_BYTES (64 << 20)

enum status generation_open(struct generation *g, const struct generation_options *options,
                            bool with_tokenizer, struct error *err)
{
    *g = (struct generation){.options = options};
    if (!options->model)
        return fail(err, STATUS_USAGE, "no model: give its file as -m FILE or first argument");
    if (options->reference)
        TRY(engine_choice_refuse(&options->engine, err));
    TRY(model_open_by(&g->model, options->model, i2s_layout_rule(options->engine.i2s_layout), err));
    if (with_tokenizer)
        TRY(tokenizer_open(&g->tokenizer, &g->model.file, options->model, options->pre_tokenizer,
                           err));
    return options->reference ? model_check_scales(&g->model, err) : STATUS_OK;
}

/* Reads a stream to its end. A standard input that was closed reads as empty. */
static enum status read_stream(struct generation *g, FILE *stream, const char *name,
                               struct error *err)
{
    size_t size = 0, got;
    do {
        if (size - g->prompt_bytes < 4096) {
            size = size ? 2 * size : 1 << 16;
            char *grown = memory_resize(g->prompt_text, size, 1);
            if (!grown)
                return fail_memory(err, name, size);
            g->prompt_text = grown;
        }
        if (g->prompt_bytes > MAX_PROMPT_BYTES)
            return fail(err, STATUS_LIMIT,
                        "%s: the prompt has more than %d MiB; give a shorter one", name,
                        MAX_PROMPT_BYTES >> 20);
        got = fread(g->prompt_text + g->prompt_bytes, 1, size - g->prompt_bytes, stream);
        g->prompt_bytes += got;
    } while (got > 0);
    if (ferror(stream))
        return fail(err, STATUS_IO, "%s: cannot read the prompt: %s", name, strerror(errno));
    if (g->prompt_bytes && g->prompt_text[g->prompt_bytes - 1] == '\n')
        g->prompt_bytes--;
    if (g->prompt_bytes && g->prompt_text[g->prompt_bytes - 1] == '\r')
        g->prompt_bytes--;
    return STATUS_OK;
}

static enum status read_text(struct generation *g, struct error *err)
{
    const struct generation_options *o = g->options;
    if (o->prompt && o->prompt_file)
        return fail(err, STATUS_USAGE, "-p and -f both give the prompt; use one");
    if (o->prompt) {
        g->prompt_bytes = strlen(o->prompt);
        g->prompt_text = memory_alloc(g->prompt_bytes, 1);
        if (!g->prompt_text)
            return fail_memory(err, "prompt", g->prompt_bytes);
        memcpy(g->prompt_text, o->prompt, g->prompt_bytes);
        return STATUS_OK;
    }
    if (!o->prompt_file) {
        if (isatty(STDIN_FILENO))
            return fail(err, STATUS_USAGE, "no prompt: give -p TEXT or -f FILE, or pipe one in");
        return read_stream(g, stdin, "standard input", err);
    }
    FILE *stream = fopen(o->prompt_file, "rb");
    if (!stream)
        return fail(err, STATUS_IO, "%s: cannot open the prompt: %s", o->prompt_file,
                    strerror(errno));
    enum status status = read_stream(g, stream, o->prompt_file, err);
    fclose(stream);
    return status;
}

enum status generation_read_prompt(struct generation *g, struct error *err)
{
    TRY(read_text(g, err));
    struct text text = {g->prompt_text, g->prompt_bytes};
    TRY(tokenizer_encode(g->tokenizer, text, true, g->options->special, &g->prompt, err));
    if (g->prompt.n == 0 && tokenizer_bos(g->tokenizer) >= 0) {
        g->prompt.ids = memory_alloc(1, sizeof *g->prompt.ids);
        if (!g->prompt.ids)
            return fail_memory(err, "prompt", sizeof *g->prompt.ids);
        g->prompt.ids[g->prompt.n++] = tokenizer_bos(g->tokenizer);
    }
    if (g->prompt.n == 0)
        return fail(err, STATUS_LIMIT,
                    "the prompt is empty and the model has no beginning-of-text token; "
                    "give a prompt with -p");
    if (g->prompt.n > INT32_MAX)
        return fail(err, STATUS_LIMIT, "the prompt has %zu tokens; at most %d can be run",
                    g->prompt.n, INT32_MAX);
    return STATUS_OK;
}

static const char *const kv_names[] = {"f16", "f16", "q8_0", "f32"};

static enum kv_type kv_type_of(const struct generation_options *o)
{
    return o->kv_type != KV_AUTO ? (enum kv_type)o->kv_type : o->reference ? KV_F32 : KV_F16;
}

static void describe_model(const struct generation *g, uint64_t kv_bytes)
{
    const struct model_config *c = &g->model.config;
    uint64_t bytes = 0, n_weights = 0;
    for (size_t i = 0; i < g->model.file.n_tensors; i++) {
        const struct tensor_span *span = &g->model.file.tensors[i].span;
        bytes += span->bytes;
        n_weights += span->ne[0] * span->ne[1] * span->ne[2] * span->ne[3];
    }
    char model_size[16], kv_size[16], name[120];
    struct text title = c->name.n ? c->name : text_of(g->model.path);
    fprintf(stderr, "%s: %s, %.1f M weights of %.2f bits, %s; context %d, KV cache %s (%s)%s\n",
            text_printable(title, name, sizeof name), c->arch->name, (double)n_weights / 1e6,
            8 * (double)bytes / (double)n_weights, cli_size(bytes, model_size), g->n_ctx,
            cli_size(kv_bytes, kv_size), kv_names[kv_type_of(g->options)],
            g->reference ? "; reference path, 1 thread" : "");
}

static enum status start_reference(struct generation *g, int n_logits, struct error *err)
{
    const struct generation_options *o = g->options;
    const struct model_config *c = &g->model.config;
    enum kv_type kv = kv_type_of(o);
    if (kv == KV_Q8_0)
        return fail(err, STATUS_USAGE, "-ctk q8_0: --reference keeps f32 or f16");
    g->n_batch = o->n_batch ? (int)o->n_batch : 64;
    struct reference_options options = {
        .n_ctx = g->n_ctx, .max_batch = g->n_batch, .kv_f16 = kv == KV_F16};
    if (!o->dry_run)
        TRY(reference_open(&g->reference, &g->model, &options, err));
    size_t n = (size_t)(n_logits ? n_logits : g->n_batch) * (size_t)c->n_vocab;
    g->logits = memory_alloc(n, sizeof *g->logits);
    if (!g->logits)
        return fail_memory(err, o->model, n * sizeof *g->logits);
    if (o->quiet && !o->dry_run)
        return STATUS_OK;
    describe_model(g, 2 * (uint64_t)c->n_layer * (uint64_t)g->n_ctx * (uint64_t)c->n_head_kv *
                          (uint64_t)c->head_dim * (kv == KV_F16 ? 2 : 4));
    char size[16];
    if (o->dry_run)
        fprintf(stderr, "would take %s besides the file\n",
                cli_size(reference_bytes(c, &options), size));
    return STATUS_OK;
}

/* "loading 62 %" in place, on a terminal only. */
static void show_progress(void *context, uint64_t n_done, uint64_t n_all)
{
    const int64_t *begin = context;
    double seconds = (double)(clock_ns() - *begin) / 1e9;
    if (n_done < n_all)
        status_line_show("loading %3.0f %%, %.2f GB/s", 100 * (double)n_done / (double)n_all,
                         (double)n_done / 1e9 / seconds);
    else
        status_line_clear();
}

static void describe_engine(const struct generation *g)
{
    char text[512], weights[16], scratch[16];
    struct engine_report report;
    engine_report(g->engine, &report);
    describe_model(g, report.kv_bytes);
    engine_describe(g->engine, text, sizeof text);
    fprintf(stderr, "%s\n", text);
    engine_choice_note(&g->options->engine, g->engine);
    if (g->options->dry_run) {
        const struct plan *plan = engine_plan_of(g->engine);
        for (int node = 0; node < plan->layout->n_nodes; node++) {
            const struct node_sizes *sizes = &plan->sizes[node];
            char kv[16];
            fprintf(stderr, "node %d: weights %s, KV cache %s, buffers %s\n", node,
                    cli_size(sizes->weights, weights), cli_size(sizes->kv, kv),
                    cli_size(sizes->scratch, scratch));
        }
        plan_describe_trits(plan, text, sizeof text);
        fprintf(stderr, "%s%s", text, text[0] ? "\n" : "");
        return;
    }
    fprintf(stderr, "loaded %s in %.2f s (%.2f GB/s), buffers %s%s\n",
            cli_size(report.weight_bytes, weights), report.load_s,
            (double)report.weight_bytes / 1e9 / report.load_s,
            cli_size(report.scratch_bytes, scratch),
            report.is_pinned ? "" : "; threads are not pinned");
}

static enum status start_engine(struct generation *g, int n_logits, struct error *err)
{
    const struct generation_options *o = g->options;
    enum kv_type kv = kv_type_of(o);
    if (kv == KV_F32)
        return fail(err, STATUS_USAGE, "-ctk f32 is for --reference; the engine keeps f16 or q8_0");
    struct engine_options options = {.n_ctx = (int)o->n_ctx,
                                     .n_batch = (int)o->n_batch,
                                     .n_logits = n_logits,
                                     .kv_format = kv == KV_Q8_0 ? KV_FORMAT_Q8_0 : KV_FORMAT_F16};
    if (n_logits == 0) /* of every token: in smaller batches, for the logits' sake */
        options.n_logits = options.n_batch = options.n_batch ? options.n_batch : 64;
    TRY(engine_choice_resolve(&o->engine, &options, err));
    int64_t begin = clock_ns();
    if (o->dry_run)
        TRY(engine_plan(&g->engine, &g->model, &options, err));
    else
        TRY(engine_open(&g->engine, &g->model, &options, o->quiet ? NULL : show_progress, &begin,
                        err));
    g->n_ctx = engine_plan_of(g->engine)->options.n_ctx;
    g->n_batch = engine_plan_of(g->engine)->options.n_batch;
    if (!o->quiet || o->dry_run)
        describe_engine(g);
    if (o->dry_run)
        return STATUS_OK;
    TRY(session_open(&g->session, g->engine, err));
    g->columns = memory_alloc((size_t)g->n_batch, sizeof *g->columns);
    return g->columns ? STATUS_OK
                      : fail_memory(err, o->model, (size_t)g->n_batch * sizeof *g->columns);
}

enum status generation_start(struct generation *g, int n_more, int n_logits, struct error *err)
{
    const struct generation_options *o = g->options;
    int n_train = g->model.config.n_ctx_train;
    int n_default = n_train < ENGINE_DEFAULT_CTX ? n_train : ENGINE_DEFAULT_CTX;
    g->n_ctx = o->n_ctx ? (int)o->n_ctx : n_default;
    int64_t n_needed = (int64_t)g->prompt.n + n_more;
    if (n_needed > g->n_ctx)
        return fail(err, STATUS_LIMIT,
                    "the prompt has %zu tokens and the context has room for %d%s; shorten the "
                    "prompt or give -c %lld%s",
                    g->prompt.n, g->n_ctx, n_more ? " with the first one of the text" : "",
                    (long long)n_needed,
                    n_needed > n_train ? " (more than the model was trained for)" : "");
    if (o->reference)
        TRY(start_reference(g, n_logits, err));
    else
        TRY(start_engine(g, n_logits, err));
    if (n_needed > g->n_ctx)
        return fail(err, STATUS_LIMIT,
                    "the prompt has %zu tokens and memory is left for a context of %d; shorten "
                    "the prompt",
                    g->prompt.n, g->n_ctx);
    if (!o->quiet && g->engine && engine_plan_of(g->engine)->is_ctx_cut)
        fprintf(stderr, "note: memory is left for a context of %d tokens, not for the usual %d\n",
                g->n_ctx, n_default);
    if (!o->quiet && g->n_ctx > n_train)
        fprintf(stderr,
                "note: the context of %d tokens is longer than the %d the model was trained for\n",
                g->n_ctx, n_train);
    return STATUS_OK;
}

const float *generation_forward(struct generation *g, const int32_t *tokens, int n, int n_logits)
{
    if (g->reference) {
        reference_forward(g->reference, tokens, n, g->logits, n_logits);
        return g->logits;
    }
    for (int i = 0; i < n; i++)
        g->columns[i] = (struct engine_column){g->session, tokens[i], i >= n - n_logits};
    return engine_forward(g->engine, g->columns, n);
}

int generation_position(const struct generation *g)
{
    return g->reference ? reference_position(g->reference) : session_position(g->session);
}

enum status generation_check_logits(const struct generation *g, const float *logits, int n,
                                    struct error *err)
{
    int64_t n_vocab = g->model.config.n_vocab;
    for (int64_t i = 0; i < n * n_vocab; i++)
        if (!isfinite(logits[i]))
            return fail(err, STATUS_FORMAT,
                        "%s: logit %lld of position %lld is %f: the weights are so large that the "
                        "arithmetic overflows; the file is damaged or was converted wrongly",
                        g->model.path, (long long)(i % n_vocab),
                        (long long)(generation_position(g) - n + i / n_vocab), logits[i]);
    return STATUS_OK;
}

void generation_close(struct generation *g)
{
    reference_close(g->reference);
    session_close(g->session);
    engine_close(g->engine);
    memory_free(g->columns);
    memory_free(g->logits);
    token_list_done(&g->prompt);
    memory_free(g->prompt_text);
    tokenizer_close(g->tokenizer);
    model_close(&g->model);
    *g = (struct generation){0};
}
