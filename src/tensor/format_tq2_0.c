/* TQ2_0: 256 weights in 66 bytes: codes[64], then f16 d. value = (code - 1) * d.
 * Byte 32 * h + i holds weights 128 * h + i + {0, 32, 64, 96}, lowest bits first. */
#include <assert.h>

#include "tensor/format_ternary.h"

static_assert(256 / 4 + 2 == 66, "TQ2_0");

static void unpack(const uint8_t *block, int lane, uint8_t *codes)
{
    (void)lane;
    unpack_strided(block, 32, codes);
    unpack_strided(block + 32, 32, codes + 128);
}

static void pack(const uint8_t *codes, int lane, uint8_t *block)
{
    (void)lane;
    pack_strided(codes, 32, block);
    pack_strided(codes + 128, 32, block + 32);
}

const struct ternary_layout layout_tq2_0 = {unpack, pack, true};
