/* What the AVX2 matmuls share: the walk over tiles and blocks of tokens, and small vector steps.
 * A tile is handled for 1, 2 or 4 tokens at a time (q8_0: also 8); the number is a constant after
 * inlining. A tile of usual size stays in the L1 or L2 cache between the blocks of a batch. */
#ifndef TRINE_KERNELS_X86_MATMUL_AVX2_H
#define TRINE_KERNELS_X86_MATMUL_AVX2_H

#include <immintrin.h>

#include "kernels/epilogue.h"

#define ALWAYS_INLINE  static inline __attribute__((always_inline))
#define MAX_TOKENS     8

/* Bytes ahead in the stream that is read, into L1. */
#define PREFETCH_AHEAD 2048

/* What is read next. While a tile is computed the next one is fetched into the L2 cache in a few
 * streams: one stream alone does not use the memory bandwidth. 512 MB, two cores of a Zen 3 that
 * read 36 to 40 GB/s, fetching 2 KB ahead in the tile's own stream against 4 streams: q8_0 27 and 37,
 * q4_0 30 and 35, q6_k 27 and 35 GB/s (best of 4 interleaved rounds). */
struct fetch {
    const uint8_t *at, *end; /* next line of the first stream, where that stream ends */
    int64_t part;            /* bytes of a stream */
    int n_streams;
};

/* The 16 rows from row0 for the tokens from `token` on. */
typedef void tile_kernel(const struct matmul_job *job, const uint8_t *tile, int row0, int token);

/* How many tokens each entry does; eight may be NULL. */
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

/* The tile after the one at row0. Only the first tokens fetch it. n_streams: a constant. */
ALWAYS_INLINE struct fetch fetch_behind(const struct matmul_job *job, const uint8_t *tile, int row0,
                                        int token, int n_streams)
{
    int64_t bytes = packed_tile_bytes(job->w.packing, job->w.group, job->w.n_cols);
    int64_t part = (bytes / n_streams + STEP_BYTES - 1) / STEP_BYTES * STEP_BYTES;
    const uint8_t *next = row0 + TILE_ROWS < job->w.n_rows ? tile + bytes : tile;
    return (struct fetch){next, token ? next : next + part, part, n_streams};
}

/* n_lines lines, a multiple of the streams. */
ALWAYS_INLINE void fetch_lines(struct fetch *f, int n_lines)
{
#pragma GCC unroll 4
    for (int line = 0; line < n_lines; line += f->n_streams) {
        if (f->at >= f->end)
            return;
#pragma GCC unroll 4
        for (int i = 0; i < f->n_streams; i++)
            _mm_prefetch((const char *)f->at + i * f->part, _MM_HINT_T1);
        f->at += STEP_BYTES;
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
    static const struct tile_kernels tile_kernels = {one_token, two_tokens, four_tokens, NULL};

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

/* acc + pairs of codes * q, int16. The empty statement keeps gcc from turning a chain of sums into a
 * tree, which needs more registers than there are: trits4 with 256 tokens 102 with the tree, 125 G
 * multiply-adds/s without. */
ALWAYS_INLINE __m256i add_quad_16(__m256i acc, __m256i codes, __m256i quad)
{
    acc = _mm256_add_epi16(acc, _mm256_maddubs_epi16(codes, quad));
    __asm__("" : "+x"(acc));
    return acc;
}

/* acc (is_first: =, else +=) codes of both halves times a quad of each of n tokens, stride apart, as int16
 * pairs: a broadcast serves both halves. */
ALWAYS_INLINE void add_codes_16(__m256i codes0, __m256i codes1, const int8_t *q, int64_t stride,
                                bool is_first, int n, __m256i acc[MAX_TOKENS][2])
{
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) {
        __m256i quad = broadcast_quad(q + t * stride);
        if (is_first) {
            acc[t][0] = _mm256_maddubs_epi16(codes0, quad);
            acc[t][1] = _mm256_maddubs_epi16(codes1, quad);
        } else {
            acc[t][0] = add_quad_16(acc[t][0], codes0, quad);
            acc[t][1] = add_quad_16(acc[t][1], codes1, quad);
        }
    }
}

/* The same of one field of both halves of a step. */
ALWAYS_INLINE void add_field(const __m256i w[2], int shift, __m256i mask, const int8_t *q,
                             int64_t stride, bool is_first, int n, __m256i acc[MAX_TOKENS][2])
{
    __m256i codes0 = _mm256_and_si256(_mm256_srli_epi16(w[0], shift), mask);
    __m256i codes1 = _mm256_and_si256(_mm256_srli_epi16(w[1], shift), mask);
    add_codes_16(codes0, codes1, q, stride, is_first, n, acc);
}

/* acc += scale * the joined pairs of n tokens. scale: twice in each lane. */
ALWAYS_INLINE void add_scaled_pairs(const __m256i pairs[MAX_TOKENS][2], __m256i scale0,
                                    __m256i scale1, int n, __m256i acc[MAX_TOKENS][2])
{
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) {
        acc[t][0] = _mm256_add_epi32(acc[t][0], _mm256_madd_epi16(pairs[t][0], scale0));
        acc[t][1] = _mm256_add_epi32(acc[t][1], _mm256_madd_epi16(pairs[t][1], scale1));
    }
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

/* Finishes one token of a tile; the plain cases at once. */
static __attribute__((noinline, unused)) void finish_chains(const struct matmul_job *job, int row0,
                                                            int token, const __m256 y[2])
{
    bool is_plain = !matmul_has_scale(job) && !job->bias && row0 + TILE_ROWS <= job->w.n_rows;
    float *out = job->out + token * job->out_stride + row0;
    if (is_plain && job->epilogue == EPILOGUE_STORE) {
        _mm256_storeu_ps(out, y[0]);
        _mm256_storeu_ps(out + 8, y[1]);
    } else if (is_plain && job->epilogue == EPILOGUE_ADD) {
        _mm256_storeu_ps(out, _mm256_add_ps(_mm256_loadu_ps(out), y[0]));
        _mm256_storeu_ps(out + 8, _mm256_add_ps(_mm256_loadu_ps(out + 8), y[1]));
    } else {
        float chains[TILE_ROWS];
        _mm256_storeu_ps(chains, y[0]);
        _mm256_storeu_ps(chains + 8, y[1]);
        matmul_finish(job, row0, token, chains);
    }
}

/* The same of exact sums, where rows have one scale. */
static __attribute__((unused)) void finish_sums(const struct matmul_job *job, const uint8_t *tile,
                                                int row0, int token, const __m256i sums[2])
{
    if (job->epilogue == EPILOGUE_PARTIAL) {
        matmul_finish_partial(job, row0, token, (const int32_t *)sums);
        return;
    }
    __m256 y[2], act_scale = _mm256_set1_ps(job->a.scale[(int64_t)token * job->a.n_scales]);
    for (int half = 0; half < 2; half++) {
        __m256 scale = _mm256_loadu_ps((const float *)(const void *)tile + half * 8);
        scale = _mm256_mul_ps(scale, act_scale);
        y[half] = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[half]), scale);
    }
    finish_chains(job, row0, token, y);
}

ALWAYS_INLINE void chains_finish(const struct chains *chains, const struct matmul_job *job,
                                 int row0, int token, int n)
{
    for (int t = 0; t < n; t++)
        finish_chains(job, row0, token + t, chains->y[t]);
}

#endif
