/* IQ4_NL, IQ4_XS: 4-bit codes into a table of 16 unevenly spaced values.
 *
 *   IQ4_NL   32 weights: d (f16)  codes[16]                        value = d * table[code]
 *   IQ4_XS  256 weights: d (f16)  high (u16)  low[4]  codes[128]   value = d * (scale - 32) *
 * table[code]
 *
 * codes: byte i of 16 holds weights i (bits 3:0) and i + 16 (bits 7:4) of its 32.
 * scale of 32 weights i: four bits in nibble i of low, two bits at 2 * i of high. */
#include <assert.h>

#include "base/float16.h"
#include "base/reader.h"
#include "tensor/format_codecs.h"
#include "tensor/iq4_values.h"

static_assert(2 + 32 / 2 == 18, "IQ4_NL");
static_assert(2 + 2 + 4 + 256 / 2 == 136, "IQ4_XS");

static void decode_32(float scale, const uint8_t *codes, float *out)
{
    for (int i = 0; i < 16; i++) {
        out[i] = scale * (float)iq4_values[codes[i] & 15];
        out[i + 16] = scale * (float)iq4_values[codes[i] >> 4];
    }
}

static void iq4_nl_block(const uint8_t *b, float *out)
{
    decode_32(f16_to_f32(load_u16(b)), b + 2, out);
}

static void iq4_xs_block(const uint8_t *b, float *out)
{
    float d = f16_to_f32(load_u16(b));
    int high = load_u16(b + 2);
    for (int i = 0; i < 8; i++) {
        int scale = (b[4 + i / 2] >> 4 * (i % 2) & 15) | (high >> 2 * i & 3) << 4;
        decode_32(d * (float)(scale - 32), b + 8 + 16 * i, out + 32 * i);
    }
}

void decode_iq4_nl(const struct tensor *t, int64_t row0, int64_t row1, float *out)
{
    decode_blocks(t, row0, row1, out, iq4_nl_block);
}

void decode_iq4_xs(const struct tensor *t, int64_t row0, int64_t row1, float *out)
{
    decode_blocks(t, row0, row1, out, iq4_xs_block);
}
