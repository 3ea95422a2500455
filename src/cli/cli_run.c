/* `trine run`: a prompt in, text out. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cli/generation.h"

static const struct option options[] = {GENERATION_OPTIONS, {NULL, NULL, NULL, NULL, 0, 0, 0, 0}};

#define BANDWIDTH_S 0.5 /* how long the machine's read bandwidth is measured */

struct run {
    struct generation g;
    struct sampler *sampler;
    struct detokenizer detokenizer;
    char *text; /* owned: room for one token's text */
    size_t text_bytes;
    const float *logits; /* of the last token */
    int n_decoded;       /* tokens that were run after the prompt */
    int n_written;       /* tokens */
    const char *reason;  /* why it stopped */
    int64_t prompt_ns, decode_ns;
};

/* Writes to standard output at once. *is_closed: the reader has gone, which ends a run quietly. */
static enum status write_text(const char *text, size_t n, bool *is_closed, struct error *err)
{
    if (n && (fwrite(text, 1, n, stdout) != n || fflush(stdout) != 0)) {
        *is_closed = errno == EPIPE;
        if (!*is_closed)
            return fail(err, STATUS_IO, "standard output: cannot write: %s", strerror(errno));
    }
    return STATUS_OK;
}

static enum status run_prompt(struct run *run, struct error *err)
{
    const struct token_list *prompt = &run->g.prompt;
    int64_t start = clock_ns();
    for (size_t at = 0; at < prompt->n;) {
        size_t n = prompt->n - at;
        if (n > (size_t)run->g.n_batch)
            n = (size_t)run->g.n_batch;
        bool is_last = at + n == prompt->n;
        run->logits = generation_forward(&run->g, prompt->ids + at, (int)n, is_last);
        at += n;
    }
    run->prompt_ns = clock_ns() - start;
    for (size_t i = 0; i < prompt->n; i++)
        TRY(sampler_accept(run->sampler, prompt->ids[i], err));
    return STATUS_OK;
}

/* Chooses, writes and runs one token after the other. */
static enum status generate(struct run *run, struct error *err)
{
    const struct generation_options *o = run->g.options;
    bool is_closed = false;
    for (;;) {
        if (o->n_predict >= 0 && run->n_written >= o->n_predict)
            return run->reason = "token limit", STATUS_OK;
        TRY(generation_check_logits(&run->g, run->logits, 1, err));
        int32_t token = sampler_next(run->sampler, run->logits);
        if (tokenizer_is_end(run->g.tokenizer, token) && !o->ignore_eos)
            return run->reason = "end of text", STATUS_OK;
        TRY(sampler_accept(run->sampler, token, err));
        run->n_written++;
        size_t n = detokenizer_next(&run->detokenizer, token, run->text, run->text_bytes);
        TRY(write_text(run->text, n, &is_closed, err));
        if (is_closed)
            return run->reason = "reader closed", STATUS_OK;
        if ((int)run->g.prompt.n + run->n_written == run->g.n_ctx)
            return run->reason = "context full", STATUS_OK;
        if (o->n_predict >= 0 && run->n_written >= o->n_predict)
            continue; /* nobody will look at the logits after the last token */
        int64_t start = clock_ns();
        run->logits = generation_forward(&run->g, &token, 1, 1);
        run->decode_ns += clock_ns() - start;
        run->n_decoded++;
    }
}

static enum status prepare(struct run *run, const struct generation_options *o, struct error *err)
{
    TRY(generation_open(&run->g, o, !o->dry_run, err));
    if (o->dry_run)
        return generation_start(&run->g, 0, 1, err);
    TRY(generation_read_prompt(&run->g, err));
    TRY(generation_start(&run->g, o->n_predict != 0, 1, err));
    int n_vocab = run->g.model.config.n_vocab;
    struct sampler_options sampling = {
        .temperature = (float)o->temperature,
        .top_k = (int)o->top_k,
        .top_p = (float)o->top_p,
        .min_p = (float)o->min_p,
        .repeat_last_n = (int)o->repeat_last_n,
        .repeat_penalty = (float)o->repeat_penalty,
        .frequency_penalty = (float)o->frequency_penalty,
        .presence_penalty = (float)o->presence_penalty,
        .seed = o->seed >= 0 ? (uint64_t)o->seed : (uint64_t)time(NULL) ^ (uint64_t)clock_ns(),
    };
    TRY(sampler_open(&run->sampler, &sampling, n_vocab, err));
    bool is_start = run->g.prompt_bytes == 0; /* the text continues the prompt */
    detokenizer_init(&run->detokenizer, run->g.tokenizer, o->special, is_start);
    run->text_bytes = tokenizer_longest(run->g.tokenizer) + 16;
    run->text = memory_alloc(run->text_bytes, 1);
    if (!run->text)
        return fail_memory(err, o->model, run->text_bytes);
    return STATUS_OK;
}

/* Bytes that a decoded token reads, and their share of what this machine can read. Not of a model that
 * fits in the caches: there it says nothing. */
static void print_bandwidth(const struct run *run, double tokens_s)
{
    struct engine_report report;
    engine_report(run->g.engine, &report);
    int position = (int)run->g.prompt.n + run->n_written / 2;
    double bytes = (double)report.token_bytes + (double)report.kv_token_bytes * position;
    fprintf(stderr, "%.1f MB a token, %.2f GB/s", bytes / 1e6, bytes * tokens_s / 1e9);
    double machine;
    struct error err;
    if (bytes < 2.0 * (double)report.cache_bytes)
        fprintf(stderr, " (from the caches, mostly)");
    else if (engine_bandwidth(run->g.engine, BANDWIDTH_S, &machine, &err) == STATUS_OK)
        fprintf(stderr, ", %.0f %% of the %.1f GB/s that this machine reads",
                100 * bytes * tokens_s / machine, machine / 1e9);
    if (report.placed >= 0)
        fprintf(stderr, "; %.1f %% of the pages are on their node", 100 * report.placed);
    fprintf(stderr, "\n");
}

static void print_speed(const struct run *run)
{
    double prompt_s = (double)run->prompt_ns / 1e9, decode_s = (double)run->decode_ns / 1e9;
    int n_run = run->n_decoded; /* the first token of the text comes from the prompt */
    fprintf(stderr, "prompt %zu tokens, %.1f tok/s; decode %d tokens, %.1f tok/s; stopped: %s\n",
            run->g.prompt.n, (double)run->g.prompt.n / prompt_s, run->n_written,
            decode_s > 0 ? n_run / decode_s : 0.0, run->reason);
    if (run->g.engine && n_run > 0)
        print_bandwidth(run, n_run / decode_s);
}

static enum status run_text(struct run *run, const struct generation_options *o, struct error *err)
{
    bool is_closed = false;
    TRY(prepare(run, o, err));
    if (o->dry_run)
        return STATUS_OK;
    if (o->echo)
        TRY(write_text(run->g.prompt_text, run->g.prompt_bytes, &is_closed, err));
    if (is_closed)
        return STATUS_OK;
    TRY(run_prompt(run, err));
    TRY(generate(run, err));
    size_t n = detokenizer_finish(&run->detokenizer, run->text, run->text_bytes);
    TRY(write_text(run->text, n, &is_closed, err));
    if (!o->quiet)
        fprintf(stderr, "\n");
    if (!o->quiet)
        print_speed(run);
    return STATUS_OK;
}

static int run_command(const void *values)
{
    struct run run = {0};
    struct error err;
    enum status status = run_text(&run, values, &err);
    sampler_close(run.sampler);
    memory_free(run.text);
    generation_close(&run.g);
    return status == STATUS_OK ? EXIT_SUCCESS : cli_failed("run", &err);
}

const struct command command_run = {
    "run",
    "write text that continues a prompt",
    "Streams the text to standard output and prints speeds on standard error.",
    options,
    sizeof(struct generation_options),
    run_command};
