/* `trine quantize`: the same numbers in another type. Only ternary tensors are converted, between
 * ternary types and F16/F32, and only without loss: every value is compared after writing. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/cli.h"
#include "gguf/gguf_read.h"
#include "gguf/gguf_write.h"
#include "model/model_load.h"
#include "tensor/ternary.h"

struct quantize_options {
    const char *in, *out, *type;
};

#define QUANTIZE(field) offsetof(struct quantize_options, field)
static const struct option options[] = {
    {"IN, -m, --model", "FILE", NULL, "the GGUF file to read", OPT_TEXT, QUANTIZE(in), 0, 0},
    {"OUT, -o, --output", "FILE", NULL, "the GGUF file to write", OPT_TEXT, QUANTIZE(out), 0, 0},
    {"TYPE, -t, --type", "TYPE", NULL, "a ternary type (TQ2_0, IQ2_BN, I2_S, ...), F16 or F32",
     OPT_TEXT, QUANTIZE(type), 0, 0},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0}};

/* Most weights decoded at once when values are compared. */
#define CHUNK_WEIGHTS ((int64_t)1 << 20)

/* Widest row that is converted: far above any model. */
#define MAX_WIDTH     (1 << 24)

/* What becomes of one tensor. */
struct change {
    bool is_converted;
    int group; /* weights per scale as found in the source */
};

struct conversion {
    const struct quantize_options *options;
    struct gguf_file in;
    struct gguf_writer out;
    enum format_id target;
    struct change *changes; /* owned: per tensor */
    size_t n_converted;
    uint64_t bytes_before, bytes_after;
};

#define TARGETS "TQ1_0, TQ2_0, Q2_0, Q2_0_G128, I2_S, IQ1_BN, IQ2_BN, IQ2_BN_R4, F16, F32"

/* PQ2_0 and PTQ1_0 are for rotated weights, the other byte orders of I2_S would be read as the
 * published one: a file of those would be another model. */
static bool is_target(enum format_id id)
{
    bool is_rotated = id == FORMAT_PQ2_0 || id == FORMAT_PTQ1_0;
    bool is_unreadable = id == FORMAT_I2_S_4ROW || id == FORMAT_I2_S_ARM;
    return (format_of(id)->is_ternary && !is_rotated && !is_unreadable) || id == FORMAT_F16 ||
           id == FORMAT_F32;
}

static enum status find_target(struct conversion *c, struct error *err)
{
    const struct quantize_options *o = c->options;
    if (!o->in || !o->out || !o->type)
        return fail(err, STATUS_USAGE, "give IN, OUT and TYPE");
    c->target = format_by_name(o->type);
    if (c->target == N_FORMATS)
        return fail(err, STATUS_USAGE, "unknown type '%s'; known: " TARGETS, o->type);
    if (!is_target(c->target))
        return fail(err, STATUS_USAGE, "type %s cannot be written without loss; known: " TARGETS,
                    format_of(c->target)->name);
    return STATUS_OK;
}

/* The coarsest group of weights per scale with which a float matrix is ternary; 0: it is not. */
static int find_group(const struct tensor *t, float *row, uint8_t *codes, float *scales)
{
    const int64_t candidates[] = {t->n_cols, 256, 128, 64};
    for (int k = 0; k < 4; k++) {
        int64_t group = candidates[k], r = 0;
        if (t->n_cols % group)
            continue;
        for (; r < t->n_rows; r++) {
            tensor_decode(t, r, r + 1, row);
            if (!ternary_find(row, t->n_cols, (int)group, codes, scales))
                break;
        }
        if (r == t->n_rows)
            return (int)group;
    }
    return 0;
}

static int source_group(const struct tensor *t)
{
    int group = format_of(t->format)->scale_group;
    return group > 0 ? group : (int)t->n_cols;
}

/* A text that names a tensor of the input, for messages. */
static void name_tensor(const struct conversion *c, size_t i, char what[400])
{
    snprintf(what, 400, "%s: tensor '%.*s'", c->options->in, TEXT(c->in.tensors[i].span.name));
}

/* Decides for one tensor whether it is converted. */
static enum status plan_tensor(struct conversion *c, size_t i, struct error *err)
{
    struct tensor t = model_tensor(&c->in.tensors[i]);
    if (t.format == FORMAT_PQ2_0 || t.format == FORMAT_PTQ1_0) {
        char what[400];
        name_tensor(c, i, what);
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: type %u (%s) holds rotated weights; as another type they would be read "
                    "as plain ones. Use the file as it is with a program that rotates",
                    what, c->in.tensors[i].span.type_id, format_of(t.format)->name);
    }
    if (t.n_cols > MAX_WIDTH)
        return fail(err, STATUS_LIMIT,
                    "%s: tensor '%.*s' has rows of %" PRId64 " weights; at most "
                    "%d can be converted; the file is damaged",
                    c->options->in, TEXT(c->in.tensors[i].span.name), t.n_cols, MAX_WIDTH);
    if (c->in.tensors[i].n_dims != 2 || t.n_cols < 32 || t.n_rows < 2)
        return STATUS_OK;
    if (format_of(t.format)->is_ternary) {
        c->changes[i] = (struct change){true, source_group(&t)};
    } else if (t.format <= FORMAT_BF16) {
        float *row = memory_alloc((size_t)t.n_cols, sizeof *row);
        float *scales = memory_alloc((size_t)t.n_cols, sizeof *scales);
        uint8_t *codes = memory_alloc((size_t)t.n_cols, 1);
        bool is_ready = row && scales && codes;
        int group = is_ready ? find_group(&t, row, codes, scales) : 0;
        memory_free(row);
        memory_free(scales);
        memory_free(codes);
        if (!is_ready)
            return fail_memory(err, c->options->in, (size_t)t.n_cols * sizeof *row);
        c->changes[i] = (struct change){group > 0, group};
    }
    c->n_converted += c->changes[i].is_converted;
    return STATUS_OK;
}

static enum status plan(struct conversion *c, struct error *err)
{
    c->changes = memory_alloc(c->in.n_tensors, sizeof *c->changes);
    if (!c->changes)
        return fail_memory(err, c->options->in, c->in.n_tensors * sizeof *c->changes);
    for (size_t i = 0; i < c->in.n_tensors; i++) {
        char what[400];
        name_tensor(c, i, what);
        struct tensor t = model_tensor(&c->in.tensors[i]);
        TRY(format_check_scales(&t, what, err));
        TRY(plan_tensor(c, i, err));
    }
    if (!c->n_converted)
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: none of its %zu tensors is ternary, and %s can take only ternary tensors "
                    "without loss",
                    c->options->in, c->in.n_tensors, format_of(c->target)->name);
    return STATUS_OK;
}

static enum status put_pairs(struct conversion *c, struct error *err)
{
    for (size_t i = 0; i < c->in.n_pairs; i++) {
        const struct gguf_pair *pair = &c->in.pairs[i];
        /* The parts become one file; the file type names the old tensors. */
        if (!text_starts(pair->key, "split.") && !text_is(pair->key, "general.file_type"))
            TRY(gguf_put_pair(&c->out, pair, err));
    }
    static const struct {
        enum format_id format;
        uint32_t file_type;
    } known[] = {{FORMAT_F32, 0}, {FORMAT_F16, 1}, {FORMAT_TQ1_0, 36}, {FORMAT_TQ2_0, 37}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].format == c->target)
            TRY(gguf_put_u32(&c->out, "general.file_type", known[i].file_type, err));
    return STATUS_OK;
}

static enum status put_tensors(struct conversion *c, struct error *err)
{
    for (size_t i = 0; i < c->in.n_tensors; i++) {
        const struct gguf_tensor *t = &c->in.tensors[i];
        uint32_t type_id = t->span.type_id;
        uint64_t bytes = t->span.bytes;
        if (c->changes[i].is_converted) {
            char what[400];
            name_tensor(c, i, what);
            type_id = format_of(c->target)->type_id;
            TRY(format_bytes(c->target, t->span.ne[1], t->span.ne[0], what, &bytes, err));
        }
        c->bytes_before += t->span.bytes;
        c->bytes_after += bytes;
        TRY(gguf_put_tensor(&c->out, t->span.name, (int)t->n_dims, t->span.ne, type_id, bytes,
                            err));
    }
    return STATUS_OK;
}

/* Codes and scales of a whole matrix, from a ternary type or from ternary floats. */
static void extract(const struct tensor *t, struct ternary_rows *rows, float *row)
{
    if (format_of(t->format)->is_ternary) {
        ternary_extract(t, 0, t->n_rows, rows);
        return;
    }
    for (int64_t r = 0; r < t->n_rows; r++) {
        tensor_decode(t, r, r + 1, row);
        ternary_find(row, t->n_cols, rows->group, rows->codes + r * t->n_cols,
                     rows->scales + r * (t->n_cols / rows->group));
    }
}

static enum status write_ternary(struct conversion *c, size_t i, const struct tensor *t,
                                 struct error *err)
{
    char what[400];
    name_tensor(c, i, what);
    struct ternary_rows rows = {.group = c->changes[i].group};
    size_t n = (size_t)t->n_rows * (size_t)t->n_cols;
    uint64_t bytes;
    TRY(format_bytes(c->target, (uint64_t)t->n_rows, (uint64_t)t->n_cols, what, &bytes, err));
    rows.codes = memory_alloc(n, 1);
    rows.scales = memory_alloc(n / (size_t)rows.group, sizeof *rows.scales);
    float *row = memory_alloc((size_t)t->n_cols, sizeof *row);
    uint8_t *out = memory_alloc(bytes, 1);
    enum status status;
    if (rows.codes && rows.scales && row && out) {
        extract(t, &rows, row);
        status = ternary_encode(c->target, &rows, t->n_rows, t->n_cols, what, out, err);
        if (status == STATUS_OK)
            status = gguf_write_data(&c->out, out, bytes, err);
    } else {
        status = fail_memory(err, what, n + bytes);
    }
    memory_free(rows.codes);
    memory_free(rows.scales);
    memory_free(row);
    memory_free(out);
    return status;
}

static int64_t chunk_rows(const struct tensor *t)
{
    int64_t rows = CHUNK_WEIGHTS / t->n_cols;
    return rows > 0 ? rows : 1;
}

static enum status write_floats(struct conversion *c, const struct tensor *t, struct error *err)
{
    int64_t step = chunk_rows(t);
    size_t n = (size_t)step * (size_t)t->n_cols;
    float *values = memory_alloc(n, sizeof *values);
    uint8_t *out = memory_alloc(n, sizeof(float));
    enum status status = values && out ? STATUS_OK : fail_memory(err, c->options->in, 8 * n);
    for (int64_t r = 0; status == STATUS_OK && r < t->n_rows; r += step) {
        int64_t end = r + step < t->n_rows ? r + step : t->n_rows;
        tensor_decode(t, r, end, values);
        format_of(c->target)->encode(values, end - r, t->n_cols, out);
        size_t bytes = (size_t)(end - r) * (size_t)t->n_cols * (c->target == FORMAT_F16 ? 2 : 4);
        status = gguf_write_data(&c->out, out, bytes, err);
    }
    memory_free(values);
    memory_free(out);
    return status;
}

static void show_progress(size_t i, size_t n)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\rtensor %zu of %zu%s", i, n, i == n ? "\r\033[K" : "");
}

static enum status write_tensors(struct conversion *c, struct error *err)
{
    for (size_t i = 0; i < c->in.n_tensors; i++) {
        const struct gguf_tensor *g = &c->in.tensors[i];
        struct tensor t = model_tensor(g);
        if (!c->changes[i].is_converted)
            TRY(gguf_write_data(&c->out, g->data, g->span.bytes, err));
        else if (format_of(c->target)->is_ternary)
            TRY(write_ternary(c, i, &t, err));
        else
            TRY(write_floats(c, &t, err));
        show_progress(i + 1, c->in.n_tensors);
    }
    return STATUS_OK;
}

/* Compares all values of a converted tensor; before and after hold CHUNK_WEIGHTS or one row. */
static enum status compare_values(const struct conversion *c, size_t i, const struct tensor *a,
                                  const struct tensor *b, float *before, float *after,
                                  struct error *err)
{
    int64_t step = chunk_rows(a);
    for (int64_t r = 0; r < a->n_rows; r += step) {
        int64_t end = r + step < a->n_rows ? r + step : a->n_rows;
        tensor_decode(a, r, end, before);
        tensor_decode(b, r, end, after);
        for (int64_t k = 0; k < (end - r) * a->n_cols; k++)
            if (before[k] != after[k]) {
                char what[400];
                name_tensor(c, i, what);
                return fail(err, STATUS_UNSUPPORTED,
                            "%s: row %" PRId64 ", column %" PRId64 ": %.9g becomes %.9g in %s; a "
                            "type with f32 scales (IQ2_BN, I2_S) or F32 holds it",
                            what, r + k / a->n_cols, k % a->n_cols, before[k], after[k],
                            format_of(c->target)->name);
            }
    }
    return STATUS_OK;
}

static enum status verify_tensor(const struct conversion *c, size_t i, const struct gguf_tensor *w,
                                 struct error *err)
{
    const struct gguf_tensor *g = &c->in.tensors[i];
    if (!c->changes[i].is_converted) {
        if (g->span.bytes == w->span.bytes && !memcmp(g->data, w->data, g->span.bytes))
            return STATUS_OK;
        return fail(err, STATUS_IO,
                    "%s: tensor '%.*s' reads back differently from what was written",
                    c->options->out, TEXT(g->span.name));
    }
    struct tensor a = model_tensor(g), b = model_tensor(w);
    if (b.format != c->target) /* one id may stand for several layouts */
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: tensor '%.*s' would be read back as %s, not as %s; choose another type",
                    c->options->out, TEXT(g->span.name), format_of(b.format)->name,
                    format_of(c->target)->name);
    size_t n = (size_t)chunk_rows(&a) * (size_t)a.n_cols;
    float *before = memory_alloc(n, sizeof *before), *after = memory_alloc(n, sizeof *after);
    enum status status = before && after
                             ? compare_values(c, i, &a, &b, before, after, err)
                             : fail_memory(err, c->options->out, 2 * n * sizeof *before);
    memory_free(before);
    memory_free(after);
    return status;
}

/* Reads the finished file back under its temporary name. */
static enum status verify(struct conversion *c, struct error *err)
{
    struct gguf_file written;
    TRY(gguf_writer_flush(&c->out, err));
    TRY(gguf_open(&written, gguf_writer_name(&c->out), format_resolve, err));
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < written.n_tensors; i++)
        status = verify_tensor(c, i, &written.tensors[i], err);
    gguf_close(&written);
    return status;
}

static enum status quantize(struct conversion *c, struct error *err)
{
    TRY(find_target(c, err));
    TRY(gguf_open(&c->in, c->options->in, format_resolve, err));
    TRY(plan(c, err));
    TRY(gguf_writer_open(&c->out, c->options->out, err));
    TRY(put_pairs(c, err));
    TRY(put_tensors(c, err));
    TRY(gguf_write_header(&c->out, err));
    TRY(write_tensors(c, err));
    TRY(verify(c, err));
    return gguf_writer_commit(&c->out, err);
}

static int run_command(const void *values)
{
    struct conversion c = {.options = values};
    struct error err;
    enum status status = quantize(&c, &err);
    char before[16], after[16];
    if (status == STATUS_OK)
        fprintf(
            stderr,
            "%s: %zu tensors to %s, %zu kept; weights %s before, %s after; every value compared\n",
            c.options->out, c.n_converted, format_of(c.target)->name,
            c.in.n_tensors - c.n_converted, cli_size(c.bytes_before, before),
            cli_size(c.bytes_after, after));
    gguf_writer_close(&c.out);
    gguf_close(&c.in);
    memory_free(c.changes);
    return status == STATUS_OK ? EXIT_SUCCESS : cli_failed("quantize", &err);
}

const struct command command_quantize = {
    "quantize",
    "store a ternary model in another type, without loss",
    "Converts every ternary tensor to TYPE and keeps the others and the metadata\n"
    "(but general.file_type, which names the types). The file\n"
    "appears under its name only after all values were read back and compared.",
    options,
    sizeof(struct quantize_options),
    run_command};
