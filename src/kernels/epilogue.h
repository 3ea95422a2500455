/* The end of every matmul kernel: from 16 finished chains of one tile and one token to where the
 * job wants them. Rows beyond n_rows are never written. */
#ifndef TRINE_KERNELS_EPILOGUE_H
#define TRINE_KERNELS_EPILOGUE_H

#include <string.h>

#include "kernels/float_ops.h"
#include "kernels/kernels.h"

static inline bool matmul_has_odd_scale(const struct matmul_job *job)
{
    return job->scale[0] != 1.0f || job->scale[1] != 1.0f;
}

static inline bool matmul_has_scale(const struct matmul_job *job)
{
    return matmul_has_odd_scale(job) || job->row_scale || job->token_scale;
}

/* y * row_scale, y * scale, y * token_scale, y + bias, in this order, each if there is one. */
static inline void epilogue_affine(const struct matmul_job *job, int row0, int token, int n,
                                   float y[16])
{
    if (job->row_scale)
        for (int r = 0; r < TILE_ROWS; r++)
            y[r] *= job->row_scale[row0 + r];
    if (matmul_has_odd_scale(job))
        for (int r = 0; r < TILE_ROWS; r++)
            y[r] *= job->scale[r % 2]; /* times 1 changes nothing */
    if (job->token_scale)
        for (int r = 0; r < TILE_ROWS; r++)
            y[r] *= job->token_scale[token];
    if (!job->bias)
        return;
    float bias[TILE_ROWS] = {0};
    memcpy(bias, job->bias + row0, (size_t)n * sizeof *bias);
    for (int r = 0; r < TILE_ROWS; r++)
        y[r] += bias[r];
}

/* Writes n values; the full tile is a loop of constant length, which compilers vectorise. */
static inline void epilogue_store(float *out, const float y[16], int n)
{
    if (n == TILE_ROWS)
        memcpy(out, y, TILE_ROWS * sizeof *y);
    else
        memcpy(out, y, (size_t)n * sizeof *y);
}

static inline void epilogue_add(float *out, const float y[16], int n)
{
    float sum[TILE_ROWS];
    if (n < TILE_ROWS) {
        for (int r = 0; r < n; r++)
            out[r] += y[r];
        return;
    }
    memcpy(sum, out, sizeof sum);
    for (int r = 0; r < TILE_ROWS; r++)
        sum[r] += y[r];
    memcpy(out, sum, sizeof sum);
}

/* Rows 2i and 2i + 1 make output i. All eight are computed, n / 2 written. */
static inline void epilogue_gate(const struct matmul_job *job, int row0, int token,
                                 const float y[16], int n)
{
    float out[TILE_ROWS / 2];
    if (job->epilogue == EPILOGUE_SILU_MUL)
        silu_mul_8(y, out);
    else
        for (int i = 0; i < TILE_ROWS / 2; i++)
            out[i] = relu_squared(y[2 * i]) * y[2 * i + 1];
    memcpy(job->out + token * job->out_stride + row0 / 2, out, (size_t)(n / 2) * sizeof *out);
}

/* Turns the pairs of a tile in place; it may straddle heads, but no pair does. */
static inline void epilogue_turn(const struct matmul_job *job, int row0, int token, float y[16])
{
    int n_pairs = job->head_dim / 2;
    const float *cosines = job->cosines + (int64_t)token * n_pairs;
    const float *sines = job->sines + (int64_t)token * n_pairs;
    int pair = row0 / 2 % n_pairs;
    for (int i = 0; i < TILE_ROWS / 2; i++) {
        turn_pair(y[2 * i], y[2 * i + 1], cosines[pair], sines[pair], y + 2 * i);
        pair = pair + 1 < n_pairs ? pair + 1 : 0;
    }
}

/* Row r is element r % head_dim of head r / head_dim, in a cache. */
static inline void epilogue_f16(const struct matmul_job *job, int row0, int token,
                                const float y[16], int n)
{
    uint16_t halves[TILE_ROWS];
    f16_from_f32_16(y, halves);
    int head = row0 / job->head_dim, element = row0 % job->head_dim;
    for (int r = 0; r < n;) {
        int left = job->head_dim - element;
        int run = n - r < left ? n - r : left;
        uint16_t *out = job->out_f16[token] + head * job->f16_head_stride + element;
        memcpy(out, halves + r, (size_t)run * sizeof *halves);
        r += run;
        head++;
        element = 0;
    }
}

/* Finishes the 16 rows from row0 for one token. y: the chains, before job->scale and bias. */
static inline void matmul_finish(const struct matmul_job *job, int row0, int token,
                                 const float chains[16])
{
    int64_t left = job->w.n_rows - row0;
    int n = left < TILE_ROWS ? (int)left : TILE_ROWS;
    float y[TILE_ROWS];
    memcpy(y, chains, sizeof y);
    epilogue_affine(job, row0, token, n, y);
    int64_t at = token * job->out_stride + row0;
    switch (job->epilogue) {
    case EPILOGUE_STORE: epilogue_store(job->out + at, y, n); break;
    case EPILOGUE_ADD: epilogue_add(job->out + at, y, n); break;
    case EPILOGUE_SILU_MUL:
    case EPILOGUE_RELU2_MUL: epilogue_gate(job, row0, token, y, n); break;
    case EPILOGUE_ROPE:
        epilogue_turn(job, row0, token, y);
        epilogue_store(job->out + at, y, n);
        break;
    case EPILOGUE_ROPE_F16:
        epilogue_turn(job, row0, token, y);
        epilogue_f16(job, row0, token, y, n);
        break;
    case EPILOGUE_F16: epilogue_f16(job, row0, token, y, n); break;
    case EPILOGUE_PARTIAL: /* integers: matmul_finish_partial */ break;
    }
}

/* PARTIAL: the integer sums of 16 rows, unscaled. */
static inline void matmul_finish_partial(const struct matmul_job *job, int row0, int token,
                                         const int32_t sums[16])
{
    int64_t left = job->w.n_rows - row0;
    size_t n = left < TILE_ROWS ? (size_t)left : TILE_ROWS;
    memcpy(job->out_int + token * job->out_stride + row0, sums, n * sizeof *sums);
}

#endif
