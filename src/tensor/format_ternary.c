#include "tensor/format_ternary.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/float16.h"
#include "base/reader.h"
#include "tensor/format_codecs.h"

static const struct ternary_layout *const layouts[N_FORMATS] = {
    [FORMAT_TQ1_0] = &layout_tq1_0,         [FORMAT_TQ2_0] = &layout_tq2_0,
    [FORMAT_I2_S] = &layout_i2_s,           [FORMAT_I2_S_4ROW] = &layout_i2_s_4row,
    [FORMAT_I2_S_ARM] = &layout_i2_s_arm,   [FORMAT_Q2_0] = &layout_q2_0,
    [FORMAT_Q2_0_G128] = &layout_q2_0_g128, [FORMAT_IQ1_BN] = &layout_iq1_bn,
    [FORMAT_IQ2_BN] = &layout_iq2_bn,       [FORMAT_IQ2_BN_R4] = &layout_iq2_bn_r4,
    [FORMAT_PQ2_0] = &layout_q2_0_g128,     [FORMAT_PTQ1_0] = &layout_ptq1_0,
};

const struct ternary_layout *ternary_layout_of(enum format_id id)
{
    assert(format_of(id)->is_ternary && layouts[id]);
    return layouts[id];
}

int64_t ternary_group(enum format_id id, int64_t n_cols)
{
    int group = format_of(id)->scale_group;
    return group > 0 ? group : n_cols;
}

int64_t ternary_scale_at(enum format_id id, int64_t n_rows, int64_t n_cols, int64_t row,
                         int64_t group)
{
    const struct format *f = format_of(id);
    if (f->tensor_tail)
        return n_rows * n_cols / 4;
    if (f->row_prefix) {
        int64_t blocks = format_block_at(f, n_cols, row, 0);
        return blocks - f->row_prefix * (f->row_group - row % f->row_group);
    }
    return format_block_at(f, n_cols, row, group) + f->scale_at;
}

float ternary_load_scale(enum format_id id, const uint8_t *p)
{
    return format_of(id)->is_scale_f32 ? load_f32(p) : f16_to_f32(load_u16(p));
}

void ternary_store_scale(enum format_id id, float scale, uint8_t *p)
{
    if (format_of(id)->is_scale_f32)
        store_f32(p, scale);
    else
        store_u16(p, f32_to_f16(scale));
}

void ternary_unpack_row(enum format_id id, const uint8_t *data, int64_t n_cols, int64_t row,
                        uint8_t *codes)
{
    const struct format *f = format_of(id);
    const struct ternary_layout *layout = ternary_layout_of(id);
    const uint8_t *block = data + format_block_at(f, n_cols, row, 0);
    for (int64_t i = 0; i < n_cols; i += f->block, block += f->block_bytes * f->row_group)
        layout->unpack(block, (int)(row % f->row_group), codes + i);
}

static void decode_row(const struct tensor *t, int64_t row, float *out)
{
    const struct format *f = format_of(t->format);
    const struct ternary_layout *layout = ternary_layout_of(t->format);
    uint8_t codes[TERNARY_MAX_BLOCK];
    for (int64_t block = 0; block < t->n_cols / f->block; block++, out += f->block) {
        layout->unpack(t->data + format_block_at(f, t->n_cols, row, block),
                       (int)(row % f->row_group), codes);
        int64_t at = ternary_scale_at(t->format, t->n_rows, t->n_cols, row, block);
        float scale = ternary_load_scale(t->format, t->data + at);
        for (int j = 0; j < f->block; j++)
            out[j] = (float)(codes[j] - 1) * scale;
    }
}

void decode_ternary(const struct tensor *t, int64_t row0, int64_t row1, float *out)
{
    for (int64_t row = row0; row < row1; row++)
        decode_row(t, row, out + (row - row0) * t->n_cols);
}

static float largest(const float *w, int64_t n)
{
    float largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fabsf(w[i]) > largest ? fabsf(w[i]) : largest;
    return largest;
}

/* Codes of weights that share the scale `largest`. Each kind of format has its own rule for what is
 * zero; on weights that are ternary already they agree, but for a row of zeros with a scale of its
 * own, which gets scale 0 and codes 2 as in the program the rule comes from. */
static void find_codes(enum format_id id, const float *w, int n, float largest, uint8_t *codes)
{
    int group = format_of(id)->scale_group;
    float inverse = largest > 0 ? 1 / largest : 0;
    for (int j = 0; j < n; j++) {
        bool is_zero;
        if (group > 0)
            is_zero = !(fabsf(w[j] * inverse) >= 0.5f);
        else if (group == 0)
            is_zero = fabsf(w[j]) < 0.5f * largest;
        else
            is_zero = fabsf(w[j]) < 1e-6;
        codes[j] = is_zero ? 1 : w[j] < 0 ? 0 : 2;
    }
}

/* The scale of a group is its largest magnitude; there is no search. */
static void encode_ternary(enum format_id id, const float *src, int64_t n_rows, int64_t n_cols,
                           uint8_t *out)
{
    const struct format *f = format_of(id);
    int64_t group = ternary_group(id, n_cols);
    uint8_t codes[TERNARY_MAX_BLOCK];
    float scale = f->tensor_tail ? largest(src, n_rows * n_cols) : 0;
    memset(out, 0,
           (size_t)(n_rows * (int64_t)format_row_bytes(id, (uint64_t)n_cols)) + f->tensor_tail);
    for (int64_t row = 0; row < n_rows; row++)
        for (int64_t i = 0; i < n_cols; i += f->block, src += f->block) {
            if (i % group == 0 && !f->tensor_tail)
                scale = largest(src, group);
            find_codes(id, src, f->block, scale, codes);
            ternary_layout_of(id)->pack(codes, (int)(row % f->row_group),
                                        out + format_block_at(f, n_cols, row, i / f->block));
            ternary_store_scale(id, scale,
                                out + ternary_scale_at(id, n_rows, n_cols, row, i / group));
        }
}

void encode_tq1_0(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    encode_ternary(FORMAT_TQ1_0, src, n_rows, n_cols, out);
}

void encode_tq2_0(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    encode_ternary(FORMAT_TQ2_0, src, n_rows, n_cols, out);
}

void encode_i2_s(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    encode_ternary(FORMAT_I2_S, src, n_rows, n_cols, out);
}

void encode_i2_s_4row(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    encode_ternary(FORMAT_I2_S_4ROW, src, n_rows, n_cols, out);
}

void encode_i2_s_arm(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    encode_ternary(FORMAT_I2_S_ARM, src, n_rows, n_cols, out);
}

void encode_q2_0(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    encode_ternary(FORMAT_Q2_0, src, n_rows, n_cols, out);
}

void encode_q2_0_g128(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    encode_ternary(FORMAT_Q2_0_G128, src, n_rows, n_cols, out);
}

void encode_iq1_bn(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    encode_ternary(FORMAT_IQ1_BN, src, n_rows, n_cols, out);
}

void encode_iq2_bn(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    encode_ternary(FORMAT_IQ2_BN, src, n_rows, n_cols, out);
}

void encode_iq2_bn_r4(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    encode_ternary(FORMAT_IQ2_BN_R4, src, n_rows, n_cols, out);
}

void encode_pq2_0(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    encode_ternary(FORMAT_PQ2_0, src, n_rows, n_cols, out);
}

void encode_ptq1_0(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    encode_ternary(FORMAT_PTQ1_0, src, n_rows, n_cols, out);
}
