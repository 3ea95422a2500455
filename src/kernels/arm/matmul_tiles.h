/* What the matmuls of int8 on ARM share: the walk over tiles and tokens, sums of codes times
 * activations. A packing adds the four functions that are declared here.
 *
 * Rows are lanes, as on x86: a dot product by an element of a register multiplies a vector of codes
 * with one quad of 16 activations, so that nothing is broadcast. Few tokens unpack codes as they
 * come. Many tokens share a panel: the codes of a tile, unpacked once, a byte each, quad after quad;
 * there 8 tokens and 8 rows fill the registers. With i8mm (compiled for it) a panel has pairs of
 * rows with 8 inputs each, and 4 tokens and 16 rows fill the registers: a third fewer instructions
 * for as many multiplications, some of it lost again where a group ends (docs/kernels.md).
 *
 * SCALED_ZERO, if a packing defines it: its panel has scale * (SCALED_ZERO - code), which fits a signed
 * byte, so that groups end only with their block. */
#ifndef TRINE_KERNELS_ARM_MATMUL_TILES_H
#define TRINE_KERNELS_ARM_MATMUL_TILES_H

#include <arm_neon.h>

#include "kernels/epilogue.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* PANEL_FROM tokens are worth a panel: unpacking is then a small part. An estimate, not timed.
 * A panel of 16 inputs is 256 bytes. */
enum { VECTORS = 4, MAX_TOKENS = 8, PANEL_FROM = 12, PANEL_BYTES = 256 };

#if defined(__ARM_FEATURE_MATMUL_INT8)
enum { PANEL_TOKENS = 4 };
#else
enum { PANEL_TOKENS = 8 };
#endif

/* Sums of some tokens: vector i is of rows 4 (v0 + i) .. + 3. */
struct sums {
    int32x4_t of[MAX_TOKENS][VECTORS];
};

/* A part of the work on a tile: n tokens from `token` on, n_vectors vectors of rows from v0 on. All
 * but the pointers and `token` are constants after inlining. panel: NULL to unpack as it goes. */
struct part {
    const struct matmul_job *job;
    const uint8_t *tile;
    const int8_t *panel;
    int token, n, v0, n_vectors;
};

/* Inputs of a group of codes, a multiple of 16: those that are summed before anything is scaled, or whose
 * fields lie together. */
ALWAYS_INLINE int64_t group_inputs(const struct matmul_job *job);
/* The codes of group g of a tile. */
ALWAYS_INLINE const uint8_t *steps_of(const struct matmul_job *job, const uint8_t *tile, int64_t g);
/* Codes, as signed bytes, of rows 4 v .. 4 v + 3 and the quad (0 to 3) of the s-th 16 inputs. */
ALWAYS_INLINE int8x16_t code_at(const uint8_t *steps, int64_t s, int quad, int v);
#if defined(SCALED_ZERO)
/* Codes of the s-th 16 inputs of group g, rows 4 v .. 4 v + 3, to what the panel has of them. */
ALWAYS_INLINE void scale_codes(const uint8_t *tile, int64_t g, int64_t s, int v,
                               int8x16_t codes[4]);
#endif
/* The chains of a part, which begin as zeros; integers where the job wants partial sums. */
union tile_sums {
    float y[MAX_TOKENS][TILE_ROWS];
    int32_t sums[MAX_TOKENS][TILE_ROWS];
};
ALWAYS_INLINE void tile_part(const struct part *p, union tile_sums *to);

/* acc + codes * quad of q: the element is an immediate operand. */
ALWAYS_INLINE int32x4_t dot_quad(int32x4_t acc, int8x16_t codes, int8x16_t q, int quad)
{
    switch (quad) {
    case 0: return vdotq_laneq_s32(acc, codes, q, 0);
    case 1: return vdotq_laneq_s32(acc, codes, q, 1);
    case 2: return vdotq_laneq_s32(acc, codes, q, 2);
    default: return vdotq_laneq_s32(acc, codes, q, 3);
    }
}

/* Adds sixteens [begin, end) of a group; steps: its codes, or their panel. q: from `begin` on. */
ALWAYS_INLINE void add_dots(const struct part *p, const uint8_t *steps, int64_t begin, int64_t end,
                            const int8_t *q, struct sums *sums)
{
    const bool is_panel = p->panel != NULL;
    for (int64_t s = begin; s < end; s++, q += 16) {
        int8x16_t activations[MAX_TOKENS];
#pragma GCC unroll 8
        for (int t = 0; t < p->n; t++)
            activations[t] = vld1q_s8(q + t * p->job->a.stride);
#pragma GCC unroll 4
        for (int quad = 0; quad < 4; quad++)
#pragma GCC unroll 4
            for (int i = 0; i < p->n_vectors; i++) {
                int v = p->v0 + i;
                int8x16_t codes =
                    is_panel
                        ? vld1q_s8((const int8_t *)steps + s * PANEL_BYTES + quad * 64 + v * 16)
                        : code_at(steps, s, quad, v);
#pragma GCC unroll 8
                for (int t = 0; t < p->n; t++)
                    sums->of[t][i] = dot_quad(sums->of[t][i], codes, activations[t], quad);
            }
    }
}

#if defined(__ARM_FEATURE_MATMUL_INT8)
/* Inputs 0 .. 7 and 8 .. 15 of two tokens. */
ALWAYS_INLINE void pair_tokens(const int8_t *first, const int8_t *second, int8x16_t pairs[2])
{
    int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(first));
    int64x2_t b = vreinterpretq_s64_s8(vld1q_s8(second));
    pairs[0] = vreinterpretq_s8_s64(vzip1q_s64(a, b));
    pairs[1] = vreinterpretq_s8_s64(vzip2q_s64(a, b));
}

/* add_dots of a panel and all rows. An accumulator has two rows times two tokens; a single token
 * is its own partner. */
ALWAYS_INLINE void add_products(const struct part *p, const int8_t *panel, int64_t n_sixteens,
                                const int8_t *q, struct sums *sums)
{
    const int n_pairs = (p->n + 1) / 2;
    int32x4_t acc[8][PANEL_TOKENS / 2];
#pragma GCC unroll 8
    for (int r = 0; r < 8; r++)
#pragma GCC unroll 2
        for (int k = 0; k < n_pairs; k++)
            acc[r][k] = vdupq_n_s32(0);
    for (int64_t s = 0; s < n_sixteens; s++, q += 16, panel += PANEL_BYTES) {
        int8x16_t tokens[PANEL_TOKENS / 2][2];
#pragma GCC unroll 2
        for (int k = 0; k < n_pairs; k++) {
            const int8_t *first = q + 2 * k * p->job->a.stride;
            pair_tokens(first, p->n > 1 ? first + p->job->a.stride : first, tokens[k]);
        }
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++)
#pragma GCC unroll 8
            for (int r = 0; r < 8; r++) {
                int8x16_t rows = vld1q_s8(panel + half * 128 + r * 16);
#pragma GCC unroll 2
                for (int k = 0; k < n_pairs; k++)
                    acc[r][k] = vmmlaq_s32(acc[r][k], rows, tokens[k][half]);
            }
    }
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++)
#pragma GCC unroll 2
        for (int k = 0; k < n_pairs; k++) {
            int32x4_t low = acc[2 * v][k], high = acc[2 * v + 1][k];
            sums->of[2 * k][v] = vaddq_s32(sums->of[2 * k][v], vuzp1q_s32(low, high));
            if (2 * k + 1 < p->n)
                sums->of[2 * k + 1][v] = vaddq_s32(sums->of[2 * k + 1][v], vuzp2q_s32(low, high));
        }
}
#endif

/* sums += codes * q of n_sixteens sixteens of group g, from the first-th on. A panel has no bounds
 * between groups. */
ALWAYS_INLINE void add_group_dots(const struct part *p, int64_t g, int64_t first,
                                  int64_t n_sixteens, struct sums *sums)
{
    const struct activations *a = &p->job->a;
    int64_t sixteen = g * (group_inputs(p->job) / 16) + first;
    const int8_t *q = a->q + p->token * a->stride + sixteen * 16;
    if (!p->panel) {
        add_dots(p, steps_of(p->job, p->tile, g), first, first + n_sixteens, q, sums);
        return;
    }
    const int8_t *panel = p->panel + sixteen * PANEL_BYTES;
#if defined(__ARM_FEATURE_MATMUL_INT8)
    add_products(p, panel, n_sixteens, q, sums);
#else
    add_dots(p, (const uint8_t *)panel, 0, n_sixteens, q, sums);
#endif
}

/* offset * sum of activations of group g to begin with: of codes that are values - offset. */
ALWAYS_INLINE void begin_sums(const struct part *p, int64_t g, int32_t offset, struct sums *sums)
{
    const struct activations *a = &p->job->a;
#pragma GCC unroll 8
    for (int t = 0; t < p->n; t++) {
        int32_t start = offset ? offset * a->sum[(int64_t)(p->token + t) * a->n_sums + g] : 0;
#pragma GCC unroll 4
        for (int i = 0; i < p->n_vectors; i++)
            sums->of[t][i] = vdupq_n_s32(start);
    }
}

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
                    codes[quad] = code_at(steps, s, quad, v);
#if defined(SCALED_ZERO)
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
