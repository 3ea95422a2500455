/* Sums of codes times int8 activations on ARM, of a part of a tile's rows and some tokens. A packing adds
 * the three functions that are declared here. */
#ifndef TRINE_KERNELS_ARM_MATMUL_DOTS_H
#define TRINE_KERNELS_ARM_MATMUL_DOTS_H

#include <arm_neon.h>

#include "kernels/epilogue.h"

/* A packing may define PANEL_OFFSET, which its panel adds to codes: then sums of panels need no correction. */
#if !defined(PANEL_OFFSET)
#define PANEL_OFFSET 0
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* A panel of 16 inputs is 256 bytes. */
enum { VECTORS = 4, MAX_TOKENS = 8, PANEL_BYTES = 256 };

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

/* offset * sum of activations of group g to begin with: of codes that are values - offset, which those of
 * a panel may not be any more. */
ALWAYS_INLINE void begin_sums(const struct part *p, int64_t g, int32_t offset, struct sums *sums)
{
    const struct activations *a = &p->job->a;
    const bool has_offset = offset && !(p->panel && PANEL_OFFSET);
#pragma GCC unroll 8
    for (int t = 0; t < p->n; t++) {
        int32_t start = has_offset ? offset * a->sum[(int64_t)(p->token + t) * a->n_sums + g] : 0;
#pragma GCC unroll 4
        for (int i = 0; i < p->n_vectors; i++)
            sums->of[t][i] = vdupq_n_s32(start);
    }
}

#endif
