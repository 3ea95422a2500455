/* PTQ1_0: 128 weights in 28 bytes, five trits to a byte, and f16 d last. value = (trit - 1) * d.
 * As TQ1_0, but its stages are 16, 8 and 2 bytes wide.
 *
 *   0         16       24     26
 *   five[16]  five[8]  four[2]  d
 *
 * Byte i of the first 16 holds weights i + {0, 16, 32, 48, 64}; byte i of the next 8 holds weights
 * 80 + i + {0, 8, 16, 24, 32}; byte i of the last 2 holds weights 120 + i + {0, 2, 4, 6}. */
#include <assert.h>

#include "tensor/format_ternary.h"

enum { MIDDLE = 16, LAST = 24, SCALE = 26 };
static_assert(SCALE + 2 == 28 && 16 * 5 + 8 * 5 + 2 * 4 == 128, "PTQ1_0");

static void unpack(const uint8_t *block, int lane, uint8_t *codes)
{
    (void)lane;
    unpack_trits(block, 16, 5, codes);
    unpack_trits(block + MIDDLE, 8, 5, codes + 80);
    unpack_trits(block + LAST, 2, 4, codes + 120);
}

static void pack(const uint8_t *codes, int lane, uint8_t *block)
{
    (void)lane;
    pack_trits(codes, 16, 5, block);
    pack_trits(codes + 80, 8, 5, block + MIDDLE);
    pack_trits(codes + 120, 2, 4, block + LAST);
}

const struct ternary_layout layout_ptq1_0 = {unpack, pack, false};
