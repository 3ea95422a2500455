/* What the scalar matmuls of integer packings share: the walk over tiles, tokens, units and groups.
 * A packing adds its geometry and what one quad (4 inputs of 16 rows) of a step is worth. */
#ifndef TRINE_KERNELS_SCALAR_MATMUL_SCALAR_H
#define TRINE_KERNELS_SCALAR_MATMUL_SCALAR_H

#include "kernels/epilogue.h"

/* sums[r] += sum over j of value(step byte 4 r + j, field) * q[j]. Of 5 bits a step is five. */
typedef void add_quad(const uint8_t step[], int field, const int8_t q[4], int32_t sums[TILE_ROWS]);

struct quad_layout {
    int quads_per_step;
    int group, unit_inputs, header_bytes; /* group 0: one scale per row */
    bool has_min;                         /* the second line of the header */
    add_quad *add;
};

/* Adds quads [first, first + n) of a run of steps. */
static inline void add_quads(const struct quad_layout *layout, int step_bytes, const uint8_t *steps,
                             int64_t first, int64_t n, const int8_t *q, int32_t sums[TILE_ROWS])
{
    for (int64_t i = first; i < first + n; i++)
        layout->add(steps + i / layout->quads_per_step * step_bytes,
                    (int)(i % layout->quads_per_step), q + (i - first) * 4, sums);
}

/* One scale per row: y = (float)s * (row scale * act scale). */
static inline void tile_of_rows(const struct matmul_job *job, const struct quad_layout *layout,
                                const uint8_t *tile, int row0, int token)
{
    const struct activations *a = &job->a;
    int32_t sums[TILE_ROWS] = {0};
    float scales[TILE_ROWS], y[TILE_ROWS];
    memcpy(scales, tile, sizeof scales);
    add_quads(layout, STEP_BYTES, tile + sizeof scales, 0, (a->n_cols + 3) / 4,
              a->q + token * a->stride, sums);
    if (job->epilogue == EPILOGUE_PARTIAL) {
        matmul_finish_partial(job, row0, token, sums);
        return;
    }
    float act_scale = a->scale[(int64_t)token * a->n_scales];
    for (int r = 0; r < TILE_ROWS; r++) {
        float scale = scales[r] * act_scale;
        y[r] = (float)sums[r] * scale;
    }
    matmul_finish(job, row0, token, y);
}

/* y = fma(minimum, act scale * (float)sum of activations, y). */
static inline void add_minimums(const struct activations *a, int token, int64_t g,
                                const uint8_t *line, float y[TILE_ROWS])
{
    uint16_t mins[TILE_ROWS];
    memcpy(mins, line, sizeof mins);
    float low =
        a->scale[(int64_t)token * a->n_scales + g] * (float)a->sum[(int64_t)token * a->n_sums + g];
    for (int r = 0; r < TILE_ROWS; r++)
        y[r] = fmaf(f16_to_f32(mins[r]), low, y[r]);
}

/* Scales per group: y = fma((float)s, weight scale * act scale, y), group after group. */
static inline void tile_of_groups(const struct matmul_job *job, const struct quad_layout *layout,
                                  const uint8_t *tile, int row0, int token)
{
    const struct activations *a = &job->a;
    int group = layout->group, groups_per_unit = layout->unit_inputs / group;
    int step_bytes = packed_step_bytes(job->w.packing);
    int64_t unit_bytes =
        layout->header_bytes + layout->unit_inputs / (4 * layout->quads_per_step) * step_bytes;
    float y[TILE_ROWS] = {0};
    for (int64_t g = 0; g * group < a->n_cols; g++) {
        const uint8_t *unit = tile + g / groups_per_unit * unit_bytes;
        int64_t in_unit = g % groups_per_unit, left = a->n_cols - g * group;
        int64_t n_quads = ((left < group ? left : group) + 3) / 4;
        uint16_t scales[TILE_ROWS];
        int32_t sums[TILE_ROWS] = {0};
        memcpy(scales, unit + in_unit * (int64_t)sizeof scales, sizeof scales);
        add_quads(layout, step_bytes, unit + layout->header_bytes, in_unit * group / 4, n_quads,
                  a->q + token * a->stride + g * group, sums);
        float act_scale = a->scale[(int64_t)token * a->n_scales + g];
        for (int r = 0; r < TILE_ROWS; r++) {
            float scale = f16_to_f32(scales[r]) * act_scale;
            y[r] = fmaf((float)sums[r], scale, y[r]);
        }
        if (layout->has_min)
            add_minimums(a, token, g, unit + 64 + in_unit * (int64_t)sizeof scales, y);
    }
    matmul_finish(job, row0, token, y);
}

static inline void matmul_quads(const struct matmul_job *job, int begin, int end,
                                const struct quad_layout *layout)
{
    int64_t tile_bytes = packed_tile_bytes(job->w.packing, job->w.group, job->w.n_cols);
    for (int row0 = begin; row0 < end; row0 += TILE_ROWS)
        for (int token = 0; token < job->n_tokens; token++) {
            const uint8_t *tile = job->w.data + row0 / TILE_ROWS * tile_bytes;
            if (layout->group)
                tile_of_groups(job, layout, tile, row0, token);
            else
                tile_of_rows(job, layout, tile, row0, token);
        }
}

#endif
