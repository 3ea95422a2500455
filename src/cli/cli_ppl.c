/* `trine ppl`: how good the predictions of a model are, and how they differ from others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/ppl.h"
#include "measure/perplexity.h"

#define PPL(field) offsetof(struct ppl_options, field)
static const struct option options[] = {
    {NULL, NULL, NULL, "Model", OPT_FLAG, 0, 0, 0},
    {"MODEL, -m, --model", "FILE", NULL, "the GGUF file (the first one of a split model)", OPT_TEXT,
     PPL(model), 0, 0},
    {"--pre-tokenizer", "NAME", NULL,
     "split text as tokenizer.ggml.pre NAME says, whatever the file says", OPT_TEXT,
     PPL(pre_tokenizer), 0, 0},
    {"--special", NULL, NULL, "control tokens written out in texts become tokens", OPT_FLAG,
     PPL(special), 0, 0},
    {"-ctk, --cache-type", "auto|f16|q8_0|f32", "auto",
     "numbers that the KV cache keeps; auto: f16, and f32 with --reference", OPT_CHOICE,
     PPL(kv_type), 0, 0},
    {"-b, --batch-size", "N", "0", "tokens that are run at once; 0: as many as is fast", OPT_INT,
     PPL(n_batch), 0, ENGINE_MAX_BATCH},
    {"--reference", NULL, NULL, "the plain one-thread path in float that defines the results",
     OPT_FLAG, PPL(reference), 0, 0},
    {NULL, NULL, NULL, "Text", OPT_FLAG, 0, 0, 0},
    {"-f, --file", "FILE", NULL,
     "the text; -: standard input (one final newline is dropped); with --kl the file's tokens if "
     "not given",
     OPT_TEXT, PPL(file), 0, 0},
    {"-c, --ctx-size", "N", "0", "tokens of a chunk; 0: 512, or as the --kl file has", OPT_INT,
     PPL(n_ctx), 0, 1 << 24},
    {"--chunks", "N", "0", "run the first N chunks; 0: all", OPT_INT, PPL(n_chunks), 0, INT32_MAX},
    {"--kl-base", "FILE", NULL,
     "write all predictions to this file, in the format of llama-perplexity", OPT_TEXT,
     PPL(kl_base), 0, 0},
    {"--kl", "FILE", NULL, "compare with the predictions in this file", OPT_TEXT, PPL(kl), 0, 0},
    {NULL, NULL, NULL, "Greedy texts", OPT_FLAG, 0, 0, 0},
    {"--greedy", "FILE", NULL, "continue each line of this file with the most likely tokens",
     OPT_TEXT, PPL(greedy), 0, 0},
    {"-n, --predict", "N", "0", "tokens of a continuation at most; 0: 256", OPT_INT, PPL(n_predict),
     0, 1 << 24},
    {"-np, --parallel", "N", "0", "continuations that are written together; 0: 32", OPT_INT,
     PPL(n_parallel), 0, ENGINE_MAX_BATCH},
    {"--greedy-out", "FILE", NULL, "write the continuations to this file, one JSON object a line",
     OPT_TEXT, PPL(greedy_out), 0, 0},
    {"--against", "FILE", NULL, "compare with the continuations in such a file", OPT_TEXT,
     PPL(against), 0, 0},
    {NULL, NULL, NULL, "Tasks", OPT_FLAG, 0, 0, 0},
    {"--tasks", "FILE", NULL,
     "answer the items of this file (HellaSwag, ARC, WinoGrande; one JSON object a line)", OPT_TEXT,
     PPL(tasks), 0, 0},
    {NULL, NULL, NULL, "Output", OPT_FLAG, 0, 0, 0},
    {"--json", NULL, NULL, "the result as JSON, all digits", OPT_FLAG, PPL(json), 0, 0},
    {"-q, --quiet", NULL, NULL, "nothing on standard error but failures", OPT_FLAG, PPL(quiet), 0,
     0},
    ENGINE_OPTIONS(PPL(engine)),
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0}};

static bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    if (strcmp(a, "-") == 0)
        a = "/dev/stdin";
    return stat(a, &x) == 0 && stat(b, &y) == 0 && S_ISREG(x.st_mode) && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

/* An output takes the place of what has its name. */
static enum status check_files(const struct ppl_options *o, struct error *err)
{
    const struct {
        const char *option, *path;
    } in[] = {{"-m", o->model},
              {"-f", o->file},
              {"--kl", o->kl},
              {"--greedy", o->greedy},
              {"--against", o->against}},
      out[] = {{"--kl-base", o->kl_base}, {"--greedy-out", o->greedy_out}};
    for (size_t i = 0; i < sizeof in / sizeof in[0]; i++)
        for (size_t k = 0; k < sizeof out / sizeof out[0]; k++)
            if (in[i].path && out[k].path && is_same_file(in[i].path, out[k].path))
                return fail(err, STATUS_USAGE,
                            "%s and %s are the same file, %s, and the output would replace it; "
                            "give another %s",
                            in[i].option, out[k].option, out[k].path, out[k].option);
    return STATUS_OK;
}

/* Options that say nothing about what is measured. */
static enum status check_use(const struct ppl_options *o, struct error *err)
{
    bool is_text = !o->greedy && !o->tasks;
    const struct {
        const char *option, *use;
        bool is_given, has_use;
    } all[] = {{"-c", "a text", o->n_ctx != 0, is_text},
               {"--chunks", "a text", o->n_chunks != 0, is_text},
               {"--special", "a text that is read; with --kl FILE the tokens are in the file",
                o->special, !is_text || o->file},
               {"-n", "--greedy", o->n_predict != 0, o->greedy},
               {"-np", "--greedy", o->n_parallel != 0, o->greedy}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].is_given && !all[i].has_use)
            return fail(err, STATUS_USAGE, "%s has no effect here: it is for %s", all[i].option,
                        all[i].use);
    return STATUS_OK;
}

static enum status check_options(const struct ppl_options *o, struct error *err)
{
    bool has_text = o->file || o->kl || o->kl_base;
    if (!o->model)
        return fail(err, STATUS_USAGE, "no model: give its file as -m FILE or first argument");
    if (has_text + (o->greedy != NULL) + (o->tasks != NULL) != 1)
        return fail(err, STATUS_USAGE,
                    "%s: give either a text (-f FILE or --kl FILE), --greedy FILE or --tasks FILE",
                    has_text || o->greedy ? "too much at once" : "nothing to measure");
    if (has_text && !o->file && !o->kl)
        return fail(err, STATUS_USAGE, "--kl-base needs a text: give -f FILE");
    if (!o->greedy && (o->greedy_out || o->against))
        return fail(err, STATUS_USAGE, "%s needs prompts: give --greedy FILE",
                    o->greedy_out ? "--greedy-out" : "--against");
    if (o->n_ctx && o->n_ctx < MIN_CHUNK)
        return fail(err, STATUS_USAGE, "-c: a chunk has at least %d tokens", MIN_CHUNK);
    if (o->reference)
        TRY(engine_choice_refuse(&o->engine, err));
    TRY(check_use(o, err));
    return check_files(o, err);
}

static enum status measure(const struct ppl_options *o, struct error *err)
{
    TRY(check_options(o, err));
    if (o->greedy)
        return ppl_greedy(o, err);
    return o->tasks ? ppl_tasks(o, err) : ppl_text(o, err);
}

static int run_command(const void *values)
{
    struct error err;
    return measure(values, &err) == STATUS_OK ? EXIT_SUCCESS : cli_failed("ppl", &err);
}

const struct command command_ppl = {
    "ppl",
    "measure perplexity, divergence from another model, greedy agreement, tasks",
    "Perplexity and files of predictions are those of llama-perplexity: same chunks, same scored "
    "half.\n"
    "The numbers do not depend on batch, threads, or which texts run together.",
    options,
    sizeof(struct ppl_options),
    run_command};
