/* Packings in blocks of 256 whose groups have integer scales. Include after matmul_tiles.h; a packing
 * adds scale_at. */
#ifndef TRINE_KERNELS_ARM_MATMUL_BLOCKS_H
#define TRINE_KERNELS_ARM_MATMUL_BLOCKS_H

enum { BLOCK = 256 };

/* The integer scales of a group of a block, for rows 4 v .. 4 v + 3. */
ALWAYS_INLINE int32x4_t scale_at(const uint8_t *tile, int64_t block, int group, int v);

/* Groups of a block whose codes lie together. */
ALWAYS_INLINE int groups_together(int n_groups)
{
    return (int)group_inputs(NULL) * n_groups / BLOCK;
}

/* sums += scale * (sum of (code + offset) * q) of the group `part` of those together at g. */
ALWAYS_INLINE void add_scaled_dots(const struct part *p, int64_t block, int g, int part,
                                   int n_groups, int32_t offset, struct sums *sums)
{
    const int n_parts = groups_together(n_groups), n_sixteens = BLOCK / 16 / n_groups;
    int group = g * n_parts + part;
    struct sums dots;
    begin_sums(p, block * n_groups + group, offset, &dots);
    add_group_dots(p, block * (n_groups / n_parts) + g, part * n_sixteens, n_sixteens, &dots);
#pragma GCC unroll 4
    for (int i = 0; i < p->n_vectors; i++) {
        int32x4_t scale = scale_at(p->tile, block, group, p->v0 + i);
#pragma GCC unroll 8
        for (int t = 0; t < p->n; t++)
            sums->of[t][i] = vmlaq_s32(sums->of[t][i], dots.of[t][i], scale);
    }
}

#if defined(PANEL_IS_SCALED)
ALWAYS_INLINE void scale_codes(const uint8_t *tile, int64_t g, int64_t s, int v, int8x16_t codes[4])
{
    int64_t group = g * (group_inputs(NULL) / 16) + s;
    int32x4_t scale = vnegq_s32(scale_at(tile, group / 16, (int)(group % 16), v));
    scale = vmulq_n_s32(vandq_s32(scale, vdupq_n_s32(255)), 0x01010101);
#pragma GCC unroll 4
    for (int quad = 0; quad < 4; quad++)
        codes[quad] = vmulq_s8(codes[quad], vreinterpretq_s8_s32(scale));
}

/* sums = those of a block whose codes hold their scales. */
ALWAYS_INLINE void add_panel_dots(const struct part *p, int64_t block, struct sums *sums)
{
    add_group_dots(p, block * (BLOCK / group_inputs(p->job)), 0, BLOCK / 16, sums);
#pragma GCC unroll 8
    for (int t = 0; t < p->n; t++)
#pragma GCC unroll 4
        for (int i = 0; i < p->n_vectors; i++)
            sums->of[t][i] = vnegq_s32(sums->of[t][i]);
}
#endif

/* sums[t] = sum over the groups of a block of scale * (sum of (code + offset) * q). */
ALWAYS_INLINE void add_block_dots(const struct part *p, int64_t block, int n_groups, int32_t offset,
                                  struct sums *sums)
{
    const int n_parts = groups_together(n_groups);
    begin_sums(p, 0, 0, sums);
#if defined(PANEL_IS_SCALED)
    if (p->panel) {
        add_panel_dots(p, block, sums);
        return;
    }
#endif
    for (int g = 0; g < n_groups / n_parts; g++)
#pragma GCC unroll 2
        for (int part = 0; part < n_parts; part++)
            add_scaled_dots(p, block, g, part, n_groups, offset, sums);
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

/* Blocks without minimums, which begin with d: a unit each. */
ALWAYS_INLINE void add_blocks(const struct part *p, int n_groups, int32_t offset,
                              int64_t unit_bytes, float y[][TILE_ROWS])
{
    for (int64_t block = 0; block < p->job->a.n_cols / BLOCK; block++) {
        struct sums sums;
        add_block_dots(p, block, n_groups, offset, &sums);
        add_block(p, block, p->tile + block * unit_bytes, &sums, y);
    }
}

#endif
