/* From model, machine and options to a plan: defaults, sizes, and whether it fits. */
#include <inttypes.h>

#include "engine/plan_builder.h"
#include "machine/memory_info.h"

#define SPARE_BYTES ((uint64_t)256 << 20) /* left to the rest of the system */

static int pages_of(int n_ctx)
{
    return (n_ctx + KV_PAGE - 1) / KV_PAGE;
}

/* Pages of each layer on each node. */
static int slots_of(const struct plan *plan, int n_ctx)
{
    int n = plan->options.n_sessions * pages_of(n_ctx);
    bool is_by_position = plan_is_by_position(plan);
    int n_nodes = plan->layout->n_nodes;
    return is_by_position ? plan->options.n_sessions * ((pages_of(n_ctx) + n_nodes - 1) / n_nodes)
                          : n;
}

static void resolve(struct plan *plan, const struct engine_options *options)
{
    struct engine_options *o = &plan->options;
    *o = *options;
    o->n_threads = plan->layout->n_threads;
    o->n_nodes = plan->layout->n_nodes;
    if (o->dataflow == DATAFLOW_AUTO)
        o->dataflow = DATAFLOW_COLUMN;
    o->n_sessions = o->n_sessions ? o->n_sessions : 1;
    o->n_batch = o->n_batch ? o->n_batch : ENGINE_MAX_BATCH;
    o->n_logits = o->n_logits ? o->n_logits : o->n_sessions;
    o->n_logits = o->n_logits < o->n_batch ? o->n_logits : o->n_batch;
    for (enum packing p = PACKING_none + 1; p < N_PACKINGS; p++)
        plan->matmul[p] = kernel_select(OP_matmul, p, o->isa);
}

static enum status make_pages(struct plan *plan, struct error *err)
{
    const struct model_config *c = &plan->model->config;
    int n_nodes = plan->layout->n_nodes;
    plan->pages = arena_alloc(&plan->arena, (size_t)n_nodes, sizeof *plan->pages);
    plan->n_kv_heads = arena_alloc(&plan->arena, (size_t)n_nodes, sizeof *plan->n_kv_heads);
    plan->sizes = arena_alloc(&plan->arena, (size_t)n_nodes, sizeof *plan->sizes);
    for (int kind = 0; kind < N_PROGRAMS; kind++)
        plan->programs[kind] = arena_alloc(&plan->arena, (size_t)plan->layout->n_threads,
                                           sizeof *plan->programs[kind]);
    if (!plan->pages || !plan->n_kv_heads || !plan->sizes || !plan->programs[N_PROGRAMS - 1] ||
        !plan->programs[0])
        return fail_memory(err, plan->model->path, plan->arena.total);
    for (int node = 0; node < n_nodes; node++) {
        struct kv_range kv = cut_kv_range(&plan->slices.cut, node, c->n_head, c->n_head_kv);
        plan->n_kv_heads[node] = plan_is_by_position(plan) ? c->n_head_kv : kv.kv1 - kv.kv0;
        plan->pages[node] =
            kv_page_layout(plan->options.kv_format, plan->n_kv_heads[node], c->head_dim);
    }
    return STATUS_OK;
}

/* Bytes of one page of one layer, summed over nodes. */
static uint64_t page_bytes(const struct plan *plan, int node)
{
    return plan->n_kv_heads[node] ? (uint64_t)plan->pages[node].bytes : 0;
}

static void count_kv(struct plan *plan)
{
    plan->n_slots = slots_of(plan, plan->options.n_ctx);
    for (int node = 0; node < plan->layout->n_nodes; node++)
        plan->sizes[node].kv = page_bytes(plan, node) * (uint64_t)plan->n_slots *
                               (uint64_t)plan->model->config.n_layer;
}

static enum status count_scratch(struct plan *plan, struct error *err)
{
    size_t n_nodes = (size_t)plan->layout->n_nodes;
    arena_done(&plan->lists);
    struct space *spaces = arena_alloc(&plan->lists, n_nodes, sizeof *spaces);
    struct node_buffers *buffers = arena_alloc(&plan->lists, n_nodes, sizeof *buffers);
    if (!spaces || !buffers)
        return fail_memory(err, plan->model->path, n_nodes * sizeof *buffers);
    struct shared_buffers shared = {0};
    TRY(plan_build(plan, spaces, &shared, buffers, err));
    for (size_t node = 0; node < n_nodes; node++)
        plan->sizes[node].scratch = spaces[node].used;
    return STATUS_OK;
}

static uint64_t scratch_bytes(const struct plan *plan)
{
    uint64_t bytes = 0;
    for (int node = 0; node < plan->layout->n_nodes; node++)
        bytes += plan->sizes[node].scratch;
    return bytes;
}

/* Bytes of the cache that all sessions need for n_ctx positions each. */
static uint64_t ctx_bytes(const struct plan *plan, int n_ctx)
{
    uint64_t bytes = 0;
    for (int node = 0; node < plan->layout->n_nodes; node++)
        bytes += page_bytes(plan, node) * (uint64_t)slots_of(plan, n_ctx) *
                 (uint64_t)plan->model->config.n_layer;
    return bytes;
}

/* Positions that fit beside the weights; whole pages. Scratch grows with the context too, evenly: it is
 * counted at two sizes. */
static enum status ctx_that_fits(struct plan *plan, uint64_t available, int *most,
                                 struct error *err)
{
    int n_nodes = plan->layout->n_nodes, n_ctx = plan->options.n_ctx;
    uint64_t fixed = SPARE_BYTES;
    for (int node = 0; node < n_nodes; node++)
        fixed += plan->slices.nodes[node].bytes;
    plan->options.n_ctx = 2 * KV_PAGE;
    TRY(count_scratch(plan, err));
    uint64_t two = scratch_bytes(plan);
    plan->options.n_ctx = KV_PAGE;
    TRY(count_scratch(plan, err));
    uint64_t one = scratch_bytes(plan);
    plan->options.n_ctx = n_ctx;
    fixed += one;
    uint64_t page = ctx_bytes(plan, KV_PAGE * n_nodes) / (uint64_t)n_nodes + two - one;
    uint64_t n = available > fixed && page > 0 ? (available - fixed) / page : 0;
    *most = n > INT32_MAX / KV_PAGE ? INT32_MAX / KV_PAGE * KV_PAGE : (int)n * KV_PAGE;
    return STATUS_OK;
}

/* Positions of whose chunks a thread's share stays below PLAN_MAX_UNITS; whole pages. */
static int ctx_that_divides(const struct plan *plan)
{
    int64_t least = INT32_MAX / KV_PAGE;
    for (int node = 0; node < plan->layout->n_nodes; node++) {
        int64_t n_kv = plan->n_kv_heads[node];
        int64_t chunks = (int64_t)PLAN_MAX_UNITS * plan->layout->nodes[node].n_threads;
        if (n_kv > 0 && chunks / n_kv < least)
            least = chunks / n_kv;
    }
    return (int)least * KV_PAGE;
}

static enum status check_fit(struct plan *plan, bool is_asked, struct error *err)
{
    struct engine_options *o = &plan->options;
    uint64_t available = o->memory_bytes ? o->memory_bytes : memory_available();
    int most;
    TRY(ctx_that_fits(plan, available, &most, err));
    int most_units = ctx_that_divides(plan);
    if (o->n_ctx <= most && o->n_ctx > most_units)
        return fail(err, STATUS_LIMIT,
                    "%s: a context of %d tokens is more than %d threads can divide; the largest "
                    "that they can is -c %d",
                    plan->model->path, o->n_ctx, o->n_threads, most_units);
    most = most < most_units ? most : most_units;
    if (o->n_ctx <= most)
        return STATUS_OK;
    if (most == 0)
        return fail(err, STATUS_LIMIT,
                    "%s: the weights and buffers need more than the %.1f GB of memory that are "
                    "free; close other programs or take a smaller model",
                    plan->model->path, (double)available / 1e9);
    if (is_asked)
        return fail(err, STATUS_LIMIT,
                    "%s: a context of %d tokens (times %d) does not fit in the %.1f GB of memory "
                    "that are free beside the weights; the largest that does is -c %d",
                    plan->model->path, o->n_ctx, o->n_sessions, (double)available / 1e9, most);
    o->n_ctx = most;
    plan->is_ctx_cut = true;
    return STATUS_OK;
}

static enum status make(struct plan *plan, const struct engine_options *options,
                        struct thread_team *team, struct error *err)
{
    const struct model_config *c = &plan->model->config;
    int n_nodes = plan->layout->n_nodes;
    resolve(plan, options);
    struct engine_options *o = &plan->options;
    if (c->head_dim > ATTENTION_MAX_HEAD_DIM)
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: heads of %d elements; the engine runs up to %d, --reference any size",
                    plan->model->path, c->head_dim, ATTENTION_MAX_HEAD_DIM);
    if (c->head_dim % 2)
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: heads of %d elements; the engine turns pairs, --reference runs it",
                    plan->model->path, c->head_dim);
    if (plan_is_by_position(plan) && o->kv_format != KV_FORMAT_F16)
        return fail(err, STATUS_USAGE, "--row-attention position needs an f16 KV cache: -ctk f16");
    if (c->n_head / c->n_head_kv > ATTENTION_MAX_QUERIES)
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: %d query heads per KV head; the engine runs up to %d, --reference any",
                    plan->model->path, c->n_head / c->n_head_kv, ATTENTION_MAX_QUERIES);
    int *weights = arena_alloc(&plan->arena, (size_t)n_nodes, sizeof *weights);
    if (!weights)
        return fail_memory(err, plan->model->path, (size_t)n_nodes * sizeof *weights);
    for (int node = 0; node < n_nodes; node++)
        weights[node] = plan->layout->nodes[node].n_threads;
    TRY(weight_slices_make(&plan->slices, plan->model, o, o->dataflow, n_nodes, weights, team,
                           err));
    TRY(make_pages(plan, err));
    bool is_asked = o->n_ctx > 0;
    if (!is_asked)
        o->n_ctx = c->n_ctx_train < ENGINE_DEFAULT_CTX ? c->n_ctx_train : ENGINE_DEFAULT_CTX;
    TRY(check_fit(plan, is_asked, err));
    TRY(count_scratch(plan, err));
    for (int node = 0; node < n_nodes; node++)
        plan->sizes[node].weights = plan->slices.nodes[node].bytes;
    count_kv(plan);
    return STATUS_OK;
}

enum status plan_make(struct plan *plan, const struct model *model,
                      const struct team_layout *layout, const struct engine_options *options,
                      struct thread_team *team, struct error *err)
{
    *plan = (struct plan){.model = model, .layout = layout};
    enum status status = make(plan, options, team, err);
    if (status != STATUS_OK)
        plan_done(plan);
    return status;
}

void plan_done(struct plan *plan)
{
    weight_slices_done(&plan->slices);
    arena_done(&plan->lists);
    arena_done(&plan->arena);
    *plan = (struct plan){0};
}
