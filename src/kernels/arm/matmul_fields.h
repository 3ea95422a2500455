/* Codes of 2 and 4 bits out of bytes. Include after matmul_tiles.h. */
#ifndef TRINE_KERNELS_ARM_MATMUL_FIELDS_H
#define TRINE_KERNELS_ARM_MATMUL_FIELDS_H

/* Vector v of a step. */
ALWAYS_INLINE uint8x16_t load_rows(const uint8_t *step, int v)
{
    return vld1q_u8(step + 16 * v);
}

/* Field 0 to 3 of 2 bits. */
ALWAYS_INLINE uint8x16_t field_of_2(uint8x16_t bytes, int field)
{
    const uint8x16_t mask = vdupq_n_u8(3);
    switch (field) {
    case 0: return vandq_u8(bytes, mask);
    case 1: return vandq_u8(vshrq_n_u8(bytes, 2), mask);
    case 2: return vandq_u8(vshrq_n_u8(bytes, 4), mask);
    default: return vshrq_n_u8(bytes, 6);
    }
}

/* Quad 0 to 3 of the two steps of 16 inputs of 4 bits. */
ALWAYS_INLINE uint8x16_t nibbles_at(const uint8_t *steps, int quad, int v)
{
    uint8x16_t bytes = load_rows(steps + quad / 2 * STEP_BYTES, v);
    return quad % 2 ? vshrq_n_u8(bytes, 4) : vandq_u8(bytes, vdupq_n_u8(15));
}

#endif
