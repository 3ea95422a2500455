/* matmul of q4_k and q5_k: HAS_FIFTH; 6-bit scales and minimums per 32 inputs, f16 of both per 256. */
#ifndef TRINE_KERNELS_ARM_MATMUL_Q45_K_H
#define TRINE_KERNELS_ARM_MATMUL_Q45_K_H

#include "kernels/arm/matmul_tiles.h"

#include "kernels/arm/matmul_fields.h"
#include "kernels/arm/matmul_mins.h"

enum { GROUPS = 8, GROUP_BYTES = (4 + HAS_FIFTH) * STEP_BYTES };
enum {
    CODES_AT = PACKED_K_LINES_AT + 12 * TILE_ROWS,
    UNIT_BYTES = CODES_AT + GROUPS * GROUP_BYTES
};

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
    return vreinterpretq_s8_u8(low_bits_at(steps, s, quad, v, HAS_FIFTH));
}

/* Byte `group` % 4 of each row of line i. */
ALWAYS_INLINE uint32x4_t line_byte(const uint8_t *tile, int64_t block, int i, int group, int v)
{
    const uint8_t *line = tile + block * UNIT_BYTES + PACKED_K_LINES_AT + i * STEP_BYTES;
    uint32x4_t rows = vreinterpretq_u32_u8(load_rows(line, v));
    return vandq_u32(vshlq_u32(rows, vdupq_n_s32(-8 * (group % 4))), vdupq_n_u32(255));
}

/* 6 bits of groups 0 to 3 in line i (0: scales, 1: minimums); those of groups 4 to 7 have their top 2
 * bits there, and the others in line 2 from bit `at` on (packed_k_scales). */
ALWAYS_INLINE int32x4_t six_bits(const uint8_t *tile, int64_t block, int i, int at, int group,
                                 int v)
{
    uint32x4_t first = line_byte(tile, block, i, group, v);
    if (group < 4)
        return vreinterpretq_s32_u32(vandq_u32(first, vdupq_n_u32(63)));
    uint32x4_t rest = vshlq_u32(line_byte(tile, block, 2, group, v), vdupq_n_s32(-at));
    uint32x4_t low = vandq_u32(rest, vdupq_n_u32(15));
    return vreinterpretq_s32_u32(vsliq_n_u32(low, vshrq_n_u32(first, 6), 4));
}

ALWAYS_INLINE int32x4_t scale_at(const uint8_t *tile, int64_t block, int group, int v)
{
    return six_bits(tile, block, 0, 0, group, v);
}

ALWAYS_INLINE int32x4_t min_at(const uint8_t *tile, int64_t block, int group, int v)
{
    return six_bits(tile, block, 1, 4, group, v);
}

ALWAYS_INLINE void tile_part(const struct part *p, union tile_sums *to)
{
    add_min_blocks(p, GROUPS, UNIT_BYTES, to->y);
}

#endif
