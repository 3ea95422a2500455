/* Keys or values of a chunk as 16 lanes of floats. Include after one of the lanes headers. */
#ifndef TRINE_KERNELS_X86_ATTENTION_ROWS_H
#define TRINE_KERNELS_X86_ATTENTION_ROWS_H

#include "kernels/kv_page.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* How far ahead rows are prefetched: with four queries the arithmetic takes most of the time that
 * memory takes, and without it the two add up. */
#define ROWS_AHEAD    32

/* The first n rows of a chunk, and their scales as floats. */
struct scaled_rows {
    const struct kv_rows *rows;
    int n;
    const struct kv_rows *next; /* what is read after them */
    float scales[KV_PAGE * ATTENTION_MAX_HEAD_DIM / 32];
};

static inline void begin_rows(struct scaled_rows *s, const struct kv_rows *rows, int n,
                              const struct kv_rows *next)
{
    s->rows = rows;
    s->n = n;
    s->next = next;
    if (rows->format == KV_FORMAT_F16)
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

/* Prefetches n elements, from `first` of the row that is ROWS_AHEAD after `row`. */
ALWAYS_INLINE void prefetch_ahead(const struct scaled_rows *s, bool is_q8, int row, int first,
                                  int n)
{
    int bytes = is_q8 ? 1 : 2, ahead = row + ROWS_AHEAD;
    const struct kv_rows *rows = ahead < s->n ? s->rows : s->next;
    int64_t at = (int64_t)(ahead < s->n ? ahead : ahead - s->n) * rows->head_pad + first;
    const char *from = is_q8 ? (const char *)(rows->q8 + at) : (const char *)(rows->f16 + at);
    for (int i = 0; i < n * bytes; i += 64)
        _mm_prefetch(from + i, _MM_HINT_T0);
}

#endif
