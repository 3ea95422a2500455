/* TQ2_T, TQK6, TQK7: trellis codes. A block of 128 weights is an f16 d and a ring of 32 symbols of
 * K bits; each symbol, with the ones before it, makes a state of 15 bits that names four weights.
 *
 *   TQ2_T   K = 8: d  symbols[32]    symbol t is byte t
 *   TQK6    K = 6: d  bits[24]       one little-endian integer of 32 * K bits,
 *   TQK7    K = 7: d  bits[28]       symbol 0 in its highest bits
 *
 *   state[t] = (state[t - 1] << K | symbol[t]) mod 2^15, where symbol 31 comes before symbol 0
 *   hash = state * 0x9e3779b1 mod 2^32; the weights 4t .. 4t + 3 are d times the pair at bits
 *   31:21 of the hash and the pair at bits 20:10, of a table of 2048 pairs */
#include <assert.h>

#include "base/float16.h"
#include "base/reader.h"
#include "tensor/format_codecs.h"
#include "tensor/trellis_codebook.h"

enum { STEPS = 32 };
static_assert(2 + STEPS * 8 / 8 == 34 && 2 + STEPS * 6 / 8 == 26 && 2 + STEPS * 7 / 8 == 30,
              "TQ2_T, TQK6, TQK7");
static_assert(sizeof trellis_codebook == 8192, "2048 pairs of f16");

/* Bits [first, first + n) of a little-endian integer, n <= 8; last: its highest byte. */
static uint32_t bits_at(const uint8_t *bytes, int first, int n, int last)
{
    int i = first / 8;
    int window = bytes[i] | (i < last ? bytes[i + 1] << 8 : 0);
    return (uint32_t)(window >> first % 8 & ((1 << n) - 1));
}

static void put_pair(float d, uint32_t index, float *out)
{
    out[0] = d * f16_to_f32(trellis_codebook[index][0]);
    out[1] = d * f16_to_f32(trellis_codebook[index][1]);
}

static void decode_symbols(float d, const uint32_t symbols[STEPS], int width, float *out)
{
    uint32_t state = 0;
    for (int step = -4; step < STEPS; step++) { /* four symbols of the ring's end fill the state */
        state = (state << width | symbols[(step + STEPS) % STEPS]) & 0x7fff;
        if (step < 0)
            continue;
        uint32_t hash = state * 0x9e3779b1u;
        put_pair(d, hash >> 21, out + 4 * step);
        put_pair(d, hash >> 10 & 2047, out + 4 * step + 2);
    }
}

static void tq2_t_block(const uint8_t *b, float *out)
{
    uint32_t symbols[STEPS];
    for (int step = 0; step < STEPS; step++)
        symbols[step] = b[2 + step];
    decode_symbols(f16_to_f32(load_u16(b)), symbols, 8, out);
}

static void tqk_block(const uint8_t *b, int width, float *out)
{
    uint32_t symbols[STEPS];
    for (int step = 0; step < STEPS; step++)
        symbols[step] = bits_at(b + 2, (STEPS - 1 - step) * width, width, STEPS * width / 8 - 1);
    decode_symbols(f16_to_f32(load_u16(b)), symbols, width, out);
}

static void tqk6_block(const uint8_t *b, float *out)
{
    tqk_block(b, 6, out);
}

static void tqk7_block(const uint8_t *b, float *out)
{
    tqk_block(b, 7, out);
}

void decode_tq2_t(const struct tensor *t, int64_t row0, int64_t row1, float *out)
{
    decode_blocks(t, row0, row1, out, tq2_t_block);
}

void decode_tqk6(const struct tensor *t, int64_t row0, int64_t row1, float *out)
{
    decode_blocks(t, row0, row1, out, tqk6_block);
}

void decode_tqk7(const struct tensor *t, int64_t row0, int64_t row1, float *out)
{
    decode_blocks(t, row0, row1, out, tqk7_block);
}
