/* matmul of q2_k: 2 bits, a 4-bit scale and minimum per 16 inputs, f16 scales of both per 256. Codes of a
 * panel hold their scales: code * -scale is from -45 to 0. */
#ifndef TRINE_KERNELS_ARM_MATMUL_Q2_K_H
#define TRINE_KERNELS_ARM_MATMUL_Q2_K_H

#define PANEL_IS_SCALED
#include "kernels/arm/matmul_tiles.h"

#include "kernels/arm/matmul_fields.h"
#include "kernels/arm/matmul_mins.h"

enum { GROUPS = 16, LINES_AT = 64, CODES_AT = LINES_AT + 16 * TILE_ROWS };
enum { UNIT_BYTES = CODES_AT + GROUPS * STEP_BYTES };

ALWAYS_INLINE int64_t group_inputs(const struct matmul_job *job)
{
    (void)job;
    return BLOCK / GROUPS;
}

ALWAYS_INLINE const uint8_t *steps_of(const struct matmul_job *job, const uint8_t *tile, int64_t g)
{
    (void)job;
    return tile + g / GROUPS * UNIT_BYTES + CODES_AT + g % GROUPS * STEP_BYTES;
}

ALWAYS_INLINE int8x16_t code_at(const uint8_t *steps, int64_t s, int quad, int v)
{
    (void)s; /* a group is 16 inputs */
    return vreinterpretq_s8_u8(field_of_2(load_rows(steps, v), quad));
}

/* 4 bits, from bit `at` on, of the byte of the group. */
ALWAYS_INLINE int32x4_t four_bits(const uint8_t *tile, int64_t block, int at, int group, int v)
{
    const uint8_t *line = tile + block * UNIT_BYTES + LINES_AT + group / 4 * STEP_BYTES;
    uint32x4_t rows = vreinterpretq_u32_u8(load_rows(line, v));
    rows = vshlq_u32(rows, vdupq_n_s32(-8 * (group % 4) - at));
    return vreinterpretq_s32_u32(vandq_u32(rows, vdupq_n_u32(15)));
}

ALWAYS_INLINE int32x4_t scale_at(const uint8_t *tile, int64_t block, int group, int v)
{
    return four_bits(tile, block, 0, group, v);
}

ALWAYS_INLINE int32x4_t min_at(const uint8_t *tile, int64_t block, int group, int v)
{
    return four_bits(tile, block, 4, group, v);
}

ALWAYS_INLINE void tile_part(const struct part *p, union tile_sums *to)
{
    add_min_blocks(p, GROUPS, UNIT_BYTES, to->y);
}

#endif
