/* I2_S: 2-bit codes of the whole matrix, then a tail of 32 bytes whose first four are one f32
 * scale. value = (code - 1) * scale. Three programs write three orders under one type id:
 *
 *   I2_S       32 bytes hold 128 weights of a row: byte i weights i + {0, 32, 64, 96}
 *   I2_S_ARM   the same: byte 16 * h + i weights 64 * h + i + {0, 16, 32, 48}
 *   I2_S_4ROW  128 bytes hold 128 columns of four rows: byte i column i of rows 0, 1, 2, 3
 *
 * highest bits first in all of them. Code 3 has no agreed meaning and is not written. */
#include <assert.h>

#include "tensor/format_ternary.h"

static_assert(128 / 4 == 32, "I2_S");

/* n bytes with the codes of one byte n apart, highest bits first. */
static void unpack_high_first(const uint8_t *bytes, int n, uint8_t *codes)
{
    for (int part = 0; part < 4; part++)
        for (int i = 0; i < n; i++)
            codes[part * n + i] = bytes[i] >> (6 - 2 * part) & 3;
}

static void pack_high_first(const uint8_t *codes, int n, uint8_t *bytes)
{
    for (int i = 0; i < n; i++)
        bytes[i] =
            (uint8_t)(codes[i] << 6 | codes[n + i] << 4 | codes[2 * n + i] << 2 | codes[3 * n + i]);
}

static void unpack_i2_s(const uint8_t *block, int lane, uint8_t *codes)
{
    (void)lane;
    unpack_high_first(block, 32, codes);
}

static void pack_i2_s(const uint8_t *codes, int lane, uint8_t *block)
{
    (void)lane;
    pack_high_first(codes, 32, block);
}

static void unpack_arm(const uint8_t *block, int lane, uint8_t *codes)
{
    (void)lane;
    unpack_high_first(block, 16, codes);
    unpack_high_first(block + 16, 16, codes + 64);
}

static void pack_arm(const uint8_t *codes, int lane, uint8_t *block)
{
    (void)lane;
    pack_high_first(codes, 16, block);
    pack_high_first(codes + 64, 16, block + 16);
}

static void unpack_4row(const uint8_t *block, int lane, uint8_t *codes)
{
    for (int i = 0; i < 128; i++)
        codes[i] = block[i] >> (6 - 2 * lane) & 3;
}

static void pack_4row(const uint8_t *codes, int lane, uint8_t *block)
{
    int shift = 6 - 2 * lane;
    for (int i = 0; i < 128; i++)
        block[i] = (uint8_t)((block[i] & ~(3 << shift)) | codes[i] << shift);
}

const struct ternary_layout layout_i2_s = {unpack_i2_s, pack_i2_s, false};
const struct ternary_layout layout_i2_s_arm = {unpack_arm, pack_arm, false};
const struct ternary_layout layout_i2_s_4row = {unpack_4row, pack_4row, false};
