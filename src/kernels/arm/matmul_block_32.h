/* matmul of packings with a scale for each block of 32. A packing defines CODE_BITS: 4, 5 (the fifth
 * ones lie behind the others of the block) or 8; OFFSET: what its codes have too little; HAS_MIN:
 * minimums behind the scales; IS_IQ4: codes stand for iq4_values. */
#ifndef TRINE_KERNELS_ARM_MATMUL_BLOCK_32_H
#define TRINE_KERNELS_ARM_MATMUL_BLOCK_32_H

#define PANEL_OFFSET OFFSET
#include "kernels/arm/matmul_tiles.h"

#include "kernels/arm/matmul_fields.h"
#include "kernels/arm/matmul_groups.h"

enum { GROUP = 32, GROUP_BYTES = CODE_BITS * STEP_BYTES };

ALWAYS_INLINE int64_t group_inputs(const struct matmul_job *job)
{
    (void)job;
    return GROUP;
}

ALWAYS_INLINE const uint8_t *steps_of(const struct matmul_job *job, const uint8_t *tile, int64_t g)
{
    (void)job;
    return group_of(tile, g, GROUP_BYTES, HAS_MIN);
}

ALWAYS_INLINE int8x16_t code_at(const uint8_t *steps, int64_t s, int quad, int v)
{
    if (CODE_BITS == 8) { /* code - 128 */
        uint8x16_t bytes = load_rows(steps + (4 * s + quad) * STEP_BYTES, v);
        return vreinterpretq_s8_u8(veorq_u8(bytes, vdupq_n_u8(128)));
    }
    if (IS_IQ4)
        return iq4_value_at(steps, s, quad, v);
    return vreinterpretq_s8_u8(low_bits_at(steps, s, quad, v, CODE_BITS == 5));
}

ALWAYS_INLINE void tile_part(const struct part *p, union tile_sums *to)
{
    add_groups(p, GROUP / 16, GROUP_BYTES, OFFSET, HAS_MIN, to->y);
}

#endif
