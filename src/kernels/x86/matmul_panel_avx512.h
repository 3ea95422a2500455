/* Many tokens: a panel of some tiles and inputs is unpacked to one byte per code, so that 64
 * bytes are the rows of a tile by one quad, and all tokens pass over it while it is in the nearest
 * cache. The inner loop is 3 tiles x 8 tokens: 24 accumulators, three loads of codes and 8
 * broadcasts for 24 multiply-adds; of K types whose groups are scaled into sums of their own 2 x 7, so that
 * both sets of sums are registers. In the first cache of an Emerald Rapids core 3 x 8 reaches the
 * peak, as 4 x 4, 5 x 5 and 4 x 6 do; 3 x 4 reaches 0.895 of it: two multiply-adds a cycle that take 5
 * cycles need more than 12 accumulators (December 2026). */
#ifndef TRINE_KERNELS_X86_MATMUL_PANEL_AVX512_H
#define TRINE_KERNELS_X86_MATMUL_PANEL_AVX512_H

#include "kernels/x86/matmul_avx512.h"

#define PANEL_TILES  3
#define PANEL_TOKENS 8 /* of a run */

/* Inputs [col0, col0 + n) of one to three tiles. */
struct panel {
    const struct matmul_job *job;
    int64_t col0, n;
    int n_tiles;
    int group;           /* inputs per scale; 0: the row */
    uint8_t *codes;      /* (quads, n_tiles, 64) */
    float *scales;       /* (groups, 1 or with minimums 2, n_tiles, 16) */
    int16_t *sub_scales; /* (groups, ops.sub_scales, n_tiles, 16 rows of a pair or a float) */
    /* (n_tokens, zero_stride): is_scaled: for every group, -zero * sum of activations (with minimums, their
     * scaled sum) and the scale; q6_k: -zero * sum of every 16; other K types: pairs of sums, as int16 */
    int32_t *zero_sums;
    int32_t *extra; /* (n_tokens, extra_stride): q5_k, q6_k: see there */
    int64_t zero_stride, extra_stride;
};

/* Runs a panel for the tokens from `token`; state: (tokens, n_tiles) accumulators. */
typedef void panel_run(const struct panel *panel, int token, __m512i *state);

/* Unpacks a panel's inputs of one tile: codes to every pitch-th line of 64 bytes, scales and sub-scales too. */
typedef void panel_unpack(const struct panel *panel, int64_t tile, int pitch, uint8_t *codes,
                          float *scales, int16_t *sub_scales);
/* Those that matmul_amx.c uses too. */
panel_unpack unpack_trits4_avx512, unpack_trits5_avx512vbmi, unpack_q4_0_avx512, unpack_q4_1_avx512,
    unpack_q5_0_avx512, unpack_q5_1_avx512, unpack_q8_0_avx512, unpack_iq4_nl_avx512,
    unpack_q6_k_avx512, unpack_q4_k_avx512, unpack_q5_k_avx512, unpack_q2_k_avx512,
    unpack_q3_k_avx512, unpack_iq4_xs_avx512;

/* What a packing does with panels. */
struct panel_ops {
    int inputs; /* of a panel: whole units, a multiple of 64 */
    int zero;   /* code of value 0 */
    int group;
    int sum_inputs;        /* of an int32 of zero_sums; is_scaled, or 0: see panel_place */
    bool has_min;          /* beside every scale one of minimums */
    bool is_scaled;        /* zero_sums are as panel_scaled reads them */
    int sub_scales;        /* 32 bits each, of a row and group */
    int extra;             /* int32 of a token and panel in panel.extra */
    int tiles, max_tokens; /* of a run, at most */
    panel_run *const *run; /* by [n_tiles - 1][n_tokens - 1] */
    panel_unpack *unpack;
    void (*look)(struct panel *panel); /* at the activations of a panel; may be NULL */
};

INLINE void panel_load(const __m512i *state, const int n_tiles, const int n_tokens,
                       __m512i acc[][PANEL_TILES])
{
    UNROLL
    for (int t = 0; t < n_tokens; t++) {
        UNROLL
        for (int k = 0; k < n_tiles; k++)
            acc[t][k] = _mm512_loadu_si512(state + t * n_tiles + k);
    }
}

INLINE void panel_store(__m512i *state, const int n_tiles, const int n_tokens,
                        __m512i acc[][PANEL_TILES])
{
    UNROLL
    for (int t = 0; t < n_tokens; t++) {
        UNROLL
        for (int k = 0; k < n_tiles; k++)
            _mm512_storeu_si512(state + t * n_tiles + k, acc[t][k]);
    }
}

/* Rows of up to 8 tokens: one pointer per three, because two strides away is the farthest that an
 * address of x86 reaches without a register of its own. */
struct token_rows {
    const uint8_t *at[3];
    int64_t stride; /* bytes */
};

INLINE struct token_rows rows_at(const void *first, int64_t stride, const int n_tokens)
{
    struct token_rows rows = {.stride = stride};
    UNROLL
    for (int i = 0; 3 * i < n_tokens; i++) {
        rows.at[i] = (const uint8_t *)first + 3 * i * stride;
        __asm__("" : "+r"(rows.at[i])); /* or compilers spend a register per token */
    }
    return rows;
}

INLINE const void *row_of(const struct token_rows *rows, const int t)
{
    return rows->at[t / 3] + t % 3 * rows->stride;
}

INLINE void rows_advance(struct token_rows *rows, const int n_tokens, const int bytes)
{
    UNROLL
    for (int i = 0; 3 * i < n_tokens; i++)
        rows->at[i] += bytes;
}

/* Activations from column `col` of the panel. */
INLINE struct token_rows token_rows(const struct panel *p, int token, int64_t col,
                                    const int n_tokens)
{
    int64_t stride = p->job->a.stride;
    return rows_at(p->job->a.q + token * stride + p->col0 + col, stride, n_tokens);
}

/* Four quads of all tiles and tokens. */
INLINE void panel_quads(const uint8_t *codes, struct token_rows *rows, const int n_tiles,
                        const int n_tokens, __m512i acc[][PANEL_TILES])
{
    UNROLL
    for (int i = 0; i < 4; i++) {
        __m512i w[PANEL_TILES];
        UNROLL
        for (int k = 0; k < n_tiles; k++)
            w[k] = _mm512_loadu_si512(codes + (i * n_tiles + k) * STEP_BYTES);
        UNROLL
        for (int t = 0; t < n_tokens; t++) {
            __m512i x = quad_at((const int8_t *)row_of(rows, t) + 4 * i);
            UNROLL
            for (int k = 0; k < n_tiles; k++)
                __asm__("vpdpbusd %2, %1, %0" : "+v"(acc[t][k]) : "v"(w[k]), "v"(x));
        }
    }
    rows_advance(rows, n_tokens, 16);
}

/* One scale per row: the state is integers. Beyond the last input activations are zeros. */
INLINE void panel_row(const struct panel *p, int token, __m512i *state, const int n_tiles,
                      const int n_tokens)
{
    struct token_rows rows = token_rows(p, token, 0, n_tokens);
    const uint8_t *codes = p->codes;
    __m512i acc[PANEL_TOKENS][PANEL_TILES];
    panel_load(state, n_tiles, n_tokens, acc);
    for (int64_t i = 0; i < p->n; i += 16, codes += 4 * n_tiles * STEP_BYTES)
        panel_quads(codes, &rows, n_tiles, n_tokens, acc);
    panel_store(state, n_tiles, n_tokens, acc);
}

/* One scale per group: the state is floats, and stays in memory. has_min: and a minimum, and instead of
 * zero sums the scaled sums of activations. */
INLINE void panel_scaled(const struct panel *p, int token, __m512i *state, const int group,
                         const bool has_min, const int n_tiles, const int n_tokens)
{
    struct token_rows rows = token_rows(p, token, 0, n_tokens);
    struct token_rows pairs =
        rows_at(p->zero_sums + token * p->zero_stride, p->zero_stride * 4, n_tokens);
    const uint8_t *codes = p->codes;
    const float *scales = p->scales;
    /* Groups of 32 unrolled: two tiles gain 5 %, three lose as much. */
    const int at_once = group == 32 && n_tiles < 3 ? 2 : 1;
    __m512i acc[PANEL_TOKENS][PANEL_TILES];
    for (int64_t g = p->n / group; g > 0; g--) {
        UNROLL
        for (int t = 0; t < n_tokens; t++) {
            __m512i zero = quad_at(row_of(&pairs, t));
            UNROLL
            for (int k = 0; k < n_tiles; k++)
                acc[t][k] = has_min ? _mm512_setzero_si512() : zero;
        }
        for (int i = 0; i < group; i += 16 * at_once) {
            UNROLL
            for (int k = 0; k < at_once; k++, codes += 4 * n_tiles * STEP_BYTES)
                panel_quads(codes, &rows, n_tiles, n_tokens, acc);
        }
        __asm__("" : "+r"(state)); /* or compilers keep chains in registers */
        UNROLL
        for (int t = 0; t < n_tokens; t++) {
            const uint8_t *pair = row_of(&pairs, t);
            __m512 low = _mm512_castsi512_ps(quad_at(pair));
            __m512 act_scale = _mm512_castsi512_ps(quad_at(pair + 4));
            UNROLL
            for (int k = 0; k < n_tiles; k++) {
                __m512 scale = _mm512_mul_ps(_mm512_loadu_ps(scales + k * TILE_ROWS), act_scale);
                __m512 *y = (__m512 *)state + t * n_tiles + k, sum = _mm512_cvtepi32_ps(acc[t][k]);
                sum = _mm512_fmadd_ps(sum, scale, *y);
                if (has_min)
                    sum = _mm512_fmadd_ps(_mm512_loadu_ps(scales + (n_tiles + k) * TILE_ROWS), low,
                                          sum);
                *y = sum;
            }
        }
        rows_advance(&pairs, n_tokens, 8);
        scales += (1 + has_min) * n_tiles * TILE_ROWS;
    }
}

INLINE void panel_grouped(const struct panel *p, int token, __m512i *state, const int n_tiles,
                          const int n_tokens)
{
    panel_scaled(p, token, state, p->group, false, n_tiles, n_tokens);
}

/* A table of one template's runs, by [n_tiles - 1][n_tokens - 1]: up to 3 tiles by 8 tokens, or 2 by 7. */
#define PANEL_RUN(template, K, T)                                                                  \
    static void template##_##K##_##T(const struct panel *p, int token, __m512i *state)             \
    {                                                                                              \
        template(p, token, state, K, T);                                                           \
    }
#define PANEL_RUNS_7(t, K)                                                                         \
    PANEL_RUN(t, K, 1)                                                                             \
    PANEL_RUN(t, K, 2)                                                                             \
    PANEL_RUN(t, K, 3) PANEL_RUN(t, K, 4) PANEL_RUN(t, K, 5) PANEL_RUN(t, K, 6) PANEL_RUN(t, K, 7)
#define PANEL_RUNS_8(t, K) PANEL_RUNS_7(t, K) PANEL_RUN(t, K, 8)
#define PANEL_NAMES_7(t, K)                                                                        \
    t##_##K##_1, t##_##K##_2, t##_##K##_3, t##_##K##_4, t##_##K##_5, t##_##K##_6, t##_##K##_7
#define PANEL_NAMES_8(t, K) PANEL_NAMES_7(t, K), t##_##K##_8
#define PANEL_TABLE_3_8(t)                                                                         \
    PANEL_RUNS_8(t, 1)                                                                             \
    PANEL_RUNS_8(t, 2)                                                                             \
    PANEL_RUNS_8(t, 3)                                                                             \
    static panel_run *const t##_runs[] = {PANEL_NAMES_8(t, 1), PANEL_NAMES_8(t, 2),                \
                                          PANEL_NAMES_8(t, 3)};
#define PANEL_TABLE_2_7(t)                                                                         \
    PANEL_RUNS_7(t, 1)                                                                             \
    PANEL_RUNS_7(t, 2)                                                                             \
    static panel_run *const t##_runs[] = {PANEL_NAMES_7(t, 1), PANEL_NAMES_7(t, 2)};
#define RUNS_3_8(t) .tiles = 3, .max_tokens = 8, .run = t##_runs
#define RUNS_2_7(t) .tiles = 2, .max_tokens = 7, .run = t##_runs

#endif
