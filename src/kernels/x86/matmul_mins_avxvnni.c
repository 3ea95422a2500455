/* matmul of packings of blocks of 256 whose groups have a minimum beside their scale: q4_k, q5_k,
 * q2_k. A part is 32 inputs: one group, or two. */
#include "kernels/x86/matmul_k_avxvnni.h"
#include "kernels/x86/matmul_mins_avx2.h"

enum { PARTS = 8, PART_QUADS = 8 };

/* Bytes before the codes of a block, bytes of a part's codes, groups of a block. */
#define HEADER(kind)     (PACKED_K_LINES_AT + ((kind) == Q2_K ? 16 : 12) * TILE_ROWS)
#define PART_BYTES(kind) (((kind) == Q4_K ? 4 : (kind) == Q5_K ? 5 : 2) * STEP_BYTES)
#define UNIT(kind)       (HEADER(kind) + PARTS * PART_BYTES(kind))
#define GROUPS(kind)     ((kind) == Q2_K ? 16 : 8)

/* Of one half of a block: scales of groups, in lanes, and pairs of minimums. */
ALWAYS_INLINE void unpack_scales(const uint8_t *unit, enum k_kind kind, int half,
                                 struct sub_scales *to)
{
    const uint8_t *lines = unit + PACKED_K_LINES_AT + 32 * half;
    if (kind == Q2_K)
        unpack_4_bit_scales(lines, to);
    else
        unpack_6_bit_scales(lines, to);
    const int n_groups = GROUPS(kind);
#pragma GCC unroll 16
    for (int i = 0; i < n_groups; i++)
        to->scale[i] = _mm256_srli_epi32(to->scale[i], 16);
}

ALWAYS_INLINE void tile_tokens(const struct matmul_job *job, const uint8_t *unit, int row0,
                               int token, enum k_kind kind, int n)
{
    const struct activations *a = &job->a;
    const int8_t *q = a->q + token * a->stride;
    const int part_lines = PART_BYTES(kind) / STEP_BYTES;
    struct fetch fetch = fetch_behind(job, unit, row0, token, 4);
    struct chains chains;
    chains_clear(&chains, n);
    for (int block = 0; block < (int)(a->n_cols / BLOCK); block++, unit += UNIT(kind)) {
        const uint8_t *steps = unit + HEADER(kind);
        struct sub_scales subs[2];
        __m256i acc[MAX_TOKENS][2];
        unpack_scales(unit, kind, 0, &subs[0]);
        unpack_scales(unit, kind, 1, &subs[1]);
#pragma GCC unroll 4
        for (int t = 0; t < n; t++)
            acc[t][0] = acc[t][1] = _mm256_setzero_si256();
        fetch_lines(&fetch, kind == Q2_K ? 8 : 4); /* for the header */
        for (int i = 0; i < PARTS; i++, q += 32, steps += PART_BYTES(kind)) {
            fetch_lines(&fetch, (i + 1) * part_lines / 4 * 4 - i * part_lines / 4 * 4);
            add_part(kind, steps, q, a->stride, subs[0].scale + i * GROUPS(kind) / PARTS,
                     subs[1].scale + i * GROUPS(kind) / PARTS, NULL, n, acc);
        }
        add_min_block(a, unit, subs, GROUPS(kind), block, token, n, acc, &chains);
    }
    chains_finish(&chains, job, row0, token, n);
}

ALWAYS_INLINE void unpack_units(const struct panel *p, const uint8_t *tile, enum k_kind kind)
{
    const uint8_t *unit = tile + p->col0 / BLOCK * UNIT(kind);
    uint8_t *to = p->codes, *lines = p->extra;
    float *scales = p->scales;
    for (int b = 0; b < p->n / BLOCK; b++, unit += UNIT(kind), scales += 2 * TILE_ROWS) {
        for (int i = 0; i < 4; i++) /* d, then dmin */
            _mm256_store_ps(scales + 8 * i, f16_scales(unit + 16 * i));
        __m256i scale[2][16];
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            struct sub_scales subs;
            unpack_scales(unit, kind, h, &subs);
            for (int i = 0; i < GROUPS(kind); i++) {
                scale[h][i] = _mm256_or_si256(subs.scale[i], _mm256_slli_epi32(subs.scale[i], 16));
                put_line(lines + i * STEP_BYTES, h, float_line(subs.scale[i]));
            }
            for (int i = 0; i < GROUPS(kind) / 2; i++)
                put_line(lines + (GROUPS(kind) + i) * STEP_BYTES, h, subs.min[i]);
        }
        lines += 3 * GROUPS(kind) / 2 * STEP_BYTES;
        for (int i = 0; i < PARTS; i++, to += PART_QUADS * STEP_BYTES) {
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                const uint8_t *half = unit + HEADER(kind) + i * PART_BYTES(kind) + 32 * h;
#pragma GCC unroll 8
                for (int k = 0; k < PART_QUADS; k++) {
                    __m256i codes = unpack_k_quad(kind, half, k);
                    if (kind == Q2_K) /* at most 3 * 15 */
                        codes =
                            scaled_codes(codes, scale[h][2 * i + k / 4], _mm256_setzero_si256());
                    put_line(to + k * STEP_BYTES, h, codes);
                }
            }
        }
    }
}

ALWAYS_INLINE void panel_blocks(const struct panel *p, int token, __m256 state[][2],
                                enum k_kind kind, int n)
{
    const int n_pairs = GROUPS(kind) / 2;
    int64_t act_stride = p->job->a.n_scales;
    const float *act_scale = p->job->a.scale + token * act_stride + p->col0 / BLOCK;
    const float *scales = p->scales;
    const uint8_t *lines = p->extra;
    for (int b = 0; b < p->n / BLOCK; b++, act_scale++, scales += 2 * TILE_ROWS) {
        __m256 sum[PANEL_TOKENS][2];
        if (kind == Q2_K)
            panel_products(p, b, token, n, sum);
        else /* 4 * 63 * 32 * 15 * 127 < 2^24, with 31 for 15 two groups */
            panel_block(p, b, token, (const float *)(const void *)lines, K_GROUP_QUADS(kind),
                        kind == Q4_K ? 4 : 2, false, n, sum);
        panel_floats(scales, act_scale, act_stride, false, n, sum, state);
        panel_mins(p, b, token, lines + GROUPS(kind) * STEP_BYTES, n_pairs, n, sum);
        panel_floats(scales + TILE_ROWS, act_scale, act_stride, true, n, sum, state);
        lines += (GROUPS(kind) + n_pairs) * STEP_BYTES;
    }
}

/* The fifth bit makes unpacking dear: 6 and 8 tokens gain 1.08 and 1.2 by panels (December 2026). */
#define FEW(kind) ((kind) == Q5_K ? 4 : FEW_TOKENS)

#define KERNEL_OF(name, kind)                                                                      \
    ALWAYS_INLINE void name##_few(const struct matmul_job *job, const uint8_t *tile, int row0,     \
                                  int token, int n)                                                \
    {                                                                                              \
        tile_tokens(job, tile, row0, token, kind, n);                                              \
    }                                                                                              \
    ALWAYS_INLINE void name##_many(const struct panel *p, int token, __m256 state[][2], int n)     \
    {                                                                                              \
        panel_blocks(p, token, state, kind, n);                                                    \
    }                                                                                              \
    static void name##_unpack(const struct panel *p, const uint8_t *tile)                          \
    {                                                                                              \
        unpack_units(p, tile, kind);                                                               \
    }                                                                                              \
    static void name##_copy(const struct panel *p)                                                 \
    {                                                                                              \
        panel_copy(p);                                                                             \
        panel_pair_sums(p, GROUPS(kind));                                                          \
    }                                                                                              \
    TILE_KERNEL(name##_few_1, name##_few, 1)                                                       \
    TILE_KERNEL(name##_few_2, name##_few, 2)                                                       \
    TILE_KERNEL(name##_few_4, name##_few, 4)                                                       \
    PANEL_RUNS(name##_many, name##_many, )                                                         \
    void matmul_##name##_avxvnni(const union job *j, int begin, int end)                           \
    {                                                                                              \
        static const struct tile_kernels few = {                                                   \
            .one = name##_few_1, .two = name##_few_2, .four = name##_few_4};                       \
        static const struct panel_ops many = {.few = FEW(kind),                                    \
                                              .inputs = PANEL_INPUTS,                              \
                                              .act_bytes = 1,                                      \
                                              .sums = PANEL_INPUTS / 32,                           \
                                              .extra_bytes = PANEL_INPUTS / BLOCK *                \
                                                             (3 * GROUPS(kind) / 2) * STEP_BYTES,  \
                                              .copy = name##_copy,                                 \
                                              .unpack = name##_unpack,                             \
                                              .run = PANEL_NAMES(name##_many)};                    \
        matmul_256(&j->matmul, begin, end, &few, &many);                                           \
    }

KERNEL_OF(q4_k, Q4_K)
KERNEL_OF(q5_k, Q5_K)
KERNEL_OF(q2_k, Q2_K)
