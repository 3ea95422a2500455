/* IQ1_BN, IQ2_BN, IQ2_BN_R4: rows that begin with their scale, then blocks of 64 weights without
 * one. value = (code - 1) * scale.
 *
 *   IQ1_BN     row: f16, then 13 bytes a block. Bytes 3 * g + {0, 1, 2} hold weights 16 * g + 0 ..
 * 14 in fives, the first weight in the LEAST significant digit; byte 12 holds weights 16 * g + 15,
 * g = 0 in the least significant digit, and a 0 in the top one. IQ2_BN     row: f32, then 16 bytes
 * a block. Byte i holds weights i + {0, 16, 32, 48}, lowest bits first. IQ2_BN_R4  four rows: four
 * f32, then 64 bytes a block. Byte 16 * l + 4 * r + u belongs to row r and holds weights 16 * l + u
 * + {0, 4, 8, 12}, lowest bits first. */
#include <assert.h>

#include "tensor/format_ternary.h"

static_assert(4 * 3 + 1 == 13, "IQ1_BN");
static_assert(64 / 4 == 16, "IQ2_BN");

static void unpack_iq1_bn(const uint8_t *block, int lane, uint8_t *codes)
{
    (void)lane;
    for (int g = 0; g < 4; g++) {
        for (int p = 0; p < 15; p++)
            codes[16 * g + p] = trit_digit(block[3 * g + p / 5], 4 - p % 5);
        codes[16 * g + 15] = trit_digit(block[12], 4 - g);
    }
}

static void pack_iq1_bn(const uint8_t *codes, int lane, uint8_t *block)
{
    (void)lane;
    int extra = 0;
    for (int g = 3; g >= 0; g--) {
        for (int byte = 0; byte < 3; byte++) {
            int number = 0;
            for (int p = 4; p >= 0; p--)
                number = number * 3 + codes[16 * g + 5 * byte + p];
            block[3 * g + byte] = trit_byte(number);
        }
        extra = extra * 3 + codes[16 * g + 15];
    }
    block[12] = trit_byte(extra);
}

static void unpack_iq2_bn(const uint8_t *block, int lane, uint8_t *codes)
{
    (void)lane;
    unpack_strided(block, 16, codes);
}

static void pack_iq2_bn(const uint8_t *codes, int lane, uint8_t *block)
{
    (void)lane;
    pack_strided(codes, 16, block);
}

static void unpack_r4(const uint8_t *block, int lane, uint8_t *codes)
{
    for (int l = 0; l < 4; l++)
        unpack_strided(block + 16 * l + 4 * lane, 4, codes + 16 * l);
}

static void pack_r4(const uint8_t *codes, int lane, uint8_t *block)
{
    for (int l = 0; l < 4; l++)
        pack_strided(codes + 16 * l, 4, block + 16 * l + 4 * lane);
}

const struct ternary_layout layout_iq1_bn = {unpack_iq1_bn, pack_iq1_bn, false};
const struct ternary_layout layout_iq2_bn = {unpack_iq2_bn, pack_iq2_bn, true};
const struct ternary_layout layout_iq2_bn_r4 = {unpack_r4, pack_r4, true};
