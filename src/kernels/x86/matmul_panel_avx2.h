/* Many tokens on AVX2: a panel, some inputs of one tile, is unpacked once to a byte a code, and all
 * tokens pass over it while it is in the nearest cache, four at a time: a quad of a token is one
 * broadcast for both halves of the tile, and the codes of a quad serve four tokens. Tokens in the
 * lanes and broadcast codes instead are as fast within 1 %, but need activations in another order and
 * eight tokens at a time (docs/measurements/kernels.md). */
#ifndef TRINE_KERNELS_X86_MATMUL_PANEL_AVX2_H
#define TRINE_KERNELS_X86_MATMUL_PANEL_AVX2_H

#include "kernels/x86/matmul_avx2.h"

#define FEW_TOKENS   8 /* multiply packed weights directly; more unpack them first */
#define PANEL_TOKENS 4 /* of a run */
#define PANEL_INPUTS 512

/* Inputs [col0, col0 + n) of one tile. */
struct panel {
    const struct matmul_job *job;
    int64_t col0;
    int n;
    uint8_t *codes; /* (quads, 64); 16-bit codes: (pairs of inputs, 64) */
    float *scales;  /* (groups, 16) */
    uint8_t *extra; /* what the packing has besides */
    int8_t *q;      /* copied activations: (n_tokens, stride bytes) */
    int64_t stride;
    int32_t *sums; /* (n_tokens, sum_stride): of activations, as the packing wants them */
    int sum_stride;
};

/* n tokens from `token`; state: (n, 16) integers or chains. */
typedef void panel_run(const struct panel *panel, int token, __m256 state[][2]);

/* What a packing does with panels. */
struct panel_ops {
    int few;                                 /* tokens that the other kernels take */
    int inputs;                              /* of a panel: whole units, at most PANEL_INPUTS */
    int act_bytes;                           /* of a copied activation */
    int sums;                                /* of a token and panel: int32 in panel.sums */
    int extra_bytes;                         /* of panel.extra: a multiple of 64 */
    void (*copy)(const struct panel *panel); /* activations, and their sums */
    void (*unpack)(const struct panel *panel, const uint8_t *tile);
    panel_run *run[PANEL_TOKENS];
    /* One token of a tile whose state is integers; NULL: they are chains. */
    void (*finish)(const struct matmul_job *job, const uint8_t *tile, int row0, int token,
                   const __m256i sums[2]);
};

/* name_1 ... name_4 from an inlined body(panel, token, state, ..., n). */
#define PANEL_RUN(name, n, body, ...)                                                              \
    static void name##_##n(const struct panel *panel, int token, __m256 state[][2])                \
    {                                                                                              \
        body(panel, token, state, __VA_ARGS__ n);                                                  \
    }
#define PANEL_RUNS(name, ...)                                                                      \
    PANEL_RUN(name, 1, __VA_ARGS__)                                                                \
    PANEL_RUN(name, 2, __VA_ARGS__)                                                                \
    PANEL_RUN(name, 3, __VA_ARGS__)                                                                \
    PANEL_RUN(name, 4, __VA_ARGS__)
#define PANEL_NAMES(name)                                                                          \
    {                                                                                              \
        name##_1, name##_2, name##_3, name##_4                                                     \
    }

/* acc[t] += products of 4 quads of codes and of n tokens, as int16 pairs; is_first: acc[t] = them. */
ALWAYS_INLINE void panel_quads(const uint8_t *codes, const int8_t *q, int64_t stride, bool is_first,
                               int n, __m256i acc[PANEL_TOKENS][2])
{
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        __m256i codes0 = load_256(codes + k * STEP_BYTES);
        __m256i codes1 = load_256(codes + k * STEP_BYTES + 32);
#pragma GCC unroll 4
        for (int t = 0; t < n; t++) {
            __m256i quad = broadcast_quad(q + t * stride + 4 * k);
            if (is_first && k == 0) {
                acc[t][0] = _mm256_maddubs_epi16(codes0, quad);
                acc[t][1] = _mm256_maddubs_epi16(codes1, quad);
                continue;
            }
            acc[t][0] = add_quad_16(acc[t][0], codes0, quad);
            acc[t][1] = add_quad_16(acc[t][1], codes1, quad);
        }
    }
}

/* acc = products of n_quads quads, a multiple of 4. */
ALWAYS_INLINE void panel_chunk(const uint8_t *codes, const int8_t *q, int64_t stride, int n_quads,
                               int n, __m256i acc[PANEL_TOKENS][2])
{
    panel_quads(codes, q, stride, true, n, acc);
    for (int k = 4; k < n_quads; k += 4)
        panel_quads(codes + k * STEP_BYTES, q + 4 * k, stride, false, n, acc);
}

/* Fields of `bits` bits of both halves of a step to one quad each. */
ALWAYS_INLINE void panel_unpack_step(const uint8_t *step, int bits, uint8_t *codes)
{
    const __m256i mask = _mm256_set1_epi8((char)((1 << bits) - 1));
    _mm_prefetch((const char *)step + PREFETCH_AHEAD, _MM_HINT_T0);
#pragma GCC unroll 2
    for (int half = 0; half < STEP_BYTES; half += 32) {
        __m256i w = load_256(step + half);
#pragma GCC unroll 4
        for (int shift = 0; shift < 8; shift += bits, w = _mm256_srli_epi16(w, bits))
            _mm256_store_si256((__m256i *)(codes + shift / bits * STEP_BYTES + half),
                               _mm256_and_si256(w, mask));
    }
}

/* f16 scales of the panel's group g. */
ALWAYS_INLINE void panel_scales(const struct panel *p, int g, const uint8_t *scales)
{
    _mm256_store_ps(p->scales + g * TILE_ROWS, f16_scales(scales));
    _mm256_store_ps(p->scales + g * TILE_ROWS + 8, f16_scales(scales + 16));
}

/* y = fma((float)sums, scale * act scale, y) of group g. */
ALWAYS_INLINE void panel_add_group(const struct panel *p, int token, int group, int g, int n,
                                   const __m256i sums[PANEL_TOKENS][2], __m256 state[][2])
{
    const struct activations *a = &p->job->a;
    const float *act_scale = a->scale + (int64_t)token * a->n_scales + p->col0 / group + g;
    __m256 scale0 = _mm256_load_ps(p->scales + g * TILE_ROWS);
    __m256 scale1 = _mm256_load_ps(p->scales + g * TILE_ROWS + 8);
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) {
        float s = act_scale[(int64_t)t * a->n_scales];
        state[t][0] = add_group(state[t][0], sums[t][0], scale0, s);
        state[t][1] = add_group(state[t][1], sums[t][1], scale1, s);
    }
}

/* Groups with one scale each and a zero: sum of (code - zero) * q = sum of code * q + zero sum.
 * chunk: the quads that int16 pairs can add. */
ALWAYS_INLINE void panel_groups(const struct panel *p, int token, __m256 state[][2], int group,
                                int chunk, int n)
{
    const int32_t *zero_sums = p->sums + token * p->sum_stride;
    const uint8_t *codes = p->codes;
    const int8_t *q = p->q + token * p->stride;
    for (int g = 0; g < p->n / group; g++) {
        __m256i acc[PANEL_TOKENS][2], sums[PANEL_TOKENS][2];
#pragma GCC unroll 4
        for (int t = 0; t < n; t++)
            sums[t][0] = sums[t][1] = _mm256_set1_epi32(zero_sums[t * p->sum_stride + g]);
        for (int k = 0; k < group / 4; k += chunk, codes += chunk * STEP_BYTES, q += 4 * chunk) {
            panel_chunk(codes, q, p->stride, chunk, n, acc);
#pragma GCC unroll 4
            for (int t = 0; t < n; t++) {
                sums[t][0] = _mm256_add_epi32(sums[t][0], sum_pairs(acc[t][0]));
                sums[t][1] = _mm256_add_epi32(sums[t][1], sum_pairs(acc[t][1]));
            }
        }
        panel_add_group(p, token, group, g, n, sums, state);
    }
}

/* Activations of a panel side by side, each with its bits `flip` turned. A copy, because rows of
 * activations that lie a power of two apart share few places of a cache: 512 tokens of trits4 79 % of the peak
 * without it, 86 % with it. */
ALWAYS_INLINE void panel_copy_flipped(const struct panel *p, int flip)
{
    const struct activations *a = &p->job->a;
    const __m256i bits = _mm256_set1_epi8((char)flip);
    for (int t = 0; t < p->job->n_tokens; t++) {
        const int8_t *from = a->q + t * a->stride + p->col0; /* zeros up to a multiple of 64 */
        for (int i = 0; i < p->n; i += 32)
            _mm256_store_si256((__m256i *)(p->q + t * p->stride + i),
                               _mm256_xor_si256(load_256(from + i), bits));
    }
}

__attribute__((unused)) static void panel_copy(const struct panel *p)
{
    panel_copy_flipped(p, 0);
}

/* sums = -zero * sum of activations, of every token and group of a panel. */
ALWAYS_INLINE void panel_zero_sums(const struct panel *p, int group, int zero)
{
    const struct activations *a = &p->job->a;
    const __m128i factor = _mm_set1_epi32(-zero);
    for (int t = 0; t < p->job->n_tokens; t++) {
        const int32_t *from = a->sum + (int64_t)t * a->n_sums + p->col0 / group;
        int32_t *to = p->sums + t * p->sum_stride;
        int g = 0, n = p->n / group;
        for (; g + 4 <= n; g += 4) {
            __m128i sums = _mm_loadu_si128((const __m128i *)(from + g));
            _mm_store_si128((__m128i *)(to + g), _mm_mullo_epi32(sums, factor));
        }
        for (; g < n; g++)
            to[g] = -zero * from[g];
    }
}

/* All tokens, in runs as even as possible. */
static inline void panel_tokens(const struct panel *p, const struct panel_ops *ops,
                                __m256 state[][2])
{
    int n_tokens = p->job->n_tokens;
    int n_runs = (n_tokens + PANEL_TOKENS - 1) / PANEL_TOKENS;
    for (int i = 0, token = 0; i < n_runs; i++) {
        int end = (i + 1) * n_tokens / n_runs;
        ops->run[end - token - 1](p, token, state + token);
        token = end;
    }
}

static inline void panel_finish(const struct panel *p, const struct panel_ops *ops,
                                const uint8_t *tile, int row0, __m256 state[][2])
{
    for (int t = 0; t < p->job->n_tokens; t++)
        if (ops->finish)
            ops->finish(p->job, tile, row0, t, (const __m256i *)state[t]);
        else
            finish_chains(p->job, row0, t, state[t]);
}

/* Panel after panel of rows [begin, end); the activations of a panel stay in the second cache. */
static inline void panel_tiles(struct panel *p, const struct panel_ops *ops, __m256 state[][2],
                               int begin, int end)
{
    const struct matmul_job *job = p->job;
    int64_t tile_bytes = packed_tile_bytes(job->w.packing, job->w.group, job->w.n_cols);
    int n_tiles = (end - begin + TILE_ROWS - 1) / TILE_ROWS;
    memset(state, 0, (size_t)(n_tiles * job->n_tokens) * sizeof *state);
    for (p->col0 = 0; p->col0 < job->w.n_cols; p->col0 += ops->inputs) {
        int64_t left = job->w.n_cols - p->col0;
        p->n = left < ops->inputs ? (int)left : ops->inputs;
        ops->copy(p);
        for (int i = 0; i < n_tiles; i++) {
            int row0 = begin + i * TILE_ROWS;
            const uint8_t *tile = job->w.data + row0 / TILE_ROWS * tile_bytes;
            ops->unpack(p, tile);
            panel_tokens(p, ops, state + i * job->n_tokens);
            if (left <= ops->inputs)
                panel_finish(p, ops, tile, row0, state + i * job->n_tokens);
        }
    }
}

/* Cuts the scratch: what is left behind the panel is state, of as many tiles as it holds. */
static inline void panel_matmul(const struct matmul_job *job, const struct panel_ops *ops,
                                int begin, int end)
{
    struct panel p = {.job = job, .stride = ops->inputs * ops->act_bytes, .sum_stride = ops->sums};
    uint8_t *at = job->scratch, *scratch_end = at + MATMUL_SCRATCH_BYTES;
    p.codes = at;
    at += ops->inputs * ops->act_bytes * TILE_ROWS;
    p.scales = (float *)at;
    at += PANEL_INPUTS / 32 * TILE_ROWS * sizeof *p.scales;
    p.extra = at;
    at += ops->extra_bytes;
    p.q = (int8_t *)at;
    at += job->n_tokens * p.stride;
    p.sums = (int32_t *)at;
    at += (job->n_tokens * ops->sums * sizeof *p.sums + 63) / 64 * 64;
    int n_rows = (int)((scratch_end - at) / (job->n_tokens * STEP_BYTES)) * TILE_ROWS;
    for (int row0 = begin; row0 < end; row0 += n_rows)
        panel_tiles(&p, ops, (__m256(*)[2])at, row0, row0 + n_rows < end ? row0 + n_rows : end);
}

/* Any number of tokens. */
ALWAYS_INLINE void matmul_avx2(const struct matmul_job *job, int begin, int end,
                               const struct tile_kernels *kernels, const struct panel_ops *ops)
{
    if (job->n_tokens <= ops->few)
        matmul_tiles_avx2(job, begin, end, kernels);
    else
        panel_matmul(job, ops, begin, end);
}

#endif
