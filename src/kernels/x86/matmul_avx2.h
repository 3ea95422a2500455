/* What the AVX2 matmuls share: the walk over tiles and blocks of tokens, and small vector steps.
 * A tile is handled for 1, 2, 4 or 8 tokens at a time; the number is a constant after inlining. A
 * tile of usual size stays in the L1 or L2 cache between the blocks of a batch. */
#ifndef TRINE_KERNELS_X86_MATMUL_AVX2_H
#define TRINE_KERNELS_X86_MATMUL_AVX2_H

#include <immintrin.h>

#include "kernels/epilogue.h"

#define ALWAYS_INLINE  static inline __attribute__((always_inline))
#define MAX_TOKENS     8

/* Memory is read in order; the hardware stops at page ends, so lines are asked for this far ahead.
 */
#define PREFETCH_AHEAD 2048

/* The 16 rows from row0 for the tokens from `token` on. */
typedef void tile_kernel(const struct matmul_job *job, const uint8_t *tile, int row0, int token);

/* How many tokens each entry does; NULL: none of that size. */
struct tile_kernels {
    tile_kernel *one, *two, *four, *eight;
};

ALWAYS_INLINE void matmul_tiles_avx2(const struct matmul_job *job, int begin, int end,
                                     const struct tile_kernels *kernels)
{
    int64_t tile_bytes = packed_tile_bytes(job->w.packing, job->w.group, job->w.n_cols);
    const uint8_t *tile = job->w.data + begin / TILE_ROWS * tile_bytes;
    for (int row0 = begin; row0 < end; row0 += TILE_ROWS, tile += tile_bytes) {
        int token = 0, left = job->n_tokens;
        for (; kernels->eight && left - token >= 8; token += 8)
            kernels->eight(job, tile, row0, token);
        for (; left - token >= 4; token += 4)
            kernels->four(job, tile, row0, token);
        for (; left - token >= 2; token += 2)
            kernels->two(job, tile, row0, token);
        for (; left - token >= 1; token++)
            kernels->one(job, tile, row0, token);
    }
}

/* A tile_kernel from an inlined body(job, tile, row0, token, n). */
#define TILE_KERNEL(name, body, n)                                                                 \
    static void name(const struct matmul_job *job, const uint8_t *tile, int row0, int token)       \
    {                                                                                              \
        body(job, tile, row0, token, n);                                                           \
    }
#define TILE_KERNELS(body)                                                                         \
    TILE_KERNEL(one_token, body, 1)                                                                \
    TILE_KERNEL(two_tokens, body, 2)                                                               \
    TILE_KERNEL(four_tokens, body, 4)                                                              \
    TILE_KERNEL(eight_tokens, body, 8)

ALWAYS_INLINE __m256i load_256(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* The 4 activations of a quad in every lane. */
ALWAYS_INLINE __m256i broadcast_quad(const int8_t *q)
{
    int32_t quad;
    memcpy(&quad, q, sizeof quad);
    return _mm256_set1_epi32(quad);
}

/* acc + pairs of codes * q, int16. */
ALWAYS_INLINE __m256i add_quad_16(__m256i acc, __m256i codes, __m256i quad)
{
    return _mm256_add_epi16(acc, _mm256_maddubs_epi16(codes, quad));
}

/* int16 pairs of 8 quads of codes times the 32 activations at q. With the codes in registers there
 * is none left for sums of many tokens, and none is needed. */
ALWAYS_INLINE __m256i dot_8_quads(const __m256i codes[8], const int8_t *q)
{
    __m256i sums[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        sums[i] = add_quad_16(_mm256_maddubs_epi16(codes[2 * i], broadcast_quad(q + 8 * i)),
                              codes[2 * i + 1], broadcast_quad(q + 8 * i + 4));
    return _mm256_add_epi16(_mm256_add_epi16(sums[0], sums[1]), _mm256_add_epi16(sums[2], sums[3]));
}

/* int16 pairs of a lane joined. */
ALWAYS_INLINE __m256i sum_pairs(__m256i pairs)
{
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

ALWAYS_INLINE __m256 f16_scales(const uint8_t *scales)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)scales));
}

/* fma((float)sums, scale * act_scale, y). */
ALWAYS_INLINE __m256 add_group(__m256 y, __m256i sums, __m256 scale, float act_scale)
{
    __m256 product = _mm256_mul_ps(scale, _mm256_set1_ps(act_scale));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), product, y);
}

/* Chains of some tokens, on their way through a tile: half h of token t. */
struct chains {
    __m256 y[MAX_TOKENS][2];
};

ALWAYS_INLINE void chains_clear(struct chains *chains, int n)
{
    for (int t = 0; t < n; t++)
        chains->y[t][0] = chains->y[t][1] = _mm256_setzero_ps();
}

ALWAYS_INLINE void chains_finish(const struct chains *chains, const struct matmul_job *job,
                                 int row0, int token, int n)
{
    for (int t = 0; t < n; t++) {
        float y[TILE_ROWS];
        _mm256_storeu_ps(y, chains->y[t][0]);
        _mm256_storeu_ps(y + 8, chains->y[t][1]);
        matmul_finish(job, row0, token + t, y);
    }
}

#endif
