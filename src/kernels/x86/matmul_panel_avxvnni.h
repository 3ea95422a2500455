/* Many tokens on AVX-VNNI: a panel, some inputs of one tile, is unpacked once to a byte a code, and
 * all tokens pass over it while it is in the nearest cache, six at a time: 12 of 16 registers are
 * sums, a quad of a token is one broadcast for both halves of the tile. */
#ifndef TRINE_KERNELS_X86_MATMUL_PANEL_AVXVNNI_H
#define TRINE_KERNELS_X86_MATMUL_PANEL_AVXVNNI_H

#include "kernels/x86/matmul_avxvnni.h"

#define FEW_TOKENS   8 /* multiply packed weights directly; more unpack them first */
#define PANEL_TOKENS 6 /* of a run at most */
#define PANEL_INPUTS 512

/* Inputs [col0, col0 + n) of one tile. */
struct panel {
    const struct matmul_job *job;
    int64_t col0;
    int n;
    int8_t *q;           /* (n_tokens, PANEL_INPUTS): activations, copied */
    uint8_t *codes;      /* (quads, 64) */
    float *scales;       /* (groups, 1 or with minimums 2, 16) */
    uint8_t *sub_scales; /* lines of 16 int32 */
    int32_t *prepared;   /* (n_tokens, prepared_stride): of activations, by prepare */
    int64_t prepared_stride;
};

/* What a packing does with panels. */
struct panel_ops {
    int n_prepared; /* int32 of a token and panel */
    void (*prepare)(struct panel *panel);
    void (*unpack)(struct panel *panel, const uint8_t *tile);
    /* n tokens from `token`; state: (n, 16) sums or chains */
    void (*run[PANEL_TOKENS])(const struct panel *panel, int token, __m256 *state);
    /* one token of a tile whose state is not chains; may be NULL */
    void (*finish)(const struct matmul_job *job, const uint8_t *tile, int row0, int token,
                   const __m256i sums[2]);
};

#define PANEL_RUN(name, body, n)                                                                   \
    static void name##_##n(const struct panel *panel, int token, __m256 *state)                    \
    {                                                                                              \
        body(panel, token, (__m256(*)[2])state, n);                                                \
    }
/* name_1 ... name_6 from an inlined body(panel, token, state, n). */
#define PANEL_RUNS(name, body)                                                                     \
    PANEL_RUN(name, body, 1)                                                                       \
    PANEL_RUN(name, body, 2)                                                                       \
    PANEL_RUN(name, body, 3)                                                                       \
    PANEL_RUN(name, body, 4)                                                                       \
    PANEL_RUN(name, body, 5)                                                                       \
    PANEL_RUN(name, body, 6)
#define PANEL_NAMES(name)                                                                          \
    {                                                                                              \
        name##_1, name##_2, name##_3, name##_4, name##_5, name##_6                                 \
    }

/* acc += n_quads quads of codes times n tokens. */
ALWAYS_INLINE void panel_quads(const uint8_t *codes, const int8_t *q, int n_quads, int n,
                               __m256i acc[PANEL_TOKENS][2])
{
#pragma GCC unroll 4
    for (int i = 0; i < n_quads; i++) {
        __m256i codes0 = load_256(codes + i * STEP_BYTES);
        __m256i codes1 = load_256(codes + i * STEP_BYTES + 32);
#pragma GCC unroll 6
        for (int t = 0; t < n; t++) {
            __m256i quad = broadcast_quad(q + t * PANEL_INPUTS + 4 * i);
            acc[t][0] = add_quad(acc[t][0], codes0, quad);
            acc[t][1] = add_quad(acc[t][1], codes1, quad);
        }
    }
}

/* All tokens, in runs as even as possible. */
static inline void panel_tokens(const struct panel *p, const struct panel_ops *ops, __m256 *state)
{
    int n_tokens = p->job->n_tokens;
    int n_runs = (n_tokens + PANEL_TOKENS - 1) / PANEL_TOKENS;
    for (int i = 0, token = 0; i < n_runs; i++) {
        int end = (i + 1) * n_tokens / n_runs;
        ops->run[end - token - 1](p, token, state + 2 * token);
        token = end;
    }
}

static inline void panel_finish(const struct panel *p, const struct panel_ops *ops,
                                const uint8_t *tile, int row0, const __m256 *state)
{
    for (int t = 0; t < p->job->n_tokens; t++, state += 2) {
        if (ops->finish)
            ops->finish(p->job, tile, row0, t, (const __m256i *)state);
        else
            matmul_finish(p->job, row0, t, (const float *)state);
    }
}

/* Rows of activations are often a multiple of 4 KiB apart: then those of a panel would share few sets of
 * the second cache. */
static inline void panel_copy(struct panel *p)
{
    const struct activations *a = &p->job->a;
    size_t n = (size_t)(p->n + 15) / 16 * 16;
    for (int t = 0; t < p->job->n_tokens; t++)
        memcpy(p->q + t * PANEL_INPUTS, a->q + t * a->stride + p->col0, n);
}

/* As many tiles as the scratch has state for, panel after panel; the activations of a panel stay in
 * the second cache. */
static inline void panel_tiles(struct panel *p, const struct panel_ops *ops, __m256 *state,
                               int begin, int end)
{
    const struct matmul_job *job = p->job;
    int64_t tile_bytes = packed_tile_bytes(job->w.packing, job->w.group, job->w.n_cols);
    int64_t of_tile = 2 * job->n_tokens;
    memset(state, 0, (size_t)((end - begin + TILE_ROWS - 1) / TILE_ROWS * of_tile) * sizeof *state);
    for (p->col0 = 0; p->col0 < job->w.n_cols; p->col0 += PANEL_INPUTS) {
        int64_t left = job->w.n_cols - p->col0;
        p->n = left < PANEL_INPUTS ? (int)left : PANEL_INPUTS;
        panel_copy(p);
        if (ops->prepare)
            ops->prepare(p);
        __m256 *at = state;
        for (int row0 = begin; row0 < end; row0 += TILE_ROWS, at += of_tile) {
            const uint8_t *tile = job->w.data + row0 / TILE_ROWS * tile_bytes;
            ops->unpack(p, tile);
            panel_tokens(p, ops, at);
            if (left <= PANEL_INPUTS)
                panel_finish(p, ops, tile, row0, at);
        }
    }
}

/* Scratch: the panel and what is prepared first, the rest is state. */
static inline void panel_matmul(const struct matmul_job *job, const struct panel_ops *ops,
                                int begin, int end)
{
    struct panel p = {.job = job, .prepared_stride = ops->n_prepared};
    uint8_t *at = job->scratch, *scratch_end = at + MATMUL_SCRATCH_BYTES;
    p.codes = at;
    at += (PANEL_INPUTS / 4 + 4) * STEP_BYTES;
    p.scales = (float *)at;
    at += PANEL_INPUTS / 32 * TILE_ROWS * sizeof *p.scales;
    p.sub_scales = at;
    at += 2 * 24 * STEP_BYTES; /* of two blocks, with minimums */
    p.q = (int8_t *)at;
    at += (int64_t)job->n_tokens * PANEL_INPUTS;
    p.prepared = (int32_t *)at;
    at += ((int64_t)job->n_tokens * ops->n_prepared * 4 + 63) / 64 * 64;
    int n_rows = (int)((scratch_end - at) / (job->n_tokens * STEP_BYTES)) * TILE_ROWS;
    for (int row0 = begin; row0 < end; row0 += n_rows)
        panel_tiles(&p, ops, (__m256 *)at, row0, row0 + n_rows < end ? row0 + n_rows : end);
}

static inline void matmul_avxvnni(const struct matmul_job *job, const struct tile_kernels *few,
                                  const struct panel_ops *many, int begin, int end)
{
    if (job->n_tokens <= FEW_TOKENS)
        matmul_tiles_avx2(job, begin, end, few);
    else
        panel_matmul(job, many, begin, end);
}

#endif
