#include <assert.h>

#include "engine/plan_builder.h"

void *space_take(struct space *space, int64_t n, size_t size)
{
    uint8_t *block = space->base ? space->base + space->used : NULL;
    space->used += ((uint64_t)n * size + 63) / 64 * 64;
    return block;
}

/* At least n_cols rounded up to whole steps of every packing, a multiple of 64. */
static int64_t row_stride(int64_t n_cols)
{
    int64_t steps = (n_cols + 19) / 20 * 20; /* trits5 has the only step that does not divide 64 */
    return ((steps > n_cols + 15 ? steps : n_cols + 15) + 63) / 64 * 64;
}

static struct rows take_rows(struct space *space, int64_t n_rows, int64_t n_cols)
{
    struct rows rows = {.n_cols = n_cols, .stride = row_stride(n_cols)};
    rows.x = space_take(space, n_rows * rows.stride, sizeof *rows.x);
    return rows;
}

static int64_t q_cols(const struct builder *b, int node)
{
    const int64_t *heads = b->plan->slices.cut.heads;
    return (heads[node + 1] - heads[node]) * b->config->head_dim;
}

/* Partial results of attention by chunks, of few tokens. */
static float *take_partial(struct builder *b, struct space *space, int64_t n_heads)
{
    int64_t n_chunks = (b->plan->options.n_ctx + KV_PAGE - 1) / KV_PAGE;
    int64_t n = PLAN_FEW_TOKENS * n_heads * n_chunks;
    return space_take(space, n * (2 + b->config->head_dim), sizeof(float));
}

static int64_t square_blocks(int64_t n_cols)
{
    return (n_cols + SQUARES_BLOCK - 1) / SQUARES_BLOCK;
}

static int64_t longest_sub_norm(const struct model_config *c)
{
    int64_t all_q = (int64_t)c->n_head * c->head_dim;
    return all_q > c->n_ff ? all_q : c->n_ff;
}

static void node_buffers(struct builder *b, int node)
{
    const struct model_config *c = b->config;
    const struct engine_options *o = &b->plan->options;
    struct space *space = &b->spaces[node];
    struct node_buffers *own = &b->buffers[node];
    const struct cut *cut = &b->plan->slices.cut;
    bool is_row = o->dataflow == DATAFLOW_ROW;
    int64_t n = o->n_batch, all_q = (int64_t)c->n_head * c->head_dim;
    int64_t n_kv = (int64_t)b->plan->n_kv_heads[node] * c->head_dim;
    own->barrier = space_take(space, 1, sizeof *own->barrier);
    own->claims = space_take(space, b->plan->layout->nodes[node].n_threads, 64);
    own->residual = take_rows(space, n, c->n_embd);
    own->attended = take_rows(space, n, is_row ? all_q : q_cols(b, node));
    own->gated = take_rows(space, n, is_row ? c->n_ff : cut->ff[node + 1] - cut->ff[node]);
    if (builder_is_by_position(b) && node > 0) { /* the first node has those of all */
        own->q = b->buffers[0].q;
        own->attention_partial = b->buffers[0].attention_partial;
    } else {
        own->q = take_rows(space, n, builder_is_by_position(b) ? all_q : q_cols(b, node));
        own->attention_partial = take_partial(b, space, own->q.n_cols / c->head_dim);
    }
    if (o->kv_format != KV_FORMAT_F16 || model_has_head_norms(b->plan->model))
        own->k = take_rows(space, n, n_kv);
    if (o->kv_format != KV_FORMAT_F16)
        own->v = take_rows(space, n, n_kv);
    if (model_has_sub_norms(b->plan->model)) {
        own->squares = take_rows(space, n, square_blocks(longest_sub_norm(c)));
        own->factors = space_take(space, n, sizeof *own->factors);
    }
    for (int i = 0; i < 2; i++) {
        if (!is_row && cut->n_nodes > 1)
            own->partial[i] = take_rows(space, n, c->n_embd);
        own->peaks[i] = space_take(space, n, sizeof(float));
    }
    own->pages = space_take(space, n * c->n_layer, sizeof *own->pages);
    own->key_out = space_take(space, n * c->n_layer, sizeof *own->key_out);
    own->value_out = space_take(space, n * c->n_layer, sizeof *own->value_out);
}

void builder_buffers(struct builder *b)
{
    const struct model_config *c = b->config;
    const struct engine_options *o = &b->plan->options;
    struct space *space = &b->spaces[0];
    int64_t n = o->n_batch;
    b->shared->tokens = space_take(space, n, sizeof(int32_t));
    b->shared->position = space_take(space, n, sizeof(int32_t));
    b->shared->wanted = space_take(space, o->n_logits, sizeof(int32_t));
    b->shared->cosines = space_take(space, n * (c->head_dim / 2), sizeof(float));
    b->shared->sines = space_take(space, n * (c->head_dim / 2), sizeof(float));
    b->shared->logits = space_take(space, (int64_t)o->n_logits * c->n_vocab, sizeof(float));
    if (model_has_sub_norms(b->plan->model)) {
        int64_t all_q = (int64_t)c->n_head * c->head_dim;
        b->shared->squares[0] = take_rows(space, n, square_blocks(all_q));
        b->shared->squares[1] = take_rows(space, n, square_blocks(c->n_ff));
    }
    for (int node = 0; node < b->plan->slices.cut.n_nodes; node++)
        node_buffers(b, node);
}

int builder_capacity(const struct builder *b)
{
    int n = b->plan->options.n_batch;
    return b->kind == PROGRAM_FEW && n > PLAN_FEW_TOKENS ? PLAN_FEW_TOKENS : n;
}

bool builder_is_each(const struct builder *b)
{
    enum quantise q = b->plan->options.quantise;
    return q == QUANTISE_EACH || (q == QUANTISE_AUTO && b->kind == PROGRAM_FEW);
}

struct rows builder_folded(struct builder *b, int64_t n_cols)
{
    if (b->folded.stride == 0)
        b->folded = take_rows(&b->spaces[b->node], builder_capacity(b), n_cols);
    return b->folded;
}

struct rows builder_squares(struct builder *b, int64_t n_cols)
{
    struct rows squares = b->buffers[b->node].squares;
    if (builder_is_each(b) && b->squares.stride == 0)
        b->squares = take_rows(&b->spaces[b->node], builder_capacity(b), squares.n_cols);
    if (builder_is_each(b))
        squares = b->squares;
    squares.n_cols = square_blocks(n_cols);
    return squares;
}

float *builder_factors(struct builder *b)
{
    if (!builder_is_each(b))
        return b->buffers[b->node].factors;
    if (b->factors.stride == 0)
        b->factors = take_rows(&b->spaces[b->node], 1, builder_capacity(b));
    return b->factors.x;
}

struct rows builder_chosen(struct builder *b)
{
    int n_logits = b->plan->options.n_logits, n = builder_capacity(b);
    n = n_logits < n ? n_logits : n;
    if (builder_is_each(b))
        return take_rows(&b->spaces[b->node], n, b->config->n_embd);
    struct rows *shared = &b->buffers[b->node].chosen[b->kind];
    if (shared->stride == 0)
        *shared = take_rows(&b->spaces[b->node], n, b->config->n_embd);
    return *shared;
}

/* Rows of its own for a float set that is not read from a buffer. */
static void take_set(struct builder *b, struct activations *a, bool is_float)
{
    struct space *space = &b->spaces[b->node];
    int64_t n = builder_capacity(b);
    if (is_float) {
        a->x = space_take(space, n * a->stride, sizeof *a->x);
        return;
    }
    a->q = space_take(space, n * a->stride, 1);
    a->scale = space_take(space, n * a->n_scales, sizeof *a->scale);
    a->sum = space_take(space, n * a->n_sums, sizeof *a->sum);
}

static struct act_set *find_set(struct builder *b, enum act_purpose purpose,
                                struct packing_needs needs, int64_t n_cols)
{
    int thread = builder_is_each(b) ? b->thread : -1;
    for (int i = 0; i < b->n_sets; i++) {
        struct act_set *s = &b->sets[i];
        if (s->purpose == purpose && s->program == (int)b->kind && s->thread == thread &&
            s->a.n_cols == n_cols && packing_needs_same(s->needs, needs))
            return s;
    }
    assert(b->n_sets < MAX_ACT_SETS);
    struct act_set *s = &b->sets[b->n_sets++];
    *s = (struct act_set){purpose, needs, (int)b->kind, thread, false, {0}};
    struct activations *a = &s->a;
    a->n_cols = n_cols;
    a->stride = row_stride(n_cols);
    a->group = needs.act_group;
    a->sum_group = needs.sum_group;
    a->n_scales = a->group ? (int)((n_cols + a->group - 1) / a->group) : 1;
    a->n_sums = a->sum_group ? (int)((n_cols + a->sum_group - 1) / a->sum_group) : 1;
    return s;
}

struct activations builder_activations(struct builder *b, enum act_purpose purpose,
                                       const struct packed *w, const struct rows *source)
{
    struct packing_needs needs = packing_needs(w->packing, w->group);
    struct act_set *s = find_set(b, purpose, needs, w->n_cols);
    if (needs.is_float && source) {
        struct activations a = s->a;
        a.x = source->x;
        a.stride = source->stride;
        return a;
    }
    if (!s->is_taken) {
        take_set(b, &s->a, needs.is_float);
        s->is_taken = true;
    }
    return s->a;
}
