/* tile_part of packings with one f16 scale per group: q4_0, q8_0, trits4 with groups. Include after
 * matmul_tiles.h. */
#ifndef TRINE_KERNELS_ARM_MATMUL_GROUPS_H
#define TRINE_KERNELS_ARM_MATMUL_GROUPS_H

/* Scales of group g of a tile whose units hold a header of 64 bytes and two groups. */
ALWAYS_INLINE const uint8_t *unit_of(const uint8_t *tile, int64_t g, int64_t group_bytes)
{
    return tile + g / 2 * (64 + 2 * group_bytes);
}

ALWAYS_INLINE const uint8_t *group_of(const uint8_t *tile, int64_t g, int64_t group_bytes)
{
    return unit_of(tile, g, group_bytes) + 64 + g % 2 * group_bytes;
}

/* y = fma((float)sums_g, scale_g * act scale_g, y), group after group. offset: of the values. */
ALWAYS_INLINE void add_groups(const struct part *p, int64_t n_sixteens, int64_t group_bytes,
                              int32_t offset, float y[][TILE_ROWS])
{
    int64_t n_groups = p->job->a.n_cols / (n_sixteens * 16);
    for (int64_t g = 0; g < n_groups; g++) {
        const uint8_t *scales = unit_of(p->tile, g, group_bytes) + g % 2 * 32;
        struct sums sums;
        begin_sums(p, g, offset, &sums);
        add_group_dots(p, g, n_sixteens, &sums);
#pragma GCC unroll 8
        for (int t = 0; t < p->n; t++)
#pragma GCC unroll 4
            for (int i = 0; i < p->n_vectors; i++)
                add_scaled(p, i, sums.of[t][i], scales_at(p, scales, i), act_scale_at(p, t, g),
                           y[t]);
    }
}

#endif
