#include "tensor/packings.h"

#include <assert.h>
#include <string.h>

#include "base/float16.h"
#include "base/reader.h"
#include "tensor/format_ternary.h"
#include "tensor/iq4_values.h"
#include "tensor/ternary.h"

#define PACKING_NAME(name) #name,
static const char *const names[] = {"none", PACKING_LIST(PACKING_NAME)};
#undef PACKING_NAME

const char *packing_name(enum packing packing)
{
    assert((int)packing >= 0 && packing < N_PACKINGS);
    return names[packing];
}

/* Scales and minimums of groups of a block of 256. */
static bool is_k_min(enum packing packing)
{
    return packing == PACKING_q4_k || packing == PACKING_q5_k || packing == PACKING_q2_k;
}

/* A scale for each block of 32. */
static bool is_block_32(enum packing packing)
{
    return packing == PACKING_q4_0 || packing == PACKING_q8_0 || packing == PACKING_q4_1 ||
           packing == PACKING_q5_0 || packing == PACKING_q5_1 || packing == PACKING_iq4_nl;
}

/* Scales of groups of a block of 256, a block a unit. */
static bool is_k_block(enum packing packing)
{
    return is_k_min(packing) || packing == PACKING_q3_k || packing == PACKING_iq4_xs;
}

struct packing_needs packing_needs(enum packing packing, int group)
{
    if (packing_is_trits(packing))
        return (struct packing_needs){false, group, group};
    if (is_block_32(packing))
        return (struct packing_needs){false, 32, 32};
    if (packing == PACKING_q6_k || packing == PACKING_q2_k || packing == PACKING_q3_k)
        return (struct packing_needs){false, 256, 16};
    if (is_k_block(packing))
        return (struct packing_needs){false, 256, 32};
    return (struct packing_needs){true, 0, 0};
}

int packed_step_inputs(enum packing packing)
{
    static const int inputs[N_PACKINGS] = {
        [PACKING_trits4] = 16, [PACKING_trits5] = 20, [PACKING_q4_0] = 8,   [PACKING_q8_0] = 4,
        [PACKING_q6_k] = 16,   [PACKING_q4_k] = 8,    [PACKING_q5_k] = 32,  [PACKING_q2_k] = 16,
        [PACKING_f16] = 2,     [PACKING_bf16] = 2,    [PACKING_f32] = 1,    [PACKING_q4_1] = 8,
        [PACKING_q5_0] = 32,   [PACKING_q5_1] = 32,   [PACKING_iq4_nl] = 8, [PACKING_q3_k] = 32,
        [PACKING_iq4_xs] = 8,
    };
    assert(packing > PACKING_none && packing < N_PACKINGS);
    return inputs[packing];
}

int packed_unit_inputs(enum packing packing, int group)
{
    if (packing_is_trits(packing))
        return group == 0 ? 0 : packing == PACKING_trits4 ? 2 * group : 1280;
    if (is_block_32(packing))
        return 64;
    return packing == PACKING_q6_k ? 512 : is_k_block(packing) ? 256 : 0;
}

int packed_unit_header(enum packing packing, int group)
{
    if (packing == PACKING_trits5 && group > 0)
        return (1280 / group * 2 * TILE_ROWS + 63) / 64 * 64;
    if (packing == PACKING_q4_1 || packing == PACKING_q5_1)
        return 128;
    if (packing_is_trits(packing) || is_block_32(packing))
        return 64;
    if (packing == PACKING_q6_k)
        return 64 + 2 * 16 * TILE_ROWS;
    if (packing == PACKING_q2_k)
        return 64 + 16 * TILE_ROWS;
    if (packing == PACKING_iq4_xs)
        return 64 + 4 * TILE_ROWS;
    return is_k_block(packing) ? PACKED_K_LINES_AT + 12 * TILE_ROWS : 0;
}

int packed_step_bytes(enum packing packing)
{
    switch (packing) {
    case PACKING_q3_k:
    case PACKING_q6_k: return 3 * STEP_BYTES;
    case PACKING_q5_k:
    case PACKING_q5_0:
    case PACKING_q5_1: return 5 * STEP_BYTES;
    default: return STEP_BYTES;
    }
}

uint64_t packed_tile_bytes(enum packing packing, int group, int64_t n_cols)
{
    assert(n_cols >= 0);
    int64_t step = packed_step_inputs(packing);
    int64_t unit = packed_unit_inputs(packing, group);
    int64_t n_units = unit == 0 ? 1 : (n_cols + unit - 1) / unit;
    int64_t n_steps = (n_cols + step - 1) / step; /* a unit is a whole number of steps */
    return (uint64_t)n_units * (uint64_t)packed_unit_header(packing, group) +
           (uint64_t)n_steps * (uint64_t)packed_step_bytes(packing);
}

uint64_t packed_bytes(enum packing packing, int group, int64_t n_rows, int64_t n_cols)
{
    uint64_t n_tiles = (uint64_t)(n_rows + TILE_ROWS - 1) / TILE_ROWS;
    return n_tiles * packed_tile_bytes(packing, group, n_cols);
}

uint8_t trits5_code(const uint8_t t[5])
{
    int v = t[0] + 3 * t[1] + 9 * t[2] + 27 * t[3];
    return (uint8_t)(v < 64 ? t[4] << 6 | v : 192 | (17 * t[4] + v - 64));
}

/* The scale groupings from coarse to fine, with as much of the tensor as agrees with them. */
struct scale_search {
    const struct tensor *tensor;
    const struct format *format;
    struct ternary_rows row; /* scratch: one row */
    int group;               /* the coarsest that fits all rows so far; 0: the row */
    int finest;              /* the format's own; 0: the row */
};

/* The next finer grouping that divides rows evenly and is not finer than the format's own. */
static int finer_group(const struct scale_search *s)
{
    int finer = ternary_finer_group(s->group, s->tensor->n_cols);
    return finer > s->finest ? finer : s->finest;
}

static bool is_zero_codes(const uint8_t *codes, int n)
{
    int i = 0;
    while (i < n && codes[i] == 1)
        i++;
    return i == n;
}

/* Whether groups of `group` have one scale each in the extracted row, zeros aside. */
static bool is_row_grouped(const struct scale_search *s, int64_t group)
{
    int n = s->row.group;
    for (int64_t begin = 0; begin < s->tensor->n_cols; begin += group) {
        float scale = 0;
        for (int64_t col = begin; col < begin + group; col += n) {
            float next = s->row.scales[col / n];
            if (next == 0 || next == scale || is_zero_codes(s->row.codes + col, n))
                continue;
            if (scale != 0)
                return false;
            scale = next;
        }
    }
    return true;
}

/* Whether all scales of a row are the same 16 bits: then there is no need to look closer. */
static bool is_row_uniform(const struct scale_search *s, const uint8_t *row)
{
    const struct format *f = s->format;
    const uint8_t *scale = row + f->scale_at;
    uint16_t first = load_u16(scale);
    for (int64_t i = f->block; i < s->tensor->n_cols; i += f->block) {
        scale += f->block_bytes;
        if (load_u16(scale) != first)
            return false;
    }
    return true;
}

static void fit_row(struct scale_search *s, int64_t row)
{
    const struct tensor *t = s->tensor;
    uint64_t row_bytes = format_row_bytes(t->format, (uint64_t)t->n_cols);
    if (s->group == s->finest || is_row_uniform(s, t->data + (uint64_t)row * row_bytes))
        return;
    ternary_extract(t, row, row + 1, &s->row);
    while (s->group != s->finest && !is_row_grouped(s, s->group ? s->group : t->n_cols))
        s->group = finer_group(s);
}

/* Whether any 2-bit field of n bytes holds 3. */
static bool has_3(const uint8_t *bytes, int64_t n)
{
    uint64_t found = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, 8);
        found |= word & word >> 1;
    }
    for (; i < n; i++)
        found |= bytes[i] & bytes[i] >> 1;
    return (found & 0x5555555555555555) != 0;
}

/* Whether a row holds code 3 under a scale that is not zero. */
static bool is_code3_in_row(struct scale_search *s, int64_t row)
{
    ternary_extract(s->tensor, row, row + 1, &s->row);
    for (int64_t i = 0; i < s->tensor->n_cols; i++)
        if (s->row.codes[i] == 3 && s->row.scales[i / s->row.group] != 0)
            return true;
    return false;
}

/* Code 3 in the rows stored together from `row` on. A scale between the blocks is not looked at. */
static bool is_code3_in_rows(struct scale_search *s, int64_t row)
{
    const struct tensor *t = s->tensor;
    const struct format *f = s->format;
    int scale_bytes = f->scale_at >= 0 ? 2 : 0;
    int64_t codes_at = f->scale_at == 0 ? 2 : 0;
    int64_t n_codes = (int64_t)(f->block_bytes - scale_bytes) * f->row_group;
    int64_t block_bytes = (int64_t)f->block_bytes * f->row_group;
    const uint8_t *block = t->data +
                           row * (int64_t)format_row_bytes(t->format, (uint64_t)t->n_cols) +
                           f->row_prefix * f->row_group + codes_at;
    bool is_found = false;
    if (scale_bytes == 0) {
        is_found = has_3(block, block_bytes * (t->n_cols / f->block));
    } else {
        for (int64_t i = 0; i < t->n_cols; i += f->block, block += block_bytes)
            is_found |= has_3(block, n_codes);
    }
    for (int64_t r = row; is_found && r < row + f->row_group; r++)
        if (is_code3_in_row(s, r))
            return true;
    return false;
}

/* Whether all scales of rows are f16 numbers; f32 ones belong to whole rows. */
static bool has_half_scales(const struct tensor *t, int64_t row0, int64_t row1)
{
    int64_t end = format_of(t->format)->is_scale_f32 ? row1 : row0;
    for (int64_t row = row0; row < end; row++) {
        int64_t at = ternary_scale_at(t->format, t->n_rows, t->n_cols, row, 0);
        float scale = ternary_load_scale(t->format, t->data + at);
        if (f16_to_f32(f32_to_f16(scale)) != scale)
            return false;
    }
    return true;
}

static struct packing_choice choose_ternary(const struct tensor *t, int64_t row0, int64_t row1,
                                            bool allow_trits5, void *scratch)
{
    const struct format *f = format_of(t->format);
    float *scales = scratch;
    struct scale_search s = {.tensor = t, .format = f};
    s.row = (struct ternary_rows){(uint8_t *)(scales + t->n_cols / 64 + 1), scales, 0};
    /* A row of one group needs no grouping. */
    s.finest = f->scale_group > 0 && f->scale_group < t->n_cols ? f->scale_group : 0;
    bool has_code3 = false, is_two_bits = 4 * f->block_bytes >= f->block;
    for (int64_t row = row0; row < row1; row++) {
        fit_row(&s, row);
        if (is_two_bits && !has_code3 && row % f->row_group == 0)
            has_code3 = is_code3_in_rows(&s, row);
    }
    return (struct packing_choice){allow_trits5 && !has_code3 ? PACKING_trits5 : PACKING_trits4,
                                   s.group, has_code3, has_half_scales(t, row0, row1)};
}

struct packing_choice packing_of_format(enum format_id format)
{
    static const enum packing packings[N_FORMATS] = {
        [FORMAT_F32] = PACKING_f32,       [FORMAT_F16] = PACKING_f16,
        [FORMAT_BF16] = PACKING_bf16,     [FORMAT_Q4_0] = PACKING_q4_0,
        [FORMAT_Q8_0] = PACKING_q8_0,     [FORMAT_Q6_K] = PACKING_q6_k,
        [FORMAT_Q4_K] = PACKING_q4_k,     [FORMAT_Q5_K] = PACKING_q5_k,
        [FORMAT_Q2_K] = PACKING_q2_k,     [FORMAT_Q4_1] = PACKING_q4_1,
        [FORMAT_Q5_0] = PACKING_q5_0,     [FORMAT_Q5_1] = PACKING_q5_1,
        [FORMAT_IQ4_NL] = PACKING_iq4_nl, [FORMAT_Q3_K] = PACKING_q3_k,
        [FORMAT_IQ4_XS] = PACKING_iq4_xs,
    };
    return (struct packing_choice){packings[format], packing_group(packings[format]), false, false};
}

/* Narrower rows gain nothing. */
enum { NARROWEST_TERNARY = 64 };

/* Whether the first rows have any bit set: an outline of a model, which is nothing but zeros, says
 * nothing about values, and is not read through. */
static bool is_filled(const struct tensor *t)
{
    int64_t n_rows = t->n_rows < 64 ? t->n_rows : 64, i = 0;
    int64_t n = n_rows * (int64_t)format_row_bytes(t->format, (uint64_t)t->n_cols);
    while (i < n && t->data[i] == 0)
        i++;
    return i < n;
}

struct packing_choice packing_choose_rows(const struct tensor *t, int64_t row0, int64_t row1,
                                          bool allow_trits5, void *scratch)
{
    struct ternary_values found;
    if (format_of(t->format)->is_ternary)
        return choose_ternary(t, row0, row1, allow_trits5, scratch);
    struct tensor part = *t;
    part.data += (uint64_t)row0 * format_row_bytes(t->format, (uint64_t)t->n_cols);
    part.n_rows = row1 - row0;
    if (t->format == FORMAT_F32 || t->n_cols < NARROWEST_TERNARY || !is_filled(t) ||
        !ternary_recognise(&part, scratch, &found))
        return packing_of_format(t->format);
    return (struct packing_choice){allow_trits5 ? PACKING_trits5 : PACKING_trits4, found.group,
                                   false, found.is_half};
}

struct packing_choice packing_choose(const struct tensor *t, bool allow_trits5, void *scratch)
{
    return packing_choose_rows(t, 0, t->n_rows, allow_trits5, scratch);
}

int packing_finer_group(int a, int b)
{
    return a == 0 ? b : b == 0 || a < b ? a : b;
}

struct packing_choice packing_join(enum format_id format, struct packing_choice a,
                                   struct packing_choice b)
{
    if (!packing_is_trits(a.packing) || !packing_is_trits(b.packing))
        return packing_of_format(format);
    a.packing = a.packing == b.packing ? a.packing : PACKING_trits4;
    a.group = packing_finer_group(a.group, b.group);
    a.has_code3 |= b.has_code3;
    a.is_half &= b.is_half;
    bool is_lost = !format_of(format)->is_ternary && a.group && !a.is_half;
    return is_lost ? packing_of_format(format) : a;
}

int packing_group(enum packing packing)
{
    return packing == PACKING_q6_k || is_k_block(packing) ? 256 : is_block_32(packing) ? 32 : 0;
}

/* Where one weight is. */
struct place {
    const uint8_t *unit, *step;
    int row;     /* in the tile */
    int in_unit; /* input */
    int in_step; /* input */
};

/* `bits` wide field of an input among the bytes of its row in a step. */
static int field_at(const struct place *p, const uint8_t *step, int input, int bits)
{
    int byte = step[4 * p->row + input % 4];
    return byte >> input / 4 * bits & ((1 << bits) - 1);
}

/* Four bits, and a fifth in the step behind theirs. */
static int five_bits_at(const struct place *p)
{
    int low = field_at(p, p->step + p->in_step / 8 * STEP_BYTES, p->in_step % 8, 4);
    return low | field_at(p, p->step + 4 * STEP_BYTES, p->in_step, 1) << 4;
}

static float half_at(const uint8_t *halves, int i)
{
    return f16_to_f32(load_u16(halves + 2 * i));
}

static int trit_of(uint8_t code, int field)
{
    static const int powers[] = {1, 3, 9, 27};
    int low = code & 63;
    if (code < 192)
        return field == 4 ? code >> 6 : low / powers[field] % 3;
    return field == 4 ? low / 17 : (64 + low % 17) / powers[field] % 3;
}

static float trit_value(const struct packed *w, const struct place *p)
{
    float scale = w->group == 0 ? load_f32(p->unit + 4 * p->row)
                                : half_at(p->unit, p->in_unit / w->group * TILE_ROWS + p->row);
    int code = w->packing == PACKING_trits4
                   ? field_at(p, p->step, p->in_step, 2)
                   : trit_of(p->step[4 * p->row + p->in_step % 4], p->in_step / 4);
    return (float)(code - 1) * scale;
}

static float q6_k_value(const struct place *p)
{
    int low = field_at(p, p->step + p->in_step / 8 * STEP_BYTES, p->in_step % 8, 4);
    int high = field_at(p, p->step + 2 * STEP_BYTES, p->in_step, 2);
    int8_t scale = (int8_t)p->unit[64 + p->in_unit / 16 * TILE_ROWS + p->row];
    float d = half_at(p->unit, p->in_unit / 256 * TILE_ROWS + p->row);
    return d * (float)scale * (float)((low | high << 4) - 32);
}

void packed_k_scales(const uint8_t *unit, int r, int i, int *scale, int *min)
{
    const uint8_t *first = unit + PACKED_K_LINES_AT + 4 * r + i % 4;
    int scales = first[0], mins = first[STEP_BYTES], rest = first[2 * STEP_BYTES];
    *scale = i < 4 ? scales & 63 : (rest & 15) | scales >> 6 << 4;
    *min = i < 4 ? mins & 63 : rest >> 4 | mins >> 6 << 4;
}

static float q2_k_value(const struct place *p)
{
    int group = p->in_unit / 16, code = field_at(p, p->step, p->in_step, 2);
    int both = p->unit[64 + group / 4 * STEP_BYTES + 4 * p->row + group % 4];
    float step = half_at(p->unit, p->row) * (float)(both & 15);
    float low = half_at(p->unit, TILE_ROWS + p->row) * (float)(both >> 4);
    return step * (float)code - low;
}

static float k_min_value(const struct packed *w, const struct place *p)
{
    int scale, min, code;
    packed_k_scales(p->unit, p->row, p->in_unit / 32, &scale, &min);
    code = w->packing == PACKING_q4_k ? field_at(p, p->step, p->in_step, 4) : five_bits_at(p);
    float step = half_at(p->unit, p->row) * (float)scale;
    float low = half_at(p->unit, TILE_ROWS + p->row) * (float)min;
    return step * (float)code - low;
}

/* Scales per 32. */
static float block_32_value(const struct packed *w, const struct place *p)
{
    int i = p->in_unit / 32 * TILE_ROWS + p->row;
    float scale = half_at(p->unit, i);
    switch (w->packing) {
    case PACKING_q4_0: return (float)(field_at(p, p->step, p->in_step, 4) - 8) * scale;
    case PACKING_iq4_nl: return (float)iq4_values[field_at(p, p->step, p->in_step, 4)] * scale;
    case PACKING_q4_1:
        return (float)field_at(p, p->step, p->in_step, 4) * scale + half_at(p->unit + 64, i);
    case PACKING_q5_0: return (float)(five_bits_at(p) - 16) * scale;
    case PACKING_q5_1: return (float)five_bits_at(p) * scale + half_at(p->unit + 64, i);
    default: return (float)(field_at(p, p->step, p->in_step, 8) - 128) * scale;
    }
}

int packed_q3_k_scale(const uint8_t *unit, int r, int i)
{
    const uint8_t *first = unit + PACKED_K_LINES_AT + 4 * r + i % 4;
    int low = first[i / 4 % 2 * STEP_BYTES] >> i / 8 * 4 & 15;
    return (low | (first[2 * STEP_BYTES] >> i / 4 * 2 & 3) << 4) - 32;
}

int packed_q3_k_code(const uint8_t *step, int byte, int quad)
{
    const uint8_t *of = step + byte;
    if (quad < 6)
        return of[quad / 2 * STEP_BYTES] >> quad % 2 * 3 & 7;
    return of[(quad - 6) * STEP_BYTES] >> 6 | (of[2 * STEP_BYTES] >> quad & 1) << 2;
}

static float q3_k_value(const struct place *p)
{
    int code = packed_q3_k_code(p->step, 4 * p->row + p->in_step % 4, p->in_step / 4);
    int scale = packed_q3_k_scale(p->unit, p->row, p->in_unit / 16);
    return half_at(p->unit, p->row) * (float)scale * (float)(code - 4);
}

int packed_iq4_xs_scale(const uint8_t *unit, int r, int i)
{
    int low = unit[64 + 4 * r + i % 4] >> i / 4 * 4 & 15;
    int high = load_u16(unit + 32 + 2 * r) >> (i % 4 * 4 + i / 4 * 2) & 3;
    return (low | high << 4) - 32;
}

static float iq4_xs_value(const struct place *p)
{
    int scale = packed_iq4_xs_scale(p->unit, p->row, p->in_unit / 32);
    int value = iq4_values[field_at(p, p->step, p->in_step, 4)];
    return half_at(p->unit, p->row) * (float)scale * (float)value;
}

static float value_at(const struct packed *w, const struct place *p)
{
    int half = p->in_step * TILE_ROWS + p->row; /* f16, bf16 */
    if (is_block_32(w->packing))
        return block_32_value(w, p);
    switch (w->packing) {
    case PACKING_trits4:
    case PACKING_trits5: return trit_value(w, p);
    case PACKING_q6_k: return q6_k_value(p);
    case PACKING_q2_k: return q2_k_value(p);
    case PACKING_q3_k: return q3_k_value(p);
    case PACKING_iq4_xs: return iq4_xs_value(p);
    case PACKING_q4_k:
    case PACKING_q5_k: return k_min_value(w, p);
    case PACKING_f16: return half_at(p->step, half);
    case PACKING_bf16: return bf16_to_f32(load_u16(p->step + 2 * half));
    default: return load_f32(p->step + 4 * p->row);
    }
}

/* The inputs of one row that are in one unit. */
static void decode_unit(const struct packed *w, struct place p, int64_t n, float *out)
{
    int step_inputs = packed_step_inputs(w->packing);
    p.step = p.unit + packed_unit_header(w->packing, w->group);
    for (int64_t i = 0; i < n; i++) {
        out[i] = value_at(w, &p);
        p.in_unit++;
        if (++p.in_step == step_inputs) {
            p.in_step = 0;
            p.step += packed_step_bytes(w->packing);
        }
    }
}

void packed_decode(const struct packed *w, int64_t row0, int64_t row1, float *out)
{
    assert(row0 >= 0 && row0 <= row1 && row1 <= w->n_rows);
    int64_t unit_inputs = packed_unit_inputs(w->packing, w->group);
    uint64_t tile_bytes = packed_tile_bytes(w->packing, w->group, w->n_cols);
    if (unit_inputs == 0)
        unit_inputs = w->n_cols;
    for (int64_t row = row0; row < row1; row++) {
        struct place p = {.row = (int)(row % TILE_ROWS)};
        p.unit = w->data + (uint64_t)(row / TILE_ROWS) * tile_bytes;
        for (int64_t col = 0; col < w->n_cols; col += unit_inputs) {
            int64_t n = w->n_cols - col < unit_inputs ? w->n_cols - col : unit_inputs;
            decode_unit(w, p, n, out);
            out += n;
            p.unit += packed_tile_bytes(w->packing, w->group, unit_inputs);
        }
    }
}
