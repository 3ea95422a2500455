/* tile_part of packings with one f16 scale per group: blocks of 32, trits4 with groups. Include after
 * matmul_tiles.h. */
#ifndef TRINE_KERNELS_ARM_MATMUL_GROUPS_H
#define TRINE_KERNELS_ARM_MATMUL_GROUPS_H

/* Scales of group g of a tile whose units hold a header of 64 bytes, has_min: of 128, and two groups. */
ALWAYS_INLINE const uint8_t *unit_of(const uint8_t *tile, int64_t g, int64_t group_bytes,
                                     bool has_min)
{
    return tile + g / 2 * (64 + 64 * has_min + 2 * group_bytes);
}

ALWAYS_INLINE const uint8_t *group_of(const uint8_t *tile, int64_t g, int64_t group_bytes,
                                      bool has_min)
{
    return unit_of(tile, g, group_bytes, has_min) + 64 + 64 * has_min + g % 2 * group_bytes;
}

/* y = fma(minimum, act scale * (float)sum of activations, y). mins: f16 of 16 rows. */
ALWAYS_INLINE void add_minimums(const struct part *p, int64_t g, const uint8_t *mins,
                                float y[][TILE_ROWS])
{
    const struct activations *a = &p->job->a;
#pragma GCC unroll 8
    for (int t = 0; t < p->n; t++) {
        int32_t sum = a->sum[(int64_t)(p->token + t) * a->n_sums + g];
        float low = act_scale_at(p, t, g) * (float)sum;
#pragma GCC unroll 4
        for (int i = 0; i < p->n_vectors; i++) {
            float *at = y[t] + 4 * (p->v0 + i);
            vst1q_f32(at, vfmaq_n_f32(vld1q_f32(at), scales_at(p, mins, i), low));
        }
    }
}

/* y = fma((float)sums_g, scale_g * act scale_g, y), has_min: then its minimums, group after group.
 * offset: of the values. */
ALWAYS_INLINE void add_groups(const struct part *p, int64_t n_sixteens, int64_t group_bytes,
                              int32_t offset, bool has_min, float y[][TILE_ROWS])
{
    int64_t n_groups = p->job->a.n_cols / (n_sixteens * 16);
    for (int64_t g = 0; g < n_groups; g++) {
        const uint8_t *scales = unit_of(p->tile, g, group_bytes, has_min) + g % 2 * 32;
        struct sums sums;
        begin_sums(p, g, offset, &sums);
        add_group_dots(p, g, 0, n_sixteens, &sums);
#pragma GCC unroll 8
        for (int t = 0; t < p->n; t++)
#pragma GCC unroll 4
            for (int i = 0; i < p->n_vectors; i++)
                add_scaled(p, i, sums.of[t][i], scales_at(p, scales, i), act_scale_at(p, t, g),
                           y[t]);
        if (has_min)
            add_minimums(p, g, scales + 64, y);
    }
}

#endif
