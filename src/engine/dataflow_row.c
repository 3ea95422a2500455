/* Row-owned: every matrix is cut by outputs over the nodes. The next stage needs the whole vector, so
 * each thread writes its outputs into a copy of it on every node, and a global barrier ends every
 * stage. Nothing is reduced. Attention is divided over the nodes by heads or by positions of the
 * cache. */
#include <stddef.h>

#include "engine/plan_builder.h"

static const struct rows *rows_of(const struct builder *b, int node, size_t rows_at)
{
    return (const void *)((const uint8_t *)&b->buffers[node] + rows_at);
}

/* What the other nodes have of rows, columns at[node] * width on, copied to the own node. */
static void build_copy(struct builder *b, enum step_kind kind, int layer, size_t rows_at,
                       const int64_t *at, int64_t width)
{
    int n_nodes = b->plan->slices.cut.n_nodes;
    if (n_nodes == 1)
        return;
    struct step *step = builder_step(b, kind, layer, SYNC_NODE, n_nodes - 1);
    for (int i = 1; i < n_nodes; i++) {
        int node = (b->node + i) % n_nodes; /* nodes don't all read the first one at once */
        struct rows out = *rows_of(b, b->node, rows_at);
        const void **from = builder_take(b, 1, sizeof *from);
        if (!from)
            return;
        int64_t first = at[node] * width;
        *from = rows_from(rows_of(b, node, rows_at), first);
        out.n_cols = (at[node + 1] - at[node]) * width;
        out.x = rows_from(&out, first);
        struct part part = part_reduce(b, from, 1, &out);
        step_add(step, &part);
    }
}

static bool is_copied(const struct builder *b)
{
    return b->plan->options.row_scatter == ROW_SCATTER_COPY;
}

/* Partial results folded by every thread for itself: those of all nodes. */
static struct rows build_fold_each(struct builder *b)
{
    const struct model_config *c = b->config;
    const int64_t *heads = b->plan->slices.cut.heads;
    struct rows rows = builder_folded(b, (int64_t)c->n_head * c->head_dim);
    if (builder_is_by_position(b)) {
        struct part part = part_fold(b, &rows, 0, c->n_head);
        builder_each(b, &part);
        return rows;
    }
    for (int node = 0; node < b->plan->slices.cut.n_nodes; node++) {
        int n_heads = (int)(heads[node + 1] - heads[node]);
        struct part part = part_fold(b, &rows, heads[node] * c->head_dim, n_heads);
        part.job.attention_fold.partial = b->buffers[node].attention_partial;
        builder_each(b, &part);
    }
    return rows;
}

/* The attended vector, whole. */
static struct rows build_attended(struct builder *b, int layer)
{
    const struct cut *cut = &b->plan->slices.cut;
    struct rows attended = b->buffers[b->node].attended;
    int hd = b->config->head_dim;
    bool is_by_chunks = builder_by_chunks(b);
    build_attention(b, layer, SYNC_GLOBAL);
    if (is_by_chunks && builder_is_each(b))
        return build_fold_each(b);
    if (is_by_chunks && builder_is_by_position(b)) { /* everybody's: each node folds all of it */
        struct part part = part_fold(b, &attended, 0, b->config->n_head);
        step_add(builder_step(b, STEP_FOLD, layer, SYNC_NODE, 1), &part);
        return attended;
    }
    if (is_by_chunks) {
        int64_t head0 = cut->heads[b->node], n_heads = cut->heads[b->node + 1] - head0;
        struct part part = part_fold(b, &attended, head0 * hd, (int)n_heads);
        step_add(builder_step(b, STEP_FOLD, layer, SYNC_GLOBAL, 1), &part);
    }
    build_copy(b, STEP_FOLD, layer, offsetof(struct node_buffers, attended), cut->heads, hd);
    return attended;
}

/* O or down: own rows of the residual, then everybody's. */
static void build_narrow(struct builder *b, enum step_kind kind, int layer,
                         const struct weight_slice *w, const struct rows *input, const float *gain)
{
    struct activations a;
    build_quantize(b, layer, kind == STEP_DOWN ? ACT_GATED : ACT_ATTENDED, w, input, gain, NULL, 0,
                   &a);
    const float *factor = gain ? build_own_norm_factor(b, layer, input) : NULL;
    const struct rows *residual = &b->buffers[b->node].residual;
    int64_t at = b->plan->slices.cut.embd[b->node];
    struct part part =
        part_matmul(b, w, a, EPILOGUE_ADD, rows_from(residual, at), residual->stride);
    part.job.matmul.token_scale = factor;
    part_scatter(b, &part, offsetof(struct node_buffers, residual), at, 1);
    step_add(builder_step(b, kind, layer, SYNC_GLOBAL, 1), &part);
    if (is_copied(b))
        build_copy(b, kind, layer, offsetof(struct node_buffers, residual),
                   b->plan->slices.cut.embd, 1);
}

void build_row_layer(struct builder *b, int layer)
{
    const struct layer_slices *s = &b->plan->slices.nodes[b->node].layers[layer];
    const struct layer_weights *weights = &b->plan->model->weights.layers[layer];
    build_qkv(b, layer);
    struct rows attended = build_attended(b, layer);
    build_narrow(b, STEP_ATTN_OUTPUT, layer, &s->o, &attended, weights->attn_sub_norm);
    build_gate_up(b, layer, SYNC_GLOBAL);
    if (is_copied(b))
        build_copy(b, STEP_GATE_UP, layer, offsetof(struct node_buffers, gated),
                   b->plan->slices.cut.ff, 1);
    build_narrow(b, STEP_DOWN, layer, &s->down, &b->buffers[b->node].gated, weights->ffn_sub_norm);
}
