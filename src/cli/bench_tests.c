#include "cli/bench_tests.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_LIST   64
#define MAX_TOKENS (1 << 24) /* three of them are far from overflow */

struct number_list {
    int n;
    int values[MAX_LIST];
};

static enum status fail_list(const char *option, const char *text, int min, int max,
                             struct error *err)
{
    return fail(err, STATUS_USAGE,
                "%s: '%s' is not a list of 1 to %d whole numbers from %d to %d, as in 128,512",
                option, text, MAX_LIST, min, max);
}

/* Reads "128,512". */
static enum status parse_list(const char *option, const char *text, int min, int max,
                              struct number_list *list, struct error *err)
{
    list->n = 0;
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        long value = strtol(at, &end, 10);
        bool is_digit = *at >= '0' && *at <= '9';
        if (!is_digit || errno || value < min || value > max || list->n == MAX_LIST)
            return fail_list(option, text, min, max, err);
        list->values[list->n++] = (int)value;
        if (!*end)
            return STATUS_OK;
        if (*end != ',')
            return fail_list(option, text, min, max, err);
        at = end;
    }
}

/* A list of numbers of tokens; 0 alone asks for none. */
static enum status parse_tokens(const char *option, const char *text, struct number_list *list,
                                struct error *err)
{
    TRY(parse_list(option, text, 0, MAX_TOKENS, list, err));
    if (list->n > 1)
        return parse_list(option, text, 1, MAX_TOKENS, list, err);
    list->n = list->values[0] > 0;
    return STATUS_OK;
}

struct wishes {
    struct number_list prompts, gens, depths, seqs;
    struct number_list prompt_gen; /* none, or two */
};

static enum status read_wishes(struct wishes *w, const struct bench_options *o, struct error *err)
{
    TRY(parse_tokens("-p", o->prompts, &w->prompts, err));
    TRY(parse_tokens("-n", o->gens, &w->gens, err));
    TRY(parse_list("-d", o->depths, 0, MAX_TOKENS, &w->depths, err));
    TRY(parse_list("-npl", o->seqs, 1, ENGINE_MAX_BATCH, &w->seqs, err));
    w->prompt_gen.n = 0;
    if (o->prompt_gen)
        TRY(parse_list("-pg", o->prompt_gen, 1, MAX_TOKENS, &w->prompt_gen, err));
    if (o->prompt_gen && w->prompt_gen.n != 2)
        return fail(err, STATUS_USAGE, "-pg: '%s' is not two numbers, as in 512,128",
                    o->prompt_gen);
    if (!w->prompts.n && !w->gens.n && !w->prompt_gen.n)
        return fail(err, STATUS_USAGE, "-p 0 and -n 0 leave nothing to measure");
    return STATUS_OK;
}

static void add(struct bench_tests *tests, int n_prompt, int n_gen, int n_depth, int n_seq)
{
    tests->all[tests->n++] = (struct bench_test){n_prompt, n_gen, n_depth, n_seq};
    int n_warm_up = n_gen && n_prompt + n_gen < BENCH_WARM_UP ? BENCH_WARM_UP : n_prompt + n_gen;
    if (n_depth + n_warm_up > tests->n_ctx)
        tests->n_ctx = n_depth + n_warm_up;
    if (n_seq > tests->n_seq)
        tests->n_seq = n_seq;
}

static void add_depth(struct bench_tests *tests, const struct wishes *w, int depth)
{
    for (int i = 0; i < w->prompts.n; i++)
        add(tests, w->prompts.values[i], 0, depth, 1);
    for (int i = 0; i < w->gens.n; i++)
        for (int k = 0; k < w->seqs.n; k++)
            add(tests, 0, w->gens.values[i], depth, w->seqs.values[k]);
    for (int k = 0; w->prompt_gen.n && k < w->seqs.n; k++)
        add(tests, w->prompt_gen.values[0], w->prompt_gen.values[1], depth, w->seqs.values[k]);
}

enum status bench_tests_make(struct bench_tests *tests, const struct bench_options *options,
                             struct error *err)
{
    struct wishes w;
    TRY(read_wishes(&w, options, err));
    int n_decodes = w.gens.n + (w.prompt_gen.n > 0);
    size_t n = (size_t)w.depths.n * (size_t)(w.prompts.n + n_decodes * w.seqs.n);
    *tests = (struct bench_tests){.all = memory_alloc(n, sizeof *tests->all)};
    if (!tests->all)
        return fail_memory(err, "tests", n * sizeof *tests->all);
    for (int i = 0; i < w.depths.n; i++)
        add_depth(tests, &w, w.depths.values[i]);
    return STATUS_OK;
}

void bench_tests_done(struct bench_tests *tests)
{
    memory_free(tests->all);
    *tests = (struct bench_tests){0};
}

const char *bench_test_name(const struct bench_test *test, char out[64])
{
    char depth[24] = "", seqs[24] = "";
    if (test->n_depth)
        snprintf(depth, sizeof depth, " @ d%d", test->n_depth);
    if (test->n_seq > 1)
        snprintf(seqs, sizeof seqs, " x%d", test->n_seq);
    if (test->n_prompt && test->n_gen)
        snprintf(out, 64, "pg%d+%d%s%s", test->n_prompt, test->n_gen, seqs, depth);
    else
        snprintf(out, 64, "%s%d%s%s", test->n_gen ? "tg" : "pp", test->n_prompt + test->n_gen, seqs,
                 depth);
    return out;
}

int64_t bench_test_tokens(const struct bench_test *test)
{
    return (int64_t)test->n_seq * (test->n_prompt + test->n_gen);
}
