/* Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: blocks of 32 weights, value = code * d + m. f16 d comes first.
 *
 *          0    2    4    6    8                         byte
 *   Q4_0   d    codes[16]                                value = (code - 8) * d
 *   Q4_1   d    m    codes[16]                           value = code * d + m
 *   Q5_0   d    high (4)  codes[16]                      value = (code - 16) * d
 *   Q5_1   d    m    high (4)  codes[16]                 value = code * d + m
 *   Q8_0   d    int8[32]                                 value = code * d
 *
 * codes[i]: weight i in bits 3:0, weight i + 16 in bits 7:4. high: bit i is the fifth bit of weight
 * i. */
#include <assert.h>
#include <math.h>

#include "base/float16.h"
#include "base/reader.h"
#include "tensor/format_codecs.h"

enum {
    BLOCK = 32,
    Q4_0_BYTES = 18,
    Q4_1_BYTES = 20,
    Q5_0_BYTES = 22,
    Q5_1_BYTES = 24,
    Q8_0_BYTES = 34
};
static_assert(Q4_0_BYTES == 2 + BLOCK / 2 && Q4_1_BYTES == Q4_0_BYTES + 2, "4-bit blocks");
static_assert(Q5_0_BYTES == 2 + 4 + BLOCK / 2 && Q5_1_BYTES == Q5_0_BYTES + 2, "5-bit blocks");
static_assert(Q8_0_BYTES == 2 + BLOCK, "8-bit blocks");

static int nibble(const uint8_t *codes, int j)
{
    return j < 16 ? codes[j] & 15 : codes[j - 16] >> 4;
}

static void q4_0_block(const uint8_t *b, float *out)
{
    float d = f16_to_f32(load_u16(b));
    for (int j = 0; j < BLOCK; j++)
        out[j] = (float)(nibble(b + 2, j) - 8) * d;
}

static void q4_1_block(const uint8_t *b, float *out)
{
    float d = f16_to_f32(load_u16(b)), m = f16_to_f32(load_u16(b + 2));
    for (int j = 0; j < BLOCK; j++)
        out[j] = (float)nibble(b + 4, j) * d + m;
}

static void q5_0_block(const uint8_t *b, float *out)
{
    float d = f16_to_f32(load_u16(b));
    uint32_t high = load_u32(b + 2);
    for (int j = 0; j < BLOCK; j++)
        out[j] = (float)((nibble(b + 6, j) | (int)(high >> j & 1) << 4) - 16) * d;
}

static void q5_1_block(const uint8_t *b, float *out)
{
    float d = f16_to_f32(load_u16(b)), m = f16_to_f32(load_u16(b + 2));
    uint32_t high = load_u32(b + 4);
    for (int j = 0; j < BLOCK; j++)
        out[j] = (float)(nibble(b + 8, j) | (int)(high >> j & 1) << 4) * d + m;
}

static void q8_0_block(const uint8_t *b, float *out)
{
    float d = f16_to_f32(load_u16(b));
    for (int j = 0; j < BLOCK; j++)
        out[j] = (float)(int8_t)b[2 + j] * d;
}

void decode_q4_0(const struct tensor *t, int64_t row0, int64_t row1, float *out)
{
    decode_blocks(t, row0, row1, out, q4_0_block);
}

void decode_q4_1(const struct tensor *t, int64_t row0, int64_t row1, float *out)
{
    decode_blocks(t, row0, row1, out, q4_1_block);
}

void decode_q5_0(const struct tensor *t, int64_t row0, int64_t row1, float *out)
{
    decode_blocks(t, row0, row1, out, q5_0_block);
}

void decode_q5_1(const struct tensor *t, int64_t row0, int64_t row1, float *out)
{
    decode_blocks(t, row0, row1, out, q5_1_block);
}

void decode_q8_0(const struct tensor *t, int64_t row0, int64_t row1, float *out)
{
    decode_blocks(t, row0, row1, out, q8_0_block);
}

/* The first weight of largest magnitude, with its sign. */
static float extreme(const float *w)
{
    float m = 0;
    for (int j = 0; j < BLOCK; j++)
        if (fabsf(w[j]) > fabsf(m))
            m = w[j];
    return m;
}

static void put_nibble(uint8_t *codes, int j, int code)
{
    if (j < 16)
        codes[j] = (uint8_t)(code & 15);
    else
        codes[j - 16] |= (uint8_t)((code & 15) << 4);
}

/* 1 / step; 0 where that is infinite: then the step is 0 as f16 and codes mean nothing. */
static float inverse_of(float step)
{
    float inverse = 1 / step;
    return isfinite(inverse) ? inverse : 0;
}

/* Codes of one block: trunc((w - low) / step + half), at most `most`. */
static void encode_codes(const float *w, float low, float step, float half, int most, int codes[32])
{
    float inverse = inverse_of(step);
    for (int j = 0; j < BLOCK; j++) {
        int code = (int)((w[j] - low) * inverse + half);
        codes[j] = code < most ? code : most;
    }
}

/* Nibbles and, when high is not NULL, the fifth bits. */
static void put_codes(const int codes[32], uint8_t *high, uint8_t *nibbles)
{
    uint32_t bits = 0;
    for (int j = 0; j < BLOCK; j++) {
        put_nibble(nibbles, j, codes[j]);
        bits |= (uint32_t)(codes[j] >> 4) << j;
    }
    if (high)
        store_u32(high, bits);
}

/* Symmetric: the extreme weight gets code 0. */
static void encode_symmetric(const float *w, int levels, uint8_t *b, uint8_t *high,
                             uint8_t *nibbles)
{
    int codes[BLOCK];
    float d = extreme(w) / (float)-(levels / 2);
    store_u16(b, f32_to_f16(d));
    encode_codes(w, 0, d, (float)(levels / 2) + 0.5f, levels - 1, codes);
    put_codes(codes, high, nibbles);
}

/* From the smallest weight (code 0) to the largest (the last code). */
static void encode_range(const float *w, int levels, uint8_t *b, uint8_t *high, uint8_t *nibbles)
{
    int codes[BLOCK];
    float low = w[0], top = w[0];
    for (int j = 1; j < BLOCK; j++) {
        low = w[j] < low ? w[j] : low;
        top = w[j] > top ? w[j] : top;
    }
    float d = (top - low) / (float)(levels - 1);
    store_u16(b, f32_to_f16(d));
    store_u16(b + 2, f32_to_f16(low));
    encode_codes(w, low, d, 0.5f, levels - 1, codes);
    put_codes(codes, high, nibbles);
}

void encode_q4_0(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    for (int64_t i = 0; i < n_rows * n_cols; i += BLOCK, out += Q4_0_BYTES)
        encode_symmetric(src + i, 16, out, NULL, out + 2);
}

void encode_q4_1(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    for (int64_t i = 0; i < n_rows * n_cols; i += BLOCK, out += Q4_1_BYTES)
        encode_range(src + i, 16, out, NULL, out + 4);
}

void encode_q5_0(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    for (int64_t i = 0; i < n_rows * n_cols; i += BLOCK, out += Q5_0_BYTES)
        encode_symmetric(src + i, 32, out, out + 2, out + 6);
}

void encode_q5_1(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    for (int64_t i = 0; i < n_rows * n_cols; i += BLOCK, out += Q5_1_BYTES)
        encode_range(src + i, 32, out, out + 4, out + 8);
}

/* The rule for weights: code = w * (1 / d) with the unrounded d, halves away from zero. */
void encode_q8_0(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    for (int64_t i = 0; i < n_rows * n_cols; i += BLOCK, out += Q8_0_BYTES) {
        float d = fabsf(extreme(src + i)) / 127;
        float inverse = inverse_of(d);
        store_u16(out, f32_to_f16(d));
        for (int j = 0; j < BLOCK; j++)
            out[2 + j] = (uint8_t)(int8_t)roundf(src[i + j] * inverse);
    }
}
