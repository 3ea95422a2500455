/* The walk of attention over units, chunks, tokens and query heads. It gathers the queries that see
 * one chunk in blocks and hands each block to the instruction set's own function; what comes out is
 * left as a partial result or folded at once. */
#ifndef TRINE_KERNELS_ATTENTION_WALK_H
#define TRINE_KERNELS_ATTENTION_WALK_H

#include <string.h>

#include "kernels/attention_block.h"
#include "kernels/float_ops.h"

/* What an instruction set has to offer. */
struct attention_steps {
    void (*attend)(struct query_block *block);                         /* fills the results */
    void (*fold)(float *out, float a, const float *o, float b, int n); /* fma(o, b, out * a) */
    void (*divide)(float *out, float divisor, int n);
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
    int token = block->token[i];
    float *out = j->out + token * j->out_stride + (int64_t)block->head[i] * j->head_dim;
    int in_group = (block->head[i] + j->head_offset) % j->group;
    struct fold_state *state = work->states + (token - work->token0) * j->group + in_group;
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
    block->is_fetched = true;
}

static inline void walk_chunk(const struct attention_job *j, const struct attention_steps *steps,
                              const struct chunk_work *work)
{
    int head0 = work->kv_head * j->group - j->head_offset, head1 = head0 + j->group;
    head0 = head0 > 0 ? head0 : 0;
    head1 = head1 < j->n_heads ? head1 : j->n_heads;
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
            set_page(j, work, t, &block);
            page_of_block = page;
        }
        for (int head = head0; head < head1; head++) {
            add_query(j, work, &block, t, head);
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
    int n_own = (j->n_chunks - j->chunk0 + j->chunk_step - 1) / j->chunk_step;
    for (int unit = begin; unit < end; unit++)
        if (j->token_block) {
            walk_token_block(j, steps, unit);
        } else {
            int chunk = j->chunk0 + unit % n_own * j->chunk_step;
            struct chunk_work work = {unit / n_own, chunk, 0, j->n_tokens, NULL};
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
