/* `trine logits`: what the model says at every position, for comparison with other programs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/output_file.h"
#include "cli/generation.h"

struct logits_options {
    struct generation_options generation; /* first: shares its table rows */
    const char *tokens, *out;
};

static const struct option options[] = {
    {NULL, NULL, NULL, "Input and output", OPT_FLAG, 0, 0, 0},
    {"--tokens", "ID,ID,...", NULL,
     "token ids from position 0, instead of a prompt; nothing is "
     "added to them",
     OPT_TEXT, offsetof(struct logits_options, tokens), 0, 0},
    {"-o, --output", "FILE", NULL,
     "where the logits go: float32, little-endian, one row of n_vocab "
     "for each position",
     OPT_TEXT, offsetof(struct logits_options, out), 0, 0},
    GENERATION_OPTIONS,
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0}};

/* Reads "5,17,3" into the prompt. */
static enum status read_tokens(struct generation *g, const char *text, struct error *err)
{
    size_t n = 1;
    for (const char *c = text; *c; c++)
        n += *c == ',';
    g->prompt.ids = memory_alloc(n, sizeof *g->prompt.ids);
    if (!g->prompt.ids)
        return fail_memory(err, "--tokens", n * sizeof *g->prompt.ids);
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        long long id = strtoll(at, &end, 10);
        if (end == at || (*end && *end != ',') || *at == ' ')
            return fail(err, STATUS_USAGE, "--tokens: '%s' is not a list of numbers like 5,17,3",
                        text);
        if (errno || id < 0 || id >= g->model.config.n_vocab)
            return fail(err, STATUS_LIMIT, "--tokens: %.*s is not a token of %s: ids are 0 to %d",
                        (int)(end - at), at, g->model.path, g->model.config.n_vocab - 1);
        g->prompt.ids[g->prompt.n++] = (int32_t)id;
        if (!*end)
            return STATUS_OK;
        at = end;
    }
}

static enum status write_logits(struct generation *g, struct output_file *file, struct error *err)
{
    size_t n_vocab = (size_t)g->model.config.n_vocab, batch = (size_t)g->n_batch;
    for (size_t at = 0, n; at < g->prompt.n; at += n) {
        n = g->prompt.n - at < batch ? g->prompt.n - at : batch;
        const float *logits = generation_forward(g, g->prompt.ids + at, (int)n, (int)n);
        TRY(generation_check_logits(g, logits, (int)n, err));
        TRY(output_file_write(file, logits, n * n_vocab * sizeof *logits, err));
    }
    return STATUS_OK;
}

static enum status logits_of(struct generation *g, const struct logits_options *o,
                             struct output_file *file, struct error *err)
{
    if (!o->out || !o->out[0])
        return fail(err, STATUS_USAGE, "no output: give -o FILE");
    TRY(cli_refuse_same_file(o->generation.model, o->out, err));
    bool has_text = o->generation.prompt || o->generation.prompt_file;
    if (o->tokens && has_text)
        return fail(err, STATUS_USAGE, "--tokens and a prompt exclude each other; give one");
    TRY(generation_open(g, &o->generation, !o->tokens, err));
    if (o->tokens)
        TRY(read_tokens(g, o->tokens, err));
    else
        TRY(generation_read_prompt(g, err));
    TRY(output_file_open(file, o->out, err));
    TRY(generation_start(g, 0, 0, err));
    if (o->generation.dry_run)
        return STATUS_OK;
    TRY(write_logits(g, file, err));
    TRY(output_file_commit(file, err));
    if (!o->generation.quiet)
        fprintf(stderr, "%s: %zu rows of %d float32\n", o->out, g->prompt.n,
                g->model.config.n_vocab);
    return STATUS_OK;
}

static int run_command(const void *values)
{
    struct generation g = {0};
    struct output_file file = {0};
    struct error err;
    enum status status = logits_of(&g, values, &file, &err);
    output_file_close(&file);
    generation_close(&g);
    return status == STATUS_OK ? EXIT_SUCCESS : cli_failed("logits", &err);
}

const struct command command_logits = {
    "logits",
    "write the logits at every position to a file",
    "Runs the tokens or the prompt and writes what the model says after each of them.\n"
    "Options of `run` that choose the text have no effect.",
    options,
    sizeof(struct logits_options),
    run_command};
