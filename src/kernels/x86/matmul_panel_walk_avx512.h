/* The walk of many tokens over panels (matmul_panel_avx512.h): scratch, order, ends. */
#ifndef TRINE_KERNELS_X86_MATMUL_PANEL_WALK_AVX512_H
#define TRINE_KERNELS_X86_MATMUL_PANEL_WALK_AVX512_H

#include "kernels/x86/matmul_panel_avx512.h"

/* Cuts scratch: panel and sums first, the rest is state. Returns how many tiles it holds. */
static inline int64_t panel_place(struct panel *p, const struct panel_ops *ops, __m512i **state)
{
    int64_t n_tokens = p->job->n_tokens, n = ops->inputs;
    p->zero_stride = ops->sum_group ? n / ops->sum_group : 0;
    p->wide_stride = ops->look ? n / 256 : 0;
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
    p->is_wide = at;
    at += (n_tokens * p->wide_stride + 63) / 64 * 64;
    *state = (__m512i *)at;
    return (end - at) / (n_tokens * STEP_BYTES * PANEL_TILES) * PANEL_TILES;
}

static inline void panel_zero_sums(const struct panel *p, int zero)
{
    const struct activations *a = &p->job->a;
    if (!p->sum_group || !zero)
        return;
    int64_t n = p->n / p->sum_group;
    for (int t = 0; t < p->job->n_tokens; t++) {
        const int32_t *sum = a->sum + t * (int64_t)a->n_sums + p->col0 / p->sum_group;
        int32_t *out = p->zero_sums + t * p->zero_stride;
        for (int64_t g = 0; g < n; g++)
            out[g] = -zero * sum[g];
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

static inline void panel_finish(const struct panel *p, int zero, int64_t tile, const __m512i *state)
{
    const struct matmul_job *job = p->job;
    for (int k = 0; k < p->n_tiles; k++)
        for (int t = 0; t < job->n_tokens; t++) {
            __m512i s = state[t * p->n_tiles + k];
            if (p->group) {
                finish_floats(job, tile + k, t, _mm512_castsi512_ps(s));
            } else {
                int32_t sum = zero * job->a.sum[(int64_t)t * job->a.n_sums];
                finish_sums(job, tile + k, t, _mm512_sub_epi32(s, _mm512_set1_epi32(sum)));
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
        panel_zero_sums(p, ops->zero);
        if (ops->look)
            ops->look(p);
        for (int64_t tile = tile0; tile < tile1; tile += p->n_tiles) {
            __m512i *of_panel = state + (tile - tile0) * job->n_tokens;
            int64_t rest = tile1 - tile; /* four are two and two, not three and one */
            p->n_tiles = rest == 4 ? 2 : rest < PANEL_TILES ? (int)rest : PANEL_TILES;
            for (int k = 0; k < p->n_tiles; k++)
                ops->unpack(p, tile + k, p->n_tiles, p->codes + k * STEP_BYTES,
                            p->scales + k * TILE_ROWS, p->sub_scales + 2 * k * TILE_ROWS);
            panel_tokens(p, ops, of_panel);
            if (left <= ops->inputs)
                panel_finish(p, ops->zero, tile, of_panel);
        }
    }
}

static inline void panel_matmul(const struct matmul_job *job, const struct panel_ops *ops,
                                int begin, int end)
{
    struct panel p = {.job = job, .group = ops->group, .sum_group = ops->sum_group};
    __m512i *state;
    int64_t n_tiles = panel_place(&p, ops, &state);
    int64_t last = (end + TILE_ROWS - 1) / TILE_ROWS;
    for (int64_t tile = begin / TILE_ROWS; tile < last; tile += n_tiles)
        panel_tiles(&p, ops, state, tile, tile + n_tiles < last ? tile + n_tiles : last);
}

#endif
