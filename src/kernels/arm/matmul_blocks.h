/* Packings in blocks of 256 whose groups have integer scales. Include after matmul_tiles.h; a packing
 * adds scale_at. */
#ifndef TRINE_KERNELS_ARM_MATMUL_BLOCKS_H
#define TRINE_KERNELS_ARM_MATMUL_BLOCKS_H

enum { BLOCK = 256 };

/* The integer scales of a group of a block, for rows 4 v .. 4 v + 3. */
ALWAYS_INLINE int32x4_t scale_at(const uint8_t *tile, int64_t block, int group, int v);

/* sums[t] = sum over the groups of a block of scale * (sum of (code + offset) * q). */
ALWAYS_INLINE void add_block_dots(const struct part *p, int64_t block, int n_groups, int32_t offset,
                                  struct sums *sums)
{
    begin_sums(p, 0, 0, sums);
    for (int group = 0; group < n_groups; group++) {
        int64_t g = block * n_groups + group;
        struct sums dots;
        begin_sums(p, g, offset, &dots);
        add_group_dots(p, g, BLOCK / 16 / n_groups, &dots);
#pragma GCC unroll 4
        for (int i = 0; i < p->n_vectors; i++) {
            int32x4_t scale = scale_at(p->tile, block, group, p->v0 + i);
#pragma GCC unroll 8
            for (int t = 0; t < p->n; t++)
                sums->of[t][i] = vmlaq_s32(sums->of[t][i], dots.of[t][i], scale);
        }
    }
}

/* y = fma((float)sums, d * act scale, y); d: f16 of 16 rows. */
ALWAYS_INLINE void add_block(const struct part *p, int64_t block, const uint8_t *d,
                             const struct sums *sums, float y[][TILE_ROWS])
{
#pragma GCC unroll 8
    for (int t = 0; t < p->n; t++)
#pragma GCC unroll 4
        for (int i = 0; i < p->n_vectors; i++)
            add_scaled(p, i, sums->of[t][i], scales_at(p, d, i), act_scale_at(p, t, block), y[t]);
}

#endif
