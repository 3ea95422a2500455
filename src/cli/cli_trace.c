/* `trine trace`: where the time of a token goes. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/output_file.h"
#include "base/random.h"
#include "base/text.h"
#include "cli/engine_choice.h"
#include "cli/json_out.h"
#include "engine/trace_print.h"

/* In the order of the option's words. */
enum trace_format { TRACE_TABLE, TRACE_JSON, TRACE_CHROME, TRACE_HTML, TRACE_SVG };

struct trace_options {
    const char *model, *out;
    int64_t n_prompt, n_predict, depth;
    int kv_type, format;
    struct engine_choice engine;
};

#define TRACE(field) offsetof(struct trace_options, field)
static const struct option options[] = {
    {NULL, NULL, NULL, "Model", OPT_FLAG, 0, 0, 0},
    {"MODEL, -m, --model", "FILE", NULL, "the GGUF file (the first one of a split model)", OPT_TEXT,
     TRACE(model), 0, 0},
    {"-ctk, --cache-type", "f16|q8_0", "f16", "numbers that the KV cache keeps", OPT_CHOICE,
     TRACE(kv_type), 0, 0},
    {NULL, NULL, NULL, "What is traced", OPT_FLAG, 0, 0, 0},
    {"--prompt-tokens", "N", "16", "tokens that are run before, together", OPT_INT, TRACE(n_prompt),
     1, 1 << 24},
    {"--depth", "N", "0", "tokens in the cache before the prompt", OPT_INT, TRACE(depth), 0,
     1 << 24},
    {"-n, --predict", "N", "32", "tokens that are traced, one at a time", OPT_INT, TRACE(n_predict),
     1, 1 << 16},
    {NULL, NULL, NULL, "Output", OPT_FLAG, 0, 0, 0},
    {"--format", "table|json|chrome|html|svg", "table",
     "sums for people or programs, every step for ui.perfetto.dev, a page with bars and a token "
     "thread by thread, or its bars alone",
     OPT_CHOICE, TRACE(format), 0, 0},
    {"-o, --output", "FILE", NULL, "instead of standard output", OPT_TEXT, TRACE(out), 0, 0},
    ENGINE_OPTIONS(TRACE(engine)),
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0}};

#define WARM_UP 4 /* tokens before the first that counts */

struct tracing {
    const struct trace_options *options;
    struct model model;
    struct engine *engine;
    struct session *session;
    struct trace trace;
    struct random random;
    int64_t *traced_ns, *plain_ns; /* owned: (n_predict) */
    char title[512];
};

static int32_t random_token(struct tracing *t)
{
    return (int32_t)(random_bits(&t->random) % (uint64_t)t->model.config.n_vocab);
}

static enum status prepare(struct tracing *t, struct error *err)
{
    const struct trace_options *o = t->options;
    if (!o->model)
        return fail(err, STATUS_USAGE, "no model: give its file as -m FILE or first argument");
    if (o->out)
        TRY(cli_refuse_same_file(o->model, o->out, err));
    TRY(model_open_by(&t->model, o->model, i2s_layout_rule(o->engine.i2s_layout), err));
    int64_t n_ctx = o->depth + o->n_prompt + WARM_UP + 2 * o->n_predict;
    struct engine_options choice = {.n_ctx = (int)n_ctx};
    choice.kv_format = o->kv_type == 1 ? KV_FORMAT_Q8_0 : KV_FORMAT_F16;
    TRY(engine_choice_resolve(&o->engine, &choice, err));
    TRY(engine_open(&t->engine, &t->model, &choice, NULL, NULL, err));
    engine_choice_note(&o->engine, t->engine);
    TRY(session_open(&t->session, t->engine, err));
    TRY(trace_open(&t->trace, engine_plan_of(t->engine), PROGRAM_FEW, (int)o->n_predict, err));
    size_t n = (size_t)o->n_predict;
    t->traced_ns = memory_alloc(n, sizeof *t->traced_ns);
    t->plain_ns = memory_alloc(n, sizeof *t->plain_ns);
    if (!t->traced_ns || !t->plain_ns)
        return fail_memory(err, "trace", n * sizeof *t->plain_ns);
    char path[256];
    int used = snprintf(t->title, sizeof t->title, "%s; after %lld tokens; ",
                        text_printable(text_of(o->model), path, sizeof path),
                        (long long)(o->depth + o->n_prompt));
    if (used > 0 && (size_t)used < sizeof t->title)
        engine_describe(t->engine, t->title + used, sizeof t->title - (size_t)used);
    return STATUS_OK;
}

static enum status fill_context(struct tracing *t, struct error *err)
{
    int64_t pieces[] = {t->options->depth, t->options->n_prompt};
    for (int i = 0; i < 2; i++) {
        int32_t *tokens = memory_alloc((size_t)pieces[i], sizeof *tokens);
        if (!tokens)
            return fail_memory(err, "prompt", (size_t)pieces[i] * sizeof *tokens);
        for (int64_t k = 0; k < pieces[i]; k++)
            tokens[k] = random_token(t);
        session_prefill(t->session, tokens, (int)pieces[i]);
        memory_free(tokens);
    }
    return STATUS_OK;
}

/* One token; what it took. */
static int64_t time_token(struct tracing *t, bool is_traced)
{
    int32_t token = random_token(t);
    engine_set_trace(t->engine, is_traced ? &t->trace : NULL);
    int64_t start = clock_ns();
    session_decode(t->session, token);
    return clock_ns() - start;
}

/* Tokens with and without tracing in turn, so that both meet the same machine: the first of a pair is
 * now the one, now the other. */
static void run_tokens(struct tracing *t)
{
    for (int i = 0; i < WARM_UP; i++)
        time_token(t, false);
    for (int64_t i = 0; i < t->options->n_predict; i++) {
        if (i % 2 == 0)
            t->plain_ns[i] = time_token(t, false);
        t->traced_ns[i] = time_token(t, true);
        if (i % 2 != 0)
            t->plain_ns[i] = time_token(t, false);
    }
    engine_set_trace(t->engine, NULL);
}

static double mean_s(const int64_t *ns, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)ns[i];
    return sum / (double)n / 1e9;
}

static int compare_ns(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Reorders. */
static double median_s(int64_t *ns, int64_t n)
{
    qsort(ns, (size_t)n, sizeof *ns, compare_ns);
    return (double)(ns[(n - 1) / 2] + ns[n / 2]) / 2e9;
}

static json_t *json_sum(const char *name, const struct trace_sum *sum)
{
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f}", "step", name, "work_ms",
                     1e3 * sum->work, "late_own_ms", 1e3 * sum->late_own, "late_other_ms",
                     1e3 * sum->late_other, "latency_ms", 1e3 * sum->latency, "leader_ms",
                     1e3 * sum->leader, "total_ms", 1e3 * sum->total);
}

static enum status print_json(FILE *out, const struct trace_report *r, struct error *err)
{
    json_t *steps = json_array();
    for (int kind = 0; kind < N_STEP_KINDS; kind++)
        if (r->kinds[kind].total > 0)
            json_array_append_new(steps,
                                  json_sum(step_kind_name((enum step_kind)kind), &r->kinds[kind]));
    json_t *all = json_pack("{s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:o, s:o}", "tokens",
                            trace_n_written(r->trace), "threads", r->trace->n_threads, "nodes",
                            r->plan->layout->n_nodes, "token_ms", 1e3 * r->token_s, "traced_tok_s",
                            1 / r->median_s, "plain_tok_s", 1 / r->plain_median_s, "cost",
                            r->median_s / r->plain_median_s - 1, "all", json_sum("all", &r->all),
                            "steps", steps);
    return json_out(out, all, JSON_REAL_PRECISION(9), err);
}

static enum status print(FILE *out, const struct trace_report *r, enum trace_format format,
                         struct error *err)
{
    switch (format) {
    case TRACE_JSON: return print_json(out, r, err);
    case TRACE_CHROME: trace_print_chrome(out, r); return STATUS_OK;
    case TRACE_HTML: trace_print_html(out, r); return STATUS_OK;
    case TRACE_SVG: trace_print_svg(out, r); return STATUS_OK;
    case TRACE_TABLE: break;
    }
    trace_print_table(out, r);
    return STATUS_OK;
}

static enum status trace(struct tracing *t, struct output_file *file, struct error *err)
{
    const struct trace_options *o = t->options;
    TRY(prepare(t, err));
    TRY(fill_context(t, err));
    run_tokens(t);
    struct trace_report report = {.trace = &t->trace, .title = t->title};
    report.plan = engine_plan_of(t->engine);
    report.token_s = mean_s(t->traced_ns, o->n_predict);
    report.median_s = median_s(t->traced_ns, o->n_predict);
    report.plain_median_s = median_s(t->plain_ns, o->n_predict);
    trace_report_sum(&report);
    if (!o->out)
        return print(stdout, &report, (enum trace_format)o->format, err);
    TRY(output_file_open(file, o->out, err));
    TRY(print(file->stream, &report, (enum trace_format)o->format, err));
    return output_file_commit(file, err);
}

static int run_command(const void *values)
{
    struct tracing t = {.options = values};
    struct output_file file = {0};
    struct error err;
    random_init(&t.random, 1);
    enum status status = trace(&t, &file, &err);
    output_file_close(&file);
    memory_free(t.traced_ns);
    memory_free(t.plain_ns);
    trace_close(&t.trace);
    session_close(t.session);
    engine_close(t.engine);
    model_close(&t.model);
    return status == STATUS_OK ? EXIT_SUCCESS : cli_failed("trace", &err);
}

const struct command command_trace = {
    "trace",
    "show where the time of a token goes",
    "Runs tokens one at a time and notes when every thread begins, ends and leaves every step:\n"
    "work, waiting for a late thread of the own node or of another one, the barrier itself, and\n"
    "waiting for a leader. Also says what the tracing costs. The token ids are random.",
    options,
    sizeof(struct trace_options),
    run_command};
