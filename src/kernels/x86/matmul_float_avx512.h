/* f32, f16, bf16: one chain of fused multiply-adds per row and token. Chains of several tiles or
 * tokens run at once, because each waits 4 cycles for every input. */
#ifndef TRINE_KERNELS_X86_MATMUL_FLOAT_AVX512_H
#define TRINE_KERNELS_X86_MATMUL_FLOAT_AVX512_H

#include "kernels/x86/matmul_avx512.h"

#define FLOAT_TILES  4 /* at once, for one token */
#define FLOAT_TOKENS 12

/* The 16 weights of one input. */
INLINE __m512 floats_at(const uint8_t *w, const enum packing packing)
{
    if (packing == PACKING_f32)
        return _mm512_loadu_ps((const float *)w);
    if (packing == PACKING_f16)
        return halves_at(w);
    __m512i halves = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)w));
    return _mm512_castsi512_ps(_mm512_slli_epi32(halves, 16));
}

INLINE void float_tiles(const struct matmul_job *job, int64_t tile, int token,
                        const enum packing packing, const int n_tiles, const int n_tokens)
{
    const int bytes = packing == PACKING_f32 ? 64 : 32;
    const struct activations *a = &job->a;
    const float *x = a->x + token * a->stride;
    const uint8_t *w = tile_at(job, tile);
    int64_t tile_bytes = (int64_t)packed_tile_bytes(packing, 0, job->w.n_cols);
    __m512 y[FLOAT_TOKENS][FLOAT_TILES];
    UNROLL
    for (int t = 0; t < n_tokens; t++) {
        UNROLL
        for (int k = 0; k < n_tiles; k++)
            y[t][k] = _mm512_setzero_ps();
    }
    for (int64_t i = 0; i < job->w.n_cols; i++, w += bytes, x++) {
        __m512 v[FLOAT_TILES];
        UNROLL
        for (int k = 0; k < n_tiles; k++) {
            prefetch(w + k * tile_bytes);
            v[k] = floats_at(w + k * tile_bytes, packing);
        }
        UNROLL
        for (int t = 0; t < n_tokens; t++) {
            __m512 x1 = _mm512_set1_ps(x[t * a->stride]);
            UNROLL
            for (int k = 0; k < n_tiles; k++)
                y[t][k] = _mm512_fmadd_ps(v[k], x1, y[t][k]);
        }
    }
    UNROLL
    for (int t = 0; t < n_tokens; t++) {
        UNROLL
        for (int k = 0; k < n_tiles; k++)
            finish_floats(job, tile + k, token + t, y[t][k]);
    }
}

typedef void float_run(const struct matmul_job *job, int64_t tile, int token);

#define FLOAT_RUN(packing, K, T)                                                                   \
    static void float_##K##_##T(const struct matmul_job *job, int64_t tile, int token)             \
    {                                                                                              \
        float_tiles(job, tile, token, packing, K, T);                                              \
    }
#define FLOAT_RUNS(p, K)                                                                           \
    FLOAT_RUN(p, K, 1)                                                                             \
    FLOAT_RUN(p, K, 2)                                                                             \
    FLOAT_RUN(p, K, 3)                                                                             \
    FLOAT_RUN(p, K, 4)                                                                             \
    FLOAT_RUN(p, K, 5)                                                                             \
    FLOAT_RUN(p, K, 6)                                                                             \
    FLOAT_RUN(p, K, 7)                                                                             \
    FLOAT_RUN(p, K, 8)                                                                             \
    FLOAT_RUN(p, K, 9)                                                                             \
    FLOAT_RUN(p, K, 10)                                                                            \
    FLOAT_RUN(p, K, 11)                                                                            \
    FLOAT_RUN(p, K, 12)
#define FLOAT_NAMES(K)                                                                             \
    float_##K##_1, float_##K##_2, float_##K##_3, float_##K##_4, float_##K##_5, float_##K##_6,      \
        float_##K##_7, float_##K##_8, float_##K##_9, float_##K##_10, float_##K##_11,               \
        float_##K##_12

/* run_1, run_2: by tokens, for one and two tiles; run_4: four tiles, one token. */
static inline void float_matmul(const struct matmul_job *job, float_run *const run_1[FLOAT_TOKENS],
                                float_run *const run_2[FLOAT_TOKENS], float_run *run_4, int begin,
                                int end)
{
    int n_blocks = (job->n_tokens + FLOAT_TOKENS - 1) / FLOAT_TOKENS;
    int64_t tile = begin / TILE_ROWS, last = (end + TILE_ROWS - 1) / TILE_ROWS;
    for (; job->n_tokens == 1 && tile + FLOAT_TILES <= last; tile += FLOAT_TILES)
        run_4(job, tile, 0);
    for (int n_tiles; tile < last; tile += n_tiles) {
        n_tiles = tile + 1 < last ? 2 : 1;
        for (int b = 0, t = 0; b < n_blocks; b++) {
            int next = (b + 1) * job->n_tokens / n_blocks;
            (n_tiles == 2 ? run_2 : run_1)[next - t - 1](job, tile, t);
            t = next;
        }
    }
}

#define FLOAT_MATMUL(name, packing)                                                                \
    FLOAT_RUNS(packing, 1)                                                                         \
    FLOAT_RUNS(packing, 2)                                                                         \
    FLOAT_RUN(packing, 4, 1)                                                                       \
    void name(const union job *job, int begin, int end)                                            \
    {                                                                                              \
        static float_run *const run_1[] = {FLOAT_NAMES(1)}, *const run_2[] = {FLOAT_NAMES(2)};     \
        float_matmul(&job->matmul, run_1, run_2, float_4_1, begin, end);                           \
    }

#endif
