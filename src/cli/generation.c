#include "cli/generation.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "model/arch.h"

#define DEFAULT_CTX_CAP  4096
#define MAX_PROMPT_BYTES (64 << 20)

enum status generation_open(struct generation *g, const struct generation_options *options,
                            bool with_tokenizer, struct error *err)
{
    *g = (struct generation){.options = options};
    if (!options->model)
        return fail(err, STATUS_USAGE, "no model: give its file as -m FILE or first argument");
    TRY(model_open(&g->model, options->model, err));
    if (with_tokenizer)
        TRY(tokenizer_open(&g->tokenizer, &g->model.file, options->model, options->pre_tokenizer,
                           err));
    return model_check_scales(&g->model, err);
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

static void describe(const struct generation *g)
{
    const struct model_config *c = &g->model.config;
    uint64_t bytes = 0, n_weights = 0;
    for (size_t i = 0; i < g->model.file.n_tensors; i++) {
        const struct tensor_span *span = &g->model.file.tensors[i].span;
        bytes += span->bytes;
        n_weights += span->ne[0] * span->ne[1] * span->ne[2] * span->ne[3];
    }
    int kv_bytes = g->options->kv_type == KV_F16 ? 2 : 4;
    uint64_t kv = 2 * (uint64_t)c->n_layer * (uint64_t)g->n_ctx * (uint64_t)c->n_head_kv *
                  (uint64_t)c->head_dim * (uint64_t)kv_bytes;
    char model_size[16], kv_size[16], name[120];
    struct text title = c->name.n ? c->name : text_of(g->model.path);
    fprintf(stderr,
            "%s: %s, %.1f M weights of %.2f bits, %s; context %d, KV cache %s (%s); "
            "reference path, 1 thread\n",
            text_printable(title, name, sizeof name), c->arch->name, (double)n_weights / 1e6,
            8 * (double)bytes / (double)n_weights, cli_size(bytes, model_size), g->n_ctx,
            cli_size(kv, kv_size), g->options->kv_type == KV_F16 ? "f16" : "f32");
}

enum status generation_start(struct generation *g, int n_more, struct error *err)
{
    const struct generation_options *o = g->options;
    int n_train = g->model.config.n_ctx_train;
    g->n_ctx = o->n_ctx ? (int)o->n_ctx : n_train < DEFAULT_CTX_CAP ? n_train : DEFAULT_CTX_CAP;
    int64_t n_needed = (int64_t)g->prompt.n + n_more;
    if (n_needed > g->n_ctx)
        return fail(err, STATUS_LIMIT,
                    "the prompt has %zu tokens and the context has room for %d%s; shorten the "
                    "prompt or give -c %lld%s",
                    g->prompt.n, g->n_ctx, n_more ? " with the first one of the text" : "",
                    (long long)n_needed,
                    n_needed > n_train ? " (more than the model was trained for)" : "");
    struct reference_options options = {
        .n_ctx = g->n_ctx, .max_batch = (int)o->n_batch, .kv_f16 = o->kv_type == KV_F16};
    TRY(reference_open(&g->reference, &g->model, &options, err));
    if (!o->quiet) {
        describe(g);
        if (g->n_ctx > n_train)
            fprintf(stderr,
                    "note: the context of %d tokens is longer than the %d the model was "
                    "trained for\n",
                    g->n_ctx, n_train);
    }
    return STATUS_OK;
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
                        (long long)(reference_position(g->reference) - n + i / n_vocab), logits[i]);
    return STATUS_OK;
}

void generation_close(struct generation *g)
{
    reference_close(g->reference);
    token_list_done(&g->prompt);
    memory_free(g->prompt_text);
    tokenizer_close(g->tokenizer);
    model_close(&g->model);
    *g = (struct generation){0};
}
