/* trits4: codes of 2-bit formats are extracted 64 at a time, base-3 digits by the plain decoder; 16 inputs
 * of four rows become a part of a step. */
#include <string.h>

#include "kernels/arm/transpose_neon.h"
#include "kernels/pack_trits.h"

/* The four fields of each byte, lowest bits first. */
static inline uint8x16x4_t fields_at(const uint8_t *p)
{
    const uint8x16_t mask = vdupq_n_u8(3);
    uint8x16_t bytes = vld1q_u8(p);
    return (uint8x16x4_t){{vandq_u8(bytes, mask), vandq_u8(vshrq_n_u8(bytes, 2), mask),
                           vandq_u8(vshrq_n_u8(bytes, 4), mask), vshrq_n_u8(bytes, 6)}};
}

/* n bytes (a multiple of 16) whose fields are n codes apart; from_top: highest bits first. */
static inline void expand_spaced(const uint8_t *p, int n, bool from_top, uint8_t *codes)
{
    for (int i = 0; i < n; i += 16) {
        uint8x16x4_t fields = fields_at(p + i);
        for (int f = 0; f < 4; f++)
            vst1q_u8(codes + i + (from_top ? 3 - f : f) * n, fields.val[f]);
    }
}

/* n bytes of four consecutive codes each, lowest bits first. */
static inline void expand_in_order(const uint8_t *p, int n, uint8_t *codes)
{
    for (int i = 0; i < n; i += 16)
        vst4q_u8(codes + 4 * i, fields_at(p + i));
}

/* 64 bytes of four rows: dword 4 l + lane holds codes 16 l on. */
static inline void expand_r4(const uint8_t *p, int lane, uint8_t *codes)
{
    static const int32_t shifts[4] = {0, -2, -4, -6};
    for (int l = 0; l < 4; l++) {
        uint32_t own;
        memcpy(&own, p + 16 * l + 4 * lane, sizeof own);
        uint32x4_t fields = vshlq_u32(vdupq_n_u32(own), vld1q_s32(shifts));
        vst1q_u8(codes + 16 * l, vandq_u8(vreinterpretq_u8_u32(fields), vdupq_n_u8(3)));
    }
}

/* 128 bytes of four rows, a field each. */
static inline void expand_4row(const uint8_t *p, int lane, uint8_t *codes)
{
    for (int i = 0; i < 128; i += 16) {
        uint8x16_t bytes = vshlq_u8(vld1q_u8(p + i), vdupq_n_s8((int8_t)(2 * lane - 6)));
        vst1q_u8(codes + i, vandq_u8(bytes, vdupq_n_u8(3)));
    }
}

static inline void expand_block(enum format_id id, const uint8_t *p, int lane, uint8_t *codes)
{
    switch (id) {
    case FORMAT_IQ2_BN: expand_spaced(p, 16, false, codes); break;
    case FORMAT_I2_S_ARM:
        expand_spaced(p, 16, true, codes);
        expand_spaced(p + 16, 16, true, codes + 64);
        break;
    case FORMAT_I2_S: expand_spaced(p, 32, true, codes); break;
    case FORMAT_TQ2_0:
        expand_spaced(p, 32, false, codes);
        expand_spaced(p + 32, 32, false, codes + 128);
        break;
    case FORMAT_Q2_0: expand_in_order(p + 2, 16, codes); break;
    case FORMAT_Q2_0_G128:
    case FORMAT_PQ2_0: expand_in_order(p + 2, 32, codes); break;
    case FORMAT_IQ2_BN_R4: expand_r4(p, lane, codes); break;
    default: expand_4row(p, lane, codes);
    }
}

static void expand(const struct tensor *t, int64_t row, int64_t block0, int64_t n, uint8_t *codes,
                   uint8_t *scratch)
{
    trits_expand_2_bits(t, row, block0, n, codes, scratch, expand_block);
}

static void fold(const uint8_t *codes, int64_t stride, int64_t n_steps, uint8_t *steps)
{
    for (; n_steps > 0; n_steps--, codes += 16, steps += STEP_BYTES)
        for (int v = 0; v < 4; v++) {
            uint8x16_t rows[4], quad[4];
            for (int i = 0; i < 4; i++)
                rows[i] = vld1q_u8(codes + (4 * v + i) * stride);
            transpose_4x4(rows, quad);
            vst1q_u8(steps + 16 * v, joined_fields(quad));
        }
}

void pack_trits4_neon(const union job *job, int begin, int end)
{
    pack_trits(&job->pack, begin, end, expand, fold);
}
