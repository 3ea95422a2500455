/* Blocks of 256 whose groups have a minimum beside their scale: q4_k, q5_k, q2_k. A packing adds
 * min_at. */
#ifndef TRINE_KERNELS_ARM_MATMUL_MINS_H
#define TRINE_KERNELS_ARM_MATMUL_MINS_H

#include "kernels/arm/matmul_blocks.h"

/* The minimums of a group of a block, for rows 4 v .. 4 v + 3. */
ALWAYS_INLINE int32x4_t min_at(const uint8_t *tile, int64_t block, int group, int v);

/* sums[t] = -(sum over the groups of a block of minimum * sum of activations). */
ALWAYS_INLINE void add_block_mins(const struct part *p, int64_t block, int n_groups,
                                  struct sums *sums)
{
    const struct activations *a = &p->job->a;
    const int32_t *act_sum = a->sum + (int64_t)p->token * a->n_sums + block * n_groups;
    begin_sums(p, 0, 0, sums);
    for (int group = 0; group < n_groups; group++)
#pragma GCC unroll 4
        for (int i = 0; i < p->n_vectors; i++) {
            int32x4_t min = min_at(p->tile, block, group, p->v0 + i);
#pragma GCC unroll 8
            for (int t = 0; t < p->n; t++)
                sums->of[t][i] =
                    vmlsq_n_s32(sums->of[t][i], min, act_sum[(int64_t)t * a->n_sums + group]);
        }
}

/* Blocks with minimums: a unit each, which begins with d and dmin. */
ALWAYS_INLINE void add_min_blocks(const struct part *p, int n_groups, int64_t unit_bytes,
                                  float y[][TILE_ROWS])
{
    for (int64_t block = 0; block < p->job->a.n_cols / BLOCK; block++) {
        const uint8_t *unit = p->tile + block * unit_bytes;
        struct sums sums;
        add_block_dots(p, block, n_groups, 0, &sums);
        add_block(p, block, unit, &sums, y);
        add_block_mins(p, block, n_groups, &sums);
        add_block(p, block, unit + 32, &sums, y);
    }
}

#endif
