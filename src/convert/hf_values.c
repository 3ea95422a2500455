/* Values of the tensors of a folder: rows as floats, which of them are ternary, their codes.
 *   packed   byte (k, column) holds rows k, k + R, k + 2R, k + 3R of the column (R = rows / 4) in
 *            bits 1:0, 3:2, 5:4, 7:6; the code is the ternary value plus 1
 *   made     g = max(mean |W|, 1e-5); value = clamp(round(W * (1/g)), -1, 1) / (1/g)
 * source  BitNet b1.58, arXiv:2402.17764; classes BitLinear and AutoBitLinear of transformers */
#include <math.h>
#include <stdio.h>

#include "base/float16.h"
#include "base/memory.h"
#include "base/reader.h"
#include "convert/hf_tensors.h"
#include "tensor/ternary.h"

/* Row (or element of a bias) of the folder that becomes row r: halves of a head become pairs. */
static int64_t source_row(const struct hf_tensor *t, int64_t r)
{
    int64_t d = t->turned_head;
    if (d == 0)
        return r;
    int64_t i = r % d;
    return r - i + i % 2 * (d / 2) + i / 2;
}

static void load_floats(const struct safetensor *s, int64_t first, int64_t n, float *out)
{
    const uint8_t *p = s->data + first * (s->type == SAFETENSOR_F32 ? 4 : 2);
    switch (s->type) {
    case SAFETENSOR_F32:
        for (int64_t i = 0; i < n; i++)
            out[i] = load_f32(p + 4 * i);
        return;
    case SAFETENSOR_F16:
        for (int64_t i = 0; i < n; i++)
            out[i] = f16_to_f32(load_u16(p + 2 * i));
        return;
    default:
        for (int64_t i = 0; i < n; i++)
            out[i] = bf16_to_f32(load_u16(p + 2 * i));
    }
}

static void unpack_row(const struct hf_tensor *t, int64_t row, float *out)
{
    int64_t quarter = t->rows / 4;
    const uint8_t *bytes = t->source->data + row % quarter * t->cols;
    int shift = (int)(row / quarter) * 2;
    for (int64_t i = 0; i < t->cols; i++)
        out[i] = (float)((bytes[i] >> shift & 3) - 1) * t->scale;
}

static void one_row(const struct hf_tensor *t, int64_t row, float *out)
{
    int64_t from = source_row(t, row);
    if (t->kind == HF_TERNARY_PACKED) {
        unpack_row(t, from, out);
        return;
    }
    load_floats(t->source, from * t->cols, t->cols, out);
    if (t->kind == HF_TERNARY_MADE)
        for (int64_t i = 0; i < t->cols; i++)
            out[i] = fmaxf(-1, fminf(1, rintf(out[i] * t->inverse))) * t->scale;
}

static void vector(const struct hf_tensor *t, float *out)
{
    for (int64_t i = 0; i < t->cols; i++)
        if (t->values)
            out[i] = t->values[i];
        else
            load_floats(t->source, source_row(t, i), 1, out + i);
}

void hf_tensor_rows(const struct hf_tensor *t, int64_t row0, int64_t row1, float *out)
{
    if (t->kind == HF_VECTOR)
        vector(t, out);
    else
        for (int64_t r = row0; r < row1; r++)
            one_row(t, r, out + (r - row0) * t->cols);
}

enum format_id hf_tensor_stored(const struct hf_tensor *t)
{
    if (t->kind == HF_VECTOR)
        return FORMAT_F32;
    switch (t->source->type) {
    case SAFETENSOR_F16: return FORMAT_F16;
    case SAFETENSOR_BF16: return FORMAT_BF16;
    case SAFETENSOR_F32: return FORMAT_F32;
    default: return t->is_scale_f16 ? FORMAT_F16 : FORMAT_F32;
    }
}

/* One row at a time of a matrix, and what is found on the way. */
struct walk {
    float *row;     /* owned */
    float *scales;  /* owned */
    uint8_t *codes; /* owned */
};

static enum status walk_open(struct walk *w, const struct hf_tensor *t, struct error *err)
{
    w->row = memory_alloc((size_t)t->cols, sizeof *w->row);
    w->scales = memory_alloc((size_t)t->cols, sizeof *w->scales);
    w->codes = memory_alloc((size_t)t->cols, 1);
    if (w->row && w->scales && w->codes)
        return STATUS_OK;
    return fail_memory(err, t->name, (size_t)t->cols * 9);
}

static void walk_close(struct walk *w)
{
    memory_free(w->row);
    memory_free(w->scales);
    memory_free(w->codes);
}

/* The folder's name of the tensor, for "%.*s". */
static struct text name_of(const struct hf_tensor *t)
{
    return t->source ? t->source->name : text_of(t->name);
}

/* Are all values finite? Sums their magnitudes. */
static enum status check_values(const struct hf_tensor *t, struct walk *w, double *sum,
                                struct error *err)
{
    *sum = 0;
    for (int64_t r = 0; r < t->rows; r++) {
        hf_tensor_rows(t, r, r + 1, w->row);
        for (int64_t i = 0; i < t->cols; i++) {
            if (!isfinite(w->row[i]))
                return fail(err, STATUS_FORMAT,
                            "tensor '%.*s': row %lld, column %lld is infinite or no number; the "
                            "folder is damaged",
                            TEXT(name_of(t)), (long long)source_row(t, r), (long long)i);
            *sum += fabs((double)w->row[i]);
        }
    }
    return STATUS_OK;
}

static enum status check_codes(const struct hf_tensor *t, struct error *err)
{
    for (uint64_t i = 0; i < t->source->bytes; i++)
        if (t->source->data[i] & t->source->data[i] >> 1 & 0x55)
            return fail(
                err, STATUS_FORMAT,
                "tensor '%.*s': byte %llu of its packed data holds code 3, which stands for "
                "no ternary value; the folder is damaged",
                TEXT(name_of(t)), (unsigned long long)i);
    return STATUS_OK;
}

/* Adds the scales of a row to what is known of all. *first: the scale found first, 0 before. */
static void note_scales(struct hf_tensor *t, const float *scales, int64_t n, float *first)
{
    for (int64_t i = 0; i < n; i++) {
        if (scales[i] == 0)
            continue;
        if (*first == 0)
            *first = scales[i];
        t->has_one_scale &= scales[i] == *first;
        t->is_scale_f16 &= f16_to_f32(f32_to_f16(scales[i])) == scales[i];
    }
}

static bool is_ternary_by(struct hf_tensor *t, struct walk *w, int64_t group)
{
    float first = 0;
    t->has_one_scale = t->is_scale_f16 = true;
    for (int64_t r = 0; r < t->rows; r++) {
        hf_tensor_rows(t, r, r + 1, w->row);
        if (!ternary_find(w->row, t->cols, (int)group, w->codes, w->scales))
            return false;
        note_scales(t, w->scales, t->cols / group, &first);
    }
    return true;
}

/* The coarsest group with which the matrix is ternary. */
static void find_ternary(struct hf_tensor *t, struct walk *w)
{
    const int64_t groups[] = {t->cols, 256, 128, 64};
    for (int i = 0; i < 4; i++)
        if (t->cols % groups[i] == 0 && is_ternary_by(t, w, groups[i])) {
            t->kind = HF_TERNARY_FOUND;
            t->group = (int)groups[i];
            return;
        }
}

static void make_ternary_by_mean(struct hf_tensor *t, double sum)
{
    float mean = (float)(sum / ((double)t->rows * (double)t->cols));
    t->inverse = 1 / fmaxf(mean, 1e-5f);
    t->scale = 1 / t->inverse;
    t->kind = HF_TERNARY_MADE;
    t->has_one_scale = true;
    t->is_scale_f16 = f16_to_f32(f32_to_f16(t->scale)) == t->scale;
}

static enum status examine(struct hf_tensor *t, struct walk *w, bool make_ternary,
                           struct error *err)
{
    double sum;
    TRY(check_values(t, w, &sum, err));
    if (t->kind == HF_ORDINARY && t->cols >= 32 && t->rows >= 2)
        find_ternary(t, w);
    if (t->kind == HF_ORDINARY && t->is_projection && make_ternary)
        make_ternary_by_mean(t, sum);
    return STATUS_OK;
}

enum status hf_tensor_examine(struct hf_tensor *t, bool make_ternary, struct error *err)
{
    if (t->kind == HF_TERNARY_PACKED)
        return check_codes(t, err);
    struct walk w = {0};
    enum status status = walk_open(&w, t, err);
    if (status == STATUS_OK)
        status = examine(t, &w, make_ternary, err);
    walk_close(&w);
    return status;
}

enum status hf_tensor_encode(const struct hf_tensor *t, enum format_id format, const char *what,
                             uint8_t *out, struct error *err)
{
    int64_t group = t->kind == HF_TERNARY_FOUND ? t->group : t->cols, n_groups = t->cols / group;
    struct ternary_rows rows = {.group = (int)group};
    float *row = memory_alloc((size_t)t->cols, sizeof *row);
    rows.codes = memory_alloc((size_t)t->rows, (size_t)t->cols);
    rows.scales = memory_alloc((size_t)t->rows, (size_t)n_groups * sizeof *rows.scales);
    enum status status = STATUS_OK;
    if (!row || !rows.codes || !rows.scales)
        status = fail_memory(err, what, (size_t)t->rows * (size_t)t->cols);
    for (int64_t r = 0; status == STATUS_OK && r < t->rows; r++) {
        hf_tensor_rows(t, r, r + 1, row);
        if (!ternary_find(row, t->cols, (int)group, rows.codes + r * t->cols,
                          rows.scales + r * n_groups))
            status = fail(err, STATUS_FORMAT,
                          "%s: row %lld is not ternary; the folder was changed while it was read",
                          what, (long long)r);
    }
    if (status == STATUS_OK)
        status = ternary_encode(format, &rows, t->rows, t->cols, what, out, err);
    memory_free(row);
    memory_free(rows.codes);
    memory_free(rows.scales);
    return status;
}
