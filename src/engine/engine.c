#include "engine/engine.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "engine/engine_state.h"
#include "engine/kernel_choice.h"
#include "engine/placement.h"

static uint64_t file_bytes(const struct model *model)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < model->file.n_tensors; i++)
        bytes += model->file.tensors[i].span.bytes;
    return bytes;
}

/* Rough figures of servers; only the order of magnitude matters. Read bandwidth of a node and the
 * latency of a global barrier: the paper's machines, 60 to 90 GB/s and 2 to 6 us. */
#define NODE_BYTES_S  60e9
#define GLOBAL_S      4e-6
#define LAYER_GLOBALS 2

int engine_best_nodes(int n_nodes, uint64_t bytes, int n_layer)
{
    double one = (double)bytes / NODE_BYTES_S;
    double all = one / n_nodes + n_layer * LAYER_GLOBALS * GLOBAL_S;
    return n_nodes > 1 && all < one ? n_nodes : 1;
}

/* has_team: threads are started first, and make the plan together. */
static enum status make_plan(struct engine *e, struct engine_options options,
                             const struct topology_source *machine, bool has_team,
                             struct error *err)
{
    struct team_request request = {options.n_threads, options.n_nodes, options.n_threads_a_node};
    TRY(topology_read(&e->topology, machine, err));
    if (machine)
        options.memory_bytes = e->topology.memory_bytes;
    bool is_open = options.n_threads == 0 && options.n_nodes == 0 && !options.n_threads_a_node;
    uint64_t bytes = file_bytes(e->model);
    if (is_open) {
        request.n_nodes = engine_best_nodes(e->topology.n_nodes, bytes, e->model->config.n_layer);
        e->is_kept_small = request.n_nodes < e->topology.n_nodes;
    }
    TRY(team_layout_make(&e->layout, &e->topology, &request, err));
    if (has_team)
        TRY(team_open(&e->team, &e->layout, !options.is_unpinned, err));
    struct trits_choice trits;
    kernel_choose_trits(&options, &trits, e->model, bytes, &e->topology, e->team);
    return kernel_choose_plan(&e->plan, e->model, &e->layout, &options, &trits, e->team, err);
}

static enum status open_plan(struct engine **engine, const struct model *model,
                             const struct engine_options *options,
                             const struct topology_source *machine, bool has_team,
                             struct error *err)
{
    struct engine *e = memory_alloc(1, sizeof *e);
    if (!e)
        return fail_memory(err, model->path, sizeof *e);
    e->model = model;
    e->load_ns = clock_ns(); /* until it is loaded: when that began */
    enum status status = make_plan(e, *options, machine, has_team, err);
    if (status != STATUS_OK) {
        engine_close(e);
        return status;
    }
    *engine = e;
    return STATUS_OK;
}

enum status engine_plan_on(struct engine **engine, const struct model *model,
                           const struct engine_options *options,
                           const struct topology_source *machine, struct error *err)
{
    return open_plan(engine, model, options, machine, false, err);
}

enum status engine_plan(struct engine **engine, const struct model *model,
                        const struct engine_options *options, struct error *err)
{
    return engine_plan_on(engine, model, options, NULL, err);
}

const struct plan *engine_plan_of(const struct engine *engine)
{
    return &engine->plan;
}

const struct topology *engine_topology_of(const struct engine *engine)
{
    return &engine->topology;
}

/* One arena of a node where a placement option says it should be. */
static enum status open_arena(struct engine *e, struct node_arena *arena, int node,
                              enum placement placement, uint64_t bytes, const char *name,
                              struct error *err)
{
    int at = placement == PLACEMENT_ONE_NODE ? 0 : node;
    enum memory_policy policy =
        placement == PLACEMENT_INTERLEAVE ? MEMORY_INTERLEAVE : MEMORY_LOCAL;
    return node_arena_open(arena, &e->topology, &e->layout, policy, e->layout.nodes[at].memory_node,
                           bytes, name, err);
}

static enum status take_memory(struct engine *e, struct error *err)
{
    size_t n_nodes = (size_t)e->layout.n_nodes;
    const struct engine_options *o = &e->plan.options;
    e->memory = arena_alloc(&e->arena, n_nodes, sizeof *e->memory);
    e->buffers = arena_alloc(&e->arena, n_nodes, sizeof *e->buffers);
    if (!e->memory || !e->buffers)
        return fail_memory(err, e->model->path, n_nodes * sizeof *e->buffers);
    for (int node = 0; node < (int)n_nodes; node++) {
        const struct node_sizes *sizes = &e->plan.sizes[node];
        struct node_memory *own = &e->memory[node];
        TRY(open_arena(e, &own->weights, node, o->weights_placement, sizes->weights, "weights",
                       err));
        TRY(open_arena(e, &own->kv, node, o->kv_placement, sizes->kv, "KV cache", err));
        TRY(open_arena(e, &own->scratch, node, PLACEMENT_LOCAL, sizes->scratch, "buffers", err));
        placement_assign(&e->plan, node, &own->weights);
    }
    return STATUS_OK;
}

/* Each node's threads are the first to write to its pages, so they lie there even if the system
 * allows no binding; and nothing is left that could fail for want of memory later. */
static void touch_memory(void *context, const struct team_member *me)
{
    struct engine *e = context;
    struct node_arena *arenas[] = {&e->memory[me->node].kv, &e->memory[me->node].scratch};
    for (int i = 0; i < 2; i++) {
        uint64_t bytes = arenas[i]->bytes, n = (uint64_t)me->n_in_node;
        uint64_t begin = bytes * (uint64_t)me->in_node / n / 4096 * 4096;
        uint64_t end = bytes * ((uint64_t)me->in_node + 1) / n / 4096 * 4096;
        memset(arenas[i]->base + begin, 0, end - begin);
    }
}

/* The plan a second time, now with addresses. */
static enum status bind_plan(struct engine *e, struct error *err)
{
    size_t n_nodes = (size_t)e->layout.n_nodes;
    struct space *spaces = arena_alloc(&e->arena, n_nodes, sizeof *spaces);
    if (!spaces)
        return fail_memory(err, e->model->path, n_nodes * sizeof *spaces);
    for (size_t node = 0; node < n_nodes; node++)
        spaces[node].base = node_arena_take(&e->memory[node].scratch, e->plan.sizes[node].scratch);
    TRY(plan_build(&e->plan, spaces, &e->shared, e->buffers, err));
    for (size_t node = 0; node < n_nodes; node++)
        assert(spaces[node].used == e->plan.sizes[node].scratch); /* both passes take the same */
    arena_done(&e->plan.lists);
    return STATUS_OK;
}

static enum status open_cache(struct engine *e, struct error *err)
{
    size_t n_nodes = (size_t)e->layout.n_nodes;
    struct node_arena **arenas = arena_alloc(&e->arena, n_nodes, sizeof(void *));
    if (!arenas)
        return fail_memory(err, e->model->path, n_nodes * sizeof(void *));
    for (size_t node = 0; node < n_nodes; node++)
        arenas[node] = &e->memory[node].kv;
    return kv_cache_open(&e->kv, &e->plan, arenas, err);
}

static enum status start(struct engine *e, engine_progress *progress, void *context,
                         struct error *err)
{
    TRY(take_memory(e, err));
    team_run(e->team, touch_memory, e);
    kernel_choose_products(&e->plan, e->team, &e->topology);
    TRY(bind_plan(e, err));
    TRY(open_cache(e, err));
    TRY(placement_fill(&e->plan, e->team, progress, context, err));
    TRY(executor_open(&e->executor, &e->plan, e->buffers, e->team, err));
    e->load_ns = clock_ns() - e->load_ns;
    e->n_migrated = pages_migrated();
    e->is_loaded = true;
    return STATUS_OK;
}

enum status engine_open(struct engine **engine, const struct model *model,
                        const struct engine_options *options, engine_progress *progress,
                        void *context, struct error *err)
{
    struct engine *e;
    TRY(open_plan(&e, model, options, NULL, true, err));
    enum status status = start(e, progress, context, err);
    if (status != STATUS_OK) {
        engine_close(e);
        return status;
    }
    *engine = e;
    return STATUS_OK;
}

void engine_close(struct engine *e)
{
    if (!e)
        return;
    executor_close(e->executor);
    kv_cache_close(&e->kv);
    team_close(e->team);
    for (int node = 0; e->memory && node < e->layout.n_nodes; node++) {
        node_arena_close(&e->memory[node].weights);
        node_arena_close(&e->memory[node].kv);
        node_arena_close(&e->memory[node].scratch);
    }
    plan_done(&e->plan);
    team_layout_done(&e->layout);
    topology_done(&e->topology);
    arena_done(&e->arena);
    memory_free(e);
}

struct shared_work {
    engine_work *work;
    void *context;
    int n, n_threads;
};

static void do_share(void *context, const struct team_member *me)
{
    const struct shared_work *shared = context;
    int64_t n = shared->n, n_threads = shared->n_threads;
    for (int64_t i = n * me->index / n_threads; i < n * (me->index + 1) / n_threads; i++)
        shared->work(shared->context, (int)i);
}

void engine_share(struct engine *e, int n, engine_work *work, void *context)
{
    struct shared_work shared = {work, context, n, e->layout.n_threads};
    team_run(e->team, do_share, &shared);
}

void engine_set_trace(struct engine *engine, struct trace *trace)
{
    engine->trace = trace;
}
