/* matmul of f32, f16 and bf16. A chain is sequential, so several run at once to fill the latency of
 * fused multiply-add: two tiles for 1 or 2 tokens, one tile for 4. */
#include "kernels/x86/matmul_avx2.h"

/* Weights of 8 rows of input i. */
ALWAYS_INLINE __m256 weights_8(enum packing packing, const uint8_t *tile, int64_t i, int half)
{
    if (packing == PACKING_f32)
        return _mm256_loadu_ps((const float *)(const void *)(tile + i * 64 + half * 32));
    __m128i halves = _mm_loadu_si128((const __m128i *)(tile + i * 32 + half * 16));
    if (packing == PACKING_f16)
        return _mm256_cvtph_ps(halves);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

/* n_tiles * n chains of 16 rows; n_tiles * n at most 4. */
ALWAYS_INLINE void run_chains(const struct matmul_job *job, enum packing packing,
                              const uint8_t *tile, int64_t tile_bytes, int row0, int token,
                              int n_tiles, int n)
{
    const struct activations *a = &job->a;
    const float *x = a->x + token * a->stride;
    __m256 y[4][2];
#pragma GCC unroll 4
    for (int c = 0; c < n_tiles * n; c++)
        y[c][0] = y[c][1] = _mm256_setzero_ps();
    for (int64_t i = 0; i < a->n_cols; i++) {
#pragma GCC unroll 2
        for (int k = 0; k < n_tiles; k++) {
            const uint8_t *at = tile + k * tile_bytes;
            __m256 w0 = weights_8(packing, at, i, 0), w1 = weights_8(packing, at, i, 1);
            _mm_prefetch((const char *)at + i * (packing == PACKING_f32 ? 64 : 32) + PREFETCH_AHEAD,
                         _MM_HINT_T0);
#pragma GCC unroll 4
            for (int t = 0; t < n; t++) {
                __m256 input = _mm256_broadcast_ss(x + t * a->stride + i);
                y[k * n + t][0] = _mm256_fmadd_ps(w0, input, y[k * n + t][0]);
                y[k * n + t][1] = _mm256_fmadd_ps(w1, input, y[k * n + t][1]);
            }
        }
    }
    for (int k = 0; k < n_tiles; k++)
        for (int t = 0; t < n; t++) {
            float out[TILE_ROWS];
            _mm256_storeu_ps(out, y[k * n + t][0]);
            _mm256_storeu_ps(out + 8, y[k * n + t][1]);
            matmul_finish(job, row0 + k * TILE_ROWS, token + t, out);
        }
}

ALWAYS_INLINE void matmul_floats(const struct matmul_job *job, int begin, int end,
                                 enum packing packing)
{
    int64_t bytes = packed_tile_bytes(packing, job->w.group, job->w.n_cols);
    int n_tokens = job->n_tokens, fours = n_tokens / 4 * 4, twos = n_tokens / 2 * 2;
    for (int row0 = begin; row0 < end; row0 += 2 * TILE_ROWS) {
        const uint8_t *tile = job->w.data + row0 / TILE_ROWS * bytes;
        bool has_two = end - row0 > TILE_ROWS;
        for (int t = 0; t < fours; t += 4)
            run_chains(job, packing, tile, bytes, row0, t, 1, 4);
        for (int t = 0; has_two && t < fours; t += 4)
            run_chains(job, packing, tile + bytes, bytes, row0 + TILE_ROWS, t, 1, 4);
        if (fours < twos && has_two)
            run_chains(job, packing, tile, bytes, row0, fours, 2, 2);
        else if (fours < twos)
            run_chains(job, packing, tile, bytes, row0, fours, 1, 2);
        if (twos < n_tokens && has_two)
            run_chains(job, packing, tile, bytes, row0, twos, 2, 1);
        else if (twos < n_tokens)
            run_chains(job, packing, tile, bytes, row0, twos, 1, 1);
    }
}

void matmul_f32_avx2(const union job *job, int begin, int end)
{
    matmul_floats(&job->matmul, begin, end, PACKING_f32);
}

void matmul_f16_avx2(const union job *job, int begin, int end)
{
    matmul_floats(&job->matmul, begin, end, PACKING_f16);
}

void matmul_bf16_avx2(const union job *job, int begin, int end)
{
    matmul_floats(&job->matmul, begin, end, PACKING_bf16);
}
