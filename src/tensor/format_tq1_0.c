/* TQ1_0: 256 weights in 54 bytes, five trits to a byte, and f16 d last. value = (trit - 1) * d.
 *
 *   0         32        48     52
 *   five[32]  five[16]  four[4]  d
 *
 * Byte i of the first 32 holds weights i + {0, 32, 64, 96, 128}; byte i of the next 16 holds
 * weights 160 + i + {0, 16, 32, 48, 64}; byte i of the last 4 holds weights 240 + i + {0, 4, 8,
 * 12}. */
#include <assert.h>

#include "tensor/format_ternary.h"

enum { MIDDLE = 32, LAST = 48, SCALE = 52 };
static_assert(SCALE + 2 == 54 && 32 * 5 + 16 * 5 + 4 * 4 == 256, "TQ1_0");

static void unpack(const uint8_t *block, int lane, uint8_t *codes)
{
    (void)lane;
    unpack_trits(block, 32, 5, codes);
    unpack_trits(block + MIDDLE, 16, 5, codes + 160);
    unpack_trits(block + LAST, 4, 4, codes + 240);
}

static void pack(const uint8_t *codes, int lane, uint8_t *block)
{
    (void)lane;
    pack_trits(codes, 32, 5, block);
    pack_trits(codes + 160, 16, 5, block + MIDDLE);
    pack_trits(codes + 240, 4, 4, block + LAST);
}

const struct ternary_layout layout_tq1_0 = {unpack, pack, false};
