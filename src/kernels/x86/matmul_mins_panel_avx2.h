/* Many tokens of q4_k, q5_k and q2_k. */
#ifndef TRINE_KERNELS_X86_MATMUL_MINS_PANEL_AVX2_H
#define TRINE_KERNELS_X86_MATMUL_MINS_PANEL_AVX2_H

#include "kernels/x86/matmul_mins_avx2.h"
#include "kernels/x86/matmul_panel_avx2.h"

/* What a panel keeps of a block besides its codes. */
struct panel_block {
    struct sub_scales subs[2];
    const uint8_t *unit;
};

#define PANEL_BLOCKS (PANEL_INPUTS / 256)
static_assert(PANEL_BLOCKS * sizeof(struct panel_block) % 64 == 0,
              "what lies behind stays aligned");

/* y of the blocks of a panel. chunk: the quads that int16 pairs can add, at most a group. */
ALWAYS_INLINE void panel_mins(const struct panel *p, int token, __m256 state[][2], int n_groups,
                              int chunk, int n)
{
    const struct panel_block *b = (const struct panel_block *)p->extra;
    const uint8_t *codes = p->codes;
    const int8_t *q = p->q + token * p->stride;
    for (int i = 0; i < p->n / 256; i++, b++) {
        __m256i acc[MAX_TOKENS][2], dot[PANEL_TOKENS][2];
#pragma GCC unroll 4
        for (int t = 0; t < n; t++)
            acc[t][0] = acc[t][1] = _mm256_setzero_si256();
        for (int g = 0; g < n_groups; g++)
#pragma GCC unroll 2
            for (int k = 0; k < 64 / n_groups; k += chunk) {
                panel_chunk(codes, q, p->stride, chunk, n, dot);
#pragma GCC unroll 4
                for (int t = 0; t < n; t++)
#pragma GCC unroll 2
                    for (int h = 0; h < 2; h++)
                        acc[t][h] = _mm256_add_epi32(
                            acc[t][h], _mm256_madd_epi16(dot[t][h], b->subs[h].scale[g]));
                codes += chunk * STEP_BYTES;
                q += chunk * 4;
            }
        const int32_t *pairs = p->sums + token * p->sum_stride + i * n_groups / 2;
        add_min_pairs(&p->job->a, b->unit, b->subs, n_groups, (int)(p->col0 / 256) + i, token,
                      pairs, p->sum_stride, n, acc, state);
    }
}

#endif
