/* matmul of q8_0. Few tokens: |weight| times the activation with the weight's sign, because codes of 8 bits
 * would overflow an int16 pair (2 * 128 * 127 < 2^15 does not). Many tokens: int16 products. */
#include "kernels/x86/matmul_wide_avx2.h"

enum { GROUP = 32, GROUP_STEPS = 8, GROUP_BYTES = GROUP_STEPS * STEP_BYTES };

/* acc[t] = sums of weight * q of one half and group, q stride apart. */
ALWAYS_INLINE void dot_group(const uint8_t *half, const int8_t *q, int64_t stride, int n,
                             __m256i acc[MAX_TOKENS])
{
    const __m256i top = _mm256_set1_epi8(-128);
#pragma GCC unroll 8
    for (int t = 0; t < n; t++)
        acc[t] = _mm256_setzero_si256();
#pragma GCC unroll 2
    for (int s = 0; s < GROUP_STEPS; s++) {
        __m256i w = _mm256_xor_si256(load_256(half + s * STEP_BYTES), top);
        __m256i magnitude = _mm256_abs_epi8(w); /* 128 for -128, as unsigned */
#pragma GCC unroll 8
        for (int t = 0; t < n; t++) {
            __m256i quad = _mm256_sign_epi8(broadcast_quad(q + t * stride + s * 4), w);
            acc[t] = _mm256_add_epi32(acc[t], sum_pairs(_mm256_maddubs_epi16(magnitude, quad)));
        }
    }
}

ALWAYS_INLINE void tile_tokens(const struct matmul_job *job, const uint8_t *tile, int row0,
                               int token, int n)
{
    const struct activations *a = &job->a;
    const int8_t *q = a->q + token * a->stride;
    const float *act_scale = a->scale + (int64_t)token * a->n_scales;
    int n_groups = (int)(a->n_cols / GROUP);
    const uint8_t *at = tile; /* the group's steps; units hold two groups */
    struct fetch fetch = fetch_behind(job, tile, row0, token, 4);
    struct chains chains;
    chains_clear(&chains, n);
    for (int g = 0; g < n_groups; g++) {
        const uint8_t *scales = g % 2 ? at - GROUP_BYTES - 32 : at;
        at += g % 2 ? 0 : 64;
        fetch_lines(&fetch, GROUP_STEPS);
        if (g % 8 == 0)
            fetch_lines(&fetch, 4); /* for four headers */
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            __m256i acc[MAX_TOKENS];
            dot_group(at + half * 32, q + (int64_t)g * GROUP, a->stride, n, acc);
            __m256 scale = f16_scales(scales + half * 16);
#pragma GCC unroll 8
            for (int t = 0; t < n; t++)
                chains.y[t][half] = add_group(chains.y[t][half], acc[t], scale,
                                              act_scale[(int64_t)t * a->n_scales + g]);
        }
        at += GROUP_BYTES;
    }
    chains_finish(&chains, job, row0, token, n);
}

TILE_KERNELS(tile_tokens)

static void unpack(const struct panel *p, const uint8_t *tile)
{
    const uint8_t *at = tile + p->col0 / (2 * GROUP) * (64 + 2 * GROUP_BYTES);
    uint8_t *pairs = p->codes;
    for (int g = 0; g < p->n / GROUP; g++, at += GROUP_BYTES) {
        const uint8_t *scales = g % 2 ? at - GROUP_BYTES - 32 : at;
        at += g % 2 ? 0 : 64;
        panel_scales(p->scales, g, scales);
        for (int s = 0; s < GROUP_STEPS; s++, pairs += 2 * STEP_BYTES)
            for (int half = 0; half < STEP_BYTES; half += 32)
                store_wide(pairs + half, _mm256_xor_si256(load_256(at + s * STEP_BYTES + half),
                                                          _mm256_set1_epi8(-128)));
    }
}

PANEL_RUNS(wide, run_wide, GROUP, )

static const struct panel_ops panel_ops = {.few = FEW_TOKENS,
                                           .inputs = PANEL_INPUTS / 2,
                                           .act_bytes = 2,
                                           .copy = copy_wide,
                                           .unpack = unpack,
                                           .run = PANEL_NAMES(wide)};

TILE_KERNEL(eight_tokens, tile_tokens, 8)

void matmul_q8_0_avx2(const union job *job, int begin, int end)
{
    struct tile_kernels kernels = tile_kernels;
    kernels.eight = eight_tokens; /* half as much work to prepare weights as four at a time */
    matmul_256(&job->matmul, begin, end, &kernels, &panel_ops);
}
