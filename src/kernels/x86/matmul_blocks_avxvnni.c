/* matmul of packings with a scale for each block of 32: q4_1, q5_0, q5_1, iq4_nl. The values of iq4_nl
 * are bytes with 128 added, which the sums of activations take off again. */
#include "kernels/x86/matmul_codes_256.h"
#include "kernels/x86/matmul_panel_avxvnni.h"

ALWAYS_INLINE void dot_group(const struct blocks *b, const uint8_t *steps, const int8_t *q,
                             int64_t stride, int n, __m256i sums[MAX_TOKENS][2])
{
#pragma GCC unroll 4
    for (int t = 0; t < n; t++)
        sums[t][0] = sums[t][1] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int k = 0; k < GROUP_QUADS; k++) {
        __m256i codes[2] = {unpack_block_quad(b, steps, k), unpack_block_quad(b, steps + 32, k)};
#pragma GCC unroll 4
        for (int t = 0; t < n; t++)
            add_token_quad(sums[t], codes[0], codes[1], q + t * stride + 4 * k);
    }
}

#include "kernels/x86/matmul_blocks_256.h"

PANEL_RUNS(codes, panel_groups, GROUP, false, )
PANEL_RUNS(codes_min, panel_groups, GROUP, true, )

BLOCKS_FEW(q4_1, .has_min = true)
BLOCKS_FEW(q5_0, .zero = 16, .has_fifth = true)
BLOCKS_FEW(q5_1, .has_fifth = true, .has_min = true)
BLOCKS_FEW(iq4_nl, .zero = 128, .is_iq4 = true)
/* The fifth bit makes unpacking dear: 6 and 8 tokens of q5_0 gain 1.09 and 1.15 by panels (December 2026). */
BLOCKS_MANY(q4_1, FEW_TOKENS, SUM_START, codes_min)
BLOCKS_MANY(q5_0, 4, SUM_START, codes)
BLOCKS_MANY(q5_1, 4, SUM_START, codes_min)
BLOCKS_MANY(iq4_nl, FEW_TOKENS, SUM_START, codes)
BLOCKS_KERNEL(q4_1, avxvnni)
BLOCKS_KERNEL(q5_0, avxvnni)
BLOCKS_KERNEL(q5_1, avxvnni)
BLOCKS_KERNEL(iq4_nl, avxvnni)
