/* 4 rows of 4 dwords become 4 columns, whose low bits join to bytes. */
#ifndef TRINE_KERNELS_ARM_TRANSPOSE_NEON_H
#define TRINE_KERNELS_ARM_TRANSPOSE_NEON_H

#include <arm_neon.h>

/* column[c] holds dword c of row r in its dword r. */
static inline void transpose_4x4(const uint8x16_t rows[4], uint8x16_t column[4])
{
    uint32x4_t r0 = vreinterpretq_u32_u8(rows[0]), r1 = vreinterpretq_u32_u8(rows[1]);
    uint32x4_t r2 = vreinterpretq_u32_u8(rows[2]), r3 = vreinterpretq_u32_u8(rows[3]);
    uint32x4_t low02 = vzip1q_u32(r0, r2), high02 = vzip2q_u32(r0, r2);
    uint32x4_t low13 = vzip1q_u32(r1, r3), high13 = vzip2q_u32(r1, r3);
    column[0] = vreinterpretq_u8_u32(vzip1q_u32(low02, low13));
    column[1] = vreinterpretq_u8_u32(vzip2q_u32(low02, low13));
    column[2] = vreinterpretq_u8_u32(vzip1q_u32(high02, high13));
    column[3] = vreinterpretq_u8_u32(vzip2q_u32(high02, high13));
}

/* The lowest 2 bits of four columns side by side. */
static inline uint8x16_t joined_fields(const uint8x16_t column[4])
{
    uint8x16_t low = vsliq_n_u8(column[0], column[1], 2);
    return vsliq_n_u8(low, vsliq_n_u8(column[2], column[3], 2), 4);
}

#endif
