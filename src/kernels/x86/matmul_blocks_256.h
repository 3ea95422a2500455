/* matmul of packings with a scale for each block of 32 (q4_1, q5_0, q5_1, iq4_nl), as far as AVX2 and
 * AVX-VNNI share it. Who includes this defines before:
 *   dot_group(blocks, steps, q, stride, n, sums)   sums = sums of code * q of a group and n tokens */
#ifndef TRINE_KERNELS_X86_MATMUL_BLOCKS_256_H
#define TRINE_KERNELS_X86_MATMUL_BLOCKS_256_H

#include "kernels/x86/matmul_codes_256.h"
#include "kernels/x86/matmul_panel_256.h"

/* y += (sums - zero * act sum) * scale * act scale + minimum * act scale * act sum, as contracted.
 * header: the line of scales, at those of the group. */
ALWAYS_INLINE void add_block(const struct blocks *b, const struct activations *a, int token,
                             int64_t g, const uint8_t *header, int n,
                             const __m256i sums[MAX_TOKENS][2], struct chains *chains)
{
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) {
        float s = a->scale[(int64_t)(token + t) * a->n_scales + g];
        int32_t act_sum = a->sum[(int64_t)(token + t) * a->n_sums + g];
        __m256i offset = _mm256_set1_epi32(b->zero * act_sum);
        __m256 low = _mm256_set1_ps(s * (float)act_sum);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256i sum = b->zero ? _mm256_sub_epi32(sums[t][h], offset) : sums[t][h];
            __m256 y = add_group(chains->y[t][h], sum, f16_scales(header + 16 * h), s);
            if (b->has_min)
                y = _mm256_fmadd_ps(f16_scales(header + STEP_BYTES + 16 * h), low, y);
            chains->y[t][h] = y;
        }
    }
}

ALWAYS_INLINE void tile_tokens(const struct matmul_job *job, const uint8_t *tile, int row0,
                               int token, const struct blocks *b, int n)
{
    const struct activations *a = &job->a;
    const int8_t *q = a->q + token * a->stride;
    const int n_extra = 1 + b->has_min + 2 * b->has_fifth; /* lines of a unit beside steps */
    const uint8_t *at = tile, *header = tile;
    struct fetch fetch = fetch_behind(job, tile, row0, token, 4);
    struct chains chains;
    chains_clear(&chains, n);
    for (int64_t g = 0; g < a->n_cols / GROUP; g++, q += GROUP) {
        if (g % 2 == 0) {
            header = at;
            at += (1 + b->has_min) * STEP_BYTES;
        }
        fetch_lines(&fetch, g % 8 < n_extra ? 8 : 4);
        __m256i sums[MAX_TOKENS][2];
        dot_group(b, at, q, a->stride, n, sums);
        at += (GROUP_STEPS + b->has_fifth) * STEP_BYTES;
        add_block(b, a, token, g, header + g % 2 * 32, n, sums, &chains);
    }
    chains_finish(&chains, job, row0, token, n);
}

/* Scales and minimums of group g of a panel into it; where the group's steps are. */
ALWAYS_INLINE const uint8_t *panel_block_scales(const struct panel *p, const struct blocks *b,
                                                const uint8_t *tile, int g)
{
    const int header = (1 + b->has_min) * STEP_BYTES;
    const int group = (GROUP_STEPS + b->has_fifth) * STEP_BYTES;
    const uint8_t *unit = tile + (p->col0 / (2 * GROUP) + g / 2) * (header + 2 * group);
    panel_scales(p->scales, g, unit + g % 2 * 32);
    if (b->has_min)
        panel_scales((float *)p->extra, g, unit + STEP_BYTES + g % 2 * 32);
    return unit + header + g % 2 * group;
}

ALWAYS_INLINE void panel_unpack_blocks(const struct panel *p, const struct blocks *b,
                                       const uint8_t *tile)
{
    uint8_t *codes = p->codes;
    for (int g = 0; g < p->n / GROUP; g++) {
        const uint8_t *steps = panel_block_scales(p, b, tile, g);
#pragma GCC unroll 8
        for (int k = 0; k < GROUP_QUADS; k++, codes += STEP_BYTES)
#pragma GCC unroll 2
            for (int half = 0; half < STEP_BYTES; half += 32)
                _mm256_store_si256((__m256i *)(codes + half),
                                   unpack_block_quad(b, steps + half, k));
    }
}

ALWAYS_INLINE void panel_copy_blocks(const struct panel *p, const struct blocks *b, int start)
{
    panel_copy(p);
    if (b->has_min)
        panel_act_sums(p, GROUP);
    else
        panel_start_sums(p, GROUP, b->zero, start);
}

/* name_blocks, and name_few. */
#define BLOCKS_FEW(name, ...)                                                                      \
    static const struct blocks name##_blocks = {__VA_ARGS__};                                      \
    ALWAYS_INLINE void name##_tokens(const struct matmul_job *job, const uint8_t *tile, int row0,  \
                                     int token, int n)                                             \
    {                                                                                              \
        tile_tokens(job, tile, row0, token, &name##_blocks, n);                                    \
    }                                                                                              \
    TILE_KERNEL(name##_1, name##_tokens, 1)                                                        \
    TILE_KERNEL(name##_2, name##_tokens, 2)                                                        \
    TILE_KERNEL(name##_4, name##_tokens, 4)                                                        \
    static const struct tile_kernels name##_few = {name##_1, name##_2, name##_4, NULL};

/* name_many, of bytes. few_tokens: those that name_few takes; start: of sums of activations; runs: of
 * PANEL_RUNS. */
#define BLOCKS_MANY(name, few_tokens, start, runs)                                                 \
    static void name##_copy(const struct panel *p)                                                 \
    {                                                                                              \
        panel_copy_blocks(p, &name##_blocks, start);                                               \
    }                                                                                              \
    static void name##_unpack(const struct panel *p, const uint8_t *tile)                          \
    {                                                                                              \
        panel_unpack_blocks(p, &name##_blocks, tile);                                              \
    }                                                                                              \
    static const struct panel_ops name##_many = {.few = few_tokens,                                \
                                                 .inputs = PANEL_INPUTS,                           \
                                                 .act_bytes = 1,                                   \
                                                 .sums = PANEL_INPUTS / GROUP,                     \
                                                 .extra_bytes = PANEL_INPUTS / GROUP * STEP_BYTES, \
                                                 .copy = name##_copy,                              \
                                                 .unpack = name##_unpack,                          \
                                                 .run = PANEL_NAMES(runs)};

#define BLOCKS_KERNEL(name, isa)                                                                   \
    void matmul_##name##_##isa(const union job *job, int begin, int end)                           \
    {                                                                                              \
        matmul_256(&job->matmul, begin, end, &name##_few, &name##_many);                           \
    }

#endif
