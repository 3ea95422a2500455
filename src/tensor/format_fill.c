#include "tensor/format_fill.h"

#include <assert.h>
#include <string.h>

#include "base/float16.h"
#include "base/reader.h"
#include "tensor/format_ternary.h"

static void fill_bytes(struct random *random, int64_t n, uint8_t *out)
{
    for (; n >= 8; n -= 8, out += 8)
        store_u64(out, random_bits(random));
    for (uint64_t bits = n ? random_bits(random) : 0; n > 0; n--, bits >>= 8)
        *out++ = (uint8_t)bits;
}

/* Random bytes, each replaced by its entry in the table. */
static void fill_from(struct random *random, const uint8_t table[256], int64_t n, uint8_t *out)
{
    for (; n >= 8; n -= 8, out += 8) {
        uint64_t bits = random_bits(random);
        for (int i = 0; i < 8; i++)
            out[i] = table[bits >> 8 * i & 255];
    }
    for (uint64_t bits = n ? random_bits(random) : 0; n > 0; n--, bits >>= 8)
        *out++ = table[bits & 255];
}

/* Spreads 256 bytes over 81 or 243 numbers. Both leave 13, which go to numbers that mirror each
 * other (each -1 of one is a +1 of the other), so that the mean stays exactly 0. */
static int spread(int byte, int levels)
{
    int i = byte - 243;
    if (i < 0)
        return byte % levels;
    return i <= 6 ? i * (levels - 1) / 12 : levels - 1 - (12 - i) * (levels - 1) / 12;
}

/* Bytes of four 2-bit codes, or of five trits. */
static void make_table(bool has_trits, uint8_t table[256])
{
    for (int byte = 0; byte < 256; byte++) {
        int k = spread(byte, 81), codes = k % 3 | k / 3 % 3 << 2 | k / 9 % 3 << 4 | k / 27 << 6;
        table[byte] = (uint8_t)(has_trits ? trit_byte(spread(byte, 243)) : codes);
    }
}

/* -1, 0, +1 alike have the variance 2/3. */
static float ternary_scale(float deviation)
{
    return f16_to_f32(f32_to_f16(deviation * 1.2247449f));
}

/* The bytes of a block that hold only four of five trits: the absent digit, and which bytes. */
struct short_bytes {
    bool is_first_digit;
    int begin, end;
};

static struct short_bytes short_bytes_of(enum format_id id)
{
    switch (id) {
    case FORMAT_TQ1_0: return (struct short_bytes){false, 48, 52};
    case FORMAT_PTQ1_0: return (struct short_bytes){false, 24, 26};
    case FORMAT_IQ1_BN: return (struct short_bytes){true, 12, 13};
    default: return (struct short_bytes){false, 0, 0};
    }
}

/* Clears the absent digit of a byte of five trits. */
static uint8_t shorten(uint8_t byte, bool is_first_digit)
{
    int number = byte * 243 >> 8; /* the fraction byte / 256, in 243rds */
    return trit_byte(is_first_digit ? number % 81 : number - number % 3);
}

static void finish_ternary(enum format_id id, float scale, int64_t n_blocks, uint8_t *out)
{
    const struct format *f = format_of(id);
    const struct short_bytes shorts = short_bytes_of(id);
    uint8_t bytes[4] = {0};
    if (f->scale_at < 0 && !shorts.end)
        return;
    ternary_store_scale(id, scale, bytes);
    for (; n_blocks > 0; n_blocks--, out += f->block_bytes) {
        for (int i = shorts.begin; i < shorts.end; i++)
            out[i] = shorten(out[i], shorts.is_first_digit);
        if (f->scale_at >= 0)
            memcpy(out + f->scale_at, bytes, 2);
    }
}

/* Everything as if it were codes, then what is not. */
static void fill_ternary(enum format_id id, int64_t n_rows, int64_t n_cols, float deviation,
                         struct random *random, uint8_t *out)
{
    const struct format *f = format_of(id);
    float scale = ternary_scale(deviation);
    int64_t n_blocks = n_cols / f->block * f->row_group;
    uint8_t table[256];
    make_table(short_bytes_of(id).end > 0, table);
    fill_from(random, table, n_rows * (int64_t)format_row_bytes(id, (uint64_t)n_cols), out);
    for (int64_t row = 0; row < n_rows; row += f->row_group) {
        for (int i = 0; f->row_prefix && i < f->row_group; i++, out += f->row_prefix)
            ternary_store_scale(id, scale, out);
        finish_ternary(id, scale, n_blocks, out);
        out += n_blocks * f->block_bytes;
    }
}

/* Makes random bytes a block in which the minima, where there are any, cancel the mean. */
typedef void finish_block(uint8_t *block);

/* -128 is no code that an encoder writes. */
static void finish_int8(uint8_t *codes, int n)
{
    for (int j = 0; j < n; j++)
        codes[j] = codes[j] == 0x80 ? 0 : codes[j];
}

static void finish_q8_0(uint8_t *block)
{
    finish_int8(block + 2, 32);
}

static void finish_q8_k(uint8_t *block)
{
    finish_int8(block + 4, 256);
    for (int i = 0; i < 16; i++) {
        int sum = 0;
        for (int j = 0; j < 16; j++)
            sum += (int8_t)block[4 + 16 * i + j];
        store_u16(block + 260 + 2 * i, (uint16_t)sum);
    }
}

/* Each minimum is the scale: the f16 numbers make them a multiple of each other. */
static void finish_q2_k(uint8_t *block)
{
    for (int i = 0; i < 16; i++)
        block[i] = (uint8_t)((block[i] & 15) * 17);
}

static void finish_q4_k(uint8_t *block)
{
    uint8_t *s = block + 4;
    for (int i = 0; i < 4; i++) {
        s[i + 4] = s[i];
        s[i + 8] = (uint8_t)((s[i + 8] & 15) * 17);
    }
}

/* Scales of -32..31: smaller ones leave a larger f16 factor, which is then not denormal. */
static void finish_q6_k(uint8_t *block)
{
    for (int i = 192; i < 208; i++)
        block[i] = (uint8_t)((int8_t)block[i] >> 2);
}

/* rms: of the decoded values of random bytes when the scale is 1; min: the second f16 as a multiple
 * of the first. From: n evenly spaced levels have the variance (n * n - 1) / 12, to which 1/4 is
 * added where zero is not their middle but half a step beside it. */
struct recipe {
    double rms, min;
    finish_block *finish;
};

/* clang-format off */
static const struct recipe recipes[N_FORMATS] = {
    [FORMAT_Q4_0]   = {4.637, 0, NULL},
    [FORMAT_Q4_1]   = {4.610, -7.5, NULL},
    [FORMAT_Q5_0]   = {9.247, 0, NULL},
    [FORMAT_Q5_1]   = {9.233, -15.5, NULL},
    [FORMAT_Q8_0]   = {73.47, 0, finish_q8_0},
    [FORMAT_Q2_K]   = {8.803 * 1.118, 1.5, finish_q2_k},
    [FORMAT_Q3_K]   = {18.48 * 2.345, 0, NULL},
    [FORMAT_Q4_K]   = {36.52 * 4.610, 7.5, finish_q4_k},
    [FORMAT_Q5_K]   = {36.52 * 9.233, 15.5, finish_q4_k},
    [FORMAT_Q6_K]   = {18.48 * 18.48, 0, finish_q6_k},
    [FORMAT_Q8_K]   = {73.47, 0, finish_q8_k},
    [FORMAT_IQ4_NL] = {67.44, 0, NULL},
    [FORMAT_IQ4_XS] = {18.48 * 67.44, 0, NULL},
    [FORMAT_Q1_0]   = {1, 0, NULL},
    [FORMAT_TQ2_T]  = {1.0722, 0, NULL},
    [FORMAT_TQK6]   = {1.0722, 0, NULL},
    [FORMAT_TQK7]   = {1.0722, 0, NULL},
};
/* clang-format on */

/* The scale's sign is random: codes with one level more below zero than above have no mean then. */
static void fill_blocks(enum format_id id, int64_t n, float deviation, struct random *random,
                        uint8_t *out)
{
    const struct format *f = format_of(id);
    const struct recipe *recipe = &recipes[id];
    assert(recipe->rms > 0);
    float scale = (float)(deviation / recipe->rms);
    uint16_t scale_bits = f32_to_f16(scale), min_bits = f32_to_f16((float)(scale * recipe->min));
    fill_bytes(random, n * f->block_bytes, out);
    for (; n > 0; n--, out += f->block_bytes) {
        uint16_t sign = (uint16_t)((out[f->scale_at] & 1) << 15);
        if (f->is_scale_f32)
            store_f32(out + f->scale_at, sign ? -scale : scale);
        else
            store_u16(out + f->scale_at, scale_bits ^ sign);
        if (f->min_at >= 0)
            store_u16(out + f->min_at, min_bits ^ sign);
        if (recipe->finish)
            recipe->finish(out);
    }
}

/* Uniform in +-sqrt(3) deviations, in 4096 steps: much faster than normal, and as good here. */
static void fill_floats(enum format_id id, int64_t n, float deviation, struct random *random,
                        uint8_t *out)
{
    enum { STEPS = 4096 };
    float step = deviation * 1.7320508f / (STEPS / 2);
    uint32_t table[STEPS];
    for (int k = 0; k < STEPS; k++) {
        float value = ((float)k + 0.5f - STEPS / 2) * step;
        table[k] = id == FORMAT_F32   ? bits_from_f32(value)
                   : id == FORMAT_F16 ? f32_to_f16(value)
                                      : f32_to_bf16(value);
    }
    uint64_t bits = 0;
    for (int64_t i = 0; i < n; i++, bits >>= 16) {
        if (i % 4 == 0)
            bits = random_bits(random);
        if (id == FORMAT_F32)
            store_u32(out + 4 * i, table[bits % STEPS]);
        else
            store_u16(out + 2 * i, (uint16_t)table[bits % STEPS]);
    }
}

void format_fill_rows(enum format_id id, int64_t n_rows, int64_t n_cols, float deviation,
                      struct random *random, uint8_t *out)
{
    const struct format *f = format_of(id);
    assert(n_rows % f->row_group == 0 && n_cols % f->block == 0);
    if (f->is_ternary)
        fill_ternary(id, n_rows, n_cols, deviation, random, out);
    else if (f->scale_at < 0)
        fill_floats(id, n_rows * n_cols, deviation, random, out);
    else
        fill_blocks(id, n_rows * n_cols / f->block, deviation, random, out);
}

void format_fill_tail(enum format_id id, float deviation, uint8_t *out)
{
    const struct format *f = format_of(id);
    if (!f->tensor_tail)
        return;
    memset(out, 0, (size_t)f->tensor_tail);
    ternary_store_scale(id, ternary_scale(deviation), out);
}

void format_fill_random(enum format_id id, int64_t n_rows, int64_t n_cols, float deviation,
                        struct random *random, uint8_t *out)
{
    format_fill_rows(id, n_rows, n_cols, deviation, random, out);
    out += n_rows * (int64_t)format_row_bytes(id, (uint64_t)n_cols);
    format_fill_tail(id, deviation, out);
}
