#include "cli/quantize_write.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "gguf/gguf_write.h"
#include "model/model_load.h"
#include "tensor/ternary.h"

/* Most weights decoded at once, if a row has no more: their floats stay in the second-level cache. */
#define CHUNK_WEIGHTS ((int64_t)1 << 16)

struct writing {
    const struct quantize_plan *plan;
    const struct gguf_file *in;
    const char *in_path, *out_path;
    enum format_id type;
    struct quantize_error *errors;
    struct gguf_writer out;
    float *before, *after; /* owned: chunks of values */
    uint8_t *bytes;        /* owned: a chunk encoded */
    uint64_t *hashes;      /* owned: per tensor, of the bytes that its encoder made */
};

/* A text that names a tensor of the input, for messages. */
static void name_tensor(const struct writing *w, size_t i, char what[400])
{
    snprintf(what, 400, "%s: tensor '%.*s'", w->in_path, TEXT(w->in->tensors[i].span.name));
}

/* The number by which other programs name a file of this type; -1: it has none. Of the K types the
 * variant that has no other type among its projections ("Q4_K_S"). */
static int file_type(enum format_id type)
{
    switch (type) {
    case FORMAT_F32: return 0;
    case FORMAT_F16: return 1;
    case FORMAT_Q4_0: return 2;
    case FORMAT_Q4_1: return 3;
    case FORMAT_Q8_0: return 7;
    case FORMAT_Q5_0: return 8;
    case FORMAT_Q5_1: return 9;
    case FORMAT_Q2_K: return 10;
    case FORMAT_Q3_K: return 11;
    case FORMAT_Q4_K: return 14;
    case FORMAT_Q5_K: return 16;
    case FORMAT_Q6_K: return 18;
    case FORMAT_IQ4_NL: return 25;
    case FORMAT_IQ4_XS: return 30;
    case FORMAT_BF16: return 32;
    case FORMAT_TQ1_0: return 36;
    case FORMAT_TQ2_0: return 37;
    default: return -1;
    }
}

#define QUANTIZATION_VERSION 2 /* of all block types */

/* All pairs but those about splitting, because the parts become one file, and about types. */
static enum status put_pairs(struct writing *w, struct error *err)
{
    bool is_float = format_of(w->type)->block == 1;
    for (size_t i = 0; i < w->in->n_pairs; i++) {
        const struct gguf_pair *pair = &w->in->pairs[i];
        bool is_version = text_is(pair->key, "general.quantization_version") && !is_float;
        if (!text_starts(pair->key, "split.") && !text_is(pair->key, "general.file_type") &&
            !is_version)
            TRY(gguf_put_pair(&w->out, pair, err));
    }
    if (file_type(w->type) >= 0)
        TRY(gguf_put_u32(&w->out, "general.file_type", (uint32_t)file_type(w->type), err));
    if (!is_float)
        TRY(gguf_put_u32(&w->out, "general.quantization_version", QUANTIZATION_VERSION, err));
    return STATUS_OK;
}

static enum status put_tensors(struct writing *w, struct error *err)
{
    for (size_t i = 0; i < w->in->n_tensors; i++) {
        const struct gguf_tensor *t = &w->in->tensors[i];
        const struct tensor_plan *plan = &w->plan->tensors[i];
        bool is_kept = plan->how == QUANTIZE_KEEP;
        TRY(gguf_put_tensor(&w->out, t->span.name, (int)t->n_dims, t->span.ne,
                            is_kept ? t->span.type_id : format_of(plan->target)->type_id,
                            plan->bytes, err));
    }
    return STATUS_OK;
}

/* Codes and scales of a whole matrix, from a ternary type or from ternary values. */
static void extract(const struct tensor *t, struct ternary_rows *rows, void *scratch)
{
    if (format_of(t->format)->is_ternary) {
        ternary_extract(t, 0, t->n_rows, rows);
        return;
    }
    for (int64_t r = 0; r < t->n_rows; r++)
        ternary_read(t, r, rows->group, scratch, rows->codes + r * t->n_cols,
                     rows->scales + r * (t->n_cols / rows->group));
}

static enum status write_codes(struct writing *w, size_t i, struct error *err)
{
    char what[400];
    struct tensor t = model_tensor(&w->in->tensors[i]);
    const struct tensor_plan *plan = &w->plan->tensors[i];
    struct ternary_rows rows = {.group = plan->group};
    size_t n = (size_t)t.n_rows * (size_t)t.n_cols;
    name_tensor(w, i, what);
    rows.codes = memory_alloc(n, 1);
    rows.scales = memory_alloc(n / (size_t)rows.group, sizeof *rows.scales);
    uint8_t *out = memory_alloc(plan->bytes, 1);
    enum status status;
    if (rows.codes && rows.scales && out) {
        extract(&t, &rows, w->before);
        status = ternary_encode(plan->target, &rows, t.n_rows, t.n_cols, what, out, err);
        if (status == STATUS_OK)
            status = gguf_write_data(&w->out, out, plan->bytes, err);
    } else {
        status = fail_memory(err, what, n + plan->bytes);
    }
    memory_free(rows.codes);
    memory_free(rows.scales);
    memory_free(out);
    return status;
}

/* Rows [row, end) are handled together; formats that are not ternary have rows of their own. */
static int64_t chunk_end(const struct tensor *t, int64_t row)
{
    int64_t rows = CHUNK_WEIGHTS / t->n_cols > 0 ? CHUNK_WEIGHTS / t->n_cols : 1;
    return row + rows < t->n_rows ? row + rows : t->n_rows;
}

static uint64_t chunk_hash(uint64_t hash, const uint8_t *bytes, size_t n)
{
    return number_hash(hash ^ text_hash((struct text){(const char *)bytes, n}));
}

/* A value that the target does not hold: of CODES any other, of VALUES one that became infinite. */
static enum status fail_value(const struct writing *w, size_t i, int64_t row, int64_t at,
                              struct error *err)
{
    char what[400];
    const struct tensor_plan *plan = &w->plan->tensors[i];
    int64_t n_cols = (int64_t)w->in->tensors[i].span.ne[0];
    name_tensor(w, i, what);
    return fail(err, STATUS_UNSUPPORTED,
                "%s: row %" PRId64 ", column %" PRId64 ": %.9g becomes %.9g in %s; %s holds it",
                what, row + at / n_cols, at % n_cols, (double)w->before[at], (double)w->after[at],
                format_of(plan->target)->name,
                plan->how == QUANTIZE_CODES ? "a type with f32 scales (IQ2_BN, I2_S) or F32"
                                            : "F32 or BF16");
}

/* Adds the differences of n values; the first that cannot be accepted, or n. */
static int64_t add_errors(const struct writing *w, size_t i, int64_t n)
{
    bool is_exact = w->plan->tensors[i].how == QUANTIZE_CODES, is_bad = false;
    double difference2 = 0, weight2 = 0;
    for (int64_t k = 0; k < n; k++) {
        double difference = (double)w->after[k] - (double)w->before[k];
        difference2 += difference * difference;
        weight2 += (double)w->before[k] * (double)w->before[k];
        is_bad |= is_exact && w->after[k] != w->before[k];
    }
    w->errors[i].difference2 += difference2;
    w->errors[i].weight2 += weight2;
    if (!is_bad && isfinite(difference2))
        return n;
    int64_t k = 0;
    while (k < n && (is_exact ? w->after[k] == w->before[k] : (bool)isfinite(w->after[k])))
        k++;
    return k;
}

static enum status write_values(struct writing *w, size_t i, struct error *err)
{
    struct tensor t = model_tensor(&w->in->tensors[i]);
    enum format_id target = w->plan->tensors[i].target;
    size_t row_bytes = format_row_bytes(target, (uint64_t)t.n_cols);
    for (int64_t row = 0, end; row < t.n_rows; row = end) {
        end = chunk_end(&t, row);
        size_t n_bytes = (size_t)(end - row) * row_bytes;
        int64_t n = (end - row) * t.n_cols;
        struct tensor encoded = {target, t.n_cols, end - row, w->bytes, n_bytes};
        tensor_decode(&t, row, end, w->before);
        format_of(target)->encode(w->before, end - row, t.n_cols, w->bytes);
        tensor_decode(&encoded, 0, end - row, w->after);
        int64_t bad = add_errors(w, i, n);
        if (bad < n)
            return fail_value(w, i, row, bad, err);
        w->hashes[i] = chunk_hash(w->hashes[i], w->bytes, n_bytes);
        TRY(gguf_write_data(&w->out, w->bytes, n_bytes, err));
    }
    return STATUS_OK;
}

static void show_progress(const char *what, size_t i, size_t n)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%s tensor %zu of %zu%s", what, i, n, i == n ? "\r\033[K" : "");
}

static enum status write_tensors(struct writing *w, struct error *err)
{
    for (size_t i = 0; i < w->in->n_tensors; i++) {
        const struct gguf_tensor *g = &w->in->tensors[i];
        switch (w->plan->tensors[i].how) {
        case QUANTIZE_KEEP: TRY(gguf_write_data(&w->out, g->data, g->span.bytes, err)); break;
        case QUANTIZE_CODES: TRY(write_codes(w, i, err)); break;
        case QUANTIZE_VALUES: TRY(write_values(w, i, err)); break;
        }
        show_progress("write", i + 1, w->in->n_tensors);
    }
    return STATUS_OK;
}

/* Compares a tensor that was read back with the source. */
static enum status verify_codes(const struct writing *w, size_t i, const struct tensor *written,
                                struct error *err)
{
    struct tensor t = model_tensor(&w->in->tensors[i]);
    for (int64_t row = 0, end; row < t.n_rows; row = end) {
        end = chunk_end(&t, row);
        int64_t n = (end - row) * t.n_cols;
        tensor_decode(&t, row, end, w->before);
        tensor_decode(written, row, end, w->after);
        int64_t bad = add_errors(w, i, n);
        if (bad < n)
            return fail_value(w, i, row, bad, err);
    }
    return STATUS_OK;
}

/* The hash of a tensor in the file, by the chunks it was made of. */
static uint64_t hash_written(const struct tensor *t)
{
    uint64_t hash = 0, row_bytes = format_row_bytes(t->format, (uint64_t)t->n_cols);
    for (int64_t row = 0, end; row < t->n_rows; row = end) {
        end = chunk_end(t, row);
        hash = chunk_hash(hash, t->data + (uint64_t)row * row_bytes, (end - row) * row_bytes);
    }
    return hash;
}

static enum status verify_tensor(const struct writing *w, size_t i, const struct gguf_tensor *g,
                                 struct error *err)
{
    const struct gguf_tensor *source = &w->in->tensors[i];
    const struct tensor_plan *plan = &w->plan->tensors[i];
    struct tensor t = model_tensor(g);
    if (t.format != plan->target) /* one id may stand for several layouts */
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: tensor '%.*s' would be read back as %s, not as %s; choose another type",
                    w->out_path, TEXT(g->span.name), format_of(t.format)->name,
                    format_of(plan->target)->name);
    bool is_same = g->span.bytes == plan->bytes;
    if (plan->how == QUANTIZE_KEEP)
        is_same = is_same && !memcmp(source->data, g->data, g->span.bytes);
    else if (plan->how == QUANTIZE_VALUES)
        is_same = is_same && hash_written(&t) == w->hashes[i];
    if (!is_same)
        return fail(err, STATUS_IO,
                    "%s: tensor '%.*s' reads back differently from what was written; the disk or "
                    "the memory is not reliable",
                    w->out_path, TEXT(g->span.name));
    return plan->how == QUANTIZE_CODES ? verify_codes(w, i, &t, err) : STATUS_OK;
}

/* Reads the finished file back under its temporary name. */
static enum status verify(struct writing *w, struct error *err)
{
    struct gguf_file written;
    TRY(gguf_writer_flush(&w->out, err));
    TRY(gguf_open(&written, gguf_writer_name(&w->out), format_resolve, err));
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < written.n_tensors; i++) {
        status = verify_tensor(w, i, &written.tensors[i], err);
        show_progress("check", i + 1, written.n_tensors);
    }
    gguf_close(&written);
    return status;
}

/* Room for a chunk of the widest rows that are converted. */
static enum status alloc_chunks(struct writing *w, struct error *err)
{
    uint64_t longest = CHUNK_WEIGHTS;
    for (size_t i = 0; i < w->in->n_tensors; i++) {
        const struct gguf_tensor *t = &w->in->tensors[i];
        if (w->plan->tensors[i].how != QUANTIZE_KEEP && t->span.ne[0] > longest)
            longest = t->span.ne[0];
    }
    w->before = memory_alloc(TERNARY_SCRATCH(longest), 1); /* of ternary_read, too */
    w->after = memory_alloc(longest, sizeof *w->after);
    w->bytes = memory_alloc(longest, sizeof(float)); /* the largest type */
    w->hashes = memory_alloc(w->in->n_tensors, sizeof *w->hashes);
    return w->before && w->after && w->bytes && w->hashes
               ? STATUS_OK
               : fail_memory(err, w->in_path, 3 * longest * sizeof(float));
}

static enum status write_all(struct writing *w, struct error *err)
{
    TRY(alloc_chunks(w, err));
    TRY(gguf_writer_open(&w->out, w->out_path, err));
    TRY(put_pairs(w, err));
    TRY(put_tensors(w, err));
    TRY(gguf_write_header(&w->out, err));
    TRY(write_tensors(w, err));
    TRY(verify(w, err));
    return gguf_writer_commit(&w->out, err);
}

enum status quantize_write(const struct quantize_plan *plan, const struct gguf_file *in,
                           const char *in_path, const char *out_path, enum format_id type,
                           struct quantize_error *errors, struct error *err)
{
    struct writing w = {.plan = plan,
                        .in = in,
                        .in_path = in_path,
                        .out_path = out_path,
                        .type = type,
                        .errors = errors};
    enum status status = write_all(&w, err);
    gguf_writer_close(&w.out);
    memory_free(w.before);
    memory_free(w.after);
    memory_free(w.bytes);
    memory_free(w.hashes);
    return status;
}
