/* matmul of q4_0: a group's 32 inputs fit int16 pairs (2 * 15 * 127 * 8 < 2^15). */
#include "kernels/x86/matmul_panel_avx2.h"

enum { GROUP = 32, GROUP_STEPS = 4, GROUP_BYTES = GROUP_STEPS * STEP_BYTES };

/* acc = sums of codes * q of a group and n tokens, q stride apart. */
ALWAYS_INLINE void dot_group(const uint8_t *steps, const int8_t *q, int64_t stride, int n,
                             __m256i acc[MAX_TOKENS][2])
{
    const __m256i mask = _mm256_set1_epi8(15);
#pragma GCC unroll 4
    for (int s = 0; s < GROUP_STEPS; s++) {
        __m256i w[2] = {load_256(steps + s * STEP_BYTES), load_256(steps + s * STEP_BYTES + 32)};
        add_field(w, 0, mask, q + s * 8, stride, s == 0, n, acc);
        add_field(w, 4, mask, q + s * 8 + 4, stride, false, n, acc);
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
    struct fetch fetch = fetch_behind(job, tile, row0, token, 4);
    struct chains chains;
    chains_clear(&chains, n);
    for (int g = 0; g < n_groups; g++, at += GROUP_BYTES) {
        const uint8_t *scales = g % 2 ? at - GROUP_BYTES - 32 : at;
        at += g % 2 ? 0 : 64;
        fetch_lines(&fetch, GROUP_STEPS);
        if (g % 8 == 0)
            fetch_lines(&fetch, 4); /* for four headers */
        __m256i acc[MAX_TOKENS][2];
        dot_group(at, q + (int64_t)g * GROUP, a->stride, n, acc);
        __m256 scale0 = f16_scales(scales), scale1 = f16_scales(scales + 16);
#pragma GCC unroll 4
        for (int t = 0; t < n; t++) {
            float s = act_scale[(int64_t)t * a->n_scales + g];
            __m256i offset = _mm256_set1_epi32(act_sum[(int64_t)t * a->n_sums + g]);
            offset = _mm256_slli_epi32(offset, 3);
            __m256i sums0 = _mm256_sub_epi32(sum_pairs(acc[t][0]), offset);
            __m256i sums1 = _mm256_sub_epi32(sum_pairs(acc[t][1]), offset);
            chains.y[t][0] = add_group(chains.y[t][0], sums0, scale0, s);
            chains.y[t][1] = add_group(chains.y[t][1], sums1, scale1, s);
        }
    }
    chains_finish(&chains, job, row0, token, n);
}

TILE_KERNELS(tile_tokens)

static void unpack(const struct panel *p, const uint8_t *tile)
{
    const uint8_t *at = tile + p->col0 / (2 * GROUP) * (64 + 2 * GROUP_BYTES);
    uint8_t *codes = p->codes;
    for (int g = 0; g < p->n / GROUP; g++, at += GROUP_BYTES) {
        const uint8_t *scales = g % 2 ? at - GROUP_BYTES - 32 : at;
        at += g % 2 ? 0 : 64;
        panel_scales(p->scales, g, scales);
        for (int s = 0; s < GROUP_STEPS; s++, codes += 2 * STEP_BYTES)
            panel_unpack_step(at + s * STEP_BYTES, 4, codes);
    }
}

static void copy(const struct panel *p)
{
    panel_copy(p);
    panel_start_sums(p, GROUP, 8, 0);
}

PANEL_RUNS(run, panel_groups, GROUP, GROUP / 4, false, )

static const struct panel_ops panel_ops = {.few = FEW_TOKENS,
                                           .inputs = PANEL_INPUTS,
                                           .act_bytes = 1,
                                           .sums = PANEL_INPUTS / GROUP,
                                           .copy = copy,
                                           .unpack = unpack,
                                           .run = PANEL_NAMES(run)};

void matmul_q4_0_avx2(const union job *job, int begin, int end)
{
    matmul_256(&job->matmul, begin, end, &tile_kernels, &panel_ops);
}
