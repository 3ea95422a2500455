#include "cli/quantize_chunk.h"

#include <inttypes.h>
#include <math.h>

#include "base/memory.h"
#include "model/model_load.h"

int64_t chunk_weights(enum format_id target, int64_t n_cols)
{
    int64_t together = format_of(target)->row_group;
    int64_t rows = CHUNK_WEIGHTS / n_cols / together * together;
    return (rows > 0 ? rows : together) * n_cols;
}

struct chunk_source chunk_source_of(const char *in_path, const struct gguf_tensor *tensor,
                                    const struct tensor_plan *plan)
{
    struct tensor t = model_tensor(tensor);
    int64_t n_rows = chunk_weights(plan->target, t.n_cols) / t.n_cols;
    return (struct chunk_source){in_path, tensor, plan, t, n_rows, {0, false}};
}

int64_t chunk_count(const struct chunk_source *s)
{
    return (s->source.n_rows + s->n_rows - 1) / s->n_rows;
}

struct chunk_rows chunk_rows_of(const struct chunk_source *s, int64_t chunk)
{
    int64_t row = chunk * s->n_rows, end = row + s->n_rows;
    return (struct chunk_rows){row, end < s->source.n_rows ? end : s->source.n_rows};
}

enum status chunk_memory_open(struct chunk_memory *m, int64_t n, const char *what,
                              struct error *err)
{
    m->before = memory_alloc(TERNARY_SCRATCH(n), 1); /* of ternary_read, too */
    m->after = memory_alloc((size_t)n, sizeof *m->after);
    m->codes = memory_alloc((size_t)n, 1);
    m->scales = memory_alloc((size_t)n / 32 + 1, sizeof *m->scales);
    return m->before && m->after && m->codes && m->scales
               ? STATUS_OK
               : fail_memory(err, what, 3 * (size_t)n * sizeof(float));
}

void chunk_memory_close(struct chunk_memory *m)
{
    memory_free(m->before);
    memory_free(m->after);
    memory_free(m->codes);
    memory_free(m->scales);
    *m = (struct chunk_memory){0};
}

/* "FILE: tensor 'NAME'", for messages. */
static const char *name_tensor(const struct chunk_source *s, char what[400])
{
    snprintf(what, 400, "%s: tensor '%.*s'", s->in_path, TEXT(s->tensor->span.name));
    return what;
}

/* Codes and scales of rows, from a ternary type or from ternary values. */
static struct ternary_rows extract(const struct chunk_source *s, struct chunk_rows r,
                                   struct chunk_memory *m)
{
    const struct tensor *t = &s->source;
    struct ternary_rows rows = {m->codes, m->scales, s->plan->group};
    if (format_of(t->format)->is_ternary) {
        ternary_extract(t, r.row, r.end, &rows);
        return rows;
    }
    for (int64_t i = r.row; i < r.end; i++)
        ternary_read(t, i, rows.group, m->before, rows.codes + (i - r.row) * t->n_cols,
                     rows.scales + (i - r.row) * (t->n_cols / rows.group));
    return rows;
}

static enum status gather(const struct chunk_source *s, int64_t chunk, struct chunk_memory *m,
                          struct ternary_scale *scale, struct error *err)
{
    char what[400];
    struct chunk_rows r = chunk_rows_of(s, chunk);
    struct ternary_rows rows = extract(s, r, m);
    struct ternary_part part = {&rows, r.row, r.end - r.row, s->source.n_cols,
                                name_tensor(s, what)};
    return ternary_gather_scale(s->plan->target, &part, scale, err);
}

enum status chunk_gather(const struct chunk_source *s, int64_t chunk, struct chunk_memory *m,
                         struct chunk_result *result, struct error *err)
{
    result->scale = (struct ternary_scale){0, false};
    return gather(s, chunk, m, &result->scale, err);
}

enum status chunk_gather_all(struct chunk_source *s, struct chunk_memory *m, struct error *err)
{
    s->scale = (struct ternary_scale){0, false};
    for (int64_t chunk = 0; chunk < chunk_count(s); chunk++)
        TRY(gather(s, chunk, m, &s->scale, err));
    return STATUS_OK;
}

/* A value that the target does not hold: of CODES any other, of VALUES one that became infinite. */
static enum status fail_value(const struct chunk_source *s, int64_t row, int64_t at,
                              const struct chunk_memory *m, struct error *err)
{
    char what[400];
    int64_t n_cols = s->source.n_cols;
    return fail(err, STATUS_UNSUPPORTED,
                "%s: row %" PRId64 ", column %" PRId64 ": %.9g becomes %.9g in %s; %s holds it",
                name_tensor(s, what), row + at / n_cols, at % n_cols, (double)m->before[at],
                (double)m->after[at], format_of(s->plan->target)->name,
                s->plan->how == QUANTIZE_CODES ? "a type with f32 scales (IQ2_BN, I2_S) or F32"
                                               : "F32 or BF16");
}

/* Sums of differences in four parts: each addition of one waits for the last. */
enum { PARTS = 4 };

/* Compares the n values in memory; the first that cannot be accepted, or n. */
static int64_t compare_values(const struct chunk_source *s, int64_t n, const struct chunk_memory *m,
                              struct chunk_result *result)
{
    const float *before = m->before, *after = m->after;
    bool is_exact = s->plan->how == QUANTIZE_CODES;
    double difference2[PARTS] = {0}, weight2[PARTS] = {0};
    int n_other = 0;
    int64_t k = 0;
    for (; k + PARTS <= n; k += PARTS)
        for (int i = 0; i < PARTS; i++) {
            double difference = (double)after[k + i] - (double)before[k + i];
            difference2[i] += difference * difference;
            weight2[i] += (double)before[k + i] * (double)before[k + i];
            n_other |= after[k + i] != before[k + i];
        }
    for (; k < n; k++) {
        double difference = (double)after[k] - (double)before[k];
        difference2[0] += difference * difference;
        weight2[0] += (double)before[k] * (double)before[k];
        n_other |= after[k] != before[k];
    }
    result->difference2 = (difference2[0] + difference2[1]) + (difference2[2] + difference2[3]);
    result->weight2 = (weight2[0] + weight2[1]) + (weight2[2] + weight2[3]);
    if (!(is_exact && n_other) && isfinite(result->difference2))
        return n;
    for (k = 0; k < n; k++)
        if (is_exact ? after[k] != before[k] : !isfinite(after[k]))
            break;
    return k;
}

static enum status compare(const struct chunk_source *s, struct chunk_rows r,
                           const struct tensor *encoded, int64_t first, struct chunk_memory *m,
                           struct chunk_result *result, struct error *err)
{
    int64_t n_rows = r.end - r.row, n = n_rows * s->source.n_cols;
    tensor_decode(encoded, first, first + n_rows, m->after);
    int64_t bad = compare_values(s, n, m, result);
    return bad < n ? fail_value(s, r.row, bad, m, err) : STATUS_OK;
}

static uint64_t hash_bytes(const uint8_t *bytes, size_t n)
{
    return text_hash((struct text){(const char *)bytes, n});
}

enum status chunk_encode(const struct chunk_source *s, int64_t chunk, struct chunk_memory *m,
                         uint8_t *out, struct chunk_result *result, struct error *err)
{
    char what[400];
    struct chunk_rows r = chunk_rows_of(s, chunk);
    enum format_id target = s->plan->target;
    int64_t n_rows = r.end - r.row, n_cols = s->source.n_cols;
    size_t n_bytes = (size_t)n_rows * format_row_bytes(target, (uint64_t)n_cols);
    if (s->plan->how == QUANTIZE_CODES) {
        struct ternary_rows rows = extract(s, r, m);
        struct ternary_part part = {&rows, r.row, n_rows, n_cols, name_tensor(s, what)};
        return ternary_encode_rows(target, &part, &s->scale, out, err);
    }
    struct tensor encoded = {target, n_cols, n_rows, out, n_bytes};
    tensor_decode(&s->source, r.row, r.end, m->before);
    format_of(target)->encode(m->before, n_rows, n_cols, out);
    TRY(compare(s, r, &encoded, 0, m, result, err));
    result->hash = hash_bytes(out, n_bytes);
    return STATUS_OK;
}

enum status chunk_compare(const struct chunk_source *s, int64_t chunk, const struct tensor *written,
                          struct chunk_memory *m, struct chunk_result *result, struct error *err)
{
    struct chunk_rows r = chunk_rows_of(s, chunk);
    if (s->plan->how == QUANTIZE_VALUES) {
        size_t row_bytes = format_row_bytes(written->format, (uint64_t)written->n_cols);
        result->hash = hash_bytes(written->data + (size_t)r.row * row_bytes,
                                  (size_t)(r.end - r.row) * row_bytes);
        return STATUS_OK;
    }
    tensor_decode(&s->source, r.row, r.end, m->before);
    return compare(s, r, written, r.row, m, result, err);
}
