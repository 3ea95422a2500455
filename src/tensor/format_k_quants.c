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

enum { BLOCK = 256 };
static_assert(16 + BLOCK / 4 + 4 == 84, "Q2_K");
static_assert(BLOCK / 8 + BLOCK / 4 + 12 + 2 == 110, "Q3_K");
static_assert(4 + 12 + BLOCK / 2 == 144, "Q4_K");
static_assert(4 + 12 + BLOCK / 8 + BLOCK / 2 == 176, "Q5_K");
static_assert(BLOCK / 2 + BLOCK / 4 + 16 + 2 == 210, "Q6_K");
static_assert(4 + BLOCK + 32 == 292, "Q8_K");

static int two_bits(const uint8_t *codes, int j)
{
    return codes[j / 128 * 32 + j % 32] >> 2 * (j % 128 / 32) & 3;
}

static int four_bits(const uint8_t *codes, int j)
{
    return codes[j / 64 * 32 + j % 32] >> 4 * (j / 32 % 2) & 15;
}

static void q2_k_block(const uint8_t *b, float *out)
{
    float d = f16_to_f32(load_u16(b + 80)), dmin = f16_to_f32(load_u16(b + 82));
    for (int i = 0; i < 16; i++) {
        float scale = d * (float)(b[i] & 15), min = dmin * (float)(b[i] >> 4);
        for (int j = 16 * i; j < 16 * i + 16; j++)
            out[j] = scale * (float)two_bits(b + 16, j) - min;
    }
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
    for (int i = 0; i < 16; i++) {
        float scale = d * (float)q3_k_scale(b + 96, i);
        for (int j = 16 * i; j < 16 * i + 16; j++) {
            int high = b[j % 32] >> j / 32 & 1;
            out[j] = scale * (float)(two_bits(b + 32, j) - (high ? 0 : 4));
        }
    }
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
static void q4_q5_k_block(const uint8_t *b, const uint8_t *high, const uint8_t *codes, float *out)
{
    float d = f16_to_f32(load_u16(b)), dmin = f16_to_f32(load_u16(b + 2));
    for (int i = 0; i < 8; i++) {
        int scale, min;
        q4_k_scale(b + 4, i, &scale, &min);
        float step = d * (float)scale, low = dmin * (float)min;
        for (int j = 32 * i; j < 32 * i + 32; j++) {
            int code = four_bits(codes, j) | (high ? (high[j % 32] >> i & 1) << 4 : 0);
            out[j] = step * (float)code - low;
        }
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
    for (int j = 0; j < BLOCK; j++) {
        int half = j / 128, l = j % 32, quarter = j % 128 / 32;
        int low = b[64 * half + l + 32 * (quarter & 1)] >> 4 * (quarter >> 1) & 15;
        int high = b[128 + 32 * half + l] >> 2 * quarter & 3;
        float scale = d * (float)(int8_t)b[192 + j / 16];
        out[j] = scale * (float)((low | high << 4) - 32);
    }
}

static void q8_k_block(const uint8_t *b, float *out)
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
