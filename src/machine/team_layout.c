#include <assert.h>
#include <string.h>

#include "machine/topology.h"

#define MAX_THREADS 4096

/* The part of a machine node that a node of the layout gets. */
struct share {
    const struct machine_node *node;
    int core0, n_cores;
    int n_cpus, *cpus; /* owned: arena of the layout; of these cores, in the order of use */
    int first;         /* where its threads begin in `cpus`: not 0 where others share the core */
    int n_threads;
};

/* The machine node where most cores come on a share, when it has one more. */
static int least_used(const struct topology *t, const int *n_shares)
{
    int best = 0;
    for (int i = 1; i < t->n_nodes; i++) /* compares cores / (shares + 1) */
        if ((int64_t)t->nodes[i].n_cores * (n_shares[best] + 1) >
            (int64_t)t->nodes[best].n_cores * (n_shares[i] + 1))
            best = i;
    return best;
}

/* The largest machine node without a share; -1: all have one. */
static int largest_unused(const struct topology *t, const int *n_shares)
{
    int best = -1;
    for (int i = 0; i < t->n_nodes; i++)
        if (!n_shares[i] && (best < 0 || t->nodes[i].n_cores > t->nodes[best].n_cores))
            best = i;
    return best;
}

/* Layout nodes that each machine node becomes: each machine node once, the largest first, then again
 * where most cores come on a share. */
static void count_shares(const struct topology *t, int n_nodes, int *n_shares)
{
    for (int k = 0; k < n_nodes; k++)
        n_shares[k < t->n_nodes ? largest_unused(t, n_shares) : least_used(t, n_shares)]++;
}

/* The k-th of n even parts of a node; with more parts than cores, one core that several have. */
static struct share cut(const struct machine_node *node, int k, int n)
{
    if (n > node->n_cores)
        return (struct share){
            .node = node, .core0 = k % node->n_cores, .n_cores = 1, .first = k / node->n_cores};
    int core0 = node->n_cores * k / n;
    return (struct share){
        .node = node, .core0 = core0, .n_cores = node->n_cores * (k + 1) / n - core0};
}

/* First one CPU of each core, then the cores' other CPUs. */
static enum status list_cpus(struct arena *arena, struct share *share, struct error *err)
{
    size_t n = (size_t)share->n_cores * (size_t)share->node->n_ways;
    share->cpus = arena_alloc(arena, n, sizeof *share->cpus);
    if (!share->cpus)
        return fail_memory(err, "threads", n * sizeof *share->cpus);
    for (int way = 0; way < share->node->n_ways; way++) {
        const int *cpus = share->node->cpus + way * share->node->n_cores + share->core0;
        for (int i = 0; i < share->n_cores; i++)
            if (cpus[i] >= 0)
                share->cpus[share->n_cpus++] = cpus[i];
    }
    return STATUS_OK;
}

static enum status make_shares(struct arena *arena, const struct topology *t, int n_nodes,
                               struct share **shares, struct error *err)
{
    int *n_shares = arena_alloc(arena, (size_t)t->n_nodes, sizeof *n_shares);
    *shares = arena_alloc(arena, (size_t)n_nodes, sizeof **shares);
    if (!n_shares || !*shares)
        return fail_memory(err, "threads", (size_t)n_nodes * sizeof **shares);
    count_shares(t, n_nodes, n_shares);
    struct share *share = *shares;
    for (int i = 0; i < t->n_nodes; i++)
        for (int k = 0; k < n_shares[i]; k++) {
            *share = cut(&t->nodes[i], k, n_shares[i]);
            TRY(list_cpus(arena, share++, err));
        }
    return STATUS_OK;
}

/* How crowded a share is: 0: a core is free, 1: a CPU is, more: threads on each CPU. */
static int crowding(const struct share *share)
{
    return share->n_threads < share->n_cores ? 0 : 1 + share->n_threads / share->n_cpus;
}

/* Gives threads one by one to the share that is least crowded, then has the fewest, then is first. */
static void spread_threads(struct share *shares, int n_nodes, int n_threads)
{
    for (int i = 0; i < n_threads; i++) {
        struct share *best = shares;
        for (struct share *s = shares + 1; s < shares + n_nodes; s++) {
            int more = crowding(s) - crowding(best);
            if (more < 0 || (more == 0 && s->n_threads < best->n_threads))
                best = s;
        }
        best->n_threads++;
    }
}

/* CPU of the k-th thread of a share. */
static int cpu_of(const struct share *share, int k)
{
    if (share->n_threads < share->n_cores) /* at equal distances */
        return share->cpus[(int64_t)k * share->n_cores / share->n_threads];
    return share->cpus[(share->first + k) % share->n_cpus];
}

/* Numbers of nodes and threads where the request leaves them open. */
static enum status settle(const struct topology *t, const struct team_request *request,
                          int *n_nodes, int *n_threads, struct error *err)
{
    int each = request->n_threads_a_node;
    assert(request->n_threads >= 0 && request->n_nodes >= 0 && each >= 0);
    *n_threads = request->n_threads;
    *n_nodes = request->n_nodes;
    if (!*n_nodes) {
        int n_most = each ? t->n_nodes : *n_threads ? *n_threads : t->n_usable;
        *n_nodes = t->n_nodes < n_most ? t->n_nodes : n_most;
    }
    if ((int64_t)each * *n_nodes > MAX_THREADS || *n_threads > MAX_THREADS ||
        *n_nodes > MAX_THREADS)
        return fail(err, STATUS_LIMIT,
                    "%d threads, %d nodes, %d threads a node: at most %d "
                    "threads in all",
                    *n_threads, *n_nodes, each, MAX_THREADS);
    if (each && *n_threads && each * *n_nodes != *n_threads)
        return fail(err, STATUS_USAGE, "%d threads are not %d on each of %d nodes: leave one out",
                    *n_threads, each, *n_nodes);
    if (*n_threads && *n_threads < *n_nodes)
        return fail(err, STATUS_LIMIT, "%d nodes need at least as many threads; there are %d",
                    *n_nodes, *n_threads);
    return STATUS_OK;
}

/* Threads by default: what may be used, as far as these shares have cores, and one a share. */
static int default_threads(const struct topology *t, const struct share *shares, int n_nodes)
{
    int n_cores = 0;
    for (int i = 0; i < n_nodes; i++)
        n_cores += shares[i].n_cores;
    int n = n_cores < t->n_usable ? n_cores : t->n_usable;
    return n > n_nodes ? n : n_nodes;
}

static enum status fill(struct team_layout *layout, const struct topology *t,
                        const struct share *shares, struct error *err)
{
    struct arena *arena = &layout->arena;
    layout->nodes = arena_alloc(arena, (size_t)layout->n_nodes, sizeof *layout->nodes);
    layout->cpus = arena_alloc(arena, (size_t)layout->n_threads, sizeof *layout->cpus);
    if (!layout->nodes || !layout->cpus)
        return fail_memory(err, "threads", (size_t)layout->n_threads * sizeof *layout->cpus);
    layout->is_virtual = layout->n_nodes > t->n_nodes;
    layout->is_oversubscribed = layout->n_threads > t->n_usable;
    int thread = 0;
    for (int i = 0; i < layout->n_nodes; i++) {
        const struct share *share = &shares[i];
        layout->nodes[i] = (struct team_node){.os_node = share->node->os_node,
                                              .memory_node = share->node->memory_node,
                                              .thread0 = thread,
                                              .n_threads = share->n_threads};
        if (share->n_threads > share->n_cores)
            layout->is_oversubscribed = true;
        for (int k = 0; k < share->n_threads; k++)
            layout->cpus[thread++] = cpu_of(share, k);
    }
    return STATUS_OK;
}

static enum status make(struct team_layout *layout, const struct topology *t,
                        const struct team_request *request, struct error *err)
{
    struct share *shares;
    int each = request->n_threads_a_node;
    TRY(settle(t, request, &layout->n_nodes, &layout->n_threads, err));
    TRY(make_shares(&layout->arena, t, layout->n_nodes, &shares, err));
    if (each)
        layout->n_threads = each * layout->n_nodes;
    else if (!layout->n_threads)
        layout->n_threads = default_threads(t, shares, layout->n_nodes);
    if (each)
        for (int i = 0; i < layout->n_nodes; i++)
            shares[i].n_threads = each;
    else
        spread_threads(shares, layout->n_nodes, layout->n_threads);
    return fill(layout, t, shares, err);
}

enum status team_layout_make(struct team_layout *layout, const struct topology *topology,
                             const struct team_request *request, struct error *err)
{
    *layout = (struct team_layout){0};
    enum status status = make(layout, topology, request, err);
    if (status != STATUS_OK)
        team_layout_done(layout);
    return status;
}

void team_layout_done(struct team_layout *layout)
{
    arena_done(&layout->arena);
    *layout = (struct team_layout){0};
}
