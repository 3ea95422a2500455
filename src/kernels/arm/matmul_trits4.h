/* matmul of trits4: fields of 2 bits, code - 1; one scale a row, or one per group. */
#ifndef TRINE_KERNELS_ARM_MATMUL_TRITS4_H
#define TRINE_KERNELS_ARM_MATMUL_TRITS4_H

#include "kernels/arm/matmul_tiles.h"

#include "kernels/arm/matmul_fields.h"
#include "kernels/arm/matmul_groups.h"

ALWAYS_INLINE int64_t group_inputs(const struct matmul_job *job)
{
    return job->w.group ? job->w.group : (job->a.n_cols + 15) / 16 * 16;
}

ALWAYS_INLINE const uint8_t *steps_of(const struct matmul_job *job, const uint8_t *tile, int64_t g)
{
    return job->w.group ? group_of(tile, g, job->w.group / 16 * STEP_BYTES, false) : tile + 64;
}

ALWAYS_INLINE int8x16_t code_at(const uint8_t *steps, int64_t s, int quad, int v)
{
    return vreinterpretq_s8_u8(field_of_2(load_rows(steps + s * STEP_BYTES, v), quad));
}

/* y = (float)sum * (row scale * act scale). */
ALWAYS_INLINE void scale_rows(const struct part *p, const struct sums *sums, float y[][TILE_ROWS])
{
    for (int t = 0; t < p->n; t++)
        for (int i = 0; i < p->n_vectors; i++) {
            int row = 4 * (p->v0 + i);
            float32x4_t scale = vld1q_f32((const float *)(const void *)p->tile + row);
            scale = vmulq_n_f32(scale, act_scale_at(p, t, 0));
            vst1q_f32(y[t] + row, vmulq_f32(vcvtq_f32_s32(sums->of[t][i]), scale));
        }
}

ALWAYS_INLINE void tile_part(const struct part *p, union tile_sums *to)
{
    int64_t sixteens = group_inputs(p->job) / 16;
    if (p->job->w.group) {
        add_groups(p, sixteens, sixteens * STEP_BYTES, -1, false, to->y);
        return;
    }
    struct sums sums;
    begin_sums(p, 0, -1, &sums);
    add_group_dots(p, 0, 0, sixteens, &sums);
    if (p->job->epilogue != EPILOGUE_PARTIAL) {
        scale_rows(p, &sums, to->y);
        return;
    }
    for (int t = 0; t < p->n; t++)
        for (int i = 0; i < p->n_vectors; i++)
            vst1q_s32(to->sums[t] + 4 * (p->v0 + i), sums.of[t][i]);
}

#endif
