#include "engine/predict.h"

#include <math.h>

#include "kernels/kv_page.h"

/* What is charged on one node. */
struct charge {
    const struct plan *plan;
    const struct machine_speed *speed;
    int node, n_threads, n_positions;
    double memory_s; /* bytes a second that its threads get together */
};

static double sum_of(const struct token_time *t)
{
    return t->stream_s + t->late_s + t->leader_s + t->prepare_s + t->node_s + t->global_s;
}

static enum op op_of(const struct part *part)
{
    for (int i = 0; i < n_kernel_rows; i++)
        if (kernel_rows[i].run == part->run)
            return kernel_rows[i].op;
    return N_OPS; /* an extra barrier's nothing */
}

/* Elements that one unit of the part's n reads or makes. */
static double elements_each(const struct part *part)
{
    const union job *job = &part->job;
    switch (op_of(part)) {
    case OP_embed: return job->embed.n_cols;
    case OP_copy_rows: return job->copy_rows.n_cols;
    case OP_peak: return job->peak.n_cols;
    case OP_quantize: return (double)job->quantize.a.n_cols;
    case OP_rms_norm: return job->rms_norm.n_cols;
    case OP_kv_store: return 2.0 * job->kv_store.n_heads * job->kv_store.head_dim;
    case OP_attention_fold:
        return (double)job->attention_fold.n_chunks * job->attention_fold.head_dim;
    case OP_reduce: return job->reduce.n_parts;
    default: return 0;
    }
}

static double elements_of(const struct part *parts, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += part_units(&parts[i]) > 0 ? parts[i].n * elements_each(&parts[i]) : 0;
    return sum;
}

/* Of the positions that the token sees, those whose KV heads the part reads on this node. */
static double kv_bytes(const struct plan *plan, int node, const struct part *part, int n_positions)
{
    const struct attention_job *job = &part->job.attention;
    double head_bytes = (double)plan->pages[node].bytes / KV_PAGE / job->n_page_heads;
    double positions = n_positions;
    if (part->extent == EXTENT_OWN_CHUNKS)
        positions /= plan->layout->n_nodes;
    return head_bytes * job->n_heads_kv * positions;
}

static double step_bytes(const struct plan *plan, int node, const struct step *step,
                         int n_positions)
{
    double bytes = 0;
    for (int i = 0; i < step->n_parts; i++) {
        const struct part *part = &step->parts[i];
        bytes += part->n > 0 ? (double)part->weight_bytes : 0;
        if (op_of(part) == OP_attention && part->n > 0)
            bytes += kv_bytes(plan, node, part, n_positions);
    }
    return bytes;
}

/* Rows of matrices that are written to other nodes too, in elements. */
static double scattered(const struct step *step)
{
    double sum = 0;
    for (int i = 0; i < step->n_parts; i++) {
        const struct part *part = &step->parts[i];
        if (part->scatter)
            sum += (double)part->n / part->scatter->divisor * (part->scatter->n_nodes - 1);
    }
    return sum;
}

/* Bytes a second that k threads of the node get. */
static double rate_of(const struct charge *c, int k)
{
    return fmin(c->speed->share * c->memory_s, k * c->speed->core_bytes_s);
}

/* Seconds for bytes that n_units of equal size read: whole rounds of all threads, then the rest. */
static double stream_seconds(const struct charge *c, double bytes, int n_units)
{
    int rest = n_units % c->n_threads;
    double whole_rate = rate_of(c, c->n_threads), rest_rate = rate_of(c, rest);
    double seconds = bytes * (n_units - rest) / n_units / whole_rate;
    return rest ? seconds + bytes * rest / n_units / rest_rate : seconds;
}

static double late_share(const struct charge *c, const struct step *step, int n_units)
{
    double late = c->speed->late * (c->n_threads - 1);
    double half_unit = 0.5 * c->n_threads / n_units;
    return step->is_private ? late : fmin(late, half_unit);
}

static void charge_work(const struct charge *c, const struct step *step, struct token_time *t)
{
    int n_units = (int)step->units.n_units;
    double element_s = c->speed->element_s;
    t->prepare_s += elements_of(step->each, step->n_each) * element_s;
    if (n_units == 0)
        return;
    if (step->is_leader) {
        t->leader_s += elements_of(step->parts, step->n_parts) * element_s;
        return;
    }
    double bytes = step_bytes(c->plan, c->node, step, c->n_positions);
    double seconds = bytes > 0 ? stream_seconds(c, bytes, n_units) : 0;
    t->stream_s += seconds;
    t->late_s += seconds * late_share(c, step, n_units);
    int n_rounds = (n_units + c->n_threads - 1) / c->n_threads;
    t->prepare_s += elements_of(step->parts, step->n_parts) * element_s * n_rounds / n_units;
    t->prepare_s += scattered(step) * element_s / c->n_threads;
}

/* A node without units waits for nobody of its own. */
static void charge_barrier(const struct charge *c, const struct step *step, struct token_time *t)
{
    const struct team_layout *layout = c->plan->layout;
    enum sync sync = step->units.sync;
    if (sync == SYNC_NONE || layout->n_threads == 1)
        return;
    if (sync == SYNC_NODE || (sync == SYNC_GLOBAL && layout->n_nodes == 1))
        t->node_s += c->n_threads > 1 && step->units.n_units > 0 ? c->speed->node_s : 0;
    else
        t->global_s += sync == SYNC_FLAT ? c->speed->flat_s : c->speed->global_s;
}

/* The list of the node's first thread, fitted to one token at a depth. */
static const struct program *program_at(const struct plan *plan, int node, int depth)
{
    struct batch_shape shape = {.n_tokens = 1, .n_logits = 1};
    shape.n_chunks = depth / KV_PAGE + 1;
    shape.token_block = plan_few_block(plan, 1);
    struct program *program = &plan->programs[PROGRAM_FEW][plan->layout->nodes[node].thread0];
    program_fit(program, &shape, plan->layout->n_nodes, node);
    return program;
}

uint64_t predict_node_bytes(const struct plan *plan, int node, int depth)
{
    const struct program *program = program_at(plan, node, depth);
    double bytes = 0;
    for (int i = 0; i < program->n_steps; i++)
        bytes += step_bytes(plan, node, &program->steps[i], depth + 1);
    return (uint64_t)bytes;
}

/* A node on its way through its list. */
struct walker {
    struct charge charge;
    const struct program *program;
    struct token_time time;
};

/* Nodes that wait for the latest one have its time behind them. */
static void meet(struct walker *walkers, int n)
{
    struct token_time latest = walkers[0].time;
    for (int i = 1; i < n; i++)
        if (sum_of(&walkers[i].time) > sum_of(&latest))
            latest = walkers[i].time;
    for (int i = 0; i < n; i++)
        walkers[i].time = latest;
}

static void start(struct walker *w, const struct plan *plan, const struct machine_speed *speed,
                  int node, int depth, struct prediction *p)
{
    uint64_t bytes = predict_node_bytes(plan, node, depth);
    bool is_cached = speed->cache_bytes_s > 0 && bytes <= speed->cache_bytes;
    double memory_s = is_cached ? speed->cache_bytes_s : speed->node_bytes_s[node];
    w->program = program_at(plan, node, depth);
    w->charge = (struct charge){.plan = plan, .speed = speed, .node = node, .memory_s = memory_s};
    w->charge.n_threads = plan->layout->nodes[node].n_threads;
    w->charge.n_positions = depth + 1;
    p->bytes += bytes;
    p->bandwidth += speed->node_bytes_s[node];
    p->is_cached &= is_cached;
}

/* All nodes side by side: their lists have the same steps. */
static void walk(struct walker *walkers, int n)
{
    for (int s = 0; s < walkers[0].program->n_steps; s++) {
        enum sync sync = walkers[0].program->steps[s].units.sync;
        for (struct walker *w = walkers; w < walkers + n; w++) {
            charge_work(&w->charge, &w->program->steps[s], &w->time);
            charge_barrier(&w->charge, &w->program->steps[s], &w->time);
        }
        if (sync == SYNC_GLOBAL || sync == SYNC_FLAT)
            meet(walkers, n);
    }
    meet(walkers, n);
}

enum status predict_token(const struct plan *plan, const struct machine_speed *speed, int depth,
                          struct prediction *p, struct error *err)
{
    int n_nodes = plan->layout->n_nodes;
    struct walker *walkers = memory_alloc((size_t)n_nodes, sizeof *walkers);
    if (!walkers)
        return fail_memory(err, plan->model->path, (size_t)n_nodes * sizeof *walkers);
    *p = (struct prediction){.is_cached = true};
    for (int node = 0; node < n_nodes; node++)
        start(&walkers[node], plan, speed, node, depth, p);
    walk(walkers, n_nodes);
    p->time = walkers[0].time;
    p->seconds = sum_of(&p->time);
    memory_free(walkers);
    return STATUS_OK;
}
