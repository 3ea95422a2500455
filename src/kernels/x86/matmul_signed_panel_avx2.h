/* Many tokens on AVX2 of blocks of 256 whose 16 groups have a scale and codes around zero (q6_k, q3_k):
 * signed codes times activations + 128 as unsigned bytes, because what the 128 add then depends on weights
 * alone. */
#ifndef TRINE_KERNELS_X86_MATMUL_SIGNED_PANEL_AVX2_H
#define TRINE_KERNELS_X86_MATMUL_SIGNED_PANEL_AVX2_H

#include "kernels/x86/matmul_panel_avx2.h"

enum { BLOCK = 256, BLOCK_GROUPS = 16 };

struct signed_block {
    __m256i start[2];               /* -128 * sum of scale * code of each row */
    __m256i scale[BLOCK_GROUPS][2]; /* int16 pairs */
    __m256 d[2];
};
static_assert(sizeof(struct signed_block) % 64 == 0, "what lies behind stays aligned");

ALWAYS_INLINE void signed_block_start(struct signed_block *b, int half, __m256 d)
{
    b->d[half] = d;
    b->start[half] = _mm256_setzero_si256();
}

/* Four quads of a group. to: the codes of the block. */
ALWAYS_INLINE void signed_block_group(struct signed_block *b, int g, int half, const __m256i w[4],
                                      __m256i scale, uint8_t *to)
{
    __m256i sums = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        sums = _mm256_add_epi16(sums, _mm256_maddubs_epi16(_mm256_set1_epi8(1), w[k]));
        _mm256_store_si256((__m256i *)(to + (4 * g + k) * STEP_BYTES + 32 * half), w[k]);
    }
    b->scale[g][half] = scale;
    b->start[half] = _mm256_sub_epi32(b->start[half], _mm256_madd_epi16(sums, scale));
}

ALWAYS_INLINE void signed_block_end(struct signed_block *b, int half)
{
    b->start[half] = _mm256_slli_epi32(b->start[half], 7);
}

__attribute__((unused)) static void copy_unsigned(const struct panel *p)
{
    panel_copy_flipped(p, 128);
}

/* acc += scale * sum of code * q over `chunk` quads of n tokens. */
ALWAYS_INLINE void add_signed_quads(const uint8_t *codes, const int8_t *q, int64_t stride,
                                    int chunk, const __m256i scale[2], int n,
                                    __m256i acc[PANEL_TOKENS][2])
{
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) {
        __m256i pairs[2];
#pragma GCC unroll 4
        for (int k = 0; k < chunk; k++) {
            __m256i quad = broadcast_quad(q + t * stride + 4 * k);
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                __m256i product =
                    _mm256_maddubs_epi16(quad, load_256(codes + k * STEP_BYTES + 32 * h));
                pairs[h] = k ? _mm256_add_epi16(pairs[h], product) : product;
            }
        }
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++)
            acc[t][h] = _mm256_add_epi32(acc[t][h], _mm256_madd_epi16(pairs[h], scale[h]));
    }
}

ALWAYS_INLINE void run_signed_block(const struct panel *p, const struct signed_block *b, int block,
                                    int token, int chunk, int n, __m256 state[][2])
{
    const struct activations *a = &p->job->a;
    const uint8_t *codes = p->codes + block * BLOCK * TILE_ROWS;
    const int8_t *q = p->q + token * p->stride + block * BLOCK;
    const float *act_scale = a->scale + (int64_t)token * a->n_scales + p->col0 / BLOCK + block;
    __m256i acc[PANEL_TOKENS][2];
#pragma GCC unroll 4
    for (int t = 0; t < n; t++)
        acc[t][0] = b->start[0], acc[t][1] = b->start[1];
    for (int g = 0; g < BLOCK_GROUPS; g++)
#pragma GCC unroll 2
        for (int k = 0; k < 4; k += chunk, codes += chunk * STEP_BYTES, q += 4 * chunk)
            add_signed_quads(codes, q, p->stride, chunk, b->scale[g], n, acc);
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) {
        float s = act_scale[(int64_t)t * a->n_scales];
        state[t][0] = add_group(state[t][0], acc[t][0], b->d[0], s);
        state[t][1] = add_group(state[t][1], acc[t][1], b->d[1], s);
    }
}

/* chunk: the quads that int16 pairs can add. */
ALWAYS_INLINE void run_signed_blocks(const struct panel *p, int token, __m256 state[][2], int chunk,
                                     int n)
{
    for (int i = 0; i < p->n / BLOCK; i++)
        run_signed_block(p, (const struct signed_block *)p->extra + i, i, token, chunk, n, state);
}

#define SIGNED_PANEL_OPS(unpack_panel, runs)                                                       \
    {                                                                                              \
        .few = FEW_TOKENS, .inputs = PANEL_INPUTS, .act_bytes = 1,                                 \
        .extra_bytes = PANEL_INPUTS / BLOCK * sizeof(struct signed_block), .copy = copy_unsigned,  \
        .unpack = unpack_panel, .run = PANEL_NAMES(runs)                                           \
    }

#endif
