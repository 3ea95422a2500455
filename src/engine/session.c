/* Sequences, and the batches of columns that move them on. */
#include <assert.h>

#include "engine/engine_state.h"

/* Queries that walk a page together, for many tokens: enough to share its conversion, few enough to
 * leave units for all threads. */
#define BLOCK_TOKENS 16

enum status session_open(struct session **session, struct engine *engine, struct error *err)
{
    struct session *s = memory_alloc(1, sizeof *s);
    if (!s)
        return fail_memory(err, "session", sizeof *s);
    s->engine = engine;
    s->columns = memory_alloc((size_t)engine->plan.options.n_batch, sizeof *s->columns);
    enum status status =
        s->columns ? kv_pages_open(&s->pages, &engine->kv, engine->plan.options.n_ctx, err)
                   : fail_memory(err, "session", sizeof *s->columns);
    if (status != STATUS_OK) {
        memory_free(s->columns);
        memory_free(s);
        return status;
    }
    *session = s;
    return STATUS_OK;
}

void session_close(struct session *s)
{
    if (!s)
        return;
    kv_pages_close(&s->pages, &s->engine->kv);
    memory_free(s->columns);
    memory_free(s);
}

int session_position(const struct session *session)
{
    return session->position;
}

int session_n_ctx(const struct session *session)
{
    return session->engine->plan.options.n_ctx;
}

void session_rewind(struct session *session, int position)
{
    assert(position >= 0 && position <= session->position);
    session->position = position;
}

/* Angles of a column; pairs that are not rotated turn by nothing. */
static void set_angles(struct engine *e, int column, int position)
{
    const struct model_config *c = &e->model->config;
    int n_pairs = c->head_dim / 2, n_rotated = c->rope.n_rot / 2;
    float *cosines = e->shared.cosines + (int64_t)column * n_pairs;
    float *sines = e->shared.sines + (int64_t)column * n_pairs;
    rope_angles(&c->rope, position, cosines, sines);
    for (int i = n_rotated; i < n_pairs; i++) {
        cosines[i] = 1;
        sines[i] = 0;
    }
}

/* Where a column's keys and values go, on one node, and where it finds those before it. */
static void set_pages(struct engine *e, int node, int column, const struct session *s, int position)
{
    const struct model_config *c = &e->model->config;
    const struct kv_page_layout *page = &e->plan.pages[node];
    struct node_buffers *own = &e->buffers[node];
    int n_batch = e->plan.options.n_batch;
    struct kv_range kv = cut_kv_own(&e->plan.slices.cut, node, c->n_head, c->n_head_kv);
    int64_t first = e->kv.n_pools > 1 ? (int64_t)kv.kv0 * KV_PAGE : 0; /* rows of heads before */
    int64_t row = (first + position % KV_PAGE) * page->head_pad * (int64_t)sizeof(uint16_t);
    for (int layer = 0; layer < c->n_layer; layer++) {
        int64_t at = (int64_t)layer * n_batch + column;
        uint8_t *const *pages = kv_pages_of(&s->pages, c->n_layer, node, layer);
        own->pages[at] = pages;
        own->key_out[at] = (uint16_t *)(pages[position / KV_PAGE] + page->key_at + row);
        own->value_out[at] = (uint16_t *)(pages[position / KV_PAGE] + page->value_at + row);
    }
}

static void set_column(struct engine *e, int i, const struct engine_column *column,
                       struct batch_shape *shape)
{
    struct session *s = column->session;
    int position = s->position++;
    assert(position < e->plan.options.n_ctx);
    e->shared.tokens[i] = column->token;
    e->shared.position[i] = position;
    set_angles(e, i, position);
    for (int node = 0; node < e->layout.n_nodes; node++)
        if (e->plan.n_kv_heads[node] > 0)
            set_pages(e, node, i, s, position);
    if (column->wants_logits)
        e->shared.wanted[shape->n_logits++] = i;
    int n_chunks = position / KV_PAGE + 1;
    shape->n_chunks = n_chunks > shape->n_chunks ? n_chunks : shape->n_chunks;
}

static int token_block_of(const struct engine *e, enum program_kind kind, int n_tokens)
{
    const struct model_config *c = &e->model->config;
    int most = ATTENTION_MAX_QUERIES / (c->n_head / c->n_head_kv);
    if (kind == PROGRAM_MANY)
        return BLOCK_TOKENS < most ? BLOCK_TOKENS : most;
    return plan_few_block(&e->plan, n_tokens);
}

const float *engine_forward(struct engine *e, const struct engine_column *columns, int n)
{
    assert(n > 0 && n <= e->plan.options.n_batch);
    struct batch_shape shape = {.n_tokens = n};
    enum program_kind kind = n > PLAN_FEW_TOKENS ? PROGRAM_MANY : PROGRAM_FEW;
    for (int i = 0; i < n; i++)
        set_column(e, i, &columns[i], &shape);
    assert(shape.n_logits <= e->plan.options.n_logits);
    shape.token_block = token_block_of(e, kind, n);
    executor_run(e->executor, kind, &shape, e->trace);
    return e->shared.logits;
}

const float *session_prefill(struct session *s, const int32_t *tokens, int n)
{
    int n_batch = s->engine->plan.options.n_batch;
    const float *logits = NULL;
    for (int at = 0; at < n;) {
        int n_now = n - at < n_batch ? n - at : n_batch;
        for (int i = 0; i < n_now; i++)
            s->columns[i] = (struct engine_column){s, tokens[at + i], at + i == n - 1};
        logits = engine_forward(s->engine, s->columns, n_now);
        at += n_now;
    }
    return logits;
}

const float *session_decode(struct session *s, int32_t token)
{
    return engine_forward(s->engine, &(struct engine_column){s, token, true}, 1);
}
