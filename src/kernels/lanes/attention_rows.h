/* Keys or values of a chunk as lanes of floats, and their way into the cache. Include after one of
 * the lanes headers. */
#ifndef TRINE_KERNELS_LANES_ATTENTION_ROWS_H
#define TRINE_KERNELS_LANES_ATTENTION_ROWS_H

#include "kernels/kv_page.h"

#define ALWAYS_INLINE          static inline __attribute__((always_inline))

#define AHEAD_BYTES            (64 * LANES_STREAMS) /* a step */
#define ROW_BYTES(rows, is_q8) ((rows)->head_pad * ((is_q8) ? 1 : 2))

/* What is read after some rows, prefetched while these are computed: an equal part of it in each of
 * LANES_STREAMS streams into L2, one line of each at a step. Keys and values of a chunk are 64 KiB
 * each at 128 of f16. */
struct rows_ahead {
    const char *at;
    int64_t part_bytes;
    int n_steps; /* left */
};

/* Rows of a chunk, their scales as floats, and what is read after them. */
struct scaled_rows {
    const struct kv_rows *rows;
    struct rows_ahead ahead;
    float scales[KV_PAGE * ATTENTION_MAX_HEAD_DIM / 32];
};

static inline const char *row_at(const struct kv_rows *rows, int64_t element)
{
    return rows->format == KV_FORMAT_F16 ? (const char *)(rows->f16 + element)
                                         : (const char *)(rows->q8 + element);
}

/* The first n rows; n_next: rows of `next` that will be read. */
static inline void begin_rows(struct scaled_rows *s, const struct kv_rows *rows, int n,
                              const struct kv_rows *next, int n_next)
{
    bool is_q8 = rows->format == KV_FORMAT_Q8_0;
    s->rows = rows;
    int n_steps = (n_next * ROW_BYTES(next, is_q8) + AHEAD_BYTES - 1) / AHEAD_BYTES;
    s->ahead = (struct rows_ahead){row_at(next, 0), (int64_t)n_steps * 64, n_steps};
    if (!is_q8)
        return;
    for (int i = 0; i < n * (rows->head_pad / 32); i += 16) /* 256 rows are there to read */
        lanes_store(s->scales + i, lanes_from_f16(rows->scales + i));
}

/* Elements d .. d + 15 of a row. */
ALWAYS_INLINE struct lanes row_lanes(const struct scaled_rows *s, bool is_q8, int row, int d)
{
    int64_t at = (int64_t)row * s->rows->head_pad + d;
    if (!is_q8)
        return lanes_from_f16(s->rows->f16 + at);
    return lanes_mul(lanes_from_int8(s->rows->q8 + at), lanes_set(s->scales[at / 32]));
}

/* The elements of a part: d is a multiple of its size. */
ALWAYS_INLINE struct part row_part(const struct scaled_rows *s, bool is_q8, int row, int d)
{
    int64_t at = (int64_t)row * s->rows->head_pad + d;
    if (!is_q8)
        return part_from_f16(s->rows->f16 + at);
    return part_from_q8(s->rows->q8 + at, s->scales[(uint64_t)at / 32]);
}

/* Prefetches, at most n steps. */
ALWAYS_INLINE void prefetch_steps(struct rows_ahead *ahead, int n)
{
    for (int i = 0; i < n && ahead->n_steps > 0; i++, ahead->n_steps--, ahead->at += 64)
#pragma GCC unroll 4
        for (int stream = 0; stream < LANES_STREAMS; stream++)
            __builtin_prefetch(ahead->at + stream * ahead->part_bytes, 0, 2);
}

/* What is due in turn i of an innermost loop, each of which reads n bytes. Memory answers best to
 * single lines at an even pace: 30 GB/s, with the bursts of prefetch_between 25 (f16, 4 queries, 2
 * cores of Zen 4, December 2026). AVX2 has no room for them there. */
ALWAYS_INLINE void prefetch_turn(struct rows_ahead *ahead, int i, int n)
{
    if (LANES_FETCH_IN_TURNS && (n >= AHEAD_BYTES || i % (AHEAD_BYTES / n) == 0))
        prefetch_steps(ahead, n >= AHEAD_BYTES ? n / AHEAD_BYTES : 1);
}

/* What is due outside the innermost loops when n bytes are to be read. */
ALWAYS_INLINE void prefetch_between(struct rows_ahead *ahead, int n)
{
    if (!LANES_FETCH_IN_TURNS)
        prefetch_steps(ahead, (n + AHEAD_BYTES - 1) / AHEAD_BYTES);
}

#endif
