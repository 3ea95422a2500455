/* A block of queries that walk one chunk together: what is in it, and what the walk reads next. */
#ifndef TRINE_KERNELS_ATTENTION_BLOCK_H
#define TRINE_KERNELS_ATTENTION_BLOCK_H

#include <string.h>

#include "kernels/kv_page.h"

#define BLOCK_QUERIES 4

/* What is known of a query after some chunks, apart from o: the highest score and the sum. */
struct fold_state {
    float m, l;
};

/* Up to BLOCK_QUERIES queries of one sequence and one chunk of it. */
struct query_block {
    struct kv_rows keys, values;
    struct kv_rows next_keys; /* of the chunk after this one, to prefetch: next_visible rows */
    int next_visible;
    bool is_fetched; /* an earlier block of the chunk has prefetched all that */
    float scale;
    int n;
    int visible[BLOCK_QUERIES]; /* positions of the chunk that it sees, at least 1 */
    int token[BLOCK_QUERIES], head[BLOCK_QUERIES];
    struct fold_state state[BLOCK_QUERIES];                                      /* result */
    float o[BLOCK_QUERIES][ATTENTION_MAX_HEAD_DIM] __attribute__((aligned(64))); /* result */
    float q[BLOCK_QUERIES][ATTENTION_MAX_HEAD_DIM] __attribute__((aligned(64))); /* head_pad */
};

/* Some tokens and one chunk, for one kv head. */
struct chunk_work {
    int kv_head, chunk, token0, token1;
    struct fold_state *states; /* (tokens, query heads of the kv head); NULL: leave partials */
};

/* Positions of a chunk that a token sees. */
static inline int visible_rows(const struct attention_job *j, int token, int chunk)
{
    int visible = j->position[token] - chunk * KV_PAGE + 1;
    return visible < KV_PAGE ? visible : KV_PAGE;
}

static inline void add_query(const struct attention_job *j, const struct chunk_work *work,
                             struct query_block *block, int token, int head)
{
    int i = block->n++;
    const float *q = j->q + token * j->q_stride + (int64_t)head * j->head_dim;
    block->token[i] = token;
    block->head[i] = head;
    block->visible[i] = visible_rows(j, token, work->chunk);
    memcpy(block->q[i], q, (size_t)j->head_dim * sizeof *q);
    memset(block->q[i] + j->head_dim, 0, (size_t)(block->keys.head_pad - j->head_dim) * sizeof *q);
}

/* Where the walk goes on after the page of token t. */
struct next_page {
    int token, kv_head, chunk;
};

static inline struct next_page next_page(const struct attention_job *j,
                                         const struct chunk_work *work, int t)
{
    struct next_page next = {t + 1, work->kv_head, work->chunk};
    for (; next.token < work->token1; next.token++) /* another sequence */
        if (j->position[next.token] / KV_PAGE >= next.chunk &&
            j->pages[next.token][next.chunk] != j->pages[t][next.chunk])
            return next;
    next.chunk += work->states ? 1 : j->chunk_step;
    for (next.token = work->token0; next.token < work->token1; next.token++)
        if (j->position[next.token] / KV_PAGE >= next.chunk)
            return next;
    return (struct next_page){work->token0, work->kv_head + 1, work->states ? 0 : j->chunk0};
}

static inline void set_page(const struct attention_job *j, const struct chunk_work *work, int t,
                            struct query_block *block)
{
    struct kv_page_layout at = kv_page_layout(j->format, j->n_page_heads, j->head_dim);
    uint8_t *page = j->pages[t][work->chunk];
    int head = work->kv_head + j->kv_head0;
    block->keys = kv_rows(j->format, at.head_pad, page, at.key_at, at.key_scale_at, head);
    block->values = kv_rows(j->format, at.head_pad, page, at.value_at, at.value_scale_at, head);
    struct next_page next = next_page(j, work, t);
    int visible = next.kv_head < j->n_heads_kv ? visible_rows(j, next.token, next.chunk) : 0;
    if (visible > 0) {
        page = j->pages[next.token][next.chunk];
        head = next.kv_head + j->kv_head0;
    }
    block->next_keys = kv_rows(j->format, at.head_pad, page, at.key_at, at.key_scale_at, head);
    block->next_visible = visible > 0 ? visible : 0;
    block->is_fetched = false;
}

#endif
