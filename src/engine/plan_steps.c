/* Steps that both dataflows are made of. */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "engine/plan_builder.h"

static const char *const kind_names[] = {
#define STEP_KIND_TEXT(name, text) text,
    STEP_KIND_LIST(STEP_KIND_TEXT)
#undef STEP_KIND_TEXT
};

const char *step_kind_name(enum step_kind kind)
{
    return kind_names[kind];
}

void *builder_take(struct builder *b, int64_t n, size_t size)
{
    struct space *space = &b->spaces[b->node];
    void *block = space_take(space, n, size);
    if (b->is_counting)
        block = arena_alloc(&b->plan->lists, (size_t)n, size);
    b->is_out_of_memory |= !block;
    return block;
}

bool builder_by_chunks(const struct builder *b)
{
    return b->kind == PROGRAM_FEW && !b->plan->options.is_attention_whole;
}

bool builder_is_by_position(const struct builder *b)
{
    return plan_is_by_position(b->plan);
}

/* What the options make of a barrier. */
static enum sync sync_of(struct builder *b, int layer, enum sync sync)
{
    const struct engine_options *o = &b->plan->options;
    if (sync == SYNC_NODE && layer >= 0 && b->n_node_syncs++ < o->n_promoted_barriers)
        sync = SYNC_GLOBAL;
    return sync == SYNC_GLOBAL && o->is_flat_barrier ? SYNC_FLAT : sync;
}

struct step *builder_step(struct builder *b, enum step_kind kind, int layer, enum sync sync, int n)
{
    struct part *parts =
        b->is_out_of_memory ? NULL : builder_take(b, b->n_pending + n, sizeof *parts);
    if (!parts) {
        b->n_pending = 0; /* there is no step for them to go before */
        return NULL;
    }
    memcpy(parts, b->pending, (size_t)b->n_pending * sizeof *parts);
    struct step *step = &b->program->steps[b->program->n_steps++];
    *step = (struct step){.kind = kind, .layer = layer, .sync = sync_of(b, layer, sync)};
    step->each = parts;
    step->n_each = b->n_pending;
    step->parts = parts + b->n_pending;
    step->is_private = b->plan->options.is_static_rows;
    b->n_pending = 0;
    return step;
}

void step_add(struct step *step, const struct part *part)
{
    if (step && part->per > 0)
        step->parts[step->n_parts++] = *part;
}

void builder_each(struct builder *b, const struct part *part)
{
    assert(b->n_pending < b->max_pending);
    if (part->per > 0)
        b->pending[b->n_pending++] = *part;
}

void builder_prepare(struct builder *b, enum step_kind kind, int layer, const struct part *parts,
                     int n)
{
    if (builder_is_each(b)) {
        for (int i = 0; i < n; i++)
            builder_each(b, &parts[i]);
        return;
    }
    struct step *step = builder_step(b, kind, layer, SYNC_NODE, n);
    for (int i = 0; i < n; i++)
        step_add(step, &parts[i]);
    if (step)
        step->is_leader = b->plan->options.quantise == QUANTISE_LEADER;
}

/* The normed residual as each of n matrices wants it. */
static void build_norm(struct builder *b, int layer, const float *gain,
                       const struct weight_slice *const *w, int n, struct activations *a)
{
    struct part parts[3];
    struct packing_needs needs[3];
    int n_parts = 0;
    for (int i = 0; i < n; i++) {
        if (w[i]->w.n_rows == 0)
            continue;
        a[i] = builder_activations(b, ACT_NORMED, &w[i]->w, NULL);
        needs[i] = packing_needs(w[i]->w.packing, w[i]->w.group);
        bool is_known = false;
        for (int k = 0; k < i; k++)
            is_known |= w[k]->w.n_rows > 0 && packing_needs_same(needs[k], needs[i]);
        if (!is_known)
            parts[n_parts++] = part_norm(b, &b->buffers[b->node].residual, gain, a[i]);
    }
    builder_prepare(b, STEP_NORM, layer, parts, n_parts);
}

/* Queries and keys of a model that norms heads: every head normed, turned, and keys stored, once the
 * rows of all threads are there. */
static void build_head_norms(struct builder *b, int layer, const struct rows *q, enum sync sync)
{
    const struct model_config *c = b->config;
    const struct layer_weights *w = &b->plan->model->weights.layers[layer];
    const struct layer_slices *s = &b->plan->slices.nodes[b->node].layers[layer];
    struct node_buffers *own = &b->buffers[b->node];
    bool is_f16 = b->plan->options.kv_format == KV_FORMAT_F16;
    struct step *step = builder_step(b, STEP_HEAD_NORM, layer, sync, 2);
    for (int i = 0; i < 2; i++) {
        const struct rows *rows = i == 0 ? q : &own->k;
        struct rope_job job = {.x = rows->x, .x_stride = rows->stride, .head_dim = c->head_dim};
        job.n_heads = (int)((i == 0 ? s->q : s->k).w.n_rows / c->head_dim);
        job.n_rot = c->rope.n_rot;
        job.is_adjacent = c->rope.pairs == ROPE_ADJACENT;
        job.cosines = b->shared->cosines;
        job.sines = b->shared->sines;
        job.gain = i == 0 ? w->attn_q_norm : w->attn_k_norm;
        job.epsilon = c->norm_epsilon;
        if (i == 1 && is_f16) {
            job.out_f16 = own->key_out + (int64_t)layer * b->plan->options.n_batch;
            job.f16_head_stride = (int64_t)KV_PAGE * b->plan->pages[b->node].head_pad;
        }
        struct part part = {.job = {.rope = job}, .extent = EXTENT_TOKENS, .grain = 1};
        part.per = job.n_heads;
        /* whole tokens where heads would be more units than a thread can count */
        if (b->kind == PROGRAM_MANY || job.n_heads > 1024)
            part.grain = job.n_heads;
        part.run = builder_kernel(b, OP_rope, PACKING_none);
        step_add(step, &part);
    }
}

/* Keys and values of the batch into a q8_0 cache. */
static void build_kv_store(struct builder *b, int layer)
{
    struct node_buffers *own = &b->buffers[b->node];
    struct kv_store_job job = {.format = b->plan->options.kv_format};
    job.n_heads = b->plan->n_kv_heads[b->node];
    job.head_dim = b->config->head_dim;
    job.k = own->k.x;
    job.v = own->v.x;
    job.stride = own->k.stride;
    job.position = b->shared->position;
    job.pages = own->pages + (int64_t)layer * b->plan->options.n_batch;
    struct part store = {.job = {.kv_store = job}, .extent = EXTENT_TOKENS, .grain = 1};
    store.per = job.n_heads > 0;
    store.run = builder_kernel(b, OP_kv_store, PACKING_none);
    step_add(builder_step(b, STEP_KV_STORE, layer, SYNC_NODE, 1), &store);
}

/* How rows of queries, keys and values are finished. */
static void choose_epilogues(const struct builder *b, enum epilogue epilogues[3])
{
    bool is_f16 = b->plan->options.kv_format == KV_FORMAT_F16;
    epilogues[0] = EPILOGUE_ROPE;
    epilogues[1] = is_f16 ? EPILOGUE_ROPE_F16 : EPILOGUE_ROPE;
    epilogues[2] = is_f16 ? EPILOGUE_F16 : EPILOGUE_STORE;
    if (model_has_head_norms(b->plan->model))
        epilogues[0] = epilogues[1] = EPILOGUE_STORE;
}

void build_qkv(struct builder *b, int layer)
{
    const struct model_config *c = b->config;
    const struct layer_slices *s = &b->plan->slices.nodes[b->node].layers[layer];
    const struct engine_options *o = &b->plan->options;
    struct node_buffers *own = &b->buffers[b->node];
    const struct weight_slice *w[3] = {&s->q, &s->k, &s->v};
    struct activations a[3] = {{0}};
    bool is_by_position = builder_is_by_position(b);
    build_norm(b, layer, b->plan->model->weights.layers[layer].attn_norm, w, 3, a);

    enum epilogue epilogues[3];
    choose_epilogues(b, epilogues);
    struct rows out[3] = {own->q, own->k, own->v};
    out[0].x =
        rows_from(&own->q, is_by_position ? b->plan->slices.cut.heads[b->node] * c->head_dim : 0);
    struct part parts[3];
    for (int i = 0; i < 3; i++) {
        parts[i] = part_matmul(b, w[i], a[i], epilogues[i], out[i].x, out[i].stride);
        parts[i].job.matmul.out_f16 =
            (i == 1 ? own->key_out : own->value_out) + (int64_t)layer * o->n_batch;
        parts[i].job.matmul.f16_head_stride = (int64_t)KV_PAGE * b->plan->pages[b->node].head_pad;
    }
    bool has_head_norms = model_has_head_norms(b->plan->model);
    enum sync last = is_by_position ? SYNC_GLOBAL : SYNC_NODE;
    struct step *step = builder_step(b, STEP_QKV, layer, has_head_norms ? SYNC_NODE : last, 3);
    for (int i = 0; i < 3; i++)
        step_add(step, &parts[i]);
    if (has_head_norms)
        build_head_norms(b, layer, &out[0], last);
    if (o->kv_format != KV_FORMAT_F16)
        build_kv_store(b, layer);
}

void build_attention(struct builder *b, int layer, enum sync sync)
{
    struct part part = part_attention(b, layer);
    step_add(builder_step(b, STEP_ATTENTION, layer, sync, 1), &part);
}

void build_gate_up(struct builder *b, int layer, enum sync sync)
{
    const struct weight_slice *w = &b->plan->slices.nodes[b->node].layers[layer].gate_up;
    struct node_buffers *own = &b->buffers[b->node];
    struct activations a = {0};
    build_norm(b, layer, b->plan->model->weights.layers[layer].ffn_norm, &w, 1, &a);
    bool is_row = b->plan->options.dataflow == DATAFLOW_ROW;
    int64_t at = is_row ? b->plan->slices.cut.ff[b->node] : 0;
    enum epilogue epilogue =
        b->config->arch->activation == ACTIVATION_RELU2 ? EPILOGUE_RELU2_MUL : EPILOGUE_SILU_MUL;
    struct part part =
        part_matmul(b, w, a, epilogue, rows_from(&own->gated, at), own->gated.stride);
    if (is_row)
        part_scatter(b, &part, offsetof(struct node_buffers, gated), at, 2);
    step_add(builder_step(b, STEP_GATE_UP, layer, sync, 1), &part);
}

void build_quantize(struct builder *b, int layer, enum act_purpose purpose,
                    const struct weight_slice *w, const struct rows *rows, const float *gain,
                    const float *const *peaks, int n_peaks, struct activations *a)
{
    *a = builder_activations(b, purpose, &w->w, gain ? NULL : rows);
    if (packing_needs(w->w.packing, w->w.group).is_float && !gain)
        return;
    if (w->w.n_rows == 0) { /* the other nodes have the step, so this one has it too */
        builder_prepare(b, STEP_QUANTISE, layer, NULL, 0);
        return;
    }
    struct part part = part_quantize(b, rows, *a);
    part.job.quantize.gain = gain;
    if (a->group == 0) {
        part.job.quantize.peaks = peaks;
        part.job.quantize.n_peaks = n_peaks;
    }
    builder_prepare(b, STEP_QUANTISE, layer, &part, 1);
}
