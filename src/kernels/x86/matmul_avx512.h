/* What the AVX-512 matmul kernels share: one zmm register is the 16 rows of a tile, an activation
 * quad is a broadcast of 32 bits, and nothing is ever added across lanes. Kernels are always-
 * inlined templates whose counts of tokens and tiles are constants, so that accumulators are
 * registers. */
#ifndef TRINE_KERNELS_X86_MATMUL_AVX512_H
#define TRINE_KERNELS_X86_MATMUL_AVX512_H

#include <immintrin.h>
#include <string.h>

#include "kernels/epilogue.h"

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define FEW_TOKENS     8    /* multiply packed weights directly; more unpack them first */
#define MAX_FEW        4    /* at a time: every place of a field needs an accumulator */
#define PREFETCH_AHEAD 4096 /* bytes */
#define FLUSH_STEPS    3072 /* of sums in place: 3072 * 4 * 2 * 3 * 64 * 128 < 2^31 */

/* A kernel for one tile and a fixed number of tokens from `token`. */
typedef void few_tokens(const struct matmul_job *job, int64_t tile, int token);

/* Defines name_1 ... name_4 from a template (job, tile, token, ..., n_tokens). */
#define FEW_RUN(name, T, template, ...)                                                            \
    static void name##_##T(const struct matmul_job *job, int64_t tile, int token)                  \
    {                                                                                              \
        template(job, tile, token, __VA_ARGS__);                                                   \
    }

/* All tiles: 5 to 8 tokens in two passes, the second of which finds the tile in the cache. */
static inline void few_matmul(const struct matmul_job *job, few_tokens *const run[MAX_FEW],
                              int begin, int end)
{
    int n_first = job->n_tokens <= MAX_FEW ? job->n_tokens : (job->n_tokens + 1) / 2;
    int n_second = job->n_tokens - n_first;
    for (int64_t tile = begin / TILE_ROWS; tile * TILE_ROWS < end; tile++) {
        run[n_first - 1](job, tile, 0);
        if (n_second)
            run[n_second - 1](job, tile, n_first);
    }
}

INLINE __m512i quad_at(const void *q)
{
    int32_t quad;
    memcpy(&quad, q, sizeof quad);
    return _mm512_set1_epi32(quad);
}

/* acc + w . quad at q. The instruction broadcasts by itself; compilers spend a register and a
 * second instruction on it, and copy accumulators around (4 tokens of trits5: 35 moves a step). */
INLINE __m512i add_quad(__m512i acc, __m512i w, const int8_t *q)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*(const int32_t *)q));
    return acc;
}

INLINE __m512 halves_at(const uint8_t *halves)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)halves));
}

/* Ahead of a stream, far enough that memory answers in time: for panels, which are unpacked once. */
INLINE void prefetch(const uint8_t *step)
{
    _mm_prefetch((const char *)step + PREFETCH_AHEAD, _MM_HINT_T0);
}

/* The same for 3 and 4 tokens, whose arithmetic takes about as long as memory: without it the two add
 * up in part (the window of a core is shorter than memory's answer). 4 tokens of trits4 from memory, two
 * Zen 4 cores, three runs in turn: 19.8, 20.4, 20.6 GB/s without, 512, 1024, 2048 and 4096 bytes ahead
 * 22.6, 24.2, 25.7, 26.0; 28 from cache (December 2026). One token loses by it, see below. */
INLINE void fetch_ahead(const uint8_t *step, const int n_tokens)
{
    if (n_tokens > 2)
        prefetch(step);
}

INLINE const uint8_t *tile_at(const struct matmul_job *job, int64_t tile)
{
    const struct packed *w = &job->w;
    return w->data + (uint64_t)tile * packed_tile_bytes(w->packing, w->group, w->n_cols);
}

/* What is read next, on Intel: an Intel core has too few line buffers for one sequential stream to
 * use the memory bandwidth; its L2 prefetcher has more, one stream per page. So while a tile is
 * computed the next one is fetched in four streams, a quarter each. 512 MB of trits4, two threads
 * of a Sapphire Rapids virtual machine that reads 29 to 34 GB/s: fetching 4 KiB ahead in the tile's
 * own stream 21 GB/s, next tile in 2, 4, 8, 16 streams 23.5, 25.4, 21.8, 19.0 GB/s.
 * Elsewhere nothing: the prefetchers of a Zen 4 follow one stream at the speed of memory, and every
 * fetch by instruction takes one of its few miss buffers away from them. The same on Zen 4 that
 * reads 64 GB/s: 4 streams 33, 2 streams 40, 4 KiB ahead 52, nothing 58 GB/s (December 2026). */
#define FETCH_STREAMS 4
/* Into L1; trits4, q4_k, q5_k and iq4_xs ask for L2 instead. One token from memory, Emerald Rapids, two threads, median
 * of 11 rounds in turn: trits4 1.11 times, q4_k 1.12, q5_k 1.05, iq4_xs 1.08; q8_0 1.03, but q6_k 0.92, q3_k 0.91, q2_k
 * 0.95. Why is not known. */
#ifndef FETCH_HINT
#define FETCH_HINT _MM_HINT_T0
#endif
#define FETCH_STEPS 4 /* between two fetches where there are no groups */

struct fetch {
    const uint8_t *at, *end; /* next line of the first stream, where that stream ends */
    int64_t part;            /* bytes of a stream */
};

/* Only the first tokens fetch. */
INLINE struct fetch fetch_behind(const struct matmul_job *job, int64_t tile, int token)
{
    int64_t last = (job->w.n_rows - 1) / TILE_ROWS;
    const uint8_t *next = tile_at(job, tile < last ? tile + 1 : last);
    int64_t part = (tile_at(job, 1) - tile_at(job, 0)) / FETCH_STREAMS / STEP_BYTES * STEP_BYTES;
    bool is_wanted = token == 0 && __builtin_cpu_is("intel");
    return (struct fetch){next, is_wanted ? next + part : next, part};
}

/* As many lines as n_steps take, rounded up to one of each stream. */
INLINE void fetch_lines(struct fetch *f, int n_steps)
{
    for (; n_steps > 0 && f->at < f->end; n_steps -= FETCH_STREAMS, f->at += STEP_BYTES) {
        UNROLL
        for (int i = 0; i < FETCH_STREAMS; i++)
            _mm_prefetch((const char *)f->at + i * f->part, FETCH_HINT);
    }
}

/* Finishes a tile and a token; the plain cases without the way through memory. */
static __attribute__((noinline, unused)) void finish_floats(const struct matmul_job *job,
                                                            int64_t tile, int token, __m512 y)
{
    int64_t row0 = tile * TILE_ROWS;
    bool is_plain = !matmul_has_scale(job) && !job->bias && row0 + TILE_ROWS <= job->w.n_rows;
    float *out = job->out + token * job->out_stride + row0;
    if (is_plain && job->epilogue == EPILOGUE_STORE) {
        _mm512_storeu_ps(out, y);
    } else if (is_plain && job->epilogue == EPILOGUE_ADD) {
        _mm512_storeu_ps(out, _mm512_add_ps(_mm512_loadu_ps(out), y));
    } else {
        float chains[TILE_ROWS];
        _mm512_storeu_ps(chains, y);
        matmul_finish(job, (int)row0, token, chains);
    }
}

/* Finishes integer sums of a matrix with one scale per row; scales: of the tile's rows. */
static __attribute__((noinline, unused)) void
finish_sums(const struct matmul_job *job, int64_t tile, const uint8_t *scales, int token, __m512i s)
{
    if (job->epilogue == EPILOGUE_PARTIAL) {
        int32_t sums[TILE_ROWS];
        _mm512_storeu_si512(sums, s);
        matmul_finish_partial(job, (int)tile * TILE_ROWS, token, sums);
        return;
    }
    __m512 scale = _mm512_loadu_ps((const void *)scales);
    __m512 act_scale = _mm512_set1_ps(job->a.scale[(int64_t)token * job->a.n_scales]);
    __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(s), _mm512_mul_ps(scale, act_scale));
    finish_floats(job, tile, token, y);
}

/* y[t] += sum[t] as contracted, for group g of the inputs and the tokens from `token`. */
INLINE void add_group(const struct activations *a, int token, int64_t g, __m512 scale,
                      const int n_tokens, const int zero, const __m512i sum[MAX_FEW],
                      __m512 y[MAX_FEW])
{
    const int32_t *sums = a->sum + (int64_t)token * a->n_sums + g;
    const float *scales = a->scale + (int64_t)token * a->n_scales + g;
    UNROLL
    for (int t = 0; t < n_tokens; t++) {
        __m512i zeros = _mm512_set1_epi32(zero * sums[t * (int64_t)a->n_sums]);
        __m512 s = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum[t], zeros));
        __m512 act_scale = _mm512_set1_ps(scales[t * (int64_t)a->n_scales]);
        y[t] = _mm512_fmadd_ps(s, _mm512_mul_ps(scale, act_scale), y[t]);
    }
}

#endif
