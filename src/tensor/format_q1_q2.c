/* Q1_0, Q2_0, Q2_0_G128, PQ2_0: f16 d first, then the codes of consecutive weights, lowest bits
 * first.
 *
 *   Q1_0              128 weights: d  bits[16]    value = bit ? d : -d; there is no zero
 *   Q2_0               64 weights: d  codes[16]   value = (code - 1) * d; code 3 is +2 * d
 *   Q2_0_G128, PQ2_0  128 weights: d  codes[32]   the same
 *
 * Q2_0_G128 is what older files call Q2_0; its bytes are those of PQ2_0. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/float16.h"
#include "base/reader.h"
#include "tensor/format_codecs.h"
#include "tensor/format_ternary.h"

enum { Q1_0_BLOCK = 128, Q1_0_BYTES = 18, CODES = 2 };
static_assert(CODES + Q1_0_BLOCK / 8 == Q1_0_BYTES, "Q1_0");
static_assert(CODES + 64 / 4 == 18 && CODES + 128 / 4 == 34, "Q2_0");

static void q1_0_block(const uint8_t *b, float *out)
{
    float d = f16_to_f32(load_u16(b));
    for (int j = 0; j < Q1_0_BLOCK; j++)
        out[j] = b[CODES + j / 8] >> j % 8 & 1 ? d : -d;
}

void decode_q1_0(const struct tensor *t, int64_t row0, int64_t row1, float *out)
{
    decode_blocks(t, row0, row1, out, q1_0_block);
}

/* d: the mean magnitude; bit: not negative. */
void encode_q1_0(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    for (int64_t i = 0; i < n_rows * n_cols; i += Q1_0_BLOCK, out += Q1_0_BYTES) {
        float sum = 0;
        memset(out, 0, Q1_0_BYTES);
        for (int j = 0; j < Q1_0_BLOCK; j++) {
            sum += fabsf(src[i + j]);
            out[CODES + j / 8] |= (uint8_t)((src[i + j] >= 0) << j % 8);
        }
        store_u16(out, f32_to_f16(sum / Q1_0_BLOCK));
    }
}

static void unpack_codes(const uint8_t *bytes, int n, uint8_t *codes)
{
    for (int j = 0; j < n; j++)
        codes[j] = bytes[j / 4] >> 2 * (j % 4) & 3;
}

static void pack_codes(const uint8_t *codes, int n, uint8_t *bytes)
{
    for (int i = 0; i < n / 4; i++, codes += 4)
        bytes[i] = (uint8_t)(codes[0] | codes[1] << 2 | codes[2] << 4 | codes[3] << 6);
}

static void unpack_64(const uint8_t *block, int lane, uint8_t *codes)
{
    (void)lane;
    unpack_codes(block + CODES, 64, codes);
}

static void pack_64(const uint8_t *codes, int lane, uint8_t *block)
{
    (void)lane;
    pack_codes(codes, 64, block + CODES);
}

static void unpack_128(const uint8_t *block, int lane, uint8_t *codes)
{
    (void)lane;
    unpack_codes(block + CODES, 128, codes);
}

static void pack_128(const uint8_t *codes, int lane, uint8_t *block)
{
    (void)lane;
    pack_codes(codes, 128, block + CODES);
}

const struct ternary_layout layout_q2_0 = {unpack_64, pack_64, true};
const struct ternary_layout layout_q2_0_g128 = {unpack_128, pack_128, true};
