/* Codes of 2, 4 and 5 bits out of bytes. Include after matmul_tiles.h. */
#ifndef TRINE_KERNELS_ARM_MATMUL_FIELDS_H
#define TRINE_KERNELS_ARM_MATMUL_FIELDS_H

#include "tensor/iq4_values.h"

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

/* Quad 0 to 3 of the s-th 16 of 32 inputs: four steps of 4 bits and, has_fifth, one of fifth bits. */
ALWAYS_INLINE uint8x16_t low_bits_at(const uint8_t *steps, int64_t s, int quad, int v,
                                     bool has_fifth)
{
    uint8x16_t codes = nibbles_at(steps + s * 2 * STEP_BYTES, quad, v);
    if (!has_fifth)
        return codes;
    uint8x16_t bits = load_rows(steps + 4 * STEP_BYTES, v); /* bit 4 s + quad */
    bits = vshlq_u8(bits, vdupq_n_s8((int8_t)(4 - 4 * s - quad)));
    return vorrq_u8(codes, vandq_u8(bits, vdupq_n_u8(16)));
}

/* What nibbles stand for, in the same places. */
ALWAYS_INLINE int8x16_t iq4_value_at(const uint8_t *steps, int64_t s, int quad, int v)
{
    return vqtbl1q_s8(vld1q_s8(iq4_values), nibbles_at(steps + s * 2 * STEP_BYTES, quad, v));
}

#endif
