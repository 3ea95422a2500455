/* matmul of q2_k: codes times int8 in int16 pairs of 16 inputs, times the 4-bit scale in the
 * multiply-add that joins a pair. */
#include "kernels/x86/matmul_mins_panel_avx2.h"

enum { BLOCK = 256, GROUPS = 16, LINES_AT = 64, CODES_AT = LINES_AT + 16 * TILE_ROWS };
enum { UNIT_BYTES = CODES_AT + GROUPS * STEP_BYTES };

/* acc += scale * sum of code * q over a group. */
ALWAYS_INLINE void add_codes(const uint8_t *step, __m256i scale0, __m256i scale1, const int8_t *q,
                             int64_t stride, int n, __m256i acc[MAX_TOKENS][2])
{
    const __m256i w[2] = {load_256(step), load_256(step + 32)}, mask = _mm256_set1_epi8(3);
    __m256i dot[MAX_TOKENS][2];
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++)
        add_field(w, 2 * k, mask, q + 4 * k, stride, k == 0, n, dot);
    add_scaled_pairs(dot, scale0, scale1, n, acc);
}

ALWAYS_INLINE void tile_tokens(const struct matmul_job *job, const uint8_t *unit, int row0,
                               int token, int n)
{
    const struct activations *a = &job->a;
    const int8_t *q = a->q + token * a->stride;
    struct fetch fetch = fetch_behind(job, unit, row0, token, 4);
    struct chains chains;
    chains_clear(&chains, n);
    for (int block = 0; block < (int)(a->n_cols / BLOCK); block++, unit += UNIT_BYTES) {
        struct sub_scales subs[2];
        __m256i acc[MAX_TOKENS][2];
        unpack_4_bit_scales(unit + LINES_AT, &subs[0]);
        unpack_4_bit_scales(unit + LINES_AT + 32, &subs[1]);
#pragma GCC unroll 4
        for (int t = 0; t < n; t++)
            acc[t][0] = acc[t][1] = _mm256_setzero_si256();
        fetch_lines(&fetch, 8); /* for the header */
        for (int g = 0; g < GROUPS; g++, q += 16) {
            if (g % 4 == 0)
                fetch_lines(&fetch, 4);
            add_codes(unit + CODES_AT + g * STEP_BYTES, subs[0].scale[g], subs[1].scale[g], q,
                      a->stride, n, acc);
        }
        add_min_block(a, unit, subs, GROUPS, block, token, n, acc, &chains);
    }
    chains_finish(&chains, job, row0, token, n);
}

TILE_KERNELS(tile_tokens)

static void unpack(const struct panel *p, const uint8_t *tile)
{
    struct panel_block *b = (struct panel_block *)p->extra;
    for (int i = 0; i < p->n / BLOCK; i++) {
        b[i].unit = tile + (p->col0 / BLOCK + i) * UNIT_BYTES;
        unpack_4_bit_scales(b[i].unit + LINES_AT, &b[i].subs[0]);
        unpack_4_bit_scales(b[i].unit + LINES_AT + 32, &b[i].subs[1]);
        for (int g = 0; g < GROUPS; g++)
            panel_unpack_step(b[i].unit + CODES_AT + g * STEP_BYTES, 2,
                              p->codes + (i * GROUPS + g) * 4 * STEP_BYTES);
    }
}

static void copy(const struct panel *p)
{
    panel_copy(p);
    panel_pair_sums(p, GROUPS);
}

PANEL_RUNS(many, panel_mins, GROUPS, 4, )

static const struct panel_ops panel_ops = {.few = FEW_TOKENS,
                                           .inputs = PANEL_INPUTS,
                                           .act_bytes = 1,
                                           .sums = PANEL_BLOCKS * GROUPS / 2,
                                           .extra_bytes = PANEL_BLOCKS * sizeof(struct panel_block),
                                           .copy = copy,
                                           .unpack = unpack,
                                           .run = PANEL_NAMES(many)};

void matmul_q2_k_avx2(const union job *job, int begin, int end)
{
    matmul_256(&job->matmul, begin, end, &tile_kernels, &panel_ops);
}
