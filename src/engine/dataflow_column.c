/* Column-split: a node has its own query heads with their cache, and its own part of the FFN. It needs
 * no other node until O and down, whose inputs are its own: each yields a partial sum of the whole
 * vector, and after a global barrier every node adds the partial sums of all, in the order of nodes,
 * to its own copy of the residual.
 * source  Megatron-LM, Shoeybi et al. 2019, arXiv:1909.08053, over the nodes of one machine */
#include "engine/plan_builder.h"

/* Which of the two narrow matrices of a layer. */
enum narrow { NARROW_O, NARROW_DOWN };

/* What it multiplies. */
struct input {
    struct activations a;
    struct rows rows;          /* what they were made of */
    const float *const *peaks; /* (n_nodes) where all nodes have a common scale, else NULL */
};

static struct weight_slice *narrow_slice(struct builder *b, int node, int layer, enum narrow which)
{
    struct layer_slices *s = &b->plan->slices.nodes[node].layers[layer];
    return which == NARROW_O ? &s->o : &s->down;
}

/* The scale of a token's activations, which all nodes share, once more for the sums of integers: by
 * every thread for itself, because one that was late for O or down has none. */
static const float *build_act_scale(struct builder *b, int layer, const float *const *peaks)
{
    struct activations a = builder_activations(
        b, ACT_SCALE, &(struct packed){.packing = PACKING_trits4, .n_rows = 1}, NULL);
    struct part part = part_quantize(b, &b->buffers[b->node].residual, a);
    part.job.quantize.peaks = peaks;
    part.job.quantize.n_peaks = b->plan->slices.cut.n_nodes;
    builder_prepare(b, STEP_QUANTISE, layer, &part, 1);
    return a.scale;
}

/* The gains of the norm before it, those of the own inputs; NULL: there is no norm. */
static const float *narrow_gain(struct builder *b, int layer, enum narrow which)
{
    const struct layer_weights *w = &b->plan->model->weights.layers[layer];
    const float *gain = which == NARROW_O ? w->attn_sub_norm : w->ffn_sub_norm;
    return gain ? gain + narrow_slice(b, b->node, layer, which)->col0 : NULL;
}

/* Inputs of all nodes together. */
static int64_t narrow_cols(const struct builder *b, enum narrow which)
{
    const struct model_config *c = b->config;
    return which == NARROW_O ? (int64_t)c->n_head * c->head_dim : c->n_ff;
}

/* The partial sums of all nodes that have any, added to the own residual. peaks: of the common scale,
 * where there is one. */
static void build_reduce(struct builder *b, int layer, enum narrow which, const float *const *peaks)
{
    int n_nodes = b->plan->slices.cut.n_nodes, n = 0;
    const void **sums = builder_take(b, n_nodes, sizeof *sums);
    if (!sums)
        return;
    const struct weight_slice *any = NULL;
    for (int node = 0; node < n_nodes; node++) {
        const struct weight_slice *w = narrow_slice(b, node, layer, which);
        if (w->w.n_rows == 0)
            continue;
        sums[n++] = b->buffers[node].partial[which].x;
        any = any ? any : w; /* the first one has the bias */
    }
    struct part part = part_reduce(b, sums, n, &b->buffers[b->node].residual);
    part.job.reduce.is_add = true;
    if (narrow_gain(b, layer, which)) {
        part.job.reduce.token_scale =
            build_norm_factor(b, layer, &b->shared->squares[which], narrow_cols(b, which));
        part.job.reduce.bias = any->bias; /* the factor must not be multiplied into it */
    }
    if (any->row_scale) {
        part.job.reduce.is_int = true;
        part.job.reduce.row_scale = any->row_scale;
        part.job.reduce.act_scale = build_act_scale(b, layer, peaks);
        part.job.reduce.scale = any->scale[0];
        part.job.reduce.bias = any->bias;
    }
    step_add(builder_step(b, STEP_REDUCE, layer, SYNC_NODE, 1), &part);
}

/* O or down, up to the residual of all nodes. */
static void build_narrow(struct builder *b, int layer, enum narrow which, struct input in)
{
    const struct weight_slice *w = narrow_slice(b, b->node, layer, which);
    struct node_buffers *own = &b->buffers[b->node];
    enum step_kind kind = which == NARROW_O ? STEP_ATTN_OUTPUT : STEP_DOWN;
    if (b->plan->slices.cut.n_nodes == 1) {
        struct part part =
            part_matmul(b, w, in.a, EPILOGUE_ADD, own->residual.x, own->residual.stride);
        if (narrow_gain(b, layer, which))
            part.job.matmul.token_scale = build_own_norm_factor(b, layer, &in.rows);
        step_add(builder_step(b, kind, layer, SYNC_NODE, 1), &part);
        return;
    }
    const struct rows *sums = &own->partial[which];
    struct part part = part_matmul(b, w, in.a, EPILOGUE_STORE, sums->x, sums->stride);
    if (w->row_scale) {
        part.job.matmul.epilogue = EPILOGUE_PARTIAL;
        part.job.matmul.out_int = (int32_t *)sums->x;
    }
    struct step *step = builder_step(b, kind, layer, SYNC_GLOBAL, 2);
    if (narrow_gain(b, layer, which)) {
        part.job.matmul.bias = NULL; /* added after the sums are scaled */
        struct part squares =
            part_squares(b, &in.rows, &b->shared->squares[which], w->col0 / SQUARES_BLOCK);
        step_add(step, &squares);
    }
    step_add(step, &part);
    build_reduce(b, layer, which, in.peaks);
}

/* One scale per token for all nodes: each tells its largest magnitude, and all wait for all. */
static const float *const *build_peaks(struct builder *b, int layer, enum narrow which,
                                       const struct rows *rows)
{
    int n_nodes = b->plan->slices.cut.n_nodes;
    const float **peaks = builder_take(b, n_nodes, sizeof *peaks);
    if (!peaks)
        return NULL;
    for (int node = 0; node < n_nodes; node++)
        peaks[node] = b->buffers[node].peaks[which];
    struct peak_job job = {.x = rows->x, .x_stride = rows->stride, .n_cols = (int)rows->n_cols};
    job.gain = narrow_gain(b, layer, which);
    job.peaks = b->buffers[b->node].peaks[which];
    struct part part = {.job = {.peak = job}, .extent = EXTENT_TOKENS, .grain = 1};
    part.per = rows->n_cols > 0;
    part.run = builder_kernel(b, OP_peak, PACKING_none);
    step_add(builder_step(b, STEP_QUANTISE, layer, SYNC_GLOBAL, 1), &part);
    return peaks;
}

static bool has_common_scale(const struct builder *b)
{
    return b->plan->slices.cut.n_nodes > 1 && b->plan->options.act_scale == ACT_SCALE_TOKEN;
}

/* Floats of the own rows to activations of O or down. */
static struct input build_input(struct builder *b, int layer, enum narrow which,
                                const struct rows *rows)
{
    struct input in = {.rows = *rows};
    if (has_common_scale(b))
        in.peaks = build_peaks(b, layer, which, rows);
    build_quantize(b, layer, which == NARROW_O ? ACT_ATTENDED : ACT_GATED,
                   narrow_slice(b, b->node, layer, which), rows, narrow_gain(b, layer, which),
                   in.peaks, in.peaks ? b->plan->slices.cut.n_nodes : 0, &in.a);
    return in;
}

/* The partial results of the own heads folded: by every thread for itself where nobody else needs
 * them. */
static struct rows build_fold(struct builder *b, int layer)
{
    struct node_buffers *own = &b->buffers[b->node];
    int n_heads = (int)(own->q.n_cols / b->config->head_dim);
    bool is_each = builder_is_each(b) && !has_common_scale(b);
    struct rows rows = is_each ? builder_folded(b, own->attended.n_cols) : own->attended;
    struct part part = part_fold(b, &rows, 0, n_heads);
    if (is_each)
        builder_each(b, &part);
    else
        step_add(builder_step(b, STEP_FOLD, layer, SYNC_NODE, 1), &part);
    return rows;
}

void build_column_layer(struct builder *b, int layer)
{
    struct node_buffers *own = &b->buffers[b->node];
    build_qkv(b, layer);
    build_attention(b, layer, SYNC_NODE);
    struct rows attended = builder_by_chunks(b) ? build_fold(b, layer) : own->attended;
    build_narrow(b, layer, NARROW_O, build_input(b, layer, NARROW_O, &attended));
    build_gate_up(b, layer, SYNC_NODE);
    build_narrow(b, layer, NARROW_DOWN, build_input(b, layer, NARROW_DOWN, &own->gated));
}
