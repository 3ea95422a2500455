#include "tensor/formats.h"

#include <assert.h>
#include <strings.h>

#include "base/reader.h"
#include "tensor/format_codecs.h"
#include "tensor/tensor.h"

/* Plain numbers: no scale. */
#define FLOATS(text, id, bytes, codec)                                                             \
    {                                                                                              \
        .name = text, .type_id = id, .block = 1, .block_bytes = bytes, .row_group = 1,             \
        .scale_at = -1, .min_at = -1, .decode = decode_##codec, .encode = encode_##codec           \
    }

/* Blocks with an f16 scale and, for some, an f16 minimum. */
#define BLOCKS(text, id, n, bytes, scale, min, decoder, encoder)                                   \
    {                                                                                              \
        .name = text, .type_id = id, .block = n, .block_bytes = bytes, .row_group = 1,             \
        .scale_at = scale, .min_at = min, .decode = decoder, .encode = encoder                     \
    }

/* Ternary blocks with an f16 scale of their own at byte `scale`. */
#define TERNARY(text, id, n, bytes, scale, codec)                                                  \
    {                                                                                              \
        .name = text, .type_id = id, .block = n, .block_bytes = bytes, .row_group = 1,             \
        .is_ternary = true, .scale_group = n, .scale_at = scale, .min_at = -1,                     \
        .decode = decode_ternary, .encode = encode_##codec                                         \
    }

/* Ternary rows of blocks without scales, behind a prefix of f16 or f32. */
#define TERNARY_ROWS(text, id, bytes, prefix, group, codec)                                        \
    {                                                                                              \
        .name = text, .type_id = id, .block = 64, .block_bytes = bytes, .row_prefix = prefix,      \
        .row_group = group, .is_ternary = true, .scale_group = 0, .is_scale_f32 = prefix == 4,     \
        .scale_at = -1, .min_at = -1, .decode = decode_ternary, .encode = encode_##codec           \
    }

/* A ternary matrix of 2-bit codes, then one f32 scale in a tail of 32 bytes. */
#define TERNARY_TENSOR(text, group, codec)                                                         \
    {                                                                                              \
        .name = text, .type_id = 36, .block = 128, .block_bytes = 32, .tensor_tail = 32,           \
        .row_group = group, .is_ternary = true, .scale_group = -1, .is_scale_f32 = true,           \
        .scale_at = -1, .min_at = -1, .decode = decode_ternary, .encode = encode_##codec           \
    }

/* clang-format off */
static const struct format formats[] = {
    [FORMAT_F32]       = FLOATS("F32", 0, 4, f32),
    [FORMAT_F16]       = FLOATS("F16", 1, 2, f16),
    [FORMAT_BF16]      = FLOATS("BF16", 30, 2, bf16),
    [FORMAT_Q4_0]      = BLOCKS("Q4_0", 2, 32, 18, 0, -1, decode_q4_0, encode_q4_0),
    [FORMAT_Q4_1]      = BLOCKS("Q4_1", 3, 32, 20, 0, 2, decode_q4_1, encode_q4_1),
    [FORMAT_Q5_0]      = BLOCKS("Q5_0", 6, 32, 22, 0, -1, decode_q5_0, encode_q5_0),
    [FORMAT_Q5_1]      = BLOCKS("Q5_1", 7, 32, 24, 0, 2, decode_q5_1, encode_q5_1),
    [FORMAT_Q8_0]      = BLOCKS("Q8_0", 8, 32, 34, 0, -1, decode_q8_0, encode_q8_0),
    [FORMAT_Q2_K]      = BLOCKS("Q2_K", 10, 256, 84, 80, 82, decode_q2_k, encode_q2_k),
    [FORMAT_Q3_K]      = BLOCKS("Q3_K", 11, 256, 110, 108, -1, decode_q3_k, encode_q3_k),
    [FORMAT_Q4_K]      = BLOCKS("Q4_K", 12, 256, 144, 0, 2, decode_q4_k, encode_q4_k),
    [FORMAT_Q5_K]      = BLOCKS("Q5_K", 13, 256, 176, 0, 2, decode_q5_k, encode_q5_k),
    [FORMAT_Q6_K]      = BLOCKS("Q6_K", 14, 256, 210, 208, -1, decode_q6_k, encode_q6_k),
    [FORMAT_Q8_K]      = {.name = "Q8_K", .type_id = 15, .block = 256, .block_bytes = 292,
                          .row_group = 1, .is_scale_f32 = true, .scale_at = 0, .min_at = -1,
                          .decode = decode_q8_k},
    [FORMAT_IQ4_NL]    = BLOCKS("IQ4_NL", 20, 32, 18, 0, -1, decode_iq4_nl, NULL),
    [FORMAT_IQ4_XS]    = BLOCKS("IQ4_XS", 23, 256, 136, 0, -1, decode_iq4_xs, NULL),
    [FORMAT_TQ1_0]     = TERNARY("TQ1_0", 34, 256, 54, 52, tq1_0),
    [FORMAT_TQ2_0]     = TERNARY("TQ2_0", 35, 256, 66, 64, tq2_0),
    [FORMAT_I2_S]      = TERNARY_TENSOR("I2_S", 1, i2_s),
    [FORMAT_I2_S_4ROW] = TERNARY_TENSOR("I2_S_4ROW", 4, i2_s_4row),
    [FORMAT_I2_S_ARM]  = TERNARY_TENSOR("I2_S_ARM", 1, i2_s_arm),
    [FORMAT_Q1_0]      = BLOCKS("Q1_0", 41, 128, 18, 0, -1, decode_q1_0, encode_q1_0),
    [FORMAT_Q2_0]      = TERNARY("Q2_0", 42, 64, 18, 0, q2_0),
    [FORMAT_Q2_0_G128] = TERNARY("Q2_0_G128", 42, 128, 34, 0, q2_0_g128),
    [FORMAT_IQ1_BN]    = TERNARY_ROWS("IQ1_BN", 134, 13, 2, 1, iq1_bn),
    [FORMAT_IQ2_BN]    = TERNARY_ROWS("IQ2_BN", 135, 16, 4, 1, iq2_bn),
    [FORMAT_IQ2_BN_R4] = TERNARY_ROWS("IQ2_BN_R4", 335, 16, 4, 4, iq2_bn_r4),
    [FORMAT_PQ2_0]     = TERNARY("PQ2_0", 142, 128, 34, 0, pq2_0),
    [FORMAT_PTQ1_0]    = TERNARY("PTQ1_0", 143, 128, 28, 26, ptq1_0),
    [FORMAT_TQ2_T]     = BLOCKS("TQ2_T", 144, 128, 34, 0, -1, decode_tq2_t, NULL),
    [FORMAT_TQK6]      = BLOCKS("TQK6", 145, 128, 26, 0, -1, decode_tqk6, NULL),
    [FORMAT_TQK7]      = BLOCKS("TQK7", 146, 128, 30, 0, -1, decode_tqk7, NULL),
};
/* clang-format on */

static_assert(sizeof formats / sizeof *formats == N_FORMATS, "one row for each format");

const struct format *format_of(enum format_id id)
{
    assert((int)id >= 0 && id < N_FORMATS);
    return &formats[id];
}

enum format_id format_by_name(const char *name)
{
    int id = 0;
    while (id < N_FORMATS && strcasecmp(formats[id].name, name) != 0)
        id++;
    return (enum format_id)id;
}

uint64_t format_row_bytes(enum format_id id, uint64_t n_cols)
{
    const struct format *f = format_of(id);
    return f->row_prefix + n_cols / f->block * f->block_bytes;
}

enum status format_bytes(enum format_id id, uint64_t n_rows, uint64_t n_cols, const char *what,
                         uint64_t *bytes, struct error *err)
{
    const struct format *f = format_of(id);
    unsigned long long cols = n_cols, rows = n_rows;
    if (n_cols % f->block)
        return fail(err, STATUS_FORMAT, "%s: rows of %llu weights; %s needs a multiple of %d", what,
                    cols, f->name, f->block);
    if (n_rows % f->row_group)
        return fail(err, STATUS_FORMAT, "%s: %llu rows; %s needs a multiple of %d", what, rows,
                    f->name, f->row_group);
    uint64_t row, total;
    if (__builtin_mul_overflow(n_cols / f->block, (uint64_t)f->block_bytes, &row) ||
        __builtin_add_overflow(row, (uint64_t)f->row_prefix, &row) ||
        __builtin_mul_overflow(row, n_rows, &total) ||
        __builtin_add_overflow(total, (uint64_t)f->tensor_tail, &total) || total > INT64_MAX)
        return fail(err, STATUS_FORMAT, "%s: the size of %llu x %llu weights in %s overflows", what,
                    rows, cols, f->name);
    *bytes = total;
    return STATUS_OK;
}

double format_bits_per_weight(enum format_id id, uint64_t n_rows, uint64_t n_cols)
{
    double n = (double)n_rows * (double)n_cols;
    double bytes = (double)n_rows * (double)format_row_bytes(id, n_cols);
    return n > 0 ? (bytes + format_of(id)->tensor_tail) * 8 / n : 0;
}

int64_t format_block_at(const struct format *format, int64_t n_cols, int64_t row, int64_t block)
{
    int64_t row_bytes = format->row_prefix + n_cols / format->block * format->block_bytes;
    int64_t first = row / format->row_group * format->row_group;
    return first * row_bytes +
           (format->row_prefix + block * format->block_bytes) * format->row_group;
}

void decode_blocks(const struct tensor *t, int64_t row0, int64_t row1, float *out,
                   block_decode *decode)
{
    const struct format *f = format_of(t->format);
    const uint8_t *block = t->data + format_block_at(f, t->n_cols, row0, 0);
    int64_t n = (row1 - row0) * (t->n_cols / f->block);
    for (int64_t i = 0; i < n; i++)
        decode(block + i * f->block_bytes, out + i * f->block);
}

static bool is_finite_at(const uint8_t *p, bool is_f32)
{
    if (is_f32)
        return (load_u32(p) & 0x7f800000) != 0x7f800000;
    return (load_u16(p) & 0x7c00) != 0x7c00;
}

/* The scale of a whole row or the scales and minima of its blocks. */
static bool is_row_finite(const struct tensor *t, int64_t row)
{
    const struct format *f = format_of(t->format);
    const uint8_t *p = t->data + format_block_at(f, t->n_cols, row, 0);
    if (f->row_prefix) {
        const uint8_t *prefixes = p - f->row_prefix * f->row_group;
        return is_finite_at(prefixes + f->row_prefix * (row % f->row_group), f->is_scale_f32);
    }
    for (int64_t i = 0; i < t->n_cols / f->block; i++, p += f->block_bytes)
        if (!is_finite_at(p + f->scale_at, f->is_scale_f32) ||
            (f->min_at >= 0 && !is_finite_at(p + f->min_at, false)))
            return false;
    return true;
}

/* The first weight of a row of F16, BF16 or F32 that is no number; n_cols if there is none. */
static int64_t first_odd_weight(const struct tensor *t, int64_t row)
{
    int size = format_of(t->format)->block_bytes;
    uint32_t exponent = t->format == FORMAT_F32   ? 0x7f800000
                        : t->format == FORMAT_F16 ? 0x7c00
                                                  : 0x7f80;
    const uint8_t *p = t->data + row * t->n_cols * size;
    bool is_found = false;
    if (size == 4) /* whole rows first: these loops vectorise */
        for (int64_t i = 0; i < t->n_cols; i++)
            is_found |= (load_u32(p + 4 * i) & exponent) == exponent;
    else
        for (int64_t i = 0; i < t->n_cols; i++)
            is_found |= (load_u16(p + 2 * i) & exponent) == exponent;
    int64_t i = 0;
    while (is_found &&
           ((size == 4 ? load_u32(p + 4 * i) : load_u16(p + 2 * i)) & exponent) != exponent)
        i++;
    return is_found ? i : t->n_cols;
}

static enum status check_weights(const struct tensor *t, const char *what, struct error *err)
{
    for (int64_t row = 0; row < t->n_rows; row++) {
        int64_t col = first_odd_weight(t, row);
        if (col < t->n_cols)
            return fail(err, STATUS_FORMAT,
                        "%s: row %lld, column %lld is infinite or no number; the file is damaged: "
                        "download or convert it again",
                        what, (long long)row, (long long)col);
    }
    return STATUS_OK;
}

enum status format_check_scales(const struct tensor *t, const char *what, struct error *err)
{
    const struct format *f = format_of(t->format);
    if (t->format == FORMAT_F32 || t->format == FORMAT_F16 || t->format == FORMAT_BF16)
        return check_weights(t, what, err);
    if (f->tensor_tail) {
        if (!is_finite_at(t->data + t->n_rows * t->n_cols / 4, true))
            return fail(err, STATUS_FORMAT,
                        "%s: the scale of this %s tensor is not finite; the file is damaged: "
                        "download or convert it again",
                        what, f->name);
        return STATUS_OK;
    }
    if (f->scale_at < 0 && !f->row_prefix)
        return STATUS_OK;
    for (int64_t row = 0; row < t->n_rows; row++)
        if (!is_row_finite(t, row))
            return fail(err, STATUS_FORMAT,
                        "%s: row %lld has a scale (%s) that is not finite; the file is damaged: "
                        "download or convert it again",
                        what, (long long)row, f->name);
    return STATUS_OK;
}

void tensor_decode(const struct tensor *t, int64_t row0, int64_t row1, float *out)
{
    assert(row0 >= 0 && row0 <= row1 && row1 <= t->n_rows);
    format_of(t->format)->decode(t, row0, row1, out);
}
