#include "engine/plan.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "engine/plan_builder.h"
#include "kernels/kv_page.h"

/* Steps of a layer, and outside of layers, at most; without extra barriers. */
#define LAYER_STEPS 26
#define OTHER_STEPS 8

static void build_embed(struct builder *b)
{
    struct rows *residual = &b->buffers[b->node].residual;
    const struct weight *table = &b->plan->model->weights.token_embd;
    struct embed_job job = {.table = &table->tensor, .scale = table->scale};
    job.tokens = b->shared->tokens;
    job.n_cols = b->config->n_embd;
    job.out = residual->x;
    job.out_stride = residual->stride;
    struct part part = {.job = {.embed = job}, .extent = EXTENT_TOKENS, .per = 1, .grain = 1};
    part.run = builder_kernel(b, OP_embed, PACKING_none);
    step_add(builder_step(b, STEP_EMBED, -1, SYNC_NODE, 1), &part);
}

static void fit_output(struct part *part, const struct batch_shape *shape)
{
    part->job.matmul.n_tokens = shape->n_logits;
}

/* The columns whose logits are wanted side by side, normed. */
static struct activations build_output_norm(struct builder *b, const struct weight_slice *w,
                                            const struct rows *chosen)
{
    const struct rows *residual = &b->buffers[b->node].residual;
    struct activations a = builder_activations(b, ACT_OUTPUT, &w->w, NULL);
    struct copy_rows_job job = {.x = residual->x, .x_stride = residual->stride};
    job.rows = b->shared->wanted;
    job.n_cols = b->config->n_embd;
    job.out = chosen->x;
    job.out_stride = chosen->stride;
    struct part copy = {.job = {.copy_rows = job}, .extent = EXTENT_LOGITS, .per = 1, .grain = 1};
    copy.run = builder_kernel(b, OP_copy_rows, PACKING_none);
    struct part norm = part_norm(b, chosen, b->plan->model->weights.output_norm, a);
    norm.extent = EXTENT_LOGITS;
    builder_prepare(b, STEP_NORM, -1, &copy, 1);
    builder_prepare(b, STEP_NORM, -1, &norm, 1);
    return a;
}

static void build_output(struct builder *b)
{
    const struct weight_slice *w = &b->plan->slices.nodes[b->node].output;
    struct rows chosen = builder_chosen(b);
    struct activations a = build_output_norm(b, w, &chosen);
    int64_t n_vocab = b->config->n_vocab, at = b->plan->slices.cut.vocab[b->node];
    float *out = b->shared->logits ? b->shared->logits + at : NULL;
    struct part part = part_matmul(b, w, a, EPILOGUE_STORE, out, n_vocab);
    part.fit = fit_output;
    part.extent = EXTENT_ANY_LOGITS;
    part.n_token_blocks = 1; /* few columns want logits */
    step_add(builder_step(b, STEP_OUTPUT, -1, SYNC_GLOBAL, 1), &part);
}

static void run_nothing(const union job *job, int begin, int end)
{
    (void)job, (void)begin, (void)end;
}

/* Barriers at which every thread has to arrive, for experiments. */
static void build_extra_barriers(struct builder *b, int layer)
{
    for (int i = 0; i < b->plan->options.n_extra_barriers; i++) {
        struct part part = {.run = run_nothing, .grain = 1};
        part.per = b->plan->layout->nodes[b->node].n_threads;
        struct step *step = builder_step(b, STEP_EXTRA, layer, SYNC_GLOBAL, 1);
        step_add(step, &part);
        if (step)
            step->is_private = true;
    }
}

static void build_program(struct builder *b)
{
    const struct model_config *c = b->config;
    int n_layer_steps = LAYER_STEPS + b->plan->options.n_extra_barriers;
    int n_steps = c->n_layer * n_layer_steps + OTHER_STEPS;
    b->program->steps = builder_take(b, n_steps, sizeof *b->program->steps);
    b->program->n_steps = 0;
    b->program->shape = (struct batch_shape){0}; /* not fitted to any batch yet */
    b->folded.stride = 0;
    b->squares.stride = 0;
    b->factors.stride = 0;
    build_embed(b);
    for (int layer = 0; layer < c->n_layer; layer++) {
        b->n_node_syncs = 0;
        if (b->plan->options.dataflow == DATAFLOW_ROW)
            build_row_layer(b, layer);
        else
            build_column_layer(b, layer);
        build_extra_barriers(b, layer);
    }
    build_output(b);
}

/* The sets of other threads are done with. */
static void forget_sets(struct builder *b)
{
    int n = 0;
    for (int i = 0; i < b->n_sets; i++)
        if (b->sets[i].thread < 0)
            b->sets[n++] = b->sets[i];
    b->n_sets = n;
}

static void build_thread(struct builder *b)
{
    forget_sets(b);
    b->matmul_scratch = space_take(&b->spaces[b->node], MATMUL_SCRATCH_BYTES, 1);
    for (b->kind = 0; b->kind < N_PROGRAMS; b->kind++) {
        b->program = &b->plan->programs[b->kind][b->thread];
        build_program(b);
    }
}

static int units_of(const struct step *step, enum extent extent)
{
    int n = 0;
    for (int i = 0; i < step->n_parts; i++)
        if (step->parts[i].extent == extent) {
            struct part part = step->parts[i];
            part.n = part.per;
            n += part_units(&part);
        }
    return n;
}

/* Units of all nodes, from the list of each node's first thread. All parts of a step that do not
 * follow the rows of a matrix have the same extent, and a grain of 1 or `per`. */
static void sum_units(struct plan *plan, enum program_kind kind)
{
    struct program *first = plan->programs[kind];
    const struct team_layout *layout = plan->layout;
    for (int s = 0; s < first->n_steps; s++) {
        struct step sum = {.extent = EXTENT_ONE};
        for (int node = 0; node < layout->n_nodes; node++) {
            assert(first[layout->nodes[node].thread0].n_steps == first->n_steps);
            const struct step *own = &first[layout->nodes[node].thread0].steps[s];
            for (int i = 0; i < own->n_parts; i++)
                if (own->parts[i].extent != EXTENT_ONE)
                    sum.extent = own->parts[i].extent;
            sum.fixed_all += units_of(own, EXTENT_ONE);
            sum.n_nodes_busy += own->n_parts > 0;
        }
        for (int node = 0; node < layout->n_nodes && sum.extent != EXTENT_ONE; node++)
            sum.per_all += units_of(&first[layout->nodes[node].thread0].steps[s], sum.extent);
        for (int thread = 0; thread < layout->n_threads; thread++) {
            struct step *own = &first[thread].steps[s];
            own->extent = sum.extent;
            own->fixed_all = sum.fixed_all;
            own->per_all = sum.per_all;
            own->n_nodes_busy = sum.n_nodes_busy;
        }
    }
}

enum status plan_build(struct plan *plan, struct space *spaces, struct shared_buffers *shared,
                       struct node_buffers *buffers, struct error *err)
{
    int max_pending = plan->layout->n_nodes + 8; /* folds of all nodes, and a few more */
    struct part *pending = arena_alloc(&plan->arena, (size_t)max_pending, sizeof *pending);
    if (!pending)
        return fail_memory(err, plan->model->path, plan->arena.total);
    struct builder b = {.plan = plan,
                        .config = &plan->model->config,
                        .spaces = spaces,
                        .shared = shared,
                        .buffers = buffers,
                        .pending = pending,
                        .max_pending = max_pending};
    b.is_counting = spaces[0].base == NULL;
    builder_buffers(&b);
    const struct team_layout *layout = plan->layout;
    for (b.node = 0; b.node < layout->n_nodes; b.node++) {
        b.n_sets = 0;
        for (int i = 0; i < layout->nodes[b.node].n_threads; i++) {
            b.thread = layout->nodes[b.node].thread0 + i;
            build_thread(&b);
        }
    }
    if (b.is_out_of_memory)
        return fail_memory(err, plan->model->path, plan->arena.total);
    for (int kind = 0; kind < N_PROGRAMS; kind++)
        sum_units(plan, (enum program_kind)kind);
    return STATUS_OK;
}

/* How often `per` counts in a batch. */
static int extent_of(enum extent extent, const struct batch_shape *s, int n_nodes, int node)
{
    switch (extent) {
    case EXTENT_ONE: return 1;
    case EXTENT_TOKENS: return s->n_tokens;
    case EXTENT_CHUNKS: return s->n_chunks;
    case EXTENT_OWN_CHUNKS: return (s->n_chunks - node + n_nodes - 1) / n_nodes;
    case EXTENT_BLOCKS:
        return s->token_block ? (s->n_tokens + s->token_block - 1) / s->token_block : 0;
    case EXTENT_LOGITS: return s->n_logits;
    case EXTENT_ANY_LOGITS: return s->n_logits > 0;
    }
    return 0;
}

static int fit_parts(struct part *parts, int n, const struct batch_shape *shape, int n_nodes,
                     int node)
{
    int n_units = 0;
    for (struct part *part = parts; part < parts + n; part++) {
        part->n = part->per * extent_of(part->extent, shape, n_nodes, node);
        if (part->fit)
            part->fit(part, shape);
        n_units += part_units(part);
    }
    return n_units;
}

/* Units of all nodes in a batch, and how many nodes have any. */
static void fit_all(struct step *step, const struct batch_shape *shape, int n_nodes)
{
    int n_units = step->fixed_all, n_busy = step->n_nodes_busy;
    if (step->extent == EXTENT_OWN_CHUNKS) {
        n_units += step->per_all / n_nodes * shape->n_chunks; /* every node has the same heads */
        n_busy = shape->n_chunks < n_nodes ? shape->n_chunks : n_nodes;
    } else if (step->extent != EXTENT_ONE) {
        int times = extent_of(step->extent, shape, n_nodes, 0);
        n_units += step->per_all * times;
        n_busy = times > 0 ? n_busy : 0;
    }
    step->units.n_units_all = (uint32_t)n_units;
    step->units.n_nodes_busy = (uint32_t)n_busy;
    step->units.sync = n_units > 0 ? step->sync : SYNC_NONE;
}

void program_fit(struct program *program, const struct batch_shape *shape, int n_nodes, int node)
{
    if (memcmp(&program->shape, shape, sizeof *shape) == 0)
        return;
    for (int i = 0; i < program->n_steps; i++) {
        struct step *step = &program->steps[i];
        fit_parts(step->each, step->n_each, shape, n_nodes, node);
        step->units.n_units = (uint32_t)fit_parts(step->parts, step->n_parts, shape, n_nodes, node);
        fit_all(step, shape, n_nodes);
    }
    program->shape = *shape;
}
