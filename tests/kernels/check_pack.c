/* pack: tensors of every format that has a packing, built from the elements that must come out. */
#include <string.h>

#include "base/float16.h"
#include "base/reader.h"
#include "check.h"
#include "tensor/ternary.h"

/* Formats of a packing. */
static int formats_of(enum packing packing, enum format_id formats[16])
{
    static const enum format_id trits[] = {FORMAT_TQ1_0,     FORMAT_TQ2_0,     FORMAT_Q2_0,
                                           FORMAT_Q2_0_G128, FORMAT_PQ2_0,     FORMAT_PTQ1_0,
                                           FORMAT_IQ1_BN,    FORMAT_IQ2_BN,    FORMAT_IQ2_BN_R4,
                                           FORMAT_I2_S,      FORMAT_I2_S_4ROW, FORMAT_I2_S_ARM};
    static const enum format_id others[N_PACKINGS] = {
        [PACKING_q4_0] = FORMAT_Q4_0,    [PACKING_q8_0] = FORMAT_Q8_0,
        [PACKING_q6_k] = FORMAT_Q6_K,    [PACKING_q4_k] = FORMAT_Q4_K,
        [PACKING_q5_k] = FORMAT_Q5_K,    [PACKING_q2_k] = FORMAT_Q2_K,
        [PACKING_q4_1] = FORMAT_Q4_1,    [PACKING_q5_0] = FORMAT_Q5_0,
        [PACKING_q5_1] = FORMAT_Q5_1,    [PACKING_iq4_nl] = FORMAT_IQ4_NL,
        [PACKING_f16] = FORMAT_F16,      [PACKING_bf16] = FORMAT_BF16,
        [PACKING_f32] = FORMAT_F32,      [PACKING_q3_k] = FORMAT_Q3_K,
        [PACKING_iq4_xs] = FORMAT_IQ4_XS};
    if (packing == PACKING_trits4 || packing == PACKING_trits5) {
        memcpy(formats, trits, sizeof trits);
        return sizeof trits / sizeof trits[0];
    }
    formats[0] = others[packing];
    formats[1] = FORMAT_TQ2_T; /* no packing of its own: decoded to f32 */
    return packing == PACKING_f32 ? 2 : 1;
}

/* One tensor and its elements: codes with one scale per scale_group, or floats. */
struct source {
    struct tensor tensor;
    struct weights w;
};

/* A block of Q4_K or, with 32 bytes of fifth bits before the nibbles, Q5_K. */
static void put_k_block(const struct weights *w, int64_t row, int64_t col, uint8_t *out)
{
    const uint8_t *codes = w->codes + row * w->n_cols + col;
    int64_t group = row * w->n_groups + col / 256, sub = (row * w->n_cols + col) / 32;
    bool has_fifth = w->packing == PACKING_q5_k;
    uint8_t *low = out + (has_fifth ? 48 : 16);
    store_u16(out, f32_to_f16(w->scales[group]));
    store_u16(out + 2, f32_to_f16(w->min_scales[group]));
    weights_k_scales(w->subscales + sub, w->submins + sub, out + 4);
    memset(out + 16, 0, has_fifth ? 160 : 128);
    for (int i = 0; i < 256; i++) {
        low[i / 64 * 32 + i % 32] |= (uint8_t)((codes[i] & 15) << i / 32 % 2 * 4);
        if (has_fifth)
            out[16 + i % 32] |= (uint8_t)(codes[i] >> 4 << i / 32);
    }
}

static void put_q2_k_block(const struct weights *w, int64_t row, int64_t col, uint8_t *out)
{
    const uint8_t *codes = w->codes + row * w->n_cols + col;
    int64_t group = row * w->n_groups + col / 256, sub = (row * w->n_cols + col) / 16;
    memset(out + 16, 0, 64);
    for (int i = 0; i < 16; i++)
        out[i] = (uint8_t)(w->subscales[sub + i] | w->submins[sub + i] << 4);
    for (int i = 0; i < 256; i++)
        out[16 + i / 128 * 32 + i % 32] |= (uint8_t)(codes[i] << i % 128 / 32 * 2);
    store_u16(out + 80, f32_to_f16(w->scales[group]));
    store_u16(out + 82, f32_to_f16(w->min_scales[group]));
}

/* What follows d in a block of 32 weights of 4 or 5 bits. */
static void put_block_32(const struct weights *w, const uint8_t codes[32], const float *min,
                         uint8_t *out)
{
    if (min) {
        store_u16(out, f32_to_f16(*min));
        out += 2;
    }
    if (w->packing == PACKING_q5_0 || w->packing == PACKING_q5_1) {
        uint32_t fifths = 0;
        for (int i = 0; i < 32; i++)
            fifths |= (uint32_t)(codes[i] >> 4) << i;
        store_u32(out, fifths);
        out += 4;
    }
    for (int i = 0; i < 16; i++)
        out[i] = (uint8_t)((codes[i] & 15) | (codes[i + 16] & 15) << 4);
}

static void put_q3_k_block(const struct weights *w, int64_t row, int64_t col, uint8_t *out)
{
    const uint8_t *codes = w->codes + row * w->n_cols + col;
    memset(out, 0, 96);
    for (int i = 0; i < 256; i++) {
        out[i % 32] |= (uint8_t)(codes[i] >> 2 << i / 32);
        out[32 + i / 128 * 32 + i % 32] |= (uint8_t)((codes[i] & 3) << i % 128 / 32 * 2);
    }
    weights_q3_k_scales(w->subscales + (row * w->n_cols + col) / 16, out + 96);
    store_u16(out + 108, f32_to_f16(w->scales[row * w->n_groups + col / 256]));
}

static void put_iq4_xs_block(const struct weights *w, int64_t row, int64_t col, uint8_t *out)
{
    const uint8_t *codes = w->codes + row * w->n_cols + col;
    store_u16(out, f32_to_f16(w->scales[row * w->n_groups + col / 256]));
    memset(out + 2, 0, 6); /* scales: upper two bits in a u16, then nibbles */
    for (int i = 0; i < 8; i++) {
        int scale = w->subscales[(row * w->n_cols + col) / 32 + i] + 32;
        out[2 + i / 4] |= (uint8_t)(scale >> 4 << i % 4 * 2);
        out[4 + i / 2] |= (uint8_t)((scale & 15) << i % 2 * 4);
    }
    for (int i = 0; i < 256; i += i % 32 == 15 ? 17 : 1)
        out[8 + i / 32 * 16 + i % 32] = (uint8_t)(codes[i] | codes[i + 16] << 4);
}

static void put_block(const struct weights *w, int64_t row, int64_t col, uint8_t *out)
{
    const uint8_t *codes = w->codes + row * w->n_cols + col;
    uint16_t d = f32_to_f16(w->scales[row * w->n_groups + col / w->group]);
    if (w->packing == PACKING_q2_k) {
        put_q2_k_block(w, row, col, out);
        return;
    }
    if (w->submins) {
        put_k_block(w, row, col, out);
        return;
    }
    if (w->packing == PACKING_q3_k || w->packing == PACKING_iq4_xs) {
        (w->packing == PACKING_q3_k ? put_q3_k_block : put_iq4_xs_block)(w, row, col, out);
        return;
    }
    if (w->packing == PACKING_q6_k) {
        memset(out, 0, 192);
        for (int i = 0; i < 256; i++) {
            int half = i / 128, quarter = i % 128 / 32, at = i % 32;
            out[64 * half + 32 * (quarter % 2) + at] |=
                (uint8_t)((codes[i] & 15) << 4 * (quarter / 2));
            out[128 + 32 * half + at] |= (uint8_t)(codes[i] >> 4 << 2 * quarter);
        }
        memcpy(out + 192, w->subscales + (row * w->n_cols + col) / 16, 16);
        store_u16(out + 208, d);
        return;
    }
    store_u16(out, d);
    if (w->packing == PACKING_q8_0) {
        for (int i = 0; i < 32; i++)
            out[2 + i] = (uint8_t)(codes[i] - 128);
        return;
    }
    put_block_32(w, codes, w->mins ? w->mins + row * w->n_groups + col / 32 : NULL, out + 2);
}

static void put_float(enum packing packing, float value, uint8_t *out)
{
    if (packing == PACKING_f32)
        store_f32(out, value);
    else
        store_u16(out, packing == PACKING_f16 ? f32_to_f16(value) : f32_to_bf16(value));
}

/* Scales such that groups of `group` agree, some blocks have none, and the format can hold them. */
static void set_ternary_scales(struct check *c, struct weights *w, enum format_id format,
                               int64_t group)
{
    bool is_per_tensor = format_of(format)->scale_group < 0;
    int64_t own = w->n_cols / w->n_groups;
    for (int64_t row = 0; row < w->n_rows; row++)
        for (int g = 0; g < w->n_groups; g++) {
            float *scale = w->scales + row * w->n_groups + g;
            bool is_first = is_per_tensor ? row + g == 0 : g * own % group == 0;
            float sign = check_below(c, 2) ? 0x1p-8f : -0x1p-8f;
            float next = (float)(1 + check_below(c, 64)) * sign;
            *scale = is_first ? next : is_per_tensor ? w->scales[0] : scale[-1];
        }
    for (int64_t i = 1; own < group && i < w->n_rows * w->n_groups; i++)
        if (check_below(c, 4) == 0)
            w->scales[i] = 0;
}

static void encode_ternary(struct check *c, struct source *s, enum format_id format, uint8_t *data)
{
    struct weights *w = &s->w;
    struct ternary_rows rows = {w->codes, w->scales, (int)(w->n_cols / w->n_groups)};
    struct error err;
    enum status status = ternary_encode(format, &rows, w->n_rows, w->n_cols, "check", data, &err);
    if (status != STATUS_OK) { /* code 3, which this format has not */
        for (int64_t i = 0; i < w->n_rows * w->n_cols; i++)
            w->codes[i] = w->codes[i] == 3 ? 2 : w->codes[i];
        status = ternary_encode(format, &rows, w->n_rows, w->n_cols, "check", data, &err);
    }
    if (status != STATUS_OK)
        check_failed(c, "cannot build the source: %s", err.text);
}

/* Blocks of random codes whose scale is a small number; elements by the format's decoder. */
static void fill_decoded(struct check *c, struct source *s, uint8_t *data)
{
    const struct format *f = format_of(s->tensor.format);
    for (uint64_t i = 0; i < s->tensor.bytes; i++)
        data[i] = (uint8_t)check_below(c, 256);
    for (uint64_t at = 0; at < s->tensor.bytes; at += (uint64_t)f->block_bytes)
        store_u16(data + at + f->scale_at, f32_to_f16(check_float(c, FILL_RANDOM)));
    tensor_decode(&s->tensor, 0, s->tensor.n_rows, s->w.floats);
}

static struct source make_source(struct check *c, enum format_id format, int group, int64_t n_rows,
                                 int64_t n_cols, enum fill fill)
{
    const struct format *f = format_of(format);
    enum packing packing = c->row->packing;
    int own = f->is_ternary ? (f->scale_group > 0 ? f->scale_group : 0) : group;
    struct source s = {{format, n_cols, n_rows, NULL, 0},
                       check_weights(c, packing, own, n_rows, n_cols, fill)};
    uint64_t bytes = 0;
    struct error err;
    if (format_bytes(format, (uint64_t)n_rows, (uint64_t)n_cols, "check", &bytes, &err))
        check_failed(c, "cannot build the source: %s", err.text);
    uint8_t *data = check_block(c, "source", bytes, ROLE_INPUT);
    s.tensor.data = data;
    s.tensor.bytes = bytes;
    if (f->is_ternary) {
        set_ternary_scales(c, &s.w, format, group ? group : n_cols);
        encode_ternary(c, &s, format, data);
    } else if (format == FORMAT_TQ2_T) {
        fill_decoded(c, &s, data);
    } else if (s.w.floats) {
        for (int64_t i = 0; i < n_rows * n_cols; i++)
            put_float(packing, s.w.floats[i], data + i * (packing == PACKING_f32 ? 4 : 2));
    } else {
        for (int64_t i = 0; i < n_rows * n_cols; i += f->block)
            put_block(&s.w, i / n_cols, i % n_cols, data + i / f->block * f->block_bytes);
    }
    return s;
}

/* One packed row's codes and scales from a source row; blocks without a scale hold zeros. */
static void expect_row(const struct weights *from, int64_t from_row, int64_t col0,
                       struct weights *to, int64_t row)
{
    if (from->floats) {
        memcpy(to->floats + row * to->n_cols, from->floats + from_row * from->n_cols + col0,
               (size_t)to->n_cols * sizeof *to->floats);
        return;
    }
    bool is_ternary = to->packing == PACKING_trits4 || to->packing == PACKING_trits5;
    int64_t own = from->n_cols / from->n_groups, group = to->n_cols / to->n_groups;
    memset(to->scales + row * to->n_groups, 0, (size_t)to->n_groups * sizeof *to->scales);
    for (int64_t i = 0; i < to->n_cols; i++) {
        float scale = from->scales[from_row * from->n_groups + (col0 + i) / own];
        uint8_t code = from->codes[from_row * from->n_cols + col0 + i];
        to->codes[row * to->n_cols + i] = is_ternary && scale == 0 ? 1 : code;
        if (scale != 0)
            to->scales[row * to->n_groups + i / group] = scale;
    }
    for (int64_t i = 0; to->mins && i < to->n_groups; i++)
        to->mins[row * to->n_groups + i] = from->mins[from_row * from->n_groups + col0 / 32 + i];
    int64_t n_subs = to->subscales ? to->n_cols / to->sub_inputs : 0;
    for (int64_t i = 0; i < n_subs; i++) {
        int64_t at = (from_row * from->n_cols + col0) / from->sub_inputs + i;
        to->subscales[row * n_subs + i] = from->subscales[at];
        if (to->submins)
            to->submins[row * n_subs + i] = from->submins[at];
    }
    for (int64_t i = 0; to->submins && i < to->n_groups; i++)
        to->min_scales[row * to->n_groups + i] =
            from->min_scales[from_row * from->n_groups + col0 / 256 + i];
}

struct pack_case {
    struct weights expected;
    bool is_exact; /* else only the values count: nothing says which scale zeros have */
};

static void verify_pack(struct check *c, const void *context)
{
    const struct pack_case *p = context;
    const struct packed *w = &c->job.pack.w;
    size_t bytes = packed_bytes(w->packing, w->group, w->n_rows, w->n_cols);
    uint8_t *want = check_memory(c, bytes, 1);
    weights_pack(&p->expected, want);
    for (size_t i = 0; p->is_exact && i < bytes && !c->failed; i++)
        check_near(c, "packed byte", (int64_t)i, w->data[i], want[i], 0);
    size_t n = (size_t)(w->n_rows * w->n_cols);
    float *got_values = check_memory(c, n, sizeof(float));
    float *want_values = check_memory(c, n, sizeof(float));
    packed_decode(w, 0, w->n_rows, got_values);
    struct packed expected = *w;
    expected.data = want;
    packed_decode(&expected, 0, w->n_rows, want_values);
    for (size_t i = 0; i < n && !c->failed; i++)
        check_near(c, "decoded", (int64_t)i, got_values[i], want_values[i], 0);
}

struct pack_shape {
    enum format_id format;
    int group, n_sources;
    int64_t n_rows, n_cols, col0;
    enum fill fill;
    bool is_permuted;
};

static void pack_once(struct check *c, const struct pack_shape *s)
{
    if (check_passes_over(c))
        return;
    check_begin(c, "%s, %d sources, %lld rows, cols %lld + %lld, group %d%s, fill %s",
                format_of(s->format)->name, s->n_sources, (long long)s->n_rows, (long long)s->col0,
                (long long)s->n_cols, s->group, s->is_permuted ? ", permuted" : "",
                fill_names[s->fill]);
    enum packing packing = c->row->packing;
    struct pack_job *job = &c->job.pack;
    int row_group = format_of(s->format)->row_group > 1 ? format_of(s->format)->row_group : 1;
    int64_t n_wanted = (s->n_rows + s->n_sources - 1) / s->n_sources;
    int64_t source_rows = (n_wanted + row_group - 1) / row_group * row_group;
    int64_t source_cols = s->col0 + s->n_cols + s->col0;
    struct source sources[2];
    struct tensor *tensors = check_block(c, "tensors", 2 * sizeof *tensors, ROLE_INPUT);
    for (int i = 0; i < s->n_sources; i++) {
        sources[i] = make_source(c, s->format, s->group, source_rows, source_cols, s->fill);
        tensors[i] = sources[i].tensor;
        job->source[i] = &tensors[i];
    }
    job->n_sources = s->n_sources;
    job->col0 = s->col0;
    int32_t *row_of = check_block(c, "row_of", (size_t)n_wanted * sizeof *row_of, ROLE_INPUT);
    for (int64_t i = 0; i < n_wanted; i++)
        row_of[i] = s->is_permuted ? check_below(c, (int)source_rows) : (int32_t)i;
    job->row_of = s->is_permuted ? row_of : NULL;
    struct pack_case p = {check_weights(c, packing, s->group, s->n_rows, s->n_cols, FILL_ZERO),
                          s->fill != FILL_ZERO};
    for (int64_t row = 0; row < s->n_rows; row++)
        expect_row(&sources[row % s->n_sources].w, row_of[row / s->n_sources], s->col0, &p.expected,
                   row);
    job->w = (struct packed){packing, s->group, s->n_rows, s->n_cols, NULL};
    size_t bytes = packed_bytes(packing, s->group, s->n_rows, s->n_cols);
    job->w.data = check_block(c, "packed", bytes, ROLE_OUTPUT);
    job->scratch =
        check_block(c, "scratch", (PACK_SCRATCH(source_cols) + 63) / 64 * 64, ROLE_SCRATCH);
    check_run(c, (int)s->n_rows, verify_pack, &p);
}

/* Multiples of columns that a slice of this format and grouping may begin and end at. */
static int64_t slice_of(enum format_id format, int group)
{
    const struct format *f = format_of(format);
    int64_t slice = f->block > group ? f->block : group;
    if (f->is_ternary && f->scale_group > slice)
        slice = f->scale_group;
    return f->scale_group < 0 && slice < 128 ? 128 : slice;
}

static void pack_format(struct check *c, enum format_id format, int group)
{
    static const int slices[] = {1, 2, 3, 5, 11, 21, 41};
    static const int rows[] = {1, 15, 16, 17, 32, 34, 46};
    int64_t slice = slice_of(format, group);
    for (int i = 0; i < 7 && slices[i] * slice <= 5300; i++)
        for (int fill = 0; fill < N_FILLS && !c->failed; fill++) {
            struct pack_shape s = {.format = format, .group = group, .n_sources = 1};
            s.n_rows = rows[check_below(c, 7)];
            s.n_cols = slices[i] * slice;
            s.fill = fill;
            if (check_below(c, 2)) {
                s.n_sources = 1 + check_below(c, 2);
                s.col0 = check_below(c, 3) * slice;
                s.is_permuted = check_below(c, 2);
            }
            pack_once(c, &s);
        }
}

void check_pack(struct check *c)
{
    enum format_id formats[16];
    int groups[4], n_formats = formats_of(c->row->packing, formats);
    int n_groups = check_groups(c->row->packing, groups);
    for (int i = 0; i < n_formats; i++)
        for (int g = 0; g < n_groups && !c->failed; g++) {
            const struct format *f = format_of(formats[i]);
            bool is_finer = f->is_ternary && groups[g] && groups[g] < f->scale_group;
            bool is_row_only = f->is_ternary && f->scale_group <= 0 && groups[g];
            if (!is_finer && !is_row_only)
                pack_format(c, formats[i], groups[g]);
        }
}

bool large_pack(struct check *c, const struct large *large)
{
    check_begin(c, "large");
    enum format_id formats[16], format = FORMAT_TQ2_0;
    int groups[4], n_groups = check_groups(c->row->packing, groups);
    formats_of(c->row->packing, formats);
    bool is_trits = c->row->packing == PACKING_trits4 || c->row->packing == PACKING_trits5;
    if (!is_trits)
        format = formats[0];
    int group = groups[0];
    for (int i = 0; i < n_groups; i++)
        if (groups[i] == large->group && (!is_trits || groups[i] == 0 || groups[i] == 256))
            group = groups[i];
    struct pack_job *job = &c->job.pack;
    uint64_t row_bytes = format_row_bytes(format, (uint64_t)large->n_cols);
    int64_t n_rows = (large->bytes / (int64_t)row_bytes + TILE_ROWS) / TILE_ROWS * TILE_ROWS;
    struct source s = make_source(c, format, group, TILE_ROWS, large->n_cols, FILL_RANDOM);
    uint64_t part = s.tensor.bytes;
    uint8_t *data = check_block(c, "sources", part * (uint64_t)(n_rows / TILE_ROWS), ROLE_INPUT);
    for (int64_t i = 0; i < n_rows / TILE_ROWS; i++)
        memcpy(data + (uint64_t)i * part, s.tensor.data, part);
    struct tensor *tensor = check_memory(c, 1, sizeof *tensor);
    *tensor = (struct tensor){format, large->n_cols, n_rows, data, (uint64_t)n_rows * row_bytes};
    job->source[0] = tensor;
    job->n_sources = 1;
    job->w = (struct packed){c->row->packing, group, n_rows, large->n_cols, NULL};
    job->w.data = check_block(
        c, "packed", packed_bytes(c->row->packing, group, n_rows, large->n_cols), ROLE_OUTPUT);
    c->jobs = &c->job;
    c->n_jobs = 1;
    c->n_units = (int)n_rows;
    c->work = (struct workload){(int64_t)tensor->bytes, n_rows * large->n_cols, 0};
    return true;
}
