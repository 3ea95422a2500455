/* The walk of attention over units, chunks, tokens and query heads. It gathers the queries that see
 * one chunk in blocks and hands each block to the instruction set's own function; what comes out is
 * left as a partial result or folded at once. */
#ifndef TRINE_KERNELS_ATTENTION_WALK_H
#define TRINE_KERNELS_ATTENTION_WALK_H

#include <string.h>

#include "kernels/float_ops.h"
#include "kernels/kv_page.h"

#define BLOCK_QUERIES 4

/* What is known of a query after some chunks, apart from o: the highest score and the sum. */
struct fold_state {
    float m, l;
};

/* Up to BLOCK_QUERIES queries of one sequence and one chunk of it. */
struct query_block {
    struct kv_rows keys, values;
    struct kv_rows
        next_keys; /* of the next chunk, to prefetch; where there is none the same ones */
    float scale;
    int n;
    int visible[BLOCK_QUERIES]; /* positions of the chunk that it sees, at least 1 */
    int token[BLOCK_QUERIES], head[BLOCK_QUERIES];
    struct fold_state state[BLOCK_QUERIES];                                      /* result */
    float o[BLOCK_QUERIES][ATTENTION_MAX_HEAD_DIM] __attribute__((aligned(64))); /* result */
    float q[BLOCK_QUERIES][ATTENTION_MAX_HEAD_DIM] __attribute__((aligned(64))); /* head_pad */
};

/* What an instruction set has to offer. */
struct attention_steps {
    void (*attend)(struct query_block *block);                         /* fills the results */
    void (*fold)(float *out, float a, const float *o, float b, int n); /* fma(o, b, out * a) */
    void (*divide)(float *out, float divisor, int n);
};

/* Some tokens and one chunk, for one kv head. */
struct chunk_work {
    int kv_head, chunk, token0, token1;
    struct fold_state *states; /* (tokens, query heads of the kv head); NULL: leave partials */
};

/* Joins the state of a further chunk; a and b are the factors of the two o. */
static inline void fold_join(struct fold_state *all, const struct fold_state *one, float *a,
                             float *b)
{
    float m = all->m > one->m ? all->m : one->m;
    *a = trine_exp(all->m - m);
    *b = trine_exp(one->m - m);
    float kept = all->l * *a;
    *all = (struct fold_state){m, fmaf(one->l, *b, kept)};
}

static inline void leave_partial(const struct attention_job *j, const struct chunk_work *work,
                                 const struct query_block *block, int i)
{
    int64_t query = (int64_t)block->token[i] * j->n_heads + block->head[i];
    float *partial = j->partial + (query * j->n_chunks + work->chunk) * (2 + j->head_dim);
    partial[0] = block->state[i].m;
    partial[1] = block->state[i].l;
    memcpy(partial + 2, block->o[i], (size_t)j->head_dim * sizeof *partial);
}

static inline void fold_now(const struct attention_job *j, const struct attention_steps *steps,
                            const struct chunk_work *work, const struct query_block *block, int i)
{
    int token = block->token[i], group = j->n_heads / j->n_heads_kv;
    float *out = j->out + token * j->out_stride + (int64_t)block->head[i] * j->head_dim;
    struct fold_state *state =
        work->states + (token - work->token0) * group + block->head[i] % group;
    if (work->chunk == 0) {
        *state = block->state[i];
        memcpy(out, block->o[i], (size_t)j->head_dim * sizeof *out);
    } else {
        float a, b;
        fold_join(state, &block->state[i], &a, &b);
        steps->fold(out, a, block->o[i], b, j->head_dim);
    }
    if (work->chunk == j->position[token] / KV_PAGE)
        steps->divide(out, state->l, j->head_dim);
}

static inline void flush_block(const struct attention_job *j, const struct attention_steps *steps,
                               const struct chunk_work *work, struct query_block *block)
{
    if (block->n == 0)
        return;
    steps->attend(block);
    for (int i = 0; i < block->n; i++)
        if (work->states)
            fold_now(j, steps, work, block, i);
        else
            leave_partial(j, work, block, i);
    block->n = 0;
}

static inline void add_query(const struct attention_job *j, const struct chunk_work *work,
                             struct query_block *block, int token, int head)
{
    int i = block->n++, visible = j->position[token] - work->chunk * KV_PAGE + 1;
    const float *q = j->q + token * j->q_stride + (int64_t)head * j->head_dim;
    block->token[i] = token;
    block->head[i] = head;
    block->visible[i] = visible < KV_PAGE ? visible : KV_PAGE;
    memcpy(block->q[i], q, (size_t)j->head_dim * sizeof *q);
    memset(block->q[i] + j->head_dim, 0, (size_t)(block->keys.head_pad - j->head_dim) * sizeof *q);
}

static inline void set_page(const struct attention_job *j, int head, uint8_t *page,
                            uint8_t *next_page, struct query_block *block)
{
    struct kv_page_layout at = kv_page_layout(j->format, j->n_heads_kv, j->head_dim);
    block->keys = kv_rows(j->format, at.head_pad, page, at.key_at, at.key_scale_at, head);
    block->values = kv_rows(j->format, at.head_pad, page, at.value_at, at.value_scale_at, head);
    block->next_keys = kv_rows(j->format, at.head_pad, next_page, at.key_at, at.key_scale_at, head);
}

static inline void walk_chunk(const struct attention_job *j, const struct attention_steps *steps,
                              const struct chunk_work *work)
{
    int group = j->n_heads / j->n_heads_kv;
    struct query_block block;
    block.n = 0;
    block.scale = j->scale;
    const uint8_t *page_of_block = NULL;
    for (int t = work->token0; t < work->token1; t++) {
        if (j->position[t] < work->chunk * KV_PAGE)
            continue;
        uint8_t *page = j->pages[t][work->chunk];
        if (page != page_of_block) {
            flush_block(j, steps, work, &block);
            bool is_last = work->chunk == j->position[t] / KV_PAGE;
            set_page(j, work->kv_head, page, is_last ? page : j->pages[t][work->chunk + 1], &block);
            page_of_block = page;
        }
        for (int g = 0; g < group; g++) {
            add_query(j, work, &block, t, work->kv_head * group + g);
            if (block.n == BLOCK_QUERIES)
                flush_block(j, steps, work, &block);
        }
    }
    flush_block(j, steps, work, &block);
}

static inline void walk_token_block(const struct attention_job *j,
                                    const struct attention_steps *steps, int unit)
{
    struct fold_state states[ATTENTION_MAX_QUERIES];
    int n_blocks = (j->n_tokens + j->token_block - 1) / j->token_block;
    struct chunk_work work = {.kv_head = unit / n_blocks, .states = states};
    work.token0 = unit % n_blocks * j->token_block;
    work.token1 = work.token0 + j->token_block;
    work.token1 = work.token1 < j->n_tokens ? work.token1 : j->n_tokens;
    int last = 0;
    for (int t = work.token0; t < work.token1; t++)
        last = j->position[t] > last ? j->position[t] : last;
    for (; work.chunk <= last / KV_PAGE; work.chunk++)
        walk_chunk(j, steps, &work);
}

static inline void attention_walk(const struct attention_job *j,
                                  const struct attention_steps *steps, int begin, int end)
{
    for (int unit = begin; unit < end; unit++)
        if (j->token_block) {
            walk_token_block(j, steps, unit);
        } else {
            struct chunk_work work = {unit / j->n_chunks, unit % j->n_chunks, 0, j->n_tokens, NULL};
            walk_chunk(j, steps, &work);
        }
}

/* attention_fold. */
static inline void attention_fold_walk(const struct attention_fold_job *j,
                                       const struct attention_steps *steps, int begin, int end)
{
    for (int unit = begin; unit < end; unit++) {
        int token = unit / j->n_heads, head = unit % j->n_heads;
        float *out = j->out + token * j->out_stride + (int64_t)head * j->head_dim;
        const float *partial = j->partial + (int64_t)unit * j->n_chunks * (2 + j->head_dim);
        struct fold_state state = {partial[0], partial[1]};
        memcpy(out, partial + 2, (size_t)j->head_dim * sizeof *out);
        for (int chunk = 1; chunk <= j->position[token] / KV_PAGE; chunk++) {
            partial += 2 + j->head_dim;
            float a, b;
            fold_join(&state, &(struct fold_state){partial[0], partial[1]}, &a, &b);
            steps->fold(out, a, partial + 2, b, j->head_dim);
        }
        steps->divide(out, state.l, j->head_dim);
    }
}

#endif
