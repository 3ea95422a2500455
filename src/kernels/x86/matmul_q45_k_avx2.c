/* matmul of q4_k and q5_k: codes times int8 in int16 pairs, of 32 inputs (2 * 8 * 15 * 127 < 2^15) or
 * with five bits of 16, times the 6-bit scale in the multiply-add that joins a pair. */
#include "kernels/x86/matmul_codes_256.h"
#include "kernels/x86/matmul_mins_panel_avx2.h"

enum { BLOCK = 256, GROUPS = 8, HEADER = PACKED_K_LINES_AT + 12 * TILE_ROWS };

/* acc += scale * sum of code * q over `quads` quads of a group. */
ALWAYS_INLINE void add_quads(const uint8_t *steps, int quad0, int n_quads, bool has_fifth,
                             __m256i scale0, __m256i scale1, const int8_t *q, int64_t stride, int n,
                             __m256i acc[MAX_TOKENS][2])
{
    __m256i dot[MAX_TOKENS][2];
#pragma GCC unroll 8
    for (int k = quad0; k < quad0 + n_quads; k++) {
        __m256i codes0 = unpack_nibbles(steps, k, has_fifth);
        __m256i codes1 = unpack_nibbles(steps + 32, k, has_fifth);
        add_codes_16(codes0, codes1, q + 4 * k, stride, k == quad0, n, dot);
    }
    add_scaled_pairs(dot, scale0, scale1, n, acc);
}

ALWAYS_INLINE void add_block(const struct activations *a, const uint8_t *unit, bool has_fifth,
                             int block, int token, int n, struct fetch *fetch,
                             struct chains *chains)
{
    const int quads = has_fifth ? 4 : 8; /* of an int16 sum */
    const uint8_t *codes = unit + HEADER;
    const int8_t *q = a->q + token * a->stride + (int64_t)block * BLOCK;
    struct sub_scales subs[2];
    __m256i acc[MAX_TOKENS][2];
    unpack_6_bit_scales(unit + PACKED_K_LINES_AT, &subs[0]);
    unpack_6_bit_scales(unit + PACKED_K_LINES_AT + 32, &subs[1]);
#pragma GCC unroll 4
    for (int t = 0; t < n; t++)
        acc[t][0] = acc[t][1] = _mm256_setzero_si256();
    for (int g = 0; g < GROUPS; g++, q += 32, codes += (4 + has_fifth) * STEP_BYTES) {
        fetch_lines(fetch, has_fifth && g % 4 == 0 ? 8 : 4);
#pragma GCC unroll 2
        for (int k = 0; k < 8; k += quads)
            add_quads(codes, k, quads, has_fifth, subs[0].scale[g], subs[1].scale[g], q, a->stride,
                      n, acc);
    }
    add_min_block(a, unit, subs, GROUPS, block, token, n, acc, chains);
}

ALWAYS_INLINE void tile_tokens(const struct matmul_job *job, const uint8_t *tile, int row0,
                               int token, bool has_fifth, int n)
{
    const int unit_bytes = HEADER + GROUPS * (4 + has_fifth) * STEP_BYTES;
    struct fetch fetch = fetch_behind(job, tile, row0, token, 4);
    struct chains chains;
    chains_clear(&chains, n);
    for (int block = 0; block < (int)(job->a.n_cols / BLOCK); block++, tile += unit_bytes) {
        fetch_lines(&fetch, HEADER / STEP_BYTES);
        add_block(&job->a, tile, has_fifth, block, token, n, &fetch, &chains);
    }
    chains_finish(&chains, job, row0, token, n);
}

ALWAYS_INLINE void q4_k_tokens(const struct matmul_job *job, const uint8_t *tile, int row0,
                               int token, int n)
{
    tile_tokens(job, tile, row0, token, false, n);
}

ALWAYS_INLINE void q5_k_tokens(const struct matmul_job *job, const uint8_t *tile, int row0,
                               int token, int n)
{
    tile_tokens(job, tile, row0, token, true, n);
}

TILE_KERNEL(q4_k_1, q4_k_tokens, 1)
TILE_KERNEL(q4_k_2, q4_k_tokens, 2)
TILE_KERNEL(q4_k_4, q4_k_tokens, 4)
TILE_KERNEL(q5_k_1, q5_k_tokens, 1)
TILE_KERNEL(q5_k_2, q5_k_tokens, 2)
TILE_KERNEL(q5_k_4, q5_k_tokens, 4)

static void unpack(const struct panel *p, const uint8_t *tile, bool has_fifth)
{
    const int unit_bytes = HEADER + GROUPS * (4 + has_fifth) * STEP_BYTES;
    struct panel_block *b = (struct panel_block *)p->extra;
    uint8_t *to = p->codes;
    b[0].unit = tile + p->col0 / BLOCK * unit_bytes;
    for (int i = 0; i < p->n / BLOCK; i++) {
        b[i].unit = b[0].unit + i * unit_bytes;
        unpack_6_bit_scales(b[i].unit + PACKED_K_LINES_AT, &b[i].subs[0]);
        unpack_6_bit_scales(b[i].unit + PACKED_K_LINES_AT + 32, &b[i].subs[1]);
        const uint8_t *steps = b[i].unit + HEADER;
        for (int g = 0; g < GROUPS; g++, steps += (4 + has_fifth) * STEP_BYTES)
#pragma GCC unroll 8
            for (int quad = 0; quad < 8; quad++, to += STEP_BYTES) {
                _mm256_store_si256((__m256i *)to, unpack_nibbles(steps, quad, has_fifth));
                _mm256_store_si256((__m256i *)(to + 32),
                                   unpack_nibbles(steps + 32, quad, has_fifth));
            }
    }
}

static void unpack_4(const struct panel *p, const uint8_t *tile)
{
    unpack(p, tile, false);
}

static void unpack_5(const struct panel *p, const uint8_t *tile)
{
    unpack(p, tile, true);
}

static void copy(const struct panel *p)
{
    panel_copy(p);
    panel_pair_sums(p, GROUPS);
}

PANEL_RUNS(many_4, panel_mins, GROUPS, 8, )
PANEL_RUNS(many_5, panel_mins, GROUPS, 4, )

#define PANEL_OPS(bits, few_tokens)                                                                \
    {                                                                                              \
        .few = few_tokens, .inputs = PANEL_INPUTS, .act_bytes = 1,                                 \
        .sums = PANEL_BLOCKS * GROUPS / 2, .copy = copy,                                           \
        .extra_bytes = PANEL_BLOCKS * sizeof(struct panel_block), .unpack = unpack_##bits,         \
        .run = PANEL_NAMES(many_##bits)                                                            \
    }
static const struct panel_ops ops_4 = PANEL_OPS(4, FEW_TOKENS);
/* The fifth bit makes unpacking dear: 6 and 8 tokens gain 1.19 and 1.15 by panels (December 2026). */
static const struct panel_ops ops_5 = PANEL_OPS(5, 4);

void matmul_q4_k_avx2(const union job *job, int begin, int end)
{
    static const struct tile_kernels kernels = {q4_k_1, q4_k_2, q4_k_4, NULL};
    matmul_256(&job->matmul, begin, end, &kernels, &ops_4);
}

void matmul_q5_k_avx2(const union job *job, int begin, int end)
{
    static const struct tile_kernels kernels = {q5_k_1, q5_k_2, q5_k_4, NULL};
    matmul_256(&job->matmul, begin, end, &kernels, &ops_5);
}
