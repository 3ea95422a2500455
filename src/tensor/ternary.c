#include "tensor/ternary.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/float16.h"
#include "base/reader.h"
#include "tensor/format_codecs.h"
#include "tensor/format_ternary.h"

void ternary_extract(const struct tensor *t, int64_t row0, int64_t row1, struct ternary_rows *out)
{
    assert(row0 >= 0 && row0 <= row1 && row1 <= t->n_rows);
    int64_t group = ternary_group(t->format, t->n_cols), n_groups = t->n_cols / group;
    out->group = (int)group;
    for (int64_t row = row0; row < row1; row++) {
        uint8_t *codes = out->codes + (row - row0) * t->n_cols;
        float *scales = out->scales + (row - row0) * n_groups;
        ternary_unpack_row(t->format, t->data, t->n_cols, row, codes);
        for (int64_t i = 0; i < n_groups; i++) {
            int64_t at = ternary_scale_at(t->format, t->n_rows, t->n_cols, row, i);
            scales[i] = ternary_load_scale(t->format, t->data + at);
        }
    }
}

/* Scales are compared by pieces, of which every group has some. */
enum { PIECE = 64 };

/* A row under inspection. */
struct recognition {
    const struct tensor *tensor;
    float *values, *scales; /* scratch: of one row, and of its pieces: 0 where all is zero */
    struct ternary_values found;
};

static struct recognition begin(const struct tensor *t, void *scratch)
{
    assert(!format_of(t->format)->is_ternary);
    return (struct recognition){t, scratch, (float *)scratch + t->n_cols, {0, true}};
}

/* The only magnitude but 0 among n floats, and their codes unless that is NULL; false if there are
 * two, or one that is no finite number. All bits together are those of the only one, so that there is no
 * branch per weight. */
static inline bool read_floats(const float *w, int n, float *magnitude, uint8_t *codes)
{
    uint32_t bits = 0, is_odd = 0;
    for (int j = 0; j < n; j++)
        bits |= bits_from_f32(w[j]);
    bits &= 0x7fffffff;
    for (int j = 0; j < n; j++) {
        uint32_t own = bits_from_f32(w[j]) & 0x7fffffff;
        is_odd |= (own != 0) & (own != bits);
    }
    for (int j = 0; codes && j < n; j++)
        codes[j] = (uint8_t)(1 + (w[j] > 0) - (w[j] < 0));
    *magnitude = f32_from_bits(bits);
    return !is_odd && isfinite(*magnitude);
}

bool ternary_find(const float *row, int64_t n_cols, int group, uint8_t *codes, float *scales)
{
    assert(n_cols % group == 0);
    for (int64_t i = 0; i < n_cols; i += group)
        if (!read_floats(row + i, group, &scales[i / group], codes + i))
            return false;
    return true;
}

/* As read_floats, of F16 and BF16 as they are stored: no conversion per weight either. */
static inline bool read_halves(enum format_id format, const uint8_t *p, int n, float *magnitude,
                               uint8_t *codes)
{
    uint16_t bits = 0, is_odd = 0;
    for (int j = 0; j < n; j++)
        bits |= load_u16(p + 2 * j);
    bits &= 0x7fff;
    for (int j = 0; j < n; j++) {
        uint16_t own = load_u16(p + 2 * j) & 0x7fff;
        is_odd |= (own != 0) & (own != bits);
    }
    for (int j = 0; codes && j < n; j++) {
        uint16_t own = load_u16(p + 2 * j), is_some = (own & 0x7fff) != 0;
        codes[j] = (uint8_t)(1 + is_some - 2 * (is_some & own >> 15));
    }
    *magnitude = format == FORMAT_F16 ? f16_to_f32(bits) : bf16_to_f32(bits);
    return !is_odd && isfinite(*magnitude);
}

/* The scales of the pieces of a row, and its codes unless that is NULL; false at the first piece that is
 * not ternary. n is a constant where it can be: then the loops above vectorise. */
static bool read_row(struct recognition *r, int64_t row, uint8_t *codes)
{
    const struct tensor *t = r->tensor;
    bool is_half = t->format == FORMAT_F16 || t->format == FORMAT_BF16, is_only = true;
    if (!is_half)
        tensor_decode(t, row, row + 1, r->values);
    for (int64_t col = 0; is_only && col < t->n_cols; col += PIECE) {
        const uint8_t *p = t->data + 2 * (row * t->n_cols + col);
        const float *values = r->values + col;
        float *scale = &r->scales[col / PIECE];
        uint8_t *own = codes ? codes + col : NULL;
        int n = t->n_cols - col < PIECE ? (int)(t->n_cols - col) : PIECE;
        if (n < PIECE)
            is_only = is_half ? read_halves(t->format, p, n, scale, own)
                              : read_floats(values, n, scale, own);
        else
            is_only = is_half ? read_halves(t->format, p, PIECE, scale, own)
                              : read_floats(values, PIECE, scale, own);
        r->found.is_half &= f16_to_f32(f32_to_f16(*scale)) == *scale;
    }
    return is_only;
}

/* Whether the row last read has one scale per group. */
static bool is_row_grouped(const struct recognition *r)
{
    int64_t n = (r->tensor->n_cols + PIECE - 1) / PIECE;
    int64_t pieces = r->found.group ? r->found.group / PIECE : n;
    float scale = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i % pieces == 0)
            scale = 0;
        if (scale != 0 && r->scales[i] != 0 && r->scales[i] != scale)
            return false;
        scale = scale != 0 ? scale : r->scales[i];
    }
    return true;
}

int ternary_finer_group(int group, int64_t n_cols)
{
    int finer = group ? group / 2 : 256;
    while (finer >= PIECE && n_cols % finer)
        finer /= 2;
    return finer >= PIECE ? finer : 0;
}

bool ternary_recognise(const struct tensor *t, void *scratch, struct ternary_values *found)
{
    struct recognition r = begin(t, scratch);
    for (int64_t row = 0; row < t->n_rows; row++) {
        if (!read_row(&r, row, NULL))
            return false;
        while (!is_row_grouped(&r)) {
            r.found.group = ternary_finer_group(r.found.group, t->n_cols);
            if (r.found.group == 0)
                return false;
        }
        if (r.found.group && !r.found.is_half)
            return false;
    }
    *found = r.found;
    return true;
}

bool ternary_read(const struct tensor *t, int64_t row, int group, void *scratch, uint8_t *codes,
                  float *scales)
{
    struct recognition r = begin(t, scratch);
    assert(group == t->n_cols || (group % PIECE == 0 && t->n_cols % group == 0));
    r.found.group = group == t->n_cols ? 0 : group;
    if (!read_row(&r, row, codes) || !is_row_grouped(&r))
        return false;
    for (int64_t col = 0; col < t->n_cols; col += PIECE) {
        float *scale = &scales[col / group], own = r.scales[col / PIECE];
        if (col % group == 0 || own != 0)
            *scale = own;
    }
    return true;
}

/* A conversion under way. */
struct encoding {
    enum format_id format;
    const struct ternary_rows *rows;
    int64_t row0, n_cols; /* row0: the number in messages of the first row */
    const char *what;
    uint8_t *out;
};

static float source_scale(const struct encoding *e, int64_t row, int64_t col)
{
    int group = e->rows->group;
    return e->rows->scales[row * (e->n_cols / group) + col / group];
}

static bool is_zero(const struct encoding *e, int64_t row, int64_t begin, int64_t end)
{
    const uint8_t *codes = e->rows->codes + row * e->n_cols;
    while (begin < end && codes[begin] == 1)
        begin++;
    return begin == end;
}

/* Joins columns [begin, end) of a row into what was found so far. */
static enum status join(const struct encoding *e, int64_t row, int64_t begin, int64_t end,
                        struct ternary_scale *joined, struct error *err)
{
    int group = e->rows->group;
    for (int64_t col = begin; col < end;) {
        int64_t next = (col / group + 1) * group;
        float scale = source_scale(e, row, col);
        next = next < end ? next : end;
        bool adds = scale != 0 && !(joined->is_found && scale == joined->scale) &&
                    !is_zero(e, row, col, next);
        if (adds && joined->is_found)
            return fail(err, STATUS_UNSUPPORTED,
                        "%s: row %lld, group %lld of %d weights: its scale is %.9g and another one "
                        "%.9g, but %s has one scale for both; choose a format with smaller groups",
                        e->what, (long long)(e->row0 + row), (long long)(col / group), group,
                        (double)scale, (double)joined->scale, format_of(e->format)->name);
        if (adds)
            *joined = (struct ternary_scale){scale, true};
        col = next;
    }
    return STATUS_OK;
}

static bool is_exact(enum format_id format, float scale)
{
    if (format_of(format)->is_scale_f32)
        return isfinite(scale);
    return isfinite(scale) && f16_to_f32(f32_to_f16(scale)) == scale;
}

/* Scale to write for a group of the target that begins at (row, col). Where all is zero the scale
 * means nothing: the source's is kept if it can be. */
static enum status settle(const struct encoding *e, int64_t row, int64_t col,
                          struct ternary_scale *joined, struct error *err)
{
    if (!joined->is_found) {
        float scale = source_scale(e, row, col);
        joined->scale = is_exact(e->format, scale) ? scale : 0;
        return STATUS_OK;
    }
    if (is_exact(e->format, joined->scale))
        return STATUS_OK;
    return fail(err, STATUS_UNSUPPORTED,
                "%s: row %lld, group %lld of %d weights: %s cannot hold the scale %.9g exactly; "
                "choose a format with f32 scales (I2_S, IQ2_BN)",
                e->what, (long long)(e->row0 + row), (long long)(col / e->rows->group),
                e->rows->group, format_of(e->format)->name, (double)joined->scale);
}

static enum status fail_code_3(const struct encoding *e, int64_t row, int64_t col,
                               struct error *err)
{
    return fail(
        err, STATUS_UNSUPPORTED,
        "%s: row %lld, group %lld of %d weights: holds +2, which %s has no code for; choose "
        "another 2-bit format (TQ2_0, Q2_0, IQ2_BN)",
        e->what, (long long)(e->row0 + row), (long long)(col / e->rows->group), e->rows->group,
        format_of(e->format)->name);
}

/* Copies codes of one block of the target. Weights of scale 0 are zeros whatever their codes are:
 * under another scale, or where the format has no such code, they become code 1. */
static enum status copy_codes(const struct encoding *e, int64_t row, int64_t begin, int n,
                              float scale, uint8_t *codes, struct error *err)
{
    const uint8_t *source = e->rows->codes + row * e->n_cols + begin;
    int most = ternary_layout_of(e->format)->has_code_3 ? 3 : 2;
    for (int j = 0; j < n;) {
        int group = e->rows->group, left = group - (int)((begin + j) % group);
        int end = j + left < n ? j + left : n;
        bool is_null = source_scale(e, row, begin + j) == 0;
        for (; j < end; j++) {
            if (source[j] > most && !is_null)
                return fail_code_3(e, row, begin + j, err);
            codes[j] = is_null && (scale != 0 || source[j] > most) ? 1 : source[j];
        }
    }
    return STATUS_OK;
}

static bool is_one_scale(enum format_id format)
{
    return format_of(format)->scale_group < 0;
}

/* One row. tensor_scale: of a format with one scale in all. */
static enum status encode_row(const struct encoding *e, int64_t row,
                              const struct ternary_scale *tensor_scale, struct error *err)
{
    const struct format *f = format_of(e->format);
    const struct ternary_layout *layout = ternary_layout_of(e->format);
    int64_t group = ternary_group(e->format, e->n_cols);
    uint8_t codes[TERNARY_MAX_BLOCK];
    struct ternary_scale joined = *tensor_scale;
    for (int64_t col = 0; col < e->n_cols; col += f->block) {
        if (col % group == 0 && !is_one_scale(e->format)) {
            joined = (struct ternary_scale){0, false};
            TRY(join(e, row, col, col + group, &joined, err));
            TRY(settle(e, row, col, &joined, err));
            ternary_store_scale(e->format, joined.scale,
                                e->out +
                                    ternary_scale_at(e->format, 0, e->n_cols, row, col / group));
        }
        TRY(copy_codes(e, row, col, f->block, joined.scale, codes, err));
        layout->pack(codes, (int)(row % f->row_group),
                     e->out + format_block_at(f, e->n_cols, row, col / f->block));
    }
    return STATUS_OK;
}

static struct encoding encoding_of(enum format_id format, const struct ternary_part *part,
                                   uint8_t *out)
{
    assert(format_of(format)->is_ternary && part->n_cols % part->rows->group == 0);
    return (struct encoding){format, part->rows, part->row0, part->n_cols, part->what, out};
}

enum status ternary_gather_scale(enum format_id format, const struct ternary_part *part,
                                 struct ternary_scale *scale, struct error *err)
{
    const struct encoding e = encoding_of(format, part, NULL);
    for (int64_t row = 0; is_one_scale(format) && row < part->n_rows; row++) {
        TRY(join(&e, row, 0, e.n_cols, scale, err));
        if (scale->is_found || part->row0 + row == 0)
            TRY(settle(&e, row, 0, scale, err));
    }
    return STATUS_OK;
}

enum status ternary_encode_rows(enum format_id format, const struct ternary_part *part,
                                const struct ternary_scale *scale, uint8_t *out, struct error *err)
{
    const struct encoding e = encoding_of(format, part, out);
    memset(out, 0, (size_t)part->n_rows * format_row_bytes(format, (uint64_t)part->n_cols));
    for (int64_t row = 0; row < part->n_rows; row++)
        TRY(encode_row(&e, row, scale, err));
    return STATUS_OK;
}

void ternary_encode_tail(enum format_id format, const struct ternary_scale *scale, uint8_t *out)
{
    size_t n = (size_t)format_of(format)->tensor_tail;
    memset(out, 0, n);
    if (n)
        ternary_store_scale(format, scale->scale, out);
}

enum status ternary_encode(enum format_id format, const struct ternary_rows *rows, int64_t n_rows,
                           int64_t n_cols, const char *what, uint8_t *out, struct error *err)
{
    const struct ternary_part part = {rows, 0, n_rows, n_cols, what};
    struct ternary_scale scale = {0, false};
    uint64_t bytes;
    TRY(format_bytes(format, (uint64_t)n_rows, (uint64_t)n_cols, what, &bytes, err));
    TRY(ternary_gather_scale(format, &part, &scale, err));
    TRY(ternary_encode_rows(format, &part, &scale, out, err));
    ternary_encode_tail(format, &scale, out + bytes - format_of(format)->tensor_tail);
    return STATUS_OK;
}
