/* Many tokens on registers of 256 bits: the walk over panels that AVX2 and AVX-VNNI share. A panel, some
 * inputs of one tile, is unpacked once to a byte a code, and all tokens pass over it while it is in the
 * nearest cache, PANEL_TOKENS at a time (to be defined before): a quad of a token is one broadcast for both
 * halves of the tile, and the codes of a quad serve all tokens of a run. */
#ifndef TRINE_KERNELS_X86_MATMUL_PANEL_256_H
#define TRINE_KERNELS_X86_MATMUL_PANEL_256_H

#include <assert.h>

#include "kernels/x86/matmul_avx2.h"
#include "kernels/x86/sub_sums.h"

#define FEW_TOKENS   8 /* multiply packed weights directly; more unpack them first */
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
    int64_t stride; /* PANEL_INPUTS, which the loops of AVX-VNNI have as a constant */
    int32_t *sums;  /* (n_tokens, sum_stride): of activations, as the packing wants them */
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

/* name_n from an inlined body(panel, token, state, ..., n). */
#define PANEL_RUN(name, n, body, ...)                                                              \
    static void name##_##n(const struct panel *panel, int token, __m256 state[][2])                \
    {                                                                                              \
        body(panel, token, state, __VA_ARGS__ n);                                                  \
    }

/* f16 scales of a panel's group g. */
ALWAYS_INLINE void panel_scales(float *to, int g, const uint8_t *scales)
{
    _mm256_store_ps(to + g * TILE_ROWS, f16_scales(scales));
    _mm256_store_ps(to + g * TILE_ROWS + 8, f16_scales(scales + 16));
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

/* sums = start - zero * sum of activations, of every token and group of a panel. */
ALWAYS_INLINE void panel_start_sums(const struct panel *p, int group, int zero, int start)
{
    const struct activations *a = &p->job->a;
    const __m128i factor = _mm_set1_epi32(-zero), starts = _mm_set1_epi32(start);
    for (int t = 0; t < p->job->n_tokens; t++) {
        const int32_t *from = a->sum + (int64_t)t * a->n_sums + p->col0 / group;
        int32_t *to = p->sums + t * p->sum_stride;
        int g = 0, n = p->n / group;
        for (; g + 4 <= n; g += 4) {
            __m128i sums = _mm_mullo_epi32(_mm_loadu_si128((const __m128i *)(from + g)), factor);
            _mm_store_si128((__m128i *)(to + g), _mm_add_epi32(sums, starts));
        }
        for (; g < n; g++)
            to[g] = start - zero * from[g];
    }
}

/* Sums of the groups of blocks of 256 in pairs of int16 instead. */
ALWAYS_INLINE void panel_pair_sums(const struct panel *p, int n_groups)
{
    const struct activations *a = &p->job->a;
    int64_t n = p->n / 256 * n_groups;
    for (int t = 0; t < p->job->n_tokens; t++) {
        const int32_t *sums = a->sum + (int64_t)t * a->n_sums + p->col0 / 256 * n_groups;
        store_pair_sums(sums, n, p->sums + t * p->sum_stride);
    }
}

/* The floats act scale * sum of activations instead, what minimums are multiplied with. */
ALWAYS_INLINE void panel_act_sums(const struct panel *p, int group)
{
    const struct activations *a = &p->job->a;
    for (int t = 0; t < p->job->n_tokens; t++) {
        const int32_t *sum = a->sum + (int64_t)t * a->n_sums + p->col0 / group;
        const float *scale = a->scale + (int64_t)t * a->n_scales + p->col0 / group;
        float *to = (float *)p->sums + t * p->sum_stride;
        for (int g = 0; g < p->n / group; g++)
            to[g] = scale[g] * (float)sum[g];
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
    assert(p.stride == PANEL_INPUTS && n_rows > 0); /* no more tokens than the contract has */
    for (int row0 = begin; row0 < end; row0 += n_rows)
        panel_tiles(&p, ops, (__m256(*)[2])at, row0, row0 + n_rows < end ? row0 + n_rows : end);
}

/* Any number of tokens. */
ALWAYS_INLINE void matmul_256(const struct matmul_job *job, int begin, int end,
                              const struct tile_kernels *kernels, const struct panel_ops *ops)
{
    if (job->n_tokens <= ops->few)
        matmul_tiles_avx2(job, begin, end, kernels);
    else
        panel_matmul(job, ops, begin, end);
}

#endif
