/* matmul of q3_k: 3 bits, code - 4, 6-bit scales per 16 inputs, f16 scales per 256. Two groups of codes
 * lie together. In a panel they hold their scales: (code - 4) * -scale is from -128 to 124. */
#ifndef TRINE_KERNELS_ARM_MATMUL_Q3_K_H
#define TRINE_KERNELS_ARM_MATMUL_Q3_K_H

#define PANEL_IS_SCALED
#define PANEL_OFFSET (-4)
#include "kernels/arm/matmul_tiles.h"

#include "kernels/arm/matmul_blocks.h"
#include "kernels/arm/matmul_fields.h"

enum { GROUPS = 16, CODES_AT = PACKED_K_LINES_AT + 12 * TILE_ROWS, PAIR_BYTES = 3 * STEP_BYTES };
enum { UNIT_BYTES = CODES_AT + GROUPS / 2 * PAIR_BYTES };

ALWAYS_INLINE int64_t group_inputs(const struct matmul_job *job)
{
    (void)job;
    return 2 * BLOCK / GROUPS;
}

ALWAYS_INLINE const uint8_t *steps_of(const struct matmul_job *job, const uint8_t *tile, int64_t g)
{
    (void)job;
    return tile + g / (GROUPS / 2) * UNIT_BYTES + CODES_AT + g % (GROUPS / 2) * PAIR_BYTES;
}

/* packed_q3_k_code */
ALWAYS_INLINE int8x16_t code_at(const uint8_t *steps, int64_t s, int quad, int v)
{
    int of_8 = 4 * (int)s + quad;
    uint8x16_t codes;
    if (of_8 < 6) {
        codes = load_rows(steps + of_8 / 2 * STEP_BYTES, v);
        codes = vandq_u8(of_8 % 2 ? vshrq_n_u8(codes, 3) : codes, vdupq_n_u8(7));
    } else {
        uint8x16_t high = load_rows(steps + 2 * STEP_BYTES, v);
        codes = vshrq_n_u8(load_rows(steps + (of_8 - 6) * STEP_BYTES, v), 6);
        high = of_8 == 6 ? vshrq_n_u8(high, 6) : vshrq_n_u8(high, 7);
        codes = vsliq_n_u8(codes, vandq_u8(high, vdupq_n_u8(1)), 2);
    }
    return vreinterpretq_s8_u8(codes);
}

/* packed_q3_k_scale */
ALWAYS_INLINE int32x4_t scale_at(const uint8_t *tile, int64_t block, int group, int v)
{
    const uint8_t *lines = tile + block * UNIT_BYTES + PACKED_K_LINES_AT;
    uint32x4_t low = vreinterpretq_u32_u8(load_rows(lines + group / 4 % 2 * STEP_BYTES, v));
    uint32x4_t high = vreinterpretq_u32_u8(load_rows(lines + 2 * STEP_BYTES, v));
    low = vshlq_u32(low, vdupq_n_s32(-8 * (group % 4) - 4 * (group / 8)));
    high = vshlq_u32(high, vdupq_n_s32(-8 * (group % 4) - 2 * (group / 4)));
    low = vandq_u32(low, vdupq_n_u32(15));
    high = vandq_u32(high, vdupq_n_u32(3));
    return vsubq_s32(vreinterpretq_s32_u32(vsliq_n_u32(low, high, 4)), vdupq_n_s32(32));
}

ALWAYS_INLINE void tile_part(const struct part *p, union tile_sums *to)
{
    add_blocks(p, GROUPS, PANEL_OFFSET, UNIT_BYTES, to->y);
}

#endif
