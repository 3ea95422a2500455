/* matmul of packings with a scale for each block of 32: q4_1, q5_0, q5_1, iq4_nl. Codes of 4 bits
 * times int8 fit int16 pairs for 32 inputs (2 * 8 * 15 * 127 < 2^15), those of 5 bits for 16. The values
 * of iq4_nl are multiplied as in q8_0: |value| times the activation with the value's sign, or int16
 * products. */
#include "kernels/x86/matmul_codes_256.h"
#include "kernels/x86/matmul_wide_avx2.h"

/* sums += value * q of quad k. */
ALWAYS_INLINE void add_values(const __m256i values[2], const int8_t *q, int64_t stride, int n,
                              __m256i sums[MAX_TOKENS][2])
{
    __m256i magnitudes[2] = {_mm256_abs_epi8(values[0]), _mm256_abs_epi8(values[1])};
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) {
        __m256i quad = broadcast_quad(q + t * stride);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256i signed_quad = _mm256_sign_epi8(quad, values[h]);
            __m256i pairs = _mm256_maddubs_epi16(magnitudes[h], signed_quad);
            sums[t][h] = _mm256_add_epi32(sums[t][h], sum_pairs(pairs));
        }
    }
}

/* sums += code * q of n_quads quads, which int16 pairs can hold. */
ALWAYS_INLINE void add_codes(const struct blocks *b, const uint8_t *steps, int quad0, int n_quads,
                             const int8_t *q, int64_t stride, int n, __m256i sums[MAX_TOKENS][2])
{
    __m256i dot[MAX_TOKENS][2];
#pragma GCC unroll 8
    for (int k = quad0; k < quad0 + n_quads; k++) {
        __m256i codes0 = unpack_block_quad(b, steps, k);
        __m256i codes1 = unpack_block_quad(b, steps + 32, k);
        add_codes_16(codes0, codes1, q + 4 * k, stride, k == quad0, n, dot);
    }
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) {
        sums[t][0] = _mm256_add_epi32(sums[t][0], sum_pairs(dot[t][0]));
        sums[t][1] = _mm256_add_epi32(sums[t][1], sum_pairs(dot[t][1]));
    }
}

/* sums = sums of value * q of a group, or of code * q. */
ALWAYS_INLINE void dot_group(const struct blocks *b, const uint8_t *steps, const int8_t *q,
                             int64_t stride, int n, __m256i sums[MAX_TOKENS][2])
{
    const int n_quads = b->has_fifth ? 4 : 8; /* of an int16 sum */
#pragma GCC unroll 4
    for (int t = 0; t < n; t++)
        sums[t][0] = sums[t][1] = _mm256_setzero_si256();
    if (!b->is_iq4) {
#pragma GCC unroll 2
        for (int k = 0; k < 8; k += n_quads)
            add_codes(b, steps, k, n_quads, q, stride, n, sums);
        return;
    }
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        __m256i values[2] = {unpack_block_quad(b, steps, k), unpack_block_quad(b, steps + 32, k)};
        add_values(values, q + 4 * k, stride, n, sums);
    }
}

#include "kernels/x86/matmul_blocks_256.h"

PANEL_RUNS(codes_4, panel_groups, GROUP, 8, true, )
PANEL_RUNS(codes_5, panel_groups, GROUP, 4, false, )
PANEL_RUNS(codes_5_min, panel_groups, GROUP, 4, true, )
PANEL_RUNS(wide, run_wide, GROUP, )

static void unpack_values(const struct panel *p, const uint8_t *tile)
{
    static const struct blocks b = {.is_iq4 = true};
    uint8_t *pairs = p->codes;
    for (int g = 0; g < p->n / GROUP; g++) {
        const uint8_t *steps = panel_block_scales(p, &b, tile, g);
        for (int k = 0; k < GROUP_QUADS; k++, pairs += 2 * STEP_BYTES)
            for (int half = 0; half < STEP_BYTES; half += 32)
                store_wide(pairs + half, unpack_block_quad(&b, steps + half, k));
    }
}

static const struct panel_ops iq4_nl_many = {.few = FEW_TOKENS,
                                             .inputs = PANEL_INPUTS / 2,
                                             .act_bytes = 2,
                                             .copy = copy_wide,
                                             .unpack = unpack_values,
                                             .run = PANEL_NAMES(wide)};

BLOCKS_FEW(q4_1, .has_min = true)
BLOCKS_FEW(q5_0, .zero = 16, .has_fifth = true)
BLOCKS_FEW(q5_1, .has_fifth = true, .has_min = true)
BLOCKS_FEW(iq4_nl, .is_iq4 = true)
BLOCKS_MANY(q4_1, FEW_TOKENS, 0, codes_4)
BLOCKS_MANY(q5_0, FEW_TOKENS, 0, codes_5)
BLOCKS_MANY(q5_1, FEW_TOKENS, 0, codes_5_min)
BLOCKS_KERNEL(q4_1, avx2)
BLOCKS_KERNEL(q5_0, avx2)
BLOCKS_KERNEL(q5_1, avx2)
BLOCKS_KERNEL(iq4_nl, avx2)
