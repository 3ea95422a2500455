/* `trine convert`: a Hugging Face folder as a GGUF file. What is ternary stays so without loss,
 * what is not is stored as it is; every value is compared after writing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/cli.h"
#include "cli/convert_report.h"
#include "cli/status_line.h"
#include "convert/hf_files.h"
#include "model/model_load.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/tokenizer.h"

struct convert_options {
    const char *dir, *out, *type, *pre_tokenizer;
    bool make_ternary;
};

#define CONVERT(field) offsetof(struct convert_options, field)
static const struct option options[] = {
    {"DIR", NULL, NULL, "the folder: config.json, *.safetensors, tokenizer files", OPT_TEXT,
     CONVERT(dir), 0, 0},
    {"OUT, -o, --output", "FILE", NULL, "the GGUF file to write", OPT_TEXT, CONVERT(out), 0, 0},
    {"-t, --type", "TYPE", NULL,
     "keep: matrices as they are stored; a ternary type (TQ2_0, I2_S, IQ2_BN, ...) for the "
     "ternary ones; F16, BF16, F32 for all, rounded where it must; if not given TQ2_0, or what "
     "else holds a ternary matrix exactly, and the others as stored",
     OPT_TEXT, CONVERT(type), 0, 0},
    {"--pre-tokenizer", "NAME", NULL,
     "name of the pre-tokenizer to store, instead of the one that tokenizer.json tells", OPT_TEXT,
     CONVERT(pre_tokenizer), 0, 0},
    {"--make-ternary", NULL, NULL,
     "round the projections that are not ternary by the mean of their magnitudes; for models that "
     "were trained so",
     OPT_FLAG, CONVERT(make_ternary), 0, 0},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0}};

/* Most weights decoded at once. */
#define CHUNK_WEIGHTS ((int64_t)1 << 20)

enum choice { CHOOSE_FITTING, CHOOSE_STORED, CHOOSE_TERNARY, CHOOSE_FLOAT };

struct conversion {
    const struct convert_options *options;
    enum choice choice;
    enum format_id target; /* of TERNARY and FLOAT */
    json_t *document;      /* owned: config.json */
    struct hf_config config;
    struct safetensors folder;
    struct hf_tensors tensors;
    struct hf_tokenizer tokenizer;
    enum format_id *formats; /* owned: per tensor */
    struct gguf_writer out;
    double largest_change;
};

/* Ternary types that are read back as what they were written. */
static bool is_ternary_target(enum format_id id)
{
    static const enum format_id excluded[] = {FORMAT_PQ2_0, FORMAT_PTQ1_0, FORMAT_I2_S_4ROW,
                                              FORMAT_I2_S_ARM, FORMAT_Q2_0_G128};
    for (size_t i = 0; i < sizeof excluded / sizeof excluded[0]; i++)
        if (id == excluded[i])
            return false;
    return format_of(id)->is_ternary;
}

static bool is_float_target(enum format_id id)
{
    return id == FORMAT_F32 || id == FORMAT_F16 || id == FORMAT_BF16;
}

/* All names of --type. */
static void list_targets(char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "keep");
    for (int id = 0; id < N_FORMATS && n < size; id++)
        if (is_float_target((enum format_id)id) || is_ternary_target((enum format_id)id))
            n += (size_t)snprintf(out + n, size - n, ", %s", format_of((enum format_id)id)->name);
}

static enum status read_type(struct conversion *c, struct error *err)
{
    const char *name = c->options->type;
    char targets[256];
    c->choice = !name ? CHOOSE_FITTING : CHOOSE_STORED;
    if (!name || strcmp(name, "keep") == 0)
        return STATUS_OK;
    c->target = format_by_name(name);
    if (is_float_target(c->target))
        c->choice = CHOOSE_FLOAT;
    else if (c->target != N_FORMATS && is_ternary_target(c->target))
        c->choice = CHOOSE_TERNARY;
    if (c->choice != CHOOSE_STORED)
        return STATUS_OK;
    list_targets(targets, sizeof targets);
    return fail(err, STATUS_USAGE, "--type: '%s' is none of %s", name, targets);
}

static enum status read_options(struct conversion *c, struct error *err)
{
    const struct convert_options *o = c->options;
    char known[512];
    if (!o->dir || !o->out)
        return fail(err, STATUS_USAGE, "give DIR and OUT");
    pretokenizer_names(known, sizeof known);
    if (o->pre_tokenizer && !pretokenizer_find(text_of(o->pre_tokenizer)))
        return fail(err, STATUS_USAGE, "--pre-tokenizer: '%s' is none of %s", o->pre_tokenizer,
                    known);
    return read_type(c, err);
}

/* The output must not replace what is read. */
static enum status refuse_own_files(const struct conversion *c, struct error *err)
{
    char path[4200];
    for (int i = 0; i < c->folder.n_files; i++)
        TRY(cli_refuse_same_file(c->folder.files[i].path, c->options->out, err));
    for (int i = 0; i < N_HF_FILES; i++) {
        snprintf(path, sizeof path, "%.4096s/%s", c->options->dir, hf_file_names[i]);
        TRY(cli_refuse_same_file(path, c->options->out, err));
    }
    return STATUS_OK;
}

static enum status read_folder(struct conversion *c, struct error *err)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", c->options->dir, hf_file_names[HF_FILE_CONFIG]) >=
        (int)sizeof path)
        return fail(err, STATUS_USAGE, "DIR: a path of %zu bytes is too long",
                    strlen(c->options->dir));
    TRY(json_read_file(path, false, &c->document, err));
    TRY(hf_config_read(&c->config, c->document, path, err));
    TRY(safetensors_open(&c->folder, c->options->dir, err));
    TRY(refuse_own_files(c, err));
    TRY(hf_tensors_list(&c->tensors, &c->config, &c->folder, err));
    return hf_tokenizer_open(&c->tokenizer, c->options->dir, (uint32_t)c->config.model.n_vocab,
                             c->options->pre_tokenizer, c->document, err);
}

/* The type for a ternary matrix that holds it exactly; what is stored now if none does. */
static enum format_id fitting_format(const struct hf_tensor *t)
{
    int64_t group = t->kind == HF_TERNARY_FOUND ? t->group : t->cols;
    if (t->cols % 256 == 0 && group % 256 == 0 && t->is_scale_f16)
        return FORMAT_TQ2_0;
    if (t->cols % 128 == 0 && t->has_one_scale)
        return FORMAT_I2_S;
    if (t->cols % 64 == 0 && group == t->cols)
        return FORMAT_IQ2_BN;
    if (t->cols % 64 == 0 && t->is_scale_f16)
        return FORMAT_Q2_0;
    return hf_tensor_stored(t);
}

static enum format_id choose_format(const struct conversion *c, const struct hf_tensor *t)
{
    bool is_ternary = t->kind != HF_VECTOR && t->kind != HF_ORDINARY;
    if (t->kind == HF_VECTOR)
        return FORMAT_F32;
    if (c->choice == CHOOSE_FLOAT || (c->choice == CHOOSE_TERNARY && is_ternary))
        return c->target;
    bool is_new = t->kind == HF_TERNARY_PACKED || t->kind == HF_TERNARY_MADE;
    if (is_new || (is_ternary && c->choice == CHOOSE_FITTING))
        return fitting_format(t);
    return hf_tensor_stored(t);
}

/* Unrounded weights of a model that rounds them whenever it runs are another model. */
static enum status refuse_unrounded(const struct conversion *c, const struct hf_tensor *t,
                                    struct error *err)
{
    if (c->config.weights != HF_ROUNDED_AT_RUN || t->kind != HF_ORDINARY || !t->is_projection)
        return STATUS_OK;
    return fail(err, STATUS_UNSUPPORTED,
                "%s: tensor '%s' is not ternary, and %s; give --make-ternary to store them "
                "rounded",
                c->options->dir, t->name, c->config.reason);
}

static enum status examine(struct conversion *c, struct error *err)
{
    size_t n_ternary = 0;
    c->formats = memory_alloc(c->tensors.n, sizeof *c->formats);
    if (!c->formats)
        return fail_memory(err, c->options->dir, c->tensors.n * sizeof *c->formats);
    for (size_t i = 0; i < c->tensors.n; i++) {
        struct hf_tensor *t = &c->tensors.list[i];
        struct error reason;
        enum status status = hf_tensor_examine(t, c->options->make_ternary, &reason);
        if (status != STATUS_OK)
            return fail(err, status, "%s: %s", c->options->dir, reason.text);
        TRY(refuse_unrounded(c, t, err));
        c->formats[i] = choose_format(c, t);
        n_ternary += t->kind != HF_VECTOR && t->kind != HF_ORDINARY;
        status_line_count("reading", i + 1, c->tensors.n);
    }
    if (c->choice == CHOOSE_TERNARY && n_ternary == 0)
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: none of its %zu tensors is ternary, and only those can become %s",
                    c->options->dir, c->tensors.n, format_of(c->target)->name);
    return STATUS_OK;
}

/* A text that names a tensor, for messages. */
static const char *name_tensor(const struct conversion *c, size_t i, char what[400])
{
    snprintf(what, 400, "%.280s: tensor '%s'", c->options->dir, c->tensors.list[i].name);
    return what;
}

static enum status tensor_bytes(const struct conversion *c, size_t i, uint64_t *bytes,
                                struct error *err)
{
    char what[400];
    const struct hf_tensor *t = &c->tensors.list[i];
    return format_bytes(c->formats[i], (uint64_t)t->rows, (uint64_t)t->cols,
                        name_tensor(c, i, what), bytes, err);
}

static enum status declare(struct conversion *c, struct error *err)
{
    for (size_t i = 0; i < c->tensors.n; i++) {
        const struct hf_tensor *t = &c->tensors.list[i];
        const uint64_t ne[] = {(uint64_t)t->cols, (uint64_t)t->rows};
        uint64_t bytes;
        TRY(tensor_bytes(c, i, &bytes, err));
        TRY(gguf_put_tensor(&c->out, text_of(t->name), t->kind == HF_VECTOR ? 1 : 2, ne,
                            format_of(c->formats[i])->type_id, bytes, err));
    }
    return STATUS_OK;
}

static enum status write_ternary(struct conversion *c, size_t i, struct error *err)
{
    char what[400];
    uint64_t bytes;
    TRY(tensor_bytes(c, i, &bytes, err));
    uint8_t *out = memory_alloc(bytes, 1);
    if (!out)
        return fail_memory(err, c->options->out, bytes);
    enum status status =
        hf_tensor_encode(&c->tensors.list[i], c->formats[i], name_tensor(c, i, what), out, err);
    if (status == STATUS_OK)
        status = gguf_write_data(&c->out, out, bytes, err);
    memory_free(out);
    return status;
}

static int64_t chunk_rows(const struct hf_tensor *t)
{
    int64_t rows = CHUNK_WEIGHTS / t->cols;
    return rows < 1 ? 1 : rows < t->rows ? rows : t->rows;
}

static enum status write_floats(struct conversion *c, size_t i, struct error *err)
{
    const struct hf_tensor *t = &c->tensors.list[i];
    int64_t step = chunk_rows(t);
    size_t n = (size_t)step * (size_t)t->cols;
    float *values = memory_alloc(n, sizeof *values);
    uint8_t *out = memory_alloc(n, sizeof(float));
    enum status status = values && out ? STATUS_OK : fail_memory(err, c->options->out, 8 * n);
    for (int64_t r = 0; status == STATUS_OK && r < t->rows; r += step) {
        int64_t end = r + step < t->rows ? r + step : t->rows;
        hf_tensor_rows(t, r, end, values);
        format_of(c->formats[i])->encode(values, end - r, t->cols, out);
        size_t row_bytes = (size_t)format_row_bytes(c->formats[i], (uint64_t)t->cols);
        status = gguf_write_data(&c->out, out, (size_t)(end - r) * row_bytes, err);
    }
    memory_free(values);
    memory_free(out);
    return status;
}

static enum status write_tensors(struct conversion *c, struct error *err)
{
    for (size_t i = 0; i < c->tensors.n; i++) {
        TRY(format_of(c->formats[i])->is_ternary ? write_ternary(c, i, err)
                                                 : write_floats(c, i, err));
        status_line_count("writing", i + 1, c->tensors.n);
    }
    return STATUS_OK;
}

/* Rounds values as the type they were written in does. */
static void round_to(enum format_id format, float *values, int64_t n, uint8_t *scratch)
{
    struct tensor t = {.format = format, .n_cols = n, .n_rows = 1, .data = scratch};
    format_of(format)->encode(values, 1, n, scratch);
    tensor_decode(&t, 0, 1, values);
}

/* Three rows' worth of memory for a comparison. */
struct rows {
    float *expected, *rounded, *found; /* owned */
    uint8_t *scratch;                  /* owned */
};

/* Compares n values that begin at a row. */
static enum status compare(struct conversion *c, size_t i, int64_t row, int64_t n, struct rows *r,
                           struct error *err)
{
    const struct hf_tensor *t = &c->tensors.list[i];
    bool is_rounded = c->choice == CHOOSE_FLOAT && t->kind != HF_VECTOR;
    memcpy(r->rounded, r->expected, (size_t)n * sizeof *r->rounded);
    if (is_rounded)
        round_to(c->formats[i], r->rounded, n, r->scratch);
    for (int64_t k = 0; k < n; k++) {
        char what[400];
        if (r->rounded[k] != r->found[k] || !isfinite(r->found[k]))
            return fail(err, STATUS_UNSUPPORTED,
                        "%s: row %lld, column %lld: %.9g becomes %.9g in %s; choose another --type",
                        name_tensor(c, i, what), (long long)(row + k / t->cols),
                        (long long)(k % t->cols), (double)r->expected[k], (double)r->found[k],
                        format_of(c->formats[i])->name);
        double change = fabs((double)r->expected[k] - (double)r->found[k]);
        c->largest_change = change > c->largest_change ? change : c->largest_change;
    }
    return STATUS_OK;
}

static enum status compare_rows(struct conversion *c, size_t i, const struct tensor *written,
                                struct rows *r, struct error *err)
{
    const struct hf_tensor *t = &c->tensors.list[i];
    int64_t step = chunk_rows(t);
    for (int64_t row = 0; row < t->rows; row += step) {
        int64_t end = row + step < t->rows ? row + step : t->rows;
        hf_tensor_rows(t, row, end, r->expected);
        tensor_decode(written, row, end, r->found);
        TRY(compare(c, i, row, (end - row) * t->cols, r, err));
    }
    return STATUS_OK;
}

static enum status verify_tensor(struct conversion *c, size_t i, const struct gguf_tensor *g,
                                 struct error *err)
{
    const struct hf_tensor *t = &c->tensors.list[i];
    struct tensor written = model_tensor(g);
    size_t n = (size_t)chunk_rows(t) * (size_t)t->cols;
    if (written.format != c->formats[i])
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: tensor '%s' would be read back as %s, not as %s; choose another --type",
                    c->options->out, t->name, format_of(written.format)->name,
                    format_of(c->formats[i])->name);
    struct rows r = {memory_alloc(n, sizeof(float)), memory_alloc(n, sizeof(float)),
                     memory_alloc(n, sizeof(float)), memory_alloc(n, sizeof(float))};
    enum status status = r.expected && r.rounded && r.found && r.scratch
                             ? compare_rows(c, i, &written, &r, err)
                             : fail_memory(err, c->options->out, 4 * n * sizeof(float));
    memory_free(r.expected);
    memory_free(r.rounded);
    memory_free(r.found);
    memory_free(r.scratch);
    return status;
}

/* The file must also open as a model with a vocabulary. */
static enum status open_written(struct gguf_file *written, const char *path, struct error *err)
{
    struct tokenizer *tokenizer;
    struct model model;
    TRY(tokenizer_open(&tokenizer, written, path, NULL, err));
    tokenizer_close(tokenizer);
    TRY(model_bind(&model, path, written, err));
    model_close(&model);
    return STATUS_OK;
}

/* Every tensor must be there, by its name, and no other one. */
static enum status verify_tensors(struct conversion *c, const struct gguf_file *written,
                                  struct error *err)
{
    if (written->n_tensors != c->tensors.n)
        return fail(err, STATUS_FORMAT, "%s: holds %zu tensors, expected %zu", c->options->out,
                    written->n_tensors, c->tensors.n);
    for (size_t i = 0; i < c->tensors.n; i++) {
        const struct gguf_tensor *g = gguf_find_tensor(written, c->tensors.list[i].name);
        if (!g)
            return fail(err, STATUS_FORMAT, "%s: tensor '%s' is absent", c->options->out,
                        c->tensors.list[i].name);
        TRY(verify_tensor(c, i, g, err));
        status_line_count("comparing", i + 1, c->tensors.n);
    }
    return STATUS_OK;
}

/* Reads the finished file back under its temporary name. */
static enum status verify(struct conversion *c, struct error *err)
{
    struct gguf_file written;
    TRY(gguf_writer_flush(&c->out, err));
    TRY(gguf_open(&written, gguf_writer_name(&c->out), format_resolve, err));
    enum status status = verify_tensors(c, &written, err);
    if (status == STATUS_OK)
        status = open_written(&written, gguf_writer_name(&c->out), err);
    gguf_close(&written);
    return status;
}

/* The folder's own name, for general.name. */
static void model_name(const char *dir, char name[256])
{
    char resolved[4096];
    const char *path = strlen(dir) < sizeof resolved && realpath(dir, resolved) ? resolved : dir;
    const char *last = strrchr(path, '/');
    snprintf(name, 256, "%.250s", last && last[1] ? last + 1 : path);
}

static enum status convert(struct conversion *c, struct error *err)
{
    char name[256];
    TRY(read_options(c, err));
    TRY(read_folder(c, err));
    TRY(examine(c, err));
    model_name(c->options->dir, name);
    TRY(gguf_writer_open(&c->out, c->options->out, err));
    TRY(hf_config_put(&c->config, name, &c->out, err));
    TRY(hf_tokenizer_put(&c->tokenizer, &c->out, err));
    TRY(declare(c, err));
    TRY(gguf_write_header(&c->out, err));
    TRY(write_tensors(c, err));
    TRY(verify(c, err));
    return gguf_writer_commit(&c->out, err);
}

static int run_command(const void *values)
{
    struct conversion c = {.options = values};
    struct error err;
    enum status status = convert(&c, &err);
    if (status == STATUS_OK)
        convert_report_print(&(struct convert_report){
            c.options->out, &c.config, &c.tensors, c.formats, &c.tokenizer,
            c.choice == CHOOSE_FITTING, c.out.file.bytes, c.largest_change});
    gguf_writer_close(&c.out);
    hf_tokenizer_close(&c.tokenizer);
    hf_tensors_done(&c.tensors);
    safetensors_close(&c.folder);
    hf_config_done(&c.config);
    json_decref(c.document);
    memory_free(c.formats);
    return status == STATUS_OK ? EXIT_SUCCESS : cli_failed("convert", &err);
}

const struct command command_convert = {
    "convert",
    "write a Hugging Face folder as a GGUF file, without Python",
    "Reads safetensors, config.json, the tokenizer and the chat template of a model of class\n"
    "LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM or BitNetForCausalLM and says which\n"
    "tensors were ternary already and which were made so. The file appears under its name only\n"
    "after all values were read back and compared.",
    options,
    sizeof(struct convert_options),
    run_command};
