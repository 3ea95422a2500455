/* What the scalar matmuls of packings whose unit is a block of 256 share: the walk over tiles, tokens
 * and blocks, and how a row's integer sums become floats. */
#ifndef TRINE_KERNELS_SCALAR_MATMUL_K_SCALAR_H
#define TRINE_KERNELS_SCALAR_MATMUL_K_SCALAR_H

#include "kernels/epilogue.h"

#define K_BLOCK 256

/* Adds one block to the chains of a tile. act_sum: of its groups. */
typedef void add_k_block(const uint8_t *unit, const int8_t *q, const int32_t *act_sum,
                         float act_scale, float y[TILE_ROWS]);

/* y = fma(sum, d * act scale, y): f16 d of 16 rows. */
static inline void add_row_sum(const uint8_t *d, int row, float sum, float act_scale, float *y)
{
    uint16_t half;
    memcpy(&half, d + (int)sizeof half * row, sizeof half);
    float scale = f16_to_f32(half) * act_scale;
    *y = fmaf(sum, scale, *y);
}

/* The same with d and dmin, y = fma(-(float)min_sum, dmin * act scale, y) behind it. */
static inline void add_row_sums(const uint8_t *unit, int row, int32_t sum, int32_t min_sum,
                                float act_scale, float *y)
{
    add_row_sum(unit, row, (float)sum, act_scale, y);
    add_row_sum(unit + 2 * TILE_ROWS, row, -(float)min_sum, act_scale, y);
}

static inline void matmul_k_blocks(const struct matmul_job *job, int begin, int end,
                                   add_k_block *add)
{
    const struct activations *a = &job->a;
    int64_t tile_bytes = packed_tile_bytes(job->w.packing, job->w.group, job->w.n_cols);
    int64_t unit_bytes = packed_tile_bytes(job->w.packing, job->w.group, K_BLOCK);
    for (int row0 = begin; row0 < end; row0 += TILE_ROWS)
        for (int token = 0; token < job->n_tokens; token++) {
            const uint8_t *tile = job->w.data + row0 / TILE_ROWS * tile_bytes;
            float y[TILE_ROWS] = {0};
            for (int64_t b = 0; b < a->n_cols / K_BLOCK; b++)
                add(tile + b * unit_bytes, a->q + token * a->stride + b * K_BLOCK,
                    a->sum + (int64_t)token * a->n_sums + b * (K_BLOCK / a->sum_group),
                    a->scale[(int64_t)token * a->n_scales + b], y);
            matmul_finish(job, row0, token, y);
        }
}

#endif
