#include "cli/bench_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/bench_unnamed.h"
#include "model/arch.h"
#include "model/model_shapes.h"

/* Runs `trine synth`, which says itself what it does and what goes wrong. */
static int run_synth(const struct bench_options *o, const char *path, struct error *err)
{
    char *argv[] = {"--shape", (char *)(uintptr_t)o->shape, "--type", (char *)(uintptr_t)o->type,
                    "-o",      (char *)(uintptr_t)path};
    void *values = memory_alloc(1, command_synth.options_bytes);
    if (!values) {
        fail_memory(err, path, command_synth.options_bytes);
        return EXIT_FAILURE;
    }
    bool wants_help;
    enum status status = options_parse(&command_synth, 6, argv, values, &wants_help, err);
    int exit_status = status == STATUS_OK ? command_synth.run(values) : EXIT_FAILURE;
    memory_free(values);
    return exit_status;
}

static enum status write_random(struct bench_model *m, const struct bench_options *o,
                                struct error *err)
{
    if (!o->type)
        return fail(err, STATUS_USAGE, "--shape %s: give --type, the type of its weights",
                    o->shape);
    if (!model_shape_find(o->shape))
        return fail(err, STATUS_USAGE, "unknown shape '%s'; known: %s", o->shape,
                    model_shape_names());
    if (format_by_name(o->type) == N_FORMATS)
        return fail(err, STATUS_USAGE, "--type: '%s' is not a weight type", o->type);
    struct unnamed_file file;
    TRY(unnamed_file_open(&file, err));
    int exit_status = run_synth(o, file.path, err);
    m->unnamed = unnamed_file_finish(&file, err);
    if (m->unnamed < 0)
        return m->unnamed = 0, STATUS_IO;
    if (exit_status != EXIT_SUCCESS)
        return fail(err, exit_status == EXIT_USAGE ? STATUS_USAGE : STATUS_IO,
                    "%s %s: cannot make the random weights", o->shape, o->type);
    return STATUS_OK;
}

static enum status open_random(struct bench_model *m, const struct bench_options *o,
                               struct error *err)
{
    TRY(write_random(m, o, err));
    snprintf(m->title, sizeof m->title, "%s %s, random weights", o->shape, o->type);
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", m->unnamed);
    struct gguf_file file;
    TRY(gguf_open(&file, path, format_resolve, err));
    return model_bind(&m->model, m->title, &file, err);
}

/* "12.3M", "8.0B" weights, as models are called. */
static const char *count_text(uint64_t n, char out[16])
{
    if (n >= 1000000000)
        snprintf(out, 16, "%.1fB", (double)n / 1e9);
    else
        snprintf(out, 16, "%.1fM", (double)n / 1e6);
    return out;
}

static void add_up(struct bench_model *m)
{
    uint64_t n_of[N_FORMATS] = {0};
    enum format_id most = FORMAT_F32;
    for (size_t i = 0; i < m->model.file.n_tensors; i++) {
        const struct tensor_span *span = &m->model.file.tensors[i].span;
        uint64_t n = span->ne[0] * span->ne[1] * span->ne[2] * span->ne[3];
        m->bytes += span->bytes;
        m->n_weights += n;
        n_of[span->format] += n;
        if (n_of[span->format] > n_of[most])
            most = (enum format_id)span->format;
    }
    char count[16];
    snprintf(m->type, sizeof m->type, "%s %s %s", m->model.config.arch->name,
             count_text(m->n_weights, count), format_of(most)->name);
}

enum status bench_model_open(struct bench_model *m, const struct bench_options *options,
                             struct error *err)
{
    if (!options->model == !options->shape)
        return fail(err, STATUS_USAGE,
                    "give one model: its file as -m FILE or first argument, or --shape and --type");
    if (options->type && !options->shape)
        return fail(err, STATUS_USAGE, "--type goes with --shape; a file has its own types");
    if (options->shape && options->engine.i2s_layout)
        return fail(
            err, STATUS_USAGE,
            "--i2s-layout is for a file; random weights are written in the published order");
    if (options->shape)
        TRY(open_random(m, options, err));
    else
        TRY(model_open_by(&m->model, options->model, i2s_layout_rule(options->engine.i2s_layout),
                          err));
    add_up(m);
    return STATUS_OK;
}

void bench_model_close(struct bench_model *m)
{
    model_close(&m->model);
    if (m->unnamed)
        close(m->unnamed);
    m->unnamed = 0;
}
