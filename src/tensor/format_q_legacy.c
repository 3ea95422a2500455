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

/* Codes of a block: nibbles and, if there is one, the fifth bit of each. Local to a block: loops over
 * them vectorise. */
static inline void get_codes(const uint8_t *nibbles, uint32_t high, int codes[BLOCK])
{
    for (int j = 0; j < BLOCK / 2; j++)
        codes[j] = nibbles[j] & 15;
    for (int j = 0; j < BLOCK / 2; j++)
        codes[BLOCK / 2 + j] = nibbles[j] >> 4;
    for (int j = 0; high && j < BLOCK; j++)
        codes[j] |= (int)(high >> j & 1) << 4;
}

static inline void put_values(const int codes[BLOCK], int zero, float d, float *restrict out)
{
    for (int j = 0; j < BLOCK; j++)
        out[j] = (float)(codes[j] - zero) * d;
}

static inline void put_values_from(const int codes[BLOCK], float d, float m, float *restrict out)
{
    for (int j = 0; j < BLOCK; j++)
        out[j] = (float)codes[j] * d + m;
}

static void q4_0_block(const uint8_t *b, float *out)
{
    int codes[BLOCK];
    get_codes(b + 2, 0, codes);
    put_values(codes, 8, f16_to_f32(load_u16(b)), out);
}

static void q4_1_block(const uint8_t *b, float *out)
{
    int codes[BLOCK];
    get_codes(b + 4, 0, codes);
    put_values_from(codes, f16_to_f32(load_u16(b)), f16_to_f32(load_u16(b + 2)), out);
}

static void q5_0_block(const uint8_t *b, float *out)
{
    int codes[BLOCK];
    get_codes(b + 6, load_u32(b + 2), codes);
    put_values(codes, 16, f16_to_f32(load_u16(b)), out);
}

static void q5_1_block(const uint8_t *b, float *out)
{
    int codes[BLOCK];
    get_codes(b + 8, load_u32(b + 4), codes);
    put_values_from(codes, f16_to_f32(load_u16(b)), f16_to_f32(load_u16(b + 2)), out);
}

static void q8_0_block(const uint8_t *restrict b, float *restrict out)
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

/* The largest magnitude. As an integer, which orders magnitudes as the numbers do and vectorises; what
 * is no number counts as 0. */
static inline float largest(const float *w)
{
    int32_t most = 0;
    for (int j = 0; j < BLOCK; j++) {
        int32_t magnitude = (int32_t)(bits_from_f32(w[j]) & 0x7fffffff);
        magnitude = magnitude > 0x7f800000 ? 0 : magnitude;
        most = magnitude > most ? magnitude : most;
    }
    return f32_from_bits((uint32_t)most);
}

/* The first weight of largest magnitude, with its sign. */
static inline float extreme(const float *w)
{
    float most = largest(w);
    int j = 0;
    while (j < BLOCK - 1 && fabsf(w[j]) != most)
        j++;
    return most == 0 ? 0 : w[j];
}

/* 1 / step; 0 where that is infinite: then the step is 0 as f16 and codes mean nothing. */
static float inverse_of(float step)
{
    float inverse = 1 / step;
    return isfinite(inverse) ? inverse : 0;
}

/* Codes of one block: trunc((w - low) / step + half), at most `most`. */
static inline void encode_codes(const float *w, float low, float step, float half, int most,
                                int codes[BLOCK])
{
    float inverse = inverse_of(step);
    for (int j = 0; j < BLOCK; j++) {
        int code = (int)((w[j] - low) * inverse + half);
        codes[j] = code < most ? code : most;
    }
}

/* Nibbles and, when high is not NULL, the fifth bits. */
static inline void put_codes(const int codes[BLOCK], uint8_t *high, uint8_t *restrict nibbles)
{
    uint32_t bits = 0;
    for (int j = 0; j < BLOCK / 2; j++)
        nibbles[j] = (uint8_t)((codes[j] & 15) | (codes[BLOCK / 2 + j] & 15) << 4);
    for (int j = 0; high && j < BLOCK; j++)
        bits |= (uint32_t)(codes[j] >> 4) << j;
    if (high)
        store_u32(high, bits);
}

/* Symmetric: the extreme weight gets code 0. */
static inline void encode_symmetric(const float *w, int levels, uint8_t *b, uint8_t *high,
                                    uint8_t *nibbles)
{
    int codes[BLOCK];
    float d = extreme(w) / (float)-(levels / 2);
    store_u16(b, f32_to_f16(d));
    encode_codes(w, 0, d, (float)(levels / 2) + 0.5f, levels - 1, codes);
    put_codes(codes, high, nibbles);
}

/* From the smallest weight (code 0) to the largest (the last code). */
static inline void encode_range(const float *w, int levels, uint8_t *b, uint8_t *high,
                                uint8_t *nibbles)
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

/* w to the nearest integer, halves away from zero. Truncated numbers differ from w by what f32 holds
 * exactly, so that this is roundf, without a call. */
static inline int round_away(float w)
{
    int whole = (int)w;
    float rest = w - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

/* The rule for weights: code = w * (1 / d) with the unrounded d, halves away from zero. */
static inline void encode_q8_0_block(const float *restrict w, uint8_t *restrict b)
{
    float d = largest(w) / 127, inverse = inverse_of(d);
    store_u16(b, f32_to_f16(d));
    for (int j = 0; j < BLOCK; j++)
        b[2 + j] = (uint8_t)round_away(w[j] * inverse);
}

void encode_q8_0(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    for (int64_t i = 0; i < n_rows * n_cols; i += BLOCK, out += Q8_0_BYTES)
        encode_q8_0_block(src + i, out);
}
