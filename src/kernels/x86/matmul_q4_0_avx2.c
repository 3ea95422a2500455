/* matmul of q4_0: a group's 32 inputs fit int16 pairs (2 * 15 * 127 * 8 < 2^15). */
#include "kernels/x86/matmul_avx2.h"

enum { GROUP = 32, GROUP_STEPS = 4, GROUP_BYTES = GROUP_STEPS * STEP_BYTES };

/* The codes of one half and group: a register for each of 8 quads. */
ALWAYS_INLINE void unpack_codes(const uint8_t *half, __m256i codes[8])
{
    const __m256i mask = _mm256_set1_epi8(15);
#pragma GCC unroll 4
    for (int s = 0; s < GROUP_STEPS; s++) {
        __m256i w = load_256(half + s * STEP_BYTES);
        codes[2 * s] = _mm256_and_si256(w, mask);
        codes[2 * s + 1] = _mm256_and_si256(_mm256_srli_epi16(w, 4), mask);
    }
}

ALWAYS_INLINE void tile_tokens(const struct matmul_job *job, const uint8_t *tile, int row0,
                               int token, int n)
{
    const struct activations *a = &job->a;
    const int8_t *q = a->q + token * a->stride;
    const float *act_scale = a->scale + (int64_t)token * a->n_scales;
    const int32_t *act_sum = a->sum + (int64_t)token * a->n_sums;
    int n_groups = (int)(a->n_cols / GROUP);
    const uint8_t *at = tile; /* the group's steps; units hold two groups */
    struct chains chains;
    chains_clear(&chains, n);
    for (int g = 0; g < n_groups; g++) {
        const uint8_t *scales = g % 2 ? at - GROUP_BYTES - 32 : at;
        at += g % 2 ? 0 : 64;
        for (int s = 0; s < GROUP_STEPS; s++)
            _mm_prefetch((const char *)at + s * STEP_BYTES + PREFETCH_AHEAD, _MM_HINT_T0);
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            __m256i codes[8];
            __m256 scale = f16_scales(scales + half * 16);
            unpack_codes(at + half * 32, codes);
            for (int t = 0; t < n; t++) {
                __m256i sums = sum_pairs(dot_8_quads(codes, q + t * a->stride + g * GROUP));
                __m256i offset = _mm256_set1_epi32(act_sum[(int64_t)t * a->n_sums + g]);
                sums = _mm256_sub_epi32(sums, _mm256_slli_epi32(offset, 3));
                chains.y[t][half] = add_group(chains.y[t][half], sums, scale,
                                              act_scale[(int64_t)t * a->n_scales + g]);
            }
        }
        at += GROUP_BYTES;
    }
    chains_finish(&chains, job, row0, token, n);
}

TILE_KERNELS(tile_tokens)

void matmul_q4_0_avx2(const union job *job, int begin, int end)
{
    static const struct tile_kernels kernels = {one_token, two_tokens, four_tokens, eight_tokens};
    matmul_tiles_avx2(&job->matmul, begin, end, &kernels);
}
