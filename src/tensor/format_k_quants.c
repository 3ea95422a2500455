/* Q2_K ... Q6_K: blocks of 256 weights with small integer scales per 16 or 32 weights, which an f16
 * scales again; Q8_K: the type of activations, one f32 scale. Bytes of a block:
 *
 *   Q2_K   scales[16]  codes[64]  d  dmin             scale in bits 3:0, minimum in bits 7:4
 *   Q3_K   high[32]  codes[64]  scales[12]  d         a clear high bit subtracts 4
 *   Q4_K   d  dmin  scales[12]  codes[128]
 *   Q5_K   d  dmin  scales[12]  high[32]  codes[128]
 *   Q6_K   low[128]  high[64]  scales int8[16]  d
 *   Q8_K   d (f32)  codes int8[256]  sums int16[16]
 *
 * 2-bit codes: byte 32*h + l holds weights 128*h + l + {0, 32, 64, 96}, lowest bits first.
 * 4-bit codes: byte 32*h + l holds weights 64*h + l + {0, 32}.
 * high of Q3_K and Q5_K: byte l, bit i belongs to weight 32*i + l.
 * Q6_K: low byte 64*h + l (l < 64) holds weights 128*h + l + {0, 64}; high byte 32*h + l holds the
 * top two bits of 128*h + l + {0, 32, 64, 96}. */
#include <assert.h>

#include "base/float16.h"
#include "base/reader.h"
#include "tensor/format_codecs.h"
#include "tensor/format_ternary.h"

enum { BLOCK = 256 };
static_assert(16 + BLOCK / 4 + 4 == 84, "Q2_K");
static_assert(BLOCK / 8 + BLOCK / 4 + 12 + 2 == 110, "Q3_K");
static_assert(4 + 12 + BLOCK / 2 == 144, "Q4_K");
static_assert(4 + 12 + BLOCK / 8 + BLOCK / 2 == 176, "Q5_K");
static_assert(BLOCK / 2 + BLOCK / 4 + 16 + 2 == 210, "Q6_K");
static_assert(4 + BLOCK + 32 == 292, "Q8_K");

/* Two bits of each code. */
static inline void get_two_bits(const uint8_t *bytes, uint8_t *restrict codes)
{
    unpack_strided(bytes, 32, codes);
    unpack_strided(bytes + 32, 32, codes + 128);
}

/* Bits that byte l holds of weights l, l + 32, ..., added to the codes as their bit `bit`. */
static inline void add_bits(const uint8_t *restrict bits, int bit, uint8_t *restrict codes)
{
    for (int i = 0; i < 8; i++)
        for (int l = 0; l < 32; l++)
            codes[32 * i + l] |= (uint8_t)((bits[l] >> i & 1) << bit);
}

/* 16 values. */
static inline void put_values(const uint8_t *restrict codes, int zero, float scale, float min,
                              float *restrict out)
{
    for (int j = 0; j < 16; j++)
        out[j] = scale * (float)(codes[j] - zero) - min;
}

static void q2_k_block(const uint8_t *b, float *out)
{
    float d = f16_to_f32(load_u16(b + 80)), dmin = f16_to_f32(load_u16(b + 82));
    uint8_t codes[BLOCK];
    get_two_bits(b + 16, codes);
    for (int i = 0; i < 16; i++)
        put_values(codes + 16 * i, 0, d * (float)(b[i] & 15), dmin * (float)(b[i] >> 4),
                   out + 16 * i);
}

/* Six bits each, biased by 32: low nibbles in bytes 0..7, top pairs in bytes 8..11. */
static int q3_k_scale(const uint8_t *s, int i)
{
    int low = s[i % 8] >> 4 * (i / 8) & 15, high = s[8 + i % 4] >> 2 * (i / 4) & 3;
    return (low | high << 4) - 32;
}

static void q3_k_block(const uint8_t *b, float *out)
{
    float d = f16_to_f32(load_u16(b + 108));
    uint8_t codes[BLOCK];
    get_two_bits(b + 32, codes);
    add_bits(b, 2, codes);
    for (int i = 0; i < 16; i++)
        put_values(codes + 16 * i, 4, d * (float)q3_k_scale(b + 96, i), 0, out + 16 * i);
}

/* Six bits each of scale and minimum i of 8: four whole pairs, then four split ones. */
static void q4_k_scale(const uint8_t *s, int i, int *scale, int *min)
{
    if (i < 4) {
        *scale = s[i] & 63;
        *min = s[i + 4] & 63;
    } else {
        *scale = (s[i + 4] & 15) | s[i - 4] >> 6 << 4;
        *min = s[i + 4] >> 4 | s[i] >> 6 << 4;
    }
}

/* high: the fifth bits of Q5_K, or NULL. */
static inline void q4_q5_k_block(const uint8_t *b, const uint8_t *high, const uint8_t *nibbles,
                                 float *out)
{
    float d = f16_to_f32(load_u16(b)), dmin = f16_to_f32(load_u16(b + 2));
    uint8_t codes[BLOCK];
    for (int i = 0; i < 4; i++)
        for (int l = 0; l < 32; l++) {
            codes[64 * i + l] = nibbles[32 * i + l] & 15;
            codes[64 * i + 32 + l] = nibbles[32 * i + l] >> 4;
        }
    if (high)
        add_bits(high, 4, codes);
    for (int i = 0; i < 8; i++) {
        int scale, min;
        q4_k_scale(b + 4, i, &scale, &min);
        float step = d * (float)scale, low = dmin * (float)min;
        put_values(codes + 32 * i, 0, step, low, out + 32 * i);
        put_values(codes + 32 * i + 16, 0, step, low, out + 32 * i + 16);
    }
}

static void q4_k_block(const uint8_t *b, float *out)
{
    q4_q5_k_block(b, NULL, b + 16, out);
}

static void q5_k_block(const uint8_t *b, float *out)
{
    q4_q5_k_block(b, b + 16, b + 48, out);
}

static void q6_k_block(const uint8_t *b, float *out)
{
    float d = f16_to_f32(load_u16(b + 208));
    uint8_t codes[BLOCK];
    for (int half = 0; half < 2; half++) {
        const uint8_t *low = b + 64 * half, *high = b + 128 + 32 * half;
        uint8_t *c = codes + 128 * half;
        unpack_strided(high, 32, c);
        for (int l = 0; l < 64; l++) {
            c[l] = (uint8_t)(c[l] << 4 | (low[l] & 15));
            c[64 + l] = (uint8_t)(c[64 + l] << 4 | low[l] >> 4);
        }
    }
    for (int i = 0; i < 16; i++)
        put_values(codes + 16 * i, 32, d * (float)(int8_t)b[192 + i], 0, out + 16 * i);
}

static void q8_k_block(const uint8_t *restrict b, float *restrict out)
{
    float d = load_f32(b);
    for (int j = 0; j < BLOCK; j++)
        out[j] = d * (float)(int8_t)b[4 + j];
}

void decode_q2_k(const struct tensor *t, int64_t row0, int64_t row1, float *out)
{
    decode_blocks(t, row0, row1, out, q2_k_block);
}

void decode_q3_k(const struct tensor *t, int64_t row0, int64_t row1, float *out)
{
    decode_blocks(t, row0, row1, out, q3_k_block);
}

void decode_q4_k(const struct tensor *t, int64_t row0, int64_t row1, float *out)
{
    decode_blocks(t, row0, row1, out, q4_k_block);
}

void decode_q5_k(const struct tensor *t, int64_t row0, int64_t row1, float *out)
{
    decode_blocks(t, row0, row1, out, q5_k_block);
}

void decode_q6_k(const struct tensor *t, int64_t row0, int64_t row1, float *out)
{
    decode_blocks(t, row0, row1, out, q6_k_block);
}

void decode_q8_k(const struct tensor *t, int64_t row0, int64_t row1, float *out)
{
    decode_blocks(t, row0, row1, out, q8_k_block);
}
