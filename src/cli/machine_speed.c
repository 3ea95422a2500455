#include "cli/machine_speed.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kernel_speed.h"
#include "machine/bandwidth.h"
#include "machine/barrier_speed.h"

#define SECONDS        1.0 /* of measuring bandwidth */
#define KERNEL_SECONDS 0.2 /* of measuring each kernel */

#define LEAST_BYTES    ((uint64_t)32 << 20) /* of made-up weights of a thread */
#define CACHE_FACTOR   4                    /* of a node's, beyond its caches */

#define LEAST_NUMBER   1e-3 /* of GB/s, us or per cent that are given: nothing is slower by far */

/* Of machines that cannot be measured here: what a server core reads alone, about; the rest from the
 * paper (docs/measurements/prediction.md). Share: Llama3-8B on Ice Lake while threads work. Barriers:
 * 1.4 to 4.4 us for a global one of 104 threads; a node's from the 9 to 12 % of a token that they take
 * of Falcon3-1B; flat from what two-level barriers gained. */
#define CORE_BYTES_S   12e9
#define SHARE          0.91
#define NODE_S         0.4e-6
#define GLOBAL_S       2.9e-6
#define FLAT_TO_GLOBAL 2.5

const char *origin_name(enum origin origin)
{
    static const char *const names[] = {"given", "measured", "assumed"};
    return names[origin];
}

/* Reads "1.5,2" into at most `most` numbers from LEAST_NUMBER on; returns how many, 0 when it is
 * anything else. strtod alone would take hexadecimal and spaces too. */
static int parse_numbers(const char *text, double *numbers, int most)
{
    if (strspn(text, "0123456789.eE+-,") != strlen(text))
        return 0;
    for (int n = 0;; text++) {
        char *end;
        errno = 0;
        bool is_digit = (*text >= '0' && *text <= '9') || *text == '.';
        double value = is_digit ? strtod(text, &end) : 0;
        if (!is_digit || errno || !(value >= LEAST_NUMBER && value < 1e9) || n == most)
            return 0;
        numbers[n++] = value;
        if (!*end)
            return n;
        if (*end != ',')
            return 0;
        text = end;
    }
}

static enum status read_bandwidth(struct known_speed *k, const char *text, int n_nodes,
                                  struct error *err)
{
    int n = parse_numbers(text, k->node_bytes_s, n_nodes);
    if (n != 1 && n != n_nodes)
        return fail(err, STATUS_USAGE,
                    "--bandwidth: '%s' is neither one number of GB/s nor one for each of the "
                    "plan's %d node%s, as in 89.5,91",
                    text, n_nodes, n_nodes == 1 ? "" : "s");
    for (int i = 0; i < n_nodes; i++)
        k->node_bytes_s[i] = i < n ? k->node_bytes_s[i] * 1e9 : k->node_bytes_s[0];
    k->bandwidth = ORIGIN_GIVEN;
    return STATUS_OK;
}

static enum status read_barriers(struct known_speed *k, const char *text, struct error *err)
{
    double us[3];
    int n = parse_numbers(text, us, 3);
    if (n < 2)
        return fail(err, STATUS_USAGE,
                    "--barrier-us: '%s' is not NODE,GLOBAL[,FLAT] in microseconds, as in 0.4,2.9",
                    text);
    k->speed.node_s = us[0] / 1e6;
    k->speed.global_s = us[1] / 1e6;
    k->speed.flat_s = n == 3 ? us[2] / 1e6 : FLAT_TO_GLOBAL * us[1] / 1e6;
    k->barriers = ORIGIN_GIVEN;
    return STATUS_OK;
}

static enum status check_least(const char *name, double value, struct error *err)
{
    if (value == 0 || value >= LEAST_NUMBER)
        return STATUS_OK;
    return fail(err, STATUS_USAGE, "%s: %g is too small: give 0 (for none) or %g and more", name,
                value, LEAST_NUMBER);
}

static void assume_core(struct known_speed *k)
{
    k->speed.core_bytes_s = CORE_BYTES_S;
    k->core = ORIGIN_ASSUMED;
}

static void assume_share(struct known_speed *k)
{
    k->speed.share = SHARE;
    k->share = ORIGIN_ASSUMED;
}

static void assume_barriers(struct known_speed *k)
{
    k->speed.node_s = NODE_S;
    k->speed.global_s = GLOBAL_S;
    k->speed.flat_s = FLAT_TO_GLOBAL * GLOBAL_S;
    k->barriers = ORIGIN_ASSUMED;
}

/* Threads that run kernels at the same time. */
struct kernel_probe {
    const struct plan *plan;
    const struct topology *topology;
    const struct team_layout *layout; /* of the threads */
    double *bytes_s;                  /* owned; (n_threads) */
    atomic_int n_failed;
};

static void probe_kernels(void *context, const struct team_member *me)
{
    struct kernel_probe *probe = context;
    uint64_t least = CACHE_FACTOR * probe->topology->l3_bytes / (uint64_t)me->n_in_node;
    struct error lost;
    if (kernel_speed_measure(&probe->bytes_s[me->index], probe->plan, probe->topology,
                             probe->layout->nodes[me->node].memory_node,
                             least > LEAST_BYTES ? least : LEAST_BYTES, KERNEL_SECONDS,
                             &lost) != STATUS_OK)
        atomic_fetch_add(&probe->n_failed, 1);
}

/* Bytes a second of all threads of the team together. */
static enum status measure_kernels(struct thread_team *team, const struct plan *plan,
                                   const struct topology *topology, double *bytes_s,
                                   struct error *err)
{
    size_t n = (size_t)team_layout_of(team)->n_threads;
    struct kernel_probe probe = {
        .plan = plan, .topology = topology, .layout = team_layout_of(team)};
    probe.bytes_s = memory_alloc(n, sizeof(double));
    if (!probe.bytes_s)
        return fail_memory(err, "kernel probe", n * sizeof(double));
    team_run(team, probe_kernels, &probe);
    *bytes_s = 0;
    for (size_t i = 0; i < n; i++)
        *bytes_s += probe.bytes_s[i];
    memory_free(probe.bytes_s);
    return probe.n_failed ? fail_memory(err, "kernel probe", n * LEAST_BYTES) : STATUS_OK;
}

/* With a pinned thread of its own, while the other cores rest. */
static enum status measure_core(struct known_speed *k, const struct plan *plan,
                                const struct topology *topology, struct error *err)
{
    struct team_layout layout;
    struct team_request one = {.n_threads = 1, .n_nodes = 1};
    TRY(team_layout_make(&layout, topology, &one, err));
    struct thread_team *team = NULL;
    enum status status = team_open(&team, &layout, !plan->options.is_unpinned, err);
    if (status == STATUS_OK)
        status = measure_kernels(team, plan, topology, &k->speed.core_bytes_s, err);
    team_close(team);
    team_layout_done(&layout);
    k->core = ORIGIN_MEASURED;
    return status;
}

/* What all threads reach through kernels, of the bandwidth that is known by now. */
static enum status measure_share(struct known_speed *k, struct thread_team *team,
                                 const struct plan *plan, const struct topology *topology,
                                 struct error *err)
{
    double kernels, memory = 0;
    TRY(measure_kernels(team, plan, topology, &kernels, err));
    for (int i = 0; i < plan->layout->n_nodes; i++)
        memory += k->node_bytes_s[i];
    k->speed.share = kernels < memory ? kernels / memory : 1;
    k->share = ORIGIN_MEASURED;
    return STATUS_OK;
}

/* Nodes get shares by their threads, all of which read at the same time. */
static enum status measure_nodes(struct known_speed *k, struct thread_team *team,
                                 const struct topology *topology, struct error *err)
{
    const struct team_layout *layout = team_layout_of(team);
    struct bandwidth all;
    TRY(bandwidth_measure(&all, team, topology, SECONDS, false, err));
    for (int i = 0; i < layout->n_nodes; i++)
        k->node_bytes_s[i] = all.machine_bytes_s * layout->nodes[i].n_threads / layout->n_threads;
    bandwidth_done(&all);
    k->bandwidth = ORIGIN_MEASURED;
    return STATUS_OK;
}

static enum status measure_barriers(struct known_speed *k, struct thread_team *team,
                                    struct error *err)
{
    static const enum sync syncs[] = {SYNC_NODE, SYNC_GLOBAL, SYNC_FLAT};
    double *const seconds[] = {&k->speed.node_s, &k->speed.global_s, &k->speed.flat_s};
    for (int i = 0; i < 3; i++) {
        struct barrier_speed barrier;
        TRY(barrier_measure(&barrier, team, syncs[i], err));
        *seconds[i] = barrier.median_s;
    }
    k->barriers = ORIGIN_MEASURED;
    return STATUS_OK;
}

/* With the plan's own threads. */
static enum status measure_team(struct known_speed *k, const struct plan *plan,
                                const struct topology *topology, const struct predict_options *o,
                                struct error *err)
{
    struct thread_team *team;
    TRY(team_open(&team, plan->layout, !plan->options.is_unpinned, err));
    enum status status = STATUS_OK;
    if (!o->bandwidth)
        status = measure_nodes(k, team, topology, err);
    if (status == STATUS_OK && o->share == 0)
        status = measure_share(k, team, plan, topology, err);
    if (status == STATUS_OK && !o->barriers)
        status = measure_barriers(k, team, err);
    team_close(team);
    return status;
}

static enum status find_here(struct known_speed *k, const struct plan *plan,
                             const struct topology *topology, const struct predict_options *o,
                             struct error *err)
{
    if (!o->bandwidth || !o->barriers || o->share == 0)
        TRY(measure_team(k, plan, topology, o, err));
    if (o->core_gb_s > 0)
        return STATUS_OK;
    if (plan->layout->n_threads > 1 || k->share == ORIGIN_GIVEN)
        return measure_core(k, plan, topology, err);
    k->speed.core_bytes_s = k->speed.share * k->node_bytes_s[0]; /* measured: all threads are one */
    k->core = ORIGIN_MEASURED;
    return STATUS_OK;
}

static enum status find_elsewhere(struct known_speed *k, const struct predict_options *o,
                                  struct error *err)
{
    if (!o->bandwidth)
        return fail(err, STATUS_USAGE,
                    "the bandwidth of another machine cannot be measured here: give --bandwidth, "
                    "the GB/s that a node's threads read from its memory");
    if (!o->barriers)
        assume_barriers(k);
    if (o->core_gb_s == 0)
        assume_core(k);
    if (o->share == 0)
        assume_share(k);
    return STATUS_OK;
}

static enum status find(struct known_speed *k, const struct plan *plan,
                        const struct topology *topology, const struct predict_options *o,
                        struct error *err)
{
    TRY(check_least("--core-bandwidth", o->core_gb_s, err));
    TRY(check_least("--cache-bandwidth", o->cache_gb_s, err));
    TRY(check_least("--kernel-share", o->share, err));
    if (o->bandwidth)
        TRY(read_bandwidth(k, o->bandwidth, plan->layout->n_nodes, err));
    if (o->barriers)
        TRY(read_barriers(k, o->barriers, err));
    k->speed.core_bytes_s = o->core_gb_s * 1e9;
    return topology->is_this_machine ? find_here(k, plan, topology, o, err)
                                     : find_elsewhere(k, o, err);
}

enum status known_speed_find(struct known_speed *k, const struct plan *plan,
                             const struct topology *topology, const struct predict_options *o,
                             struct error *err)
{
    size_t n_nodes = (size_t)plan->layout->n_nodes;
    *k = (struct known_speed){.node_bytes_s = memory_alloc(n_nodes, sizeof(double))};
    if (!k->node_bytes_s)
        return fail_memory(err, "speed of nodes", n_nodes * sizeof(double));
    k->speed = (struct machine_speed){.node_bytes_s = k->node_bytes_s,
                                      .share = o->share / 100,
                                      .cache_bytes = topology->l3_bytes,
                                      .cache_bytes_s = o->cache_gb_s * 1e9,
                                      .late = o->late / 100,
                                      .element_s = PREDICT_ELEMENT_S};
    enum status status = find(k, plan, topology, o, err);
    if (status != STATUS_OK)
        known_speed_done(k);
    return status;
}

void known_speed_done(struct known_speed *k)
{
    memory_free(k->node_bytes_s);
    *k = (struct known_speed){0};
}
