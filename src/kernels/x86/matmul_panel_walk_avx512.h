/* The walk of many tokens over panels (matmul_panel_avx512.h): scratch, order, ends. */
#ifndef TRINE_KERNELS_X86_MATMUL_PANEL_WALK_AVX512_H
#define TRINE_KERNELS_X86_MATMUL_PANEL_WALK_AVX512_H

#include <assert.h>

#include "kernels/x86/matmul_panel_avx512.h"

/* Cuts scratch: panel and sums first, the rest is state. Returns how many tiles it holds. */
static inline int64_t panel_place(struct panel *p, const struct panel_ops *ops, __m512i **state)
{
    int64_t n_tokens = p->job->n_tokens, n = ops->inputs;
    p->zero_stride = ops->is_scaled    ? (n / ops->group + 15) / 16 * 32
                     : ops->sum_inputs ? n / ops->sum_inputs
                                       : 0;
    p->extra_stride = ops->extra;
    uint8_t *at = p->job->scratch, *end = at + MATMUL_SCRATCH_BYTES;
    p->codes = at;
    at += n * (TILE_ROWS * PANEL_TILES) + 8 * PANEL_TILES * STEP_BYTES;
    p->scales = (float *)at;
    int64_t n_groups = ops->group ? n / ops->group : 0;
    at += (1 + ops->has_min) * n_groups * (TILE_ROWS * PANEL_TILES * 4);
    p->sub_scales = (int16_t *)at;
    at += ops->sub_scales * n_groups * (TILE_ROWS * PANEL_TILES * 4);
    p->zero_sums = (int32_t *)at;
    at += (n_tokens * p->zero_stride * 4 + 63) / 64 * 64;
    p->extra = (int32_t *)at;
    at += (n_tokens * p->extra_stride * 4 + 63) / 64 * 64;
    *state = (__m512i *)at;
    int64_t n_tiles = (end - at) / (n_tokens * STEP_BYTES * PANEL_TILES) * PANEL_TILES;
    assert(n_tiles > 0); /* no more tokens than the contract has */
    return n_tiles;
}

/* What panel_scaled starts groups with and scales them by. */
static inline void panel_pairs(const struct panel *p, const struct panel_ops *ops)
{
    const struct activations *a = &p->job->a;
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    const __m512i factor = _mm512_set1_epi32(-ops->zero);
    int64_t n = p->n / p->group, group0 = p->col0 / p->group;
    for (int t = 0; t < p->job->n_tokens; t++) {
        int32_t *out = p->zero_sums + t * p->zero_stride;
        const int32_t *sums = a->sum + t * (int64_t)a->n_sums + group0;
        const float *scales = a->scale + t * (int64_t)a->n_scales + group0;
        for (int64_t g = 0; g < n; g += 16, out += 32) {
            __mmask16 is_in = n - g < 16 ? (__mmask16)((1 << (n - g)) - 1) : 0xffff;
            __m512i sum = _mm512_maskz_loadu_epi32(is_in, sums + g);
            __m512 scale = _mm512_maskz_loadu_ps(is_in, scales + g);
            sum = ops->has_min ? _mm512_castps_si512(_mm512_mul_ps(scale, _mm512_cvtepi32_ps(sum)))
                               : _mm512_mullo_epi32(sum, factor);
            __m512i s = _mm512_castps_si512(scale);
            _mm512_storeu_si512(out, _mm512_permutex2var_epi32(sum, low, s));
            _mm512_storeu_si512(out + 16, _mm512_permutex2var_epi32(sum, high, s));
        }
    }
}

/* Blocks of tokens as even as possible. */
static inline void panel_tokens(const struct panel *p, const struct panel_ops *ops, __m512i *state)
{
    int n_tokens = p->job->n_tokens;
    int n_blocks = (n_tokens + ops->max_tokens - 1) / ops->max_tokens;
    panel_run *const *run = ops->run + (p->n_tiles - 1) * ops->max_tokens;
    for (int b = 0, t = 0; b < n_blocks; b++) {
        int end = (b + 1) * n_tokens / n_blocks;
        run[end - t - 1](p, t, state + t * p->n_tiles);
        t = end;
    }
}

/* How many of the next n_left tiles are a panel: four are two and two, not three and one. */
static inline int panel_width(const struct panel_ops *ops, int64_t n_left)
{
    return n_left == 4 ? 2 : n_left < ops->tiles ? (int)n_left : ops->tiles;
}

/* Token after token, so that what is written lies side by side: tile after tile, each line in another
 * page, cost 3 % of the whole (256 tokens of trits4). */
static inline void panel_finish(const struct panel *p, const struct panel_ops *ops, int64_t tile0,
                                int64_t tile1, const __m512i *state)
{
    const struct matmul_job *job = p->job;
    int64_t tile_bytes = tile_at(job, 1) - tile_at(job, 0);
    for (int t = 0; t < job->n_tokens; t++) {
        int32_t sum = p->group ? 0 : ops->zero * job->a.sum[(int64_t)t * job->a.n_sums];
        int n = 0;
        for (int64_t tile = tile0; tile < tile1; tile += n) {
            n = panel_width(ops, tile1 - tile);
            const __m512i *s = state + (tile - tile0) * job->n_tokens + t * n;
            for (int k = 0; k < n; k++) {
                if (p->group)
                    finish_floats(job, tile + k, t, _mm512_castsi512_ps(s[k]));
                else
                    finish_sums(job, tile + k, job->w.data + (tile + k) * tile_bytes, t,
                                _mm512_sub_epi32(s[k], _mm512_set1_epi32(sum)));
            }
        }
    }
}

/* As many tiles as the scratch has state for, panel after panel; activations of a panel stay in the
 * second cache. */
static inline void panel_tiles(struct panel *p, const struct panel_ops *ops, __m512i *state,
                               int64_t tile0, int64_t tile1)
{
    const struct matmul_job *job = p->job;
    memset(state, 0, (size_t)((tile1 - tile0) * job->n_tokens) * sizeof *state);
    for (p->col0 = 0; p->col0 < job->w.n_cols; p->col0 += ops->inputs) {
        int64_t left = job->w.n_cols - p->col0;
        p->n = left < ops->inputs ? left : ops->inputs;
        if (ops->look)
            ops->look(p);
        else if (ops->is_scaled)
            panel_pairs(p, ops);
        for (int64_t tile = tile0; tile < tile1; tile += p->n_tiles) {
            __m512i *of_panel = state + (tile - tile0) * job->n_tokens;
            p->n_tiles = panel_width(ops, tile1 - tile);
            for (int k = 0; k < p->n_tiles; k++)
                ops->unpack(p, tile + k, p->n_tiles, p->codes + k * STEP_BYTES,
                            p->scales + k * TILE_ROWS, p->sub_scales + 2 * k * TILE_ROWS);
            panel_tokens(p, ops, of_panel);
        }
    }
    panel_finish(p, ops, tile0, tile1, state);
}

static inline void panel_matmul(const struct matmul_job *job, const struct panel_ops *ops,
                                int begin, int end)
{
    struct panel p = {.job = job, .group = ops->group};
    __m512i *state;
    int64_t n_tiles = panel_place(&p, ops, &state);
    int64_t last = (end + TILE_ROWS - 1) / TILE_ROWS;
    for (int64_t tile = begin / TILE_ROWS; tile < last; tile += n_tiles)
        panel_tiles(&p, ops, state, tile, tile + n_tiles < last ? tile + n_tiles : last);
}

#endif
