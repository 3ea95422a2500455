/* What the matmuls of int8 on ARM share: the walk over tiles and tokens. A packing adds tile_part, and what
 * matmul_dots.h says.
 *
 * Rows are lanes, as on x86: a dot product by an element of a register multiplies a vector of codes
 * with one quad of 16 activations, so that nothing is broadcast. Few tokens unpack codes as they
 * come. Many tokens share a panel: the codes of a tile, unpacked once, a byte each, quad after quad;
 * there 8 tokens and 8 rows fill the registers. With i8mm (compiled for it) a panel has pairs of
 * rows with 8 inputs each, and 4 tokens and 16 rows fill the registers: a third fewer instructions
 * for as many multiplications, some of it lost again where a group ends (docs/kernels.md).
 *
 * PANEL_IS_SCALED, if a packing defines it: its panel holds codes times minus their scales (see
 * scale_codes); they fit a byte, so that groups end only with their block. */
#ifndef TRINE_KERNELS_ARM_MATMUL_TILES_H
#define TRINE_KERNELS_ARM_MATMUL_TILES_H

#include "kernels/arm/matmul_dots.h"

/* So many tokens are worth a panel: unpacking is then a small part. An estimate, not timed. */
enum { PANEL_FROM = 12 };

#if defined(PANEL_IS_SCALED)
/* Codes of the s-th 16 inputs of group g, rows 4 v .. 4 v + 3, times -scale. */
ALWAYS_INLINE void scale_codes(const uint8_t *tile, int64_t g, int64_t s, int v,
                               int8x16_t codes[4]);
#endif
/* The chains of a part, which begin as zeros; integers where the job wants partial sums. */
union tile_sums {
    float y[MAX_TOKENS][TILE_ROWS];
    int32_t sums[MAX_TOKENS][TILE_ROWS];
};
ALWAYS_INLINE void tile_part(const struct part *p, union tile_sums *to);

/* f16 scales of the part's vector i, from those of 16 rows. */
ALWAYS_INLINE float32x4_t scales_at(const struct part *p, const uint8_t *scales, int i)
{
    return f32_from_f16_4((const uint16_t *)(const void *)scales + 4 * (p->v0 + i));
}

ALWAYS_INLINE float act_scale_at(const struct part *p, int t, int64_t g)
{
    const struct activations *a = &p->job->a;
    return a->scale[(int64_t)(p->token + t) * a->n_scales + g];
}

/* y = fma((float)sums, scale * act_scale, y), y being the part's chains in memory. */
ALWAYS_INLINE void add_scaled(const struct part *p, int i, int32x4_t sums, float32x4_t scale,
                              float act_scale, float y[TILE_ROWS])
{
    float *at = y + 4 * (p->v0 + i);
    float32x4_t product = vmulq_n_f32(scale, act_scale);
    vst1q_f32(at, vfmaq_f32(vld1q_f32(at), vcvtq_f32_s32(sums), product));
}

ALWAYS_INLINE void tile_tokens(const struct matmul_job *job, const uint8_t *tile,
                               const int8_t *panel, int row0, int token, int n, int n_vectors)
{
    union tile_sums to = {0};
#pragma GCC unroll 2
    for (int v0 = 0; v0 < VECTORS; v0 += n_vectors) {
        const struct part part = {job, tile, panel, token, n, v0, n_vectors};
        tile_part(&part, &to);
    }
    for (int t = 0; t < n; t++)
        if (job->epilogue == EPILOGUE_PARTIAL)
            matmul_finish_partial(job, row0, token + t, to.sums[t]);
        else
            matmul_finish(job, row0, token + t, to.y[t]);
}

typedef void tile_kernel(const struct matmul_job *job, const uint8_t *tile, const int8_t *panel,
                         int row0, int token);

#define TILE_KERNEL(name, is_panel, n, n_vectors)                                                  \
    static void name(const struct matmul_job *job, const uint8_t *tile, const int8_t *panel,       \
                     int row0, int token)                                                          \
    {                                                                                              \
        if (is_panel && !panel)                                                                    \
            __builtin_unreachable();                                                               \
        tile_tokens(job, tile, is_panel ? panel : NULL, row0, token, n, n_vectors);                \
    }
TILE_KERNEL(tile_1, false, 1, 4)
TILE_KERNEL(tile_2, false, 2, 4)
TILE_KERNEL(tile_4, false, 4, 4)
TILE_KERNEL(panel_1, true, 1, 4)
TILE_KERNEL(panel_2, true, 2, 4)
TILE_KERNEL(panel_4, true, 4, 4)
#if !defined(__ARM_FEATURE_MATMUL_INT8)
TILE_KERNEL(panel_8, true, 8, 2)
#endif

static void fill_panel(const struct matmul_job *job, const uint8_t *tile, int8_t *panel)
{
    int64_t inputs = group_inputs(job), n_groups = (job->a.n_cols + inputs - 1) / inputs;
    for (int64_t g = 0; g < n_groups; g++) {
        const uint8_t *steps = steps_of(job, tile, g);
#pragma GCC unroll 2
        for (int64_t s = 0; s < inputs / 16; s++, panel += PANEL_BYTES)
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) {
                int8x16_t codes[4];
#pragma GCC unroll 4
                for (int quad = 0; quad < 4; quad++)
                    codes[quad] = vaddq_s8(code_at(steps, s, quad, v), vdupq_n_s8(PANEL_OFFSET));
#if defined(PANEL_IS_SCALED)
                scale_codes(tile, g, s, v, codes);
#endif
#if defined(__ARM_FEATURE_MATMUL_INT8)
#pragma GCC unroll 2
                for (int half = 0; half < 2; half++) {
                    int32x4_t a = vreinterpretq_s32_s8(codes[2 * half]);
                    int32x4_t b = vreinterpretq_s32_s8(codes[2 * half + 1]);
                    int8_t *at = panel + half * 128 + v * 32;
                    vst1q_s8(at, vreinterpretq_s8_s32(vzip1q_s32(a, b)));
                    vst1q_s8(at + 16, vreinterpretq_s8_s32(vzip2q_s32(a, b)));
                }
#else
#pragma GCC unroll 4
                for (int quad = 0; quad < 4; quad++)
                    vst1q_s8(panel + quad * 64 + v * 16, codes[quad]);
#endif
            }
    }
}

static void matmul_tiles(const struct matmul_job *job, int begin, int end)
{
    int64_t tile_bytes = packed_tile_bytes(job->w.packing, job->w.group, job->w.n_cols);
    int64_t sixteens = (job->a.n_cols + 15) / 16;
    bool has_panel =
        job->n_tokens >= PANEL_FROM && (size_t)sixteens * PANEL_BYTES <= MATMUL_SCRATCH_BYTES;
    int8_t *panel = (int8_t *)job->scratch;
    for (int row0 = begin; row0 < end; row0 += TILE_ROWS) {
        const uint8_t *tile = job->w.data + row0 / TILE_ROWS * tile_bytes;
        int token = 0, left = job->n_tokens;
        if (has_panel)
            fill_panel(job, tile, panel);
#if !defined(__ARM_FEATURE_MATMUL_INT8)
        for (; has_panel && left - token >= 8; token += 8)
            panel_8(job, tile, panel, row0, token);
#endif
        for (; left - token >= 4; token += 4)
            (has_panel ? panel_4 : tile_4)(job, tile, panel, row0, token);
        for (; left - token >= 2; token += 2)
            (has_panel ? panel_2 : tile_2)(job, tile, panel, row0, token);
        for (; left - token >= 1; token++)
            (has_panel ? panel_1 : tile_1)(job, tile, panel, row0, token);
    }
}

#endif
