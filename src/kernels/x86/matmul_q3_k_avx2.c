/* matmul of q3_k: codes times int8 in int16 pairs of 16 inputs (2 * 4 * 7 * 127 < 2^15), times the 6-bit
 * scale in the multiply-add that joins a pair, on top of -4 * scale * sum of activations. */
#include "kernels/x86/matmul_codes_256.h"
#include "kernels/x86/matmul_mins_avx2.h"
#include "kernels/x86/matmul_signed_panel_avx2.h"

enum { GROUPS = 16, HEADER = PACKED_K_LINES_AT + 12 * TILE_ROWS };
enum { PART_BYTES = 3 * STEP_BYTES, PARTS = 8, UNIT_BYTES = HEADER + PARTS * PART_BYTES };

/* acc += scale * sum of code * q over a group, four of eight quads. */
ALWAYS_INLINE void add_group_codes(const uint8_t *steps, int quad0, __m256i scale0, __m256i scale1,
                                   const int8_t *q, int64_t stride, int n,
                                   __m256i acc[MAX_TOKENS][2])
{
    __m256i dot[MAX_TOKENS][2];
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        __m256i codes0 = unpack_3_bits(steps, quad0 + k);
        __m256i codes1 = unpack_3_bits(steps + 32, quad0 + k);
        add_codes_16(codes0, codes1, q + 4 * k, stride, k == 0, n, dot);
    }
    add_scaled_pairs(dot, scale0, scale1, n, acc);
}

/* y += (acc - 4 * sum of scale * sum of activations) * d * act scale. */
ALWAYS_INLINE void finish_block(const struct activations *a, const uint8_t *unit,
                                const struct sub_scales subs[2], int block, int token, int n,
                                __m256i acc[MAX_TOKENS][2], struct chains *chains)
{
    const float *act_scale = a->scale + (int64_t)token * a->n_scales + block;
    const int32_t *act_sum = a->sum + (int64_t)token * a->n_sums + (int64_t)block * GROUPS;
    __m256 d[2] = {f16_scales(unit), f16_scales(unit + 16)};
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) {
        __m256i low[2];
        float s = act_scale[(int64_t)t * a->n_scales];
        int32_t pairs[GROUPS / 2];
        store_pair_sums(act_sum + (int64_t)t * a->n_sums, GROUPS, pairs);
        mins_times(subs, pairs, GROUPS, low);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256i sum = _mm256_add_epi32(acc[t][h], _mm256_slli_epi32(low[h], 2));
            chains->y[t][h] = add_group(chains->y[t][h], sum, d[h], s);
        }
    }
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
        unpack_q3_k_scales(unit + PACKED_K_LINES_AT, &subs[0]);
        unpack_q3_k_scales(unit + PACKED_K_LINES_AT + 32, &subs[1]);
#pragma GCC unroll 4
        for (int t = 0; t < n; t++)
            acc[t][0] = acc[t][1] = _mm256_setzero_si256();
        fetch_lines(&fetch, HEADER / STEP_BYTES);
        for (int i = 0; i < PARTS; i++, q += 32) {
            const uint8_t *steps = unit + HEADER + i * PART_BYTES;
            if (i % 4) /* 4 lines for 3 */
                fetch_lines(&fetch, 4);
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++)
                add_group_codes(steps, 4 * g, subs[0].scale[2 * i + g], subs[1].scale[2 * i + g],
                                q + 16 * g, a->stride, n, acc);
        }
        finish_block(a, unit, subs, block, token, n, acc, &chains);
    }
    chains_finish(&chains, job, row0, token, n);
}

TILE_KERNELS(tile_tokens)

/* Many tokens: codes - 4 as signed bytes, in int16 pairs of four quads (2 * 4 * 255 * 4 < 2^15). */
static void unpack(const struct panel *p, const uint8_t *tile)
{
    const __m256i zero = _mm256_set1_epi8(4);
    const uint8_t *unit = tile + p->col0 / BLOCK * UNIT_BYTES;
    struct signed_block *b = (struct signed_block *)p->extra;
    uint8_t *to = p->codes;
    for (int i = 0; i < p->n / BLOCK; i++, b++, unit += UNIT_BYTES, to += BLOCK * TILE_ROWS)
        for (int h = 0; h < 2; h++) {
            struct sub_scales subs;
            unpack_q3_k_scales(unit + PACKED_K_LINES_AT + 32 * h, &subs);
            signed_block_start(b, h, f16_scales(unit + 16 * h));
            for (int g = 0; g < GROUPS; g++) {
                const uint8_t *half = unit + HEADER + g / 2 * PART_BYTES + 32 * h;
                __m256i w[4];
#pragma GCC unroll 4
                for (int k = 0; k < 4; k++) {
                    __m256i codes = g % 2 ? unpack_3_bits(half, 4 + k) : unpack_3_bits(half, k);
                    w[k] = _mm256_sub_epi8(codes, zero);
                }
                signed_block_group(b, g, h, w, subs.scale[g], to);
            }
            signed_block_end(b, h);
        }
}

PANEL_RUNS(blocks, run_signed_blocks, 4, )

static const struct panel_ops panel_ops = SIGNED_PANEL_OPS(unpack, blocks);

void matmul_q3_k_avx2(const union job *job, int begin, int end)
{
    matmul_256(&job->matmul, begin, end, &tile_kernels, &panel_ops);
}
