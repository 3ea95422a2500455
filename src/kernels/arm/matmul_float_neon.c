/* matmul of f32, f16 and bf16. A chain is sequential: a tile of 16 rows has four vectors of them, so
 * 4 tokens, or 4 tiles for one token, fill the latency of fused multiply-add. */
#include <arm_neon.h>

#include "kernels/epilogue.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { MAX_CHAINS = 4, VECTORS = 4 };

/* Weights of rows 4 v .. 4 v + 3, input i. */
ALWAYS_INLINE float32x4_t weights_at(enum packing packing, const uint8_t *tile, int64_t i, int v)
{
    if (packing == PACKING_f32)
        return vld1q_f32((const float *)(const void *)tile + i * TILE_ROWS + 4 * v);
    const uint16_t *halves = (const uint16_t *)(const void *)tile + i * TILE_ROWS + 4 * v;
    if (packing == PACKING_f16)
        return f32_from_f16_4(halves);
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(halves), 16));
}

/* n_tiles * n chains of 16 rows, at most MAX_CHAINS. */
ALWAYS_INLINE void run_chains(const struct matmul_job *job, enum packing packing, int row0,
                              int token, int n_tiles, int n)
{
    const struct activations *a = &job->a;
    int64_t bytes = packed_tile_bytes(packing, job->w.group, job->w.n_cols);
    const uint8_t *tile = job->w.data + row0 / TILE_ROWS * bytes;
    const float *x = a->x + token * a->stride;
    float32x4_t y[MAX_CHAINS][VECTORS];
#pragma GCC unroll 4
    for (int c = 0; c < n_tiles * n; c++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            y[c][v] = vdupq_n_f32(0);
    for (int64_t i = 0; i < a->n_cols; i++)
#pragma GCC unroll 4
        for (int k = 0; k < n_tiles; k++)
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) {
                float32x4_t weights = weights_at(packing, tile + k * bytes, i, v);
#pragma GCC unroll 4
                for (int t = 0; t < n; t++)
                    y[k * n + t][v] = vfmaq_n_f32(y[k * n + t][v], weights, x[t * a->stride + i]);
            }
    for (int k = 0; k < n_tiles; k++)
        for (int t = 0; t < n; t++)
            matmul_finish(job, row0 + k * TILE_ROWS, token + t, (const float *)y[k * n + t]);
}

ALWAYS_INLINE void matmul_floats(const struct matmul_job *job, int begin, int end,
                                 enum packing packing)
{
    int fours = job->n_tokens / 4 * 4;
    for (int row0 = begin; row0 < end; row0 += TILE_ROWS)
        for (int token = 0; token < fours; token += 4)
            run_chains(job, packing, row0, token, 1, 4);
    for (int token = fours; token < job->n_tokens; token++) {
        int row0 = begin;
        for (; end - row0 > 3 * TILE_ROWS; row0 += 4 * TILE_ROWS)
            run_chains(job, packing, row0, token, 4, 1);
        for (; row0 < end; row0 += TILE_ROWS)
            run_chains(job, packing, row0, token, 1, 1);
    }
}

void matmul_f32_neon(const union job *job, int begin, int end)
{
    matmul_floats(&job->matmul, begin, end, PACKING_f32);
}

void matmul_f16_neon(const union job *job, int begin, int end)
{
    matmul_floats(&job->matmul, begin, end, PACKING_f16);
}

void matmul_bf16_neon(const union job *job, int begin, int end)
{
    matmul_floats(&job->matmul, begin, end, PACKING_bf16);
}
