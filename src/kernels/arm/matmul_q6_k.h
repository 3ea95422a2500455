/* matmul of q6_k: 6 bits, code - 32, int8 scales per 16 inputs, f16 scales per 256. */
#ifndef TRINE_KERNELS_ARM_MATMUL_Q6_K_H
#define TRINE_KERNELS_ARM_MATMUL_Q6_K_H

#define PANEL_OFFSET (-32)
#include "kernels/arm/matmul_tiles.h"

#include "kernels/arm/matmul_blocks.h"
#include "kernels/arm/matmul_fields.h"

enum { GROUPS = 16, GROUP_BYTES = 3 * STEP_BYTES, SCALES_AT = 64, CODES_AT = 64 + 512 };
enum { UNIT_BYTES = CODES_AT + 2 * GROUPS * GROUP_BYTES };

ALWAYS_INLINE int64_t group_inputs(const struct matmul_job *job)
{
    (void)job;
    return BLOCK / GROUPS;
}

ALWAYS_INLINE const uint8_t *steps_of(const struct matmul_job *job, const uint8_t *tile, int64_t g)
{
    (void)job;
    return tile + g / (2 * GROUPS) * UNIT_BYTES + CODES_AT + g % (2 * GROUPS) * GROUP_BYTES;
}

ALWAYS_INLINE int8x16_t code_at(const uint8_t *steps, int64_t s, int quad, int v)
{
    (void)s; /* a group is 16 inputs */
    uint8x16_t high = field_of_2(load_rows(steps + 2 * STEP_BYTES, v), quad);
    return vreinterpretq_s8_u8(vsliq_n_u8(nibbles_at(steps, quad, v), high, 4));
}

ALWAYS_INLINE int32x4_t scale_at(const uint8_t *tile, int64_t block, int group, int v)
{
    const uint8_t *unit = tile + block / 2 * UNIT_BYTES + SCALES_AT;
    int32_t bytes;
    memcpy(&bytes, unit + (block % 2 * GROUPS + group) * TILE_ROWS + 4 * v, sizeof bytes);
    int16x8_t wide = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(bytes)));
    return vmovl_s16(vget_low_s16(wide));
}

ALWAYS_INLINE void tile_part(const struct part *p, union tile_sums *to)
{
    for (int64_t block = 0; block < p->job->a.n_cols / BLOCK; block++) {
        const uint8_t *d = p->tile + block / 2 * UNIT_BYTES + block % 2 * 2 * TILE_ROWS;
        struct sums sums;
        add_block_dots(p, block, GROUPS, PANEL_OFFSET, &sums);
        add_block(p, block, d, &sums, to->y);
    }
}

#endif
