/* Matrices apart from any layout, and the layout written down once more. */
#include "check.h"

#include <string.h>

#include "base/float16.h"
#include "base/reader.h"

int check_groups(enum packing packing, int groups[4])
{
    static const int of_trits[4] = {0, 64, 128, 256};
    if (packing == PACKING_trits4 || packing == PACKING_trits5) {
        memcpy(groups, of_trits, sizeof of_trits);
        return 4;
    }
    bool is_k = packing == PACKING_q4_k || packing == PACKING_q5_k || packing == PACKING_q6_k ||
                packing == PACKING_q2_k || packing == PACKING_q3_k || packing == PACKING_iq4_xs;
    bool is_block = packing == PACKING_q4_0 || packing == PACKING_q8_0 || packing == PACKING_q4_1 ||
                    packing == PACKING_q5_0 || packing == PACKING_q5_1 || packing == PACKING_iq4_nl;
    groups[0] = is_block ? 32 : is_k ? 256 : 0;
    return 1;
}

/* Codes 0 to below this exist, and this one is zero. */
static int n_codes(enum packing packing)
{
    switch (packing) {
    case PACKING_trits4: return 4;
    case PACKING_trits5: return 3;
    case PACKING_q2_k: return 4;
    case PACKING_q3_k: return 8;
    case PACKING_iq4_xs:
    case PACKING_q4_k:
    case PACKING_q4_1:
    case PACKING_iq4_nl:
    case PACKING_q4_0: return 16;
    case PACKING_q5_0:
    case PACKING_q5_1:
    case PACKING_q5_k: return 32;
    case PACKING_q8_0: return 256;
    default: return 64;
    }
}

static bool has_min(enum packing packing)
{
    return packing == PACKING_q4_k || packing == PACKING_q5_k || packing == PACKING_q2_k;
}

static bool has_own_min(enum packing packing)
{
    return packing == PACKING_q4_1 || packing == PACKING_q5_1;
}

/* Of value 0; of iq4_nl and iq4_xs, which have none, the code of a row beyond the last. */
static int zero_code(enum packing packing)
{
    if (has_min(packing) || has_own_min(packing))
        return 0;
    return packing == PACKING_trits4 || packing == PACKING_trits5 ? 1 : n_codes(packing) / 2;
}

int weights_value(const struct weights *w, int64_t row, int64_t col)
{
    static const int8_t uneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
    int code = w->codes[row * w->n_cols + col];
    bool is_uneven = w->packing == PACKING_iq4_nl || w->packing == PACKING_iq4_xs;
    return is_uneven ? uneven[code] : code - zero_code(w->packing);
}

static uint8_t random_code(struct check *c, enum packing packing, enum fill fill)
{
    int zero = zero_code(packing);
    switch (fill) {
    case FILL_ZERO: return (uint8_t)zero;
    case FILL_MIN: return 0;
    case FILL_MAX: return (uint8_t)(n_codes(packing) - 1);
    case FILL_ONES: return (uint8_t)(zero + (zero == 0 || check_below(c, 2) ? 1 : -1));
    default: return (uint8_t)check_below(c, n_codes(packing));
    }
}

static float rounded_to(enum packing packing, float value)
{
    if (packing == PACKING_f16)
        return f16_to_f32(f32_to_f16(value));
    return packing == PACKING_bf16 ? bf16_to_f32(f32_to_bf16(value)) : value;
}

static bool is_float(enum packing packing)
{
    return packing == PACKING_f32 || packing == PACKING_f16 || packing == PACKING_bf16;
}

/* int8 of q6_k, six bits of q3_k and iq4_xs. */
static int8_t signed_subscale(struct check *c, enum packing packing, enum fill fill)
{
    int8_t scale = fill == FILL_MIN ? -128 : check_int8(c, fill);
    return packing == PACKING_q6_k || fill == FILL_ONES ? scale : (int8_t)(scale >> 2);
}

static void set_subscales(struct check *c, struct weights *w, enum fill fill)
{
    w->sub_inputs = packing_needs(w->packing, w->group).sum_group;
    int n_values = w->packing == PACKING_q2_k ? 16 : 64; /* scales and minimums are below */
    size_t n = (size_t)(w->n_rows * w->n_cols / w->sub_inputs);
    w->subscales = check_memory(c, n, 1);
    for (size_t i = 0; i < n && !has_min(w->packing); i++)
        w->subscales[i] = signed_subscale(c, w->packing, fill);
    if (!has_min(w->packing))
        return;
    w->submins = check_memory(c, n, 1);
    for (size_t i = 0; i < n; i++) {
        w->subscales[i] = (int8_t)(fill == FILL_MAX ? n_values - 1 : check_below(c, n_values));
        w->submins[i] = (int8_t)(fill == FILL_MAX ? n_values - 1 : check_below(c, n_values));
    }
    n = (size_t)(w->n_rows * w->n_groups);
    w->min_scales = check_memory(c, n, sizeof *w->min_scales);
    for (size_t i = 0; i < n; i++)
        w->min_scales[i] = f16_to_f32(f32_to_f16(check_float(c, FILL_RANDOM) * 0.1f));
}

struct weights check_weights(struct check *c, enum packing packing, int group, int64_t n_rows,
                             int64_t n_cols, enum fill fill)
{
    struct weights w = {packing, group, n_rows, n_cols, .n_groups = 1};
    size_t n = (size_t)(n_rows * n_cols);
    if (is_float(packing)) {
        w.floats = check_memory(c, n, sizeof *w.floats);
        for (size_t i = 0; i < n; i++)
            w.floats[i] = rounded_to(packing, check_float(c, fill));
        return w;
    }
    w.n_groups = group ? (int)(n_cols / group) : 1;
    w.codes = check_memory(c, n, 1);
    for (size_t i = 0; i < n; i++)
        w.codes[i] = random_code(c, packing, fill);
    size_t n_scales = (size_t)(n_rows * w.n_groups);
    w.scales = check_memory(c, n_scales, sizeof *w.scales);
    for (size_t i = 0; i < n_scales; i++) {
        float scale = check_float(c, FILL_RANDOM) * 0.1f;
        w.scales[i] = group ? f16_to_f32(f32_to_f16(scale)) : scale;
    }
    if (group == 256 && packing != PACKING_trits4 && packing != PACKING_trits5)
        set_subscales(c, &w, fill);
    w.mins = has_own_min(packing) ? check_memory(c, n_scales, sizeof *w.mins) : NULL;
    for (size_t i = 0; w.mins && i < n_scales; i++)
        w.mins[i] = f16_to_f32(f32_to_f16(check_float(c, FILL_RANDOM)));
    return w;
}

/* The code of an element; row and column may lie beyond the matrix. */
static int code_at(const struct weights *w, int64_t row, int64_t col, int64_t end)
{
    if (col >= end)
        return 0;
    return row < w->n_rows ? w->codes[row * w->n_cols + col] : zero_code(w->packing);
}

/* Byte 4r + j of one step that begins at input col. */
static uint8_t step_byte(const struct weights *w, int64_t row, int64_t col, int64_t end)
{
    uint8_t trits[5];
    switch (w->packing) {
    case PACKING_q2_k:
    case PACKING_trits4: {
        int byte = 0;
        for (int f = 0; f < 4; f++)
            byte |= code_at(w, row, col + 4 * f, end) << 2 * f;
        return (uint8_t)byte;
    }
    case PACKING_trits5:
        for (int f = 0; f < 5; f++)
            trits[f] = (uint8_t)code_at(w, row, col + 4 * f, end);
        return trits5_code(trits);
    case PACKING_iq4_xs:
    case PACKING_q4_k:
    case PACKING_q4_1:
    case PACKING_iq4_nl:
    case PACKING_q4_0:
        return (uint8_t)(code_at(w, row, col, end) | code_at(w, row, col + 4, end) << 4);
    default: return (uint8_t)code_at(w, row, col, end);
    }
}

/* q6_k: three bytes 64 apart for 16 inputs. */
static void put_q6_k(const struct weights *w, int64_t row, int64_t col, int64_t end, uint8_t *out)
{
    int code[4];
    for (int f = 0; f < 4; f++)
        code[f] = code_at(w, row, col + 4 * f, end);
    out[0] = (uint8_t)((code[0] & 15) | (code[1] & 15) << 4);
    out[64] = (uint8_t)((code[2] & 15) | (code[3] & 15) << 4);
    out[128] = 0;
    for (int f = 0; f < 4; f++)
        out[128] |= (uint8_t)(code[f] >> 4 << 2 * f);
}

static bool is_five_bits(enum packing packing)
{
    return packing == PACKING_q5_k || packing == PACKING_q5_0 || packing == PACKING_q5_1;
}

/* Five bytes 64 apart for 32 inputs. */
static void put_five_bits(const struct weights *w, int64_t row, int64_t col, int64_t end,
                          uint8_t *out)
{
    out[256] = 0;
    for (int f = 0; f < 8; f++) {
        int code = code_at(w, row, col + 4 * f, end);
        uint8_t *low = out + f / 2 * 64;
        *low = (uint8_t)(f % 2 ? *low | (code & 15) << 4 : code & 15);
        out[256] |= (uint8_t)(code >> 4 << f);
    }
}

/* q3_k: three bytes 64 apart for 32 inputs: six codes whole, two in the upper bits of all three. */
static void put_q3_k(const struct weights *w, int64_t row, int64_t col, int64_t end, uint8_t *out)
{
    int code[8];
    for (int f = 0; f < 8; f++)
        code[f] = code_at(w, row, col + 4 * f, end);
    for (int i = 0; i < 3; i++) {
        int top = i < 2 ? code[6 + i] & 3 : code[6] >> 2 | code[7] >> 2 << 1;
        out[64 * i] = (uint8_t)(code[2 * i] | code[2 * i + 1] << 3 | top << 6);
    }
}

static uint8_t *put_steps(const struct weights *w, int64_t row0, int64_t col0, int64_t col1,
                          uint8_t *out)
{
    int inputs = packed_step_inputs(w->packing);
    for (int64_t col = col0; col < col1; col += inputs) {
        for (int r = 0; r < TILE_ROWS; r++)
            for (int j = 0; j < 4; j++)
                if (w->packing == PACKING_q3_k)
                    put_q3_k(w, row0 + r, col + j, col1, out + 4 * r + j);
                else if (w->packing == PACKING_q6_k)
                    put_q6_k(w, row0 + r, col + j, col1, out + 4 * r + j);
                else if (is_five_bits(w->packing))
                    put_five_bits(w, row0 + r, col + j, col1, out + 4 * r + j);
                else
                    out[4 * r + j] = step_byte(w, row0 + r, col + j, col1);
        out += packed_step_bytes(w->packing);
    }
    return out;
}

/* The 12 bytes of 8 scales and 8 minimums of 6 bits, as Q4_K has them: four of each whole, the rest
 * as nibbles whose upper two bits are above the whole ones. */
void weights_k_scales(const int8_t *scales, const int8_t *mins, uint8_t bytes[12])
{
    for (int i = 0; i < 4; i++) {
        bytes[i] = (uint8_t)(scales[i] | scales[4 + i] >> 4 << 6);
        bytes[4 + i] = (uint8_t)(mins[i] | mins[4 + i] >> 4 << 6);
        bytes[8 + i] = (uint8_t)((scales[4 + i] & 15) | (mins[4 + i] & 15) << 4);
    }
}

/* The 12 bytes of 16 scales of 6 bits (-32..31), as Q3_K has them: lower four bits as nibbles of eight
 * bytes, upper two as four bytes. */
void weights_q3_k_scales(const int8_t *scales, uint8_t bytes[12])
{
    memset(bytes, 0, 12);
    for (int i = 0; i < 16; i++) {
        int scale = scales[i] + 32;
        bytes[i % 8] |= (uint8_t)((scale & 15) << i / 8 * 4);
        bytes[8 + i % 4] |= (uint8_t)(scale >> 4 << i / 4 * 2);
    }
}

/* Scales of six bits: lines behind the header's first; of iq4_xs its second half too. */
static void put_signed(const struct weights *w, int64_t row0, int64_t col0, uint8_t *out)
{
    for (int r = 0; r < TILE_ROWS && row0 + r < w->n_rows; r++) {
        const int8_t *scales = w->subscales + ((row0 + r) * w->n_cols + col0) / w->sub_inputs;
        if (w->packing == PACKING_q3_k) {
            uint8_t bytes[12];
            weights_q3_k_scales(scales, bytes);
            for (int i = 0; i < 3; i++)
                memcpy(out + 64 + 64 * i + 4 * r, bytes + 4 * i, 4);
        } else {
            int high = 0;
            for (int i = 0; i < 4; i++) {
                int first = scales[i] + 32, second = scales[i + 4] + 32;
                high |= (first >> 4 | second >> 4 << 2) << 4 * i;
                out[64 + 4 * r + i] = (uint8_t)((first & 15) | (second & 15) << 4);
            }
            store_u16(out + 32 + 2 * r, (uint16_t)high);
        }
    }
}

/* The second half of the header and the lines behind it. */
static void put_mins(const struct weights *w, int64_t row0, int64_t col0, uint8_t *out)
{
    for (int r = 0; r < TILE_ROWS && row0 + r < w->n_rows; r++) {
        int64_t row = row0 + r, sub = (row * w->n_cols + col0) / w->sub_inputs;
        bool is_q2_k = w->packing == PACKING_q2_k;
        uint8_t bytes[16];
        store_u16(out + 32 + 2 * r, f32_to_f16(w->min_scales[row * w->n_groups + col0 / 256]));
        if (!is_q2_k)
            weights_k_scales(w->subscales + sub, w->submins + sub, bytes);
        for (int i = 0; is_q2_k && i < 16; i++)
            bytes[i] = (uint8_t)(w->subscales[sub + i] | w->submins[sub + i] << 4);
        for (int i = 0; i < (is_q2_k ? 4 : 3); i++)
            memcpy(out + 64 + 64 * i + 4 * r, bytes + 4 * i, 4);
    }
}

/* The scales of the groups of one unit. */
static uint8_t *put_header(const struct weights *w, int64_t row0, int64_t col0, int64_t col1,
                           uint8_t *out)
{
    int header = packed_unit_header(w->packing, w->group);
    memset(out, 0, (size_t)header);
    for (int64_t col = col0; col < col1; col += w->group)
        for (int r = 0; r < TILE_ROWS && row0 + r < w->n_rows; r++) {
            int64_t at = (row0 + r) * w->n_groups + col / w->group;
            uint8_t *to = out + 32 * ((col - col0) / w->group) + 2 * r;
            store_u16(to, f32_to_f16(w->scales[at]));
            if (w->mins)
                store_u16(to + 64, f32_to_f16(w->mins[at]));
        }
    if (w->submins)
        put_mins(w, row0, col0, out);
    if (w->packing == PACKING_q3_k || w->packing == PACKING_iq4_xs)
        put_signed(w, row0, col0, out);
    if (w->packing == PACKING_q6_k)
        for (int64_t col = col0; col < col1; col += 16)
            for (int r = 0; r < TILE_ROWS && row0 + r < w->n_rows; r++)
                out[64 + (col - col0) + r] =
                    (uint8_t)w->subscales[((row0 + r) * w->n_cols + col) / 16];
    return out + header;
}

static uint8_t *put_floats(const struct weights *w, int64_t row0, uint8_t *out)
{
    int64_t n_cols = w->packing == PACKING_f32 ? w->n_cols : (w->n_cols + 1) / 2 * 2;
    for (int64_t col = 0; col < n_cols; col++)
        for (int r = 0; r < TILE_ROWS; r++) {
            bool is_real = row0 + r < w->n_rows && col < w->n_cols;
            float value = is_real ? w->floats[(row0 + r) * w->n_cols + col] : 0;
            if (w->packing == PACKING_f32)
                store_f32(out, value);
            else
                store_u16(out, w->packing == PACKING_f16 ? f32_to_f16(value) : f32_to_bf16(value));
            out += w->packing == PACKING_f32 ? 4 : 2;
        }
    return out;
}

static uint8_t *put_tile(const struct weights *w, int64_t row0, uint8_t *out)
{
    if (w->floats)
        return put_floats(w, row0, out);
    if (!w->group) {
        for (int r = 0; r < TILE_ROWS; r++, out += 4)
            store_f32(out, row0 + r < w->n_rows ? w->scales[row0 + r] : 0);
        return put_steps(w, row0, 0, w->n_cols, out);
    }
    int unit = packed_unit_inputs(w->packing, w->group);
    for (int64_t col = 0; col < w->n_cols; col += unit) {
        int64_t end = col + unit < w->n_cols ? col + unit : w->n_cols;
        out = put_header(w, row0, col, end, out);
        out = put_steps(w, row0, col, end, out);
    }
    return out;
}

void weights_pack(const struct weights *w, uint8_t *out)
{
    for (int64_t row = 0; row < w->n_rows; row += TILE_ROWS)
        out = put_tile(w, row, out);
}

struct packed check_packed(struct check *c, const struct weights *w)
{
    struct packed p = {w->packing, w->group, w->n_rows, w->n_cols, NULL};
    size_t bytes = packed_bytes(w->packing, w->group, w->n_rows, w->n_cols);
    p.data = check_block(c, "weights", bytes, ROLE_INPUT);
    weights_pack(w, p.data);
    return p;
}
