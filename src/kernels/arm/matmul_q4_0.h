/* matmul of q4_0: nibbles, code - 8. */
#ifndef TRINE_KERNELS_ARM_MATMUL_Q4_0_H
#define TRINE_KERNELS_ARM_MATMUL_Q4_0_H

#include "kernels/arm/matmul_tiles.h"

#include "kernels/arm/matmul_fields.h"
#include "kernels/arm/matmul_groups.h"

enum { GROUP = 32, GROUP_BYTES = 4 * STEP_BYTES };

ALWAYS_INLINE int64_t group_inputs(const struct matmul_job *job)
{
    (void)job;
    return GROUP;
}

ALWAYS_INLINE const uint8_t *steps_of(const struct matmul_job *job, const uint8_t *tile, int64_t g)
{
    (void)job;
    return group_of(tile, g, GROUP_BYTES);
}

ALWAYS_INLINE int8x16_t code_at(const uint8_t *steps, int64_t s, int quad, int v)
{
    return vreinterpretq_s8_u8(nibbles_at(steps + s * 2 * STEP_BYTES, quad, v));
}

ALWAYS_INLINE void tile_part(const struct part *p, union tile_sums *to)
{
    add_groups(p, GROUP / 16, GROUP_BYTES, -8, to->y);
}

#endif
