/* Attention of a block of queries to one chunk, by 16 lanes. Include after one of the lanes
 * headers. Each row of keys is loaded once for all queries of the block; 16 dot products are summed
 * across their lanes together. */
#ifndef TRINE_KERNELS_LANES_ATTENTION_BODY_H
#define TRINE_KERNELS_LANES_ATTENTION_BODY_H

#include "kernels/attention_walk.h"
#include "kernels/lanes/attention_fold_body.h"
#include "kernels/lanes/attention_rows.h"

/* Rows of values that are walked for all elements before the next ones: 8 KiB at 128 of f16. */
#define VALUE_ROWS  32

#define PART_LANES  (16 / LANES_PARTS)

/* Rows of keys whose dot products with n queries are a tile of 16 sums. */
#define KEY_ROWS(n) ((n) > 2 ? 4 : 16 / (n))

/* Sums of keys are kept part by part: 4 queries x 2 rows of whole lanes would take all 16 registers
 * of AVX2, and 4 x 1 loads every q for one fma.
 * Part `part` of the lane sums of n queries with n_rows rows from `row` on, those of a query
 * KEY_ROWS(n) apart. */
ALWAYS_INLINE void dot_part(const struct query_block *block, struct scaled_rows *keys, bool is_q8,
                            int n, int row, int n_rows, int part, struct lanes *sums)
{
    struct part acc[BLOCK_QUERIES][LANES_KEY_ROWS] = {0};
    for (int d = part * PART_LANES; d < keys->rows->head_pad; d += 16) {
        struct part k[LANES_KEY_ROWS];
        prefetch_turn(&keys->ahead, d / 16, 16 * n_rows * (is_q8 ? 1 : 2));
#pragma GCC unroll 8
        for (int r = 0; r < n_rows; r++)
            k[r] = row_part(keys, is_q8, row + r, d);
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            struct part q = part_kept(part_load(block->q[i] + d));
#pragma GCC unroll 8
            for (int r = 0; r < n_rows; r++)
                acc[i][r] = part_fma(q, k[r], acc[i][r]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < n; i++)
#pragma GCC unroll 8
        for (int r = 0; r < n_rows; r++)
            lanes_put_part(&sums[i * KEY_ROWS(n) + r], part, acc[i][r]);
}

/* The lane sums of a tile, from row `row` on. */
ALWAYS_INLINE void dot_tile(const struct query_block *block, struct scaled_rows *keys, bool is_q8,
                            int n, int row, struct lanes sums[16])
{
    int most = KEY_ROWS(n) < LANES_KEY_ROWS ? KEY_ROWS(n) : LANES_KEY_ROWS;
    int n_rows = LANES_KEY_SUMS / n < most ? LANES_KEY_SUMS / n : most;
    for (int i = n * KEY_ROWS(n); i < 16; i++)
        sums[i] = lanes_set(0);
    for (int r = 0; r < KEY_ROWS(n); r += n_rows) {
        prefetch_between(&keys->ahead, n_rows * ROW_BYTES(keys->rows, is_q8));
#pragma GCC unroll 2
        for (int part = 0; part < LANES_PARTS; part++)
            dot_part(block, keys, is_q8, n, row + r, n_rows, part, sums + r);
    }
}

/* Scores of n queries with rows [0, n_rows), a multiple of 16. The sums of LANES_TILES tiles wait
 * in memory: with AVX-512 one stays in registers, and its additions run beside the next one's fma. */
ALWAYS_INLINE void score_rows(const struct query_block *block, struct scaled_rows *keys, bool is_q8,
                              int n, int n_rows, float scores[][KV_PAGE])
{
    int n_tiles = 16 / KEY_ROWS(n) < LANES_TILES ? 16 / KEY_ROWS(n) : LANES_TILES;
    for (int row = 0; row < n_rows; row += n_tiles * KEY_ROWS(n)) {
        struct lanes sums[LANES_TILES][16];
        for (int t = 0; t < n_tiles; t++)
            dot_tile(block, keys, is_q8, n, row + t * KEY_ROWS(n), sums[t]);
        for (int t = 0; t < n_tiles; t++) {
            struct lanes tile = lanes_mul(lanes_sum_each(sums[t]), lanes_set(block->scale));
#pragma GCC unroll 4
            for (int i = 0; i < n; i++)
                lanes_store_some(scores[i] + row + t * KEY_ROWS(n), tile, i * KEY_ROWS(n),
                                 KEY_ROWS(n));
        }
    }
}

/* Scores become their exponentials less the highest, zero from `visible` on. They take a twelfth of
 * the time, so memory must not wait for them: with a quarter of the prefetches here 27 to 28 GB/s,
 * with all of them among the values 25 (f16, 4 queries, 2 cores of Zen 3, December 2026). */
static inline struct fold_state exponentials(float scores[KV_PAGE], int visible,
                                             struct rows_ahead *ahead)
{
    struct lanes highest = lanes_set(-INFINITY), sum = lanes_set(0);
    for (int p = 0; p < visible; p += 16)
        highest =
            lanes_max(highest, lanes_fill_from(lanes_load(scores + p), visible - p, -INFINITY));
    float m = lanes_highest(highest) + 0.0f;
    for (int p = 0; p < visible; p += 16) {
        prefetch_steps(ahead, 1);
        struct lanes e = lanes_exp(lanes_sub(lanes_load(scores + p), lanes_set(m)));
        e = lanes_fill_from(e, visible - p, 0);
        lanes_store(scores + p, e);
        sum = lanes_add(sum, e);
    }
    return (struct fold_state){m, lanes_sum(sum)};
}

/* Adds rows [begin, end) of values, elements d .. d + 16 width - 1, to the o of n queries. */
ALWAYS_INLINE void add_values(struct query_block *block, struct scaled_rows *values, bool is_q8,
                              int first, int n, int width, const int range[2], int d,
                              float e[][KV_PAGE])
{
    struct lanes o[BLOCK_QUERIES][LANES_VALUE_WIDTH];
#pragma GCC unroll 4
    for (int i = 0; i < n; i++)
#pragma GCC unroll 4
        for (int w = 0; w < width; w++)
            o[i][w] = lanes_load(block->o[first + i] + d + 16 * w);
    /* three quarters of an even pace: exponentials did the rest */
    prefetch_between(&values->ahead, VALUE_ROWS * 16 * width * (is_q8 ? 1 : 2) * 3 / 4);
#pragma GCC unroll 2
    for (int p = range[0]; p < range[1]; p++) {
        struct lanes v[LANES_VALUE_WIDTH];
        prefetch_turn(&values->ahead, p, 16 * width * (is_q8 ? 1 : 2));
#pragma GCC unroll 4
        for (int w = 0; w < width; w++)
            v[w] = row_lanes(values, is_q8, p, d + 16 * w);
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            struct lanes weight = lanes_set(e[first + i][p]);
#pragma GCC unroll 4
            for (int w = 0; w < width; w++)
                o[i][w] = lanes_fma(weight, v[w], o[i][w]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < n; i++)
#pragma GCC unroll 4
        for (int w = 0; w < width; w++)
            lanes_store(block->o[first + i] + d + 16 * w, o[i][w]);
}

/* The same for all elements. */
ALWAYS_INLINE void add_rows(struct query_block *block, struct scaled_rows *values, bool is_q8,
                            int first, int n, int begin, int end, float e[][KV_PAGE])
{
    for (int range[2] = {begin, 0}; range[0] < end; range[0] = range[1]) {
        range[1] = range[0] + VALUE_ROWS < end ? range[0] + VALUE_ROWS : end;
        int d = 0;
        for (; d + 16 * LANES_VALUE_WIDTH <= values->rows->head_pad; d += 16 * LANES_VALUE_WIDTH)
            add_values(block, values, is_q8, first, n, LANES_VALUE_WIDTH, range, d, e);
        if (LANES_VALUE_WIDTH == 4 && d < values->rows->head_pad) /* 32 elements are left */
            add_values(block, values, is_q8, first, n, LANES_VALUE_WIDTH / 2, range, d, e);
    }
}

/* A block of n queries, n known when compiled. Rows that only some of them see are added to each of
 * these alone: a weight of zero is not the same as no term. */
ALWAYS_INLINE void attend_n(struct query_block *block, bool is_q8, int n)
{
    float scores[BLOCK_QUERIES][KV_PAGE] __attribute__((aligned(64)));
    struct scaled_rows rows;
    int least = block->visible[0], most = least;
    for (int i = 0; i < n; i++) {
        least = block->visible[i] < least ? block->visible[i] : least;
        most = block->visible[i] > most ? block->visible[i] : most;
        memset(block->o[i], 0, (size_t)block->keys.head_pad * sizeof(float));
    }
    begin_rows(&rows, &block->keys, most, &block->values, block->is_fetched ? 0 : most);
    score_rows(block, &rows, is_q8, n, (most + 15) / 16 * 16, scores);
    begin_rows(&rows, &block->values, most, &block->next_keys,
               block->is_fetched ? 0 : block->next_visible);
    for (int i = 0; i < n; i++)
        block->state[i] = exponentials(scores[i], block->visible[i], &rows.ahead);
    add_rows(block, &rows, is_q8, 0, n, 0, least, scores);
    for (int i = 0; i < n && least < most; i++)
        add_rows(block, &rows, is_q8, i, 1, least, block->visible[i], scores);
}

ALWAYS_INLINE void attend_format(struct query_block *block, bool is_q8)
{
    switch (block->n) {
    case 1: attend_n(block, is_q8, 1); break;
    case 2: attend_n(block, is_q8, 2); break;
    case 3: attend_n(block, is_q8, 3); break;
    default: attend_n(block, is_q8, BLOCK_QUERIES); break;
    }
}

static void attend_f16(struct query_block *block)
{
    attend_format(block, false);
}

static void attend_q8_0(struct query_block *block)
{
    attend_format(block, true);
}

static inline void attention_body(const struct attention_job *j, int begin, int end)
{
    struct attention_steps steps = {j->format == KV_FORMAT_F16 ? attend_f16 : attend_q8_0,
                                    fold_output, divide_output};
    attention_walk(j, &steps, begin, end);
}

#endif
