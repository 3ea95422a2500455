/* matmul of iq4_xs: nibbles that stand for iq4_values, 6-bit scales per 32 inputs, f16 scales per 256. */
#ifndef TRINE_KERNELS_ARM_MATMUL_IQ4_XS_H
#define TRINE_KERNELS_ARM_MATMUL_IQ4_XS_H

#include "kernels/arm/matmul_tiles.h"

#include "kernels/arm/matmul_blocks.h"
#include "kernels/arm/matmul_fields.h"

enum { GROUPS = 8, GROUP_BYTES = 4 * STEP_BYTES, UPPER_AT = 32, LOWER_AT = 64 };
enum { CODES_AT = LOWER_AT + 4 * TILE_ROWS, UNIT_BYTES = CODES_AT + GROUPS * GROUP_BYTES };

ALWAYS_INLINE int64_t group_inputs(const struct matmul_job *job)
{
    (void)job;
    return BLOCK / GROUPS;
}

ALWAYS_INLINE const uint8_t *steps_of(const struct matmul_job *job, const uint8_t *tile, int64_t g)
{
    (void)job;
    return tile + g / GROUPS * UNIT_BYTES + CODES_AT + g % GROUPS * GROUP_BYTES;
}

ALWAYS_INLINE int8x16_t code_at(const uint8_t *steps, int64_t s, int quad, int v)
{
    return iq4_value_at(steps, s, quad, v);
}

/* Four bits of the line, two of the half words (packed_iq4_xs_scale), less 32. */
ALWAYS_INLINE int32x4_t scale_at(const uint8_t *tile, int64_t block, int group, int v)
{
    const uint8_t *unit = tile + block * UNIT_BYTES;
    uint32x4_t low = vreinterpretq_u32_u8(load_rows(unit + LOWER_AT, v));
    uint32x4_t high = vmovl_u16(vreinterpret_u16_u8(vld1_u8(unit + UPPER_AT + 8 * v)));
    low = vshlq_u32(low, vdupq_n_s32(-8 * (group % 4) - 4 * (group / 4)));
    high = vshlq_u32(high, vdupq_n_s32(-4 * (group % 4) - 2 * (group / 4)));
    low = vandq_u32(low, vdupq_n_u32(15));
    high = vandq_u32(high, vdupq_n_u32(3));
    return vsubq_s32(vreinterpretq_s32_u32(vsliq_n_u32(low, high, 4)), vdupq_n_s32(32));
}

ALWAYS_INLINE void tile_part(const struct part *p, union tile_sums *to)
{
    add_blocks(p, GROUPS, 0, UNIT_BYTES, to->y);
}

#endif
