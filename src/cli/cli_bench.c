/* `trine bench`: how fast prompts and generation are, measured as llama-bench does. */
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "cli/bench_print.h"

#define BENCH(field) offsetof(struct bench_options, field)
static const struct option options[] = {
    {NULL, NULL, NULL, "Model", OPT_FLAG, 0, 0, 0},
    {"MODEL, -m, --model", "FILE", NULL, "the GGUF file (the first one of a split model)", OPT_TEXT,
     BENCH(model), 0, 0},
    {"--shape", "NAME", NULL,
     "random weights instead of a file: tiny, falcon3-1b, falcon3-10b, llama3-8b, bonsai-8b",
     OPT_TEXT, BENCH(shape), 0, 0},
    {"--type", "T", NULL, "their type: TQ2_0, IQ2_BN, I2_S, Q4_0, F16, ...", OPT_TEXT, BENCH(type),
     0, 0},
    {NULL, NULL, NULL, "Tests", OPT_FLAG, 0, 0, 0},
    {"-p, --n-prompt", "N,...", "512", "lengths of prompts; 0: none", OPT_TEXT, BENCH(prompts), 0,
     0},
    {"-n, --n-gen", "N,...", "128", "numbers of generated tokens; 0: none", OPT_TEXT, BENCH(gens),
     0, 0},
    {"-pg", "P,N", NULL, "a prompt of P tokens and N generated ones in one test", OPT_TEXT,
     BENCH(prompt_gen), 0, 0},
    {"-d, --n-depth", "N,...", "0", "tokens in the cache before a test begins", OPT_TEXT,
     BENCH(depths), 0, 0},
    {"-npl, --n-sequences", "N,...", "1", "sequences that generate together", OPT_TEXT, BENCH(seqs),
     0, 0},
    {"-r, --repetitions", "N", "5", "of each test", OPT_INT, BENCH(n_repetitions), 1, 1000},
    {"-b, --batch-size", "N", "512", "prompt tokens that are run at once", OPT_INT, BENCH(n_batch),
     1, ENGINE_MAX_BATCH},
    {"-ctk, --cache-type", "f16|q8_0", "f16", "numbers that the KV cache keeps", OPT_CHOICE,
     BENCH(kv_format), 0, 0},
    {"-o, --output", "md|csv|json|jsonl", "md", "how results are written", OPT_CHOICE,
     BENCH(output), 0, 0},
    {"--counters", NULL, NULL,
     "frequency, energy, traffic of memory and between sockets too, as far as this machine tells "
     "them",
     OPT_FLAG, BENCH(is_counted), 0, 0},
    ENGINE_OPTIONS(BENCH(engine)),
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0}};

struct bench {
    struct bench_tests tests;
    struct bench_model model;
    struct bench_counters counters;
    struct bench_run run;
    struct bench_print print;
};

static void describe(const struct bench *b, const struct engine_choice *choice)
{
    struct engine_report report;
    char text[512], path[256], size[16], kv[16], weights[16];
    engine_report(b->run.engine, &report);
    fprintf(stderr, "%s: %s, %s; context %d for %d sequence%s, KV cache %s\n",
            text_printable(text_of(b->model.model.path), path, sizeof path), b->model.type,
            cli_size(b->model.bytes, size), b->run.n_ctx, b->run.n_seq,
            b->run.n_seq == 1 ? "" : "s", cli_size(report.kv_bytes, kv));
    engine_describe(b->run.engine, text, sizeof text);
    fprintf(stderr, "%s\nloaded %s in %.2f s%s\n", text, cli_size(report.weight_bytes, weights),
            report.load_s, report.is_pinned ? "" : "; threads are not pinned");
    engine_choice_note(choice, b->run.engine);
    if (b->run.n_ctx > b->model.model.config.n_ctx_train)
        fprintf(stderr,
                "note: the context of %d tokens is longer than the %d the model was trained for\n",
                b->run.n_ctx, b->model.model.config.n_ctx_train);
}

static enum status bench(struct bench *b, const struct bench_options *o, struct error *err)
{
    if (o->is_counted && o->output == BENCH_CSV)
        return fail(err, STATUS_USAGE,
                    "--counters: a csv has no place for them; use -o md, json or jsonl");
    TRY(bench_tests_make(&b->tests, o, err));
    TRY(bench_model_open(&b->model, o, err));
    if (o->is_counted)
        TRY(bench_counters_open(&b->counters, b->tests.n, err));
    TRY(bench_run_open(&b->run, &b->model.model, o, &b->tests, err));
    b->run.counted = o->is_counted ? &b->counters : NULL;
    describe(b, &o->engine);
    for (size_t i = 0; i < b->tests.n && !b->print.is_closed; i++) {
        struct bench_result result;
        TRY(bench_run_test(&b->run, &b->tests.all[i], &result, err));
        TRY(bench_print_result(&b->print, &b->model, &b->run, &result, err));
    }
    if (o->is_counted && o->output == BENCH_MD && !b->print.is_closed)
        bench_counters_print(&b->counters);
    return STATUS_OK;
}

static int run_command(const void *values)
{
    const struct bench_options *o = values;
    struct bench b = {.print = {.output = (enum bench_output)o->output}};
    struct error err;
    enum status status = bench(&b, o, &err);
    bench_print_end(&b.print);
    bench_run_close(&b.run);
    bench_counters_close(&b.counters);
    bench_model_close(&b.model);
    bench_tests_done(&b.tests);
    return status == STATUS_OK ? EXIT_SUCCESS : cli_failed("bench", &err);
}

const struct command command_bench = {
    "bench",
    "measure the speed of prompts and generation",
    "Tests are ppN (a prompt of N tokens), tgN (N generated tokens) and pgP+N (both), each at "
    "every\n"
    "depth. Beside tokens a second stand GB/s, the bytes that generation reads, their share of "
    "the\n"
    "read bandwidth that is measured before and after, and a hash of the last logits: it tells\n"
    "whether two runs computed the same.",
    options,
    sizeof(struct bench_options),
    run_command};
