/* matmul of iq4_xs: |value| times the activation with the value's sign, as in q8_0; the multiply-add that
 * joins a pair (2 * 127 * 127 < 2^15) takes the 6-bit scale with it. */
#include "kernels/x86/matmul_codes_256.h"
#include "kernels/x86/matmul_mins_avx2.h"
#include "kernels/x86/matmul_wide_avx2.h"

enum { BLOCK = 256, GROUPS = 8, HEADER = 64 + 4 * TILE_ROWS };
enum { GROUP_BYTES = 4 * STEP_BYTES, UNIT_BYTES = HEADER + GROUPS * GROUP_BYTES };

/* acc[t] += scale * sum of value * q over a group of one half. */
ALWAYS_INLINE void add_values(const uint8_t *half, __m256i table, __m256i scale, const int8_t *q,
                              int64_t stride, int n, __m256i acc[MAX_TOKENS])
{
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        __m256i value = _mm256_shuffle_epi8(table, unpack_nibbles(half, k, false));
        __m256i magnitude = _mm256_abs_epi8(value);
#pragma GCC unroll 8
        for (int t = 0; t < n; t++) {
            __m256i quad = _mm256_sign_epi8(broadcast_quad(q + t * stride + 4 * k), value);
            __m256i pairs = _mm256_maddubs_epi16(magnitude, quad);
            acc[t] = _mm256_add_epi32(acc[t], _mm256_madd_epi16(pairs, scale));
        }
    }
}

ALWAYS_INLINE void tile_tokens(const struct matmul_job *job, const uint8_t *unit, int row0,
                               int token, int n)
{
    const struct activations *a = &job->a;
    const __m256i table = iq4_table(0);
    struct fetch fetch = fetch_behind(job, unit, row0, token, 4);
    struct chains chains;
    chains_clear(&chains, n);
    for (int block = 0; block < (int)(a->n_cols / BLOCK); block++, unit += UNIT_BYTES) {
        const int8_t *q = a->q + token * a->stride + (int64_t)block * BLOCK;
        const float *act_scale = a->scale + (int64_t)token * a->n_scales + block;
        if (block % 2 == 0)
            fetch_lines(&fetch, 4); /* for two headers */
        __m256i scale[2][GROUPS], acc[2][MAX_TOKENS];
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            unpack_iq4_xs_scales(unit, h, scale[h]);
#pragma GCC unroll 8
            for (int t = 0; t < n; t++)
                acc[h][t] = _mm256_setzero_si256();
        }
        for (int g = 0; g < GROUPS; g++) {
            fetch_lines(&fetch, 4);
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++)
                add_values(unit + HEADER + g * GROUP_BYTES + 32 * h, table, scale[h][g], q + 32 * g,
                           a->stride, n, acc[h]);
        }
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256 d = f16_scales(unit + 16 * h);
#pragma GCC unroll 8
            for (int t = 0; t < n; t++)
                chains.y[t][h] =
                    add_group(chains.y[t][h], acc[h][t], d, act_scale[(int64_t)t * a->n_scales]);
        }
    }
    chains_finish(&chains, job, row0, token, n);
}

TILE_KERNELS(tile_tokens)

/* Many tokens: scale * value as int16, so that only d is left at the end of a block. */
static void unpack(const struct panel *p, const uint8_t *tile)
{
    const uint8_t *unit = tile + p->col0 / BLOCK * UNIT_BYTES;
    const __m256i table = iq4_table(0);
    panel_scales(p->scales, 0, unit);
    for (int h = 0; h < 2; h++) {
        __m256i scale[GROUPS];
        unpack_iq4_xs_scales(unit, h, scale);
        uint8_t *to = p->codes + 32 * h;
        for (int g = 0; g < GROUPS; g++)
            for (int k = 0; k < 8; k++, to += 2 * STEP_BYTES) {
                const uint8_t *half = unit + HEADER + g * GROUP_BYTES + 32 * h;
                __m256i pairs[2];
                widen_codes(_mm256_shuffle_epi8(table, unpack_nibbles(half, k, false)), pairs);
                for (int i = 0; i < 2; i++)
                    _mm256_store_si256((__m256i *)(to + i * STEP_BYTES),
                                       _mm256_mullo_epi16(pairs[i], scale[g]));
            }
    }
}

PANEL_RUNS(wide, run_wide, BLOCK, )

static const struct panel_ops panel_ops = {.few = FEW_TOKENS,
                                           .inputs = BLOCK,
                                           .act_bytes = 2,
                                           .copy = copy_wide,
                                           .unpack = unpack,
                                           .run = PANEL_NAMES(wide)};

void matmul_iq4_xs_avx2(const union job *job, int begin, int end)
{
    matmul_256(&job->matmul, begin, end, &tile_kernels, &panel_ops);
}
