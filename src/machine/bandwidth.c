#include "machine/bandwidth.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "machine/cache_flush.h"
#include "machine/memory_info.h"

#define MIB          ((uint64_t)1 << 20)
#define THREAD_BYTES (32 * MIB) /* that a thread reads in a pass: some milliseconds */
#define STREAMS      4
#define TURN_BYTES   128 /* of a stream: two lines, which prefetchers fetch as a pair */
#define PART_BYTES   (STREAMS * TURN_BYTES)
#define SPIN_NS      20000 /* at the starting line; then others may need the CPU */
#define CELL_PASSES  2     /* of the matrix, at least */

/* The widest vector of every architecture's baseline: SSE2, NEON. */
typedef uint64_t lanes __attribute__((vector_size(16)));

static inline lanes read_turn(const uint8_t *bytes, lanes sum)
{
    const lanes *v = (const lanes *)bytes;
    return sum ^ v[0] ^ v[1] ^ v[2] ^ v[3] ^ v[4] ^ v[5] ^ v[6] ^ v[7];
}

/* Reads n bytes (a multiple of PART_BYTES) once, as n_streams streams side by side; the value
 * depends on all of them. n_streams and prefetch (bytes ahead, 0: none) are constants, so that the
 * compiler unrolls. Prefetches run over the end, which harms nothing. */
static inline __attribute__((always_inline)) uint64_t read_streams(const uint8_t *bytes, uint64_t n,
                                                                   int n_streams, uint64_t prefetch)
{
    uint64_t part = n / (uint64_t)n_streams;
    lanes sum[STREAMS] = {0};
    for (uint64_t i = 0; i < part; i += TURN_BYTES) {
#pragma GCC unroll 4
        for (int s = 0; s < n_streams; s++) {
            const uint8_t *p = bytes + (uint64_t)s * part + i;
            if (prefetch) {
                __builtin_prefetch(p + prefetch);
                __builtin_prefetch(p + prefetch + 64);
            }
            sum[s] = read_turn(p, sum[s]);
        }
    }
    lanes all = sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
    return all[0] ^ all[1];
}

typedef uint64_t read_loop(const uint8_t *bytes, uint64_t n);
#define READ_LOOP(name, n_streams, prefetch)                                                       \
    static uint64_t name(const uint8_t *bytes, uint64_t n)                                         \
    {                                                                                              \
        return read_streams(bytes, n, n_streams, prefetch);                                        \
    }
READ_LOOP(read_1, 1, 0)
READ_LOOP(read_2, 2, 0)
READ_LOOP(read_4, 4, 0)
READ_LOOP(read_1_ahead, 1, 512)
READ_LOOP(read_2_ahead, 2, 512)
READ_LOOP(read_4_ahead, 4, 512)

/* Which is fastest depends on the machine's own prefetchers, and on the neighbours of the moment. */
static read_loop *const loops[] = {read_1,       read_2,       read_4,
                                   read_1_ahead, read_2_ahead, read_4_ahead};
enum { N_LOOPS = sizeof loops / sizeof loops[0] };

/* When a thread began and ended its pass; a cache line of its own. */
struct pass_time {
    _Alignas(64) int64_t begin_ns;
    int64_t end_ns;
};

struct probe {
    struct thread_team *team;         /* borrowed */
    const struct team_layout *layout; /* borrowed: the team's */
    struct arena arena;               /* of the arrays */
    struct node_arena *memory;        /* (n_nodes), each owned */
    struct pass_time *times;          /* (n_threads) */
    read_loop *read;
    int reader; /* node whose threads read; -1: all, each its own node's memory */
    int source; /* node whose memory is read */
    _Alignas(64) _Atomic uint64_t n_arrived; /* threads at the starting line, all passes */
    _Alignas(64) _Atomic uint64_t consumed;  /* so that no value is unused */
};

/* The member's share of a node's arena, when all threads of its own node read it together. */
static uint8_t *share_of(const struct probe *probe, const struct team_member *me, int source,
                         uint64_t *bytes)
{
    const struct node_arena *arena = &probe->memory[source];
    *bytes = arena->bytes / (uint64_t)me->n_in_node / PART_BYTES * PART_BYTES;
    return arena->base + (uint64_t)me->in_node * *bytes;
}

/* Every thread writes what it will read, so that an unbound page lies on its node too. The last of
 * a node writes the rest as well. */
static void touch_share(void *context, const struct team_member *me)
{
    const struct probe *probe = context;
    const struct node_arena *arena = &probe->memory[me->node];
    uint64_t bytes;
    uint8_t *share = share_of(probe, me, me->node, &bytes);
    if (me->in_node + 1 == me->n_in_node)
        bytes = (uint64_t)(arena->base + arena->bytes - share);
    memset(share, 1, bytes);
}

/* Returns when all readers are here: threads that wake one after another would be timed with the
 * wake-up. Spins, then offers the CPU, as threads may share one. */
static void wait_at_start(struct probe *probe, uint64_t n_readers)
{
    uint64_t arrived = atomic_fetch_add(&probe->n_arrived, 1);
    uint64_t target = (arrived / n_readers + 1) * n_readers;
    int64_t spin_until = clock_ns() + SPIN_NS;
    while (atomic_load_explicit(&probe->n_arrived, memory_order_acquire) < target)
        if (clock_ns() > spin_until)
            sched_yield();
}

static void read_share(void *context, const struct team_member *me)
{
    struct probe *probe = context;
    bool is_all = probe->reader < 0;
    if (!is_all && probe->reader != me->node)
        return;
    uint64_t bytes;
    const uint8_t *share = share_of(probe, me, is_all ? me->node : probe->source, &bytes);
    struct pass_time *time = &probe->times[me->index];
    cache_flush(share, bytes); /* however large the caches are, none of it comes from them */
    wait_at_start(probe, (uint64_t)(is_all ? probe->layout->n_threads : me->n_in_node));
    time->begin_ns = clock_ns();
    uint64_t value = probe->read(share, bytes);
    time->end_ns = clock_ns();
    atomic_fetch_add_explicit(&probe->consumed, value, memory_order_relaxed);
}

/* Bytes that node `reader` reads of node `source` in a pass. */
static uint64_t pass_bytes(const struct probe *probe, int reader, int source)
{
    uint64_t n = (uint64_t)probe->layout->nodes[reader].n_threads;
    return probe->memory[source].bytes / n / PART_BYTES * PART_BYTES * n;
}

/* One pass: bytes per second from the first start to the last end. */
static double run_pass(struct probe *probe, int reader, int source)
{
    const struct team_layout *layout = probe->layout;
    probe->reader = reader;
    probe->source = source;
    atomic_store(&probe->n_arrived, 0);
    team_run(probe->team, read_share, probe);

    int thread0 = reader < 0 ? 0 : layout->nodes[reader].thread0;
    int n = reader < 0 ? layout->n_threads : layout->nodes[reader].n_threads;
    int64_t first = probe->times[thread0].begin_ns, last = probe->times[thread0].end_ns;
    for (int i = thread0 + 1; i < thread0 + n; i++) {
        const struct pass_time *time = &probe->times[i];
        first = time->begin_ns < first ? time->begin_ns : first;
        last = time->end_ns > last ? time->end_ns : last;
    }
    uint64_t bytes = reader < 0 ? 0 : pass_bytes(probe, reader, source);
    for (int i = 0; reader < 0 && i < layout->n_nodes; i++)
        bytes += pass_bytes(probe, i, i);
    return (double)bytes * 1e9 / (double)(last > first ? last - first : 1);
}

/* All threads, with every loop in turn until the time is over. Leaves the fastest for the matrix. */
static double machine_speed(struct probe *probe, int64_t until_ns)
{
    double best = 0;
    read_loop *fastest = loops[0];
    for (int pass = 0; pass < N_LOOPS || clock_ns() < until_ns; pass++) {
        probe->read = loops[pass % N_LOOPS];
        double speed = run_pass(probe, -1, 0);
        if (speed > best)
            best = speed, fastest = probe->read;
    }
    probe->read = fastest;
    return best;
}

static double cell_speed(struct probe *probe, int reader, int source, int64_t until_ns)
{
    double best = 0;
    for (int pass = 0; pass < CELL_PASSES || clock_ns() < until_ns; pass++) {
        double speed = run_pass(probe, reader, source);
        best = speed > best ? speed : best;
    }
    return best;
}

/* Bytes to read on a node: at most a quarter of its memory and its share of half of what is free. */
static uint64_t node_bytes(const struct team_layout *layout, int node,
                           const struct topology *topology, uint64_t available)
{
    uint64_t bytes = THREAD_BYTES * (uint64_t)layout->nodes[node].n_threads;
    uint64_t limit = available / 2 / (uint64_t)layout->n_nodes;
    for (int i = 0; i < topology->n_nodes; i++) {
        const struct machine_node *own = &topology->nodes[i];
        if (own->memory_node == layout->nodes[node].memory_node && own->memory_bytes &&
            own->memory_bytes / 4 < limit)
            limit = own->memory_bytes / 4;
    }
    uint64_t least = PART_BYTES * (uint64_t)layout->nodes[node].n_threads;
    bytes = bytes < limit ? bytes : limit;
    return bytes > least ? bytes : least;
}

static enum status probe_open(struct probe *probe, const struct topology *topology,
                              struct error *err)
{
    const struct team_layout *layout = probe->layout;
    size_t n_nodes = (size_t)layout->n_nodes, n_threads = (size_t)layout->n_threads;
    probe->memory = arena_alloc(&probe->arena, n_nodes, sizeof *probe->memory);
    probe->times = arena_alloc(&probe->arena, n_threads, sizeof *probe->times);
    if (!probe->memory || !probe->times)
        return fail_memory(err, "bandwidth probe", n_threads * sizeof *probe->times);
    uint64_t available = memory_available();
    for (int i = 0; i < layout->n_nodes; i++)
        TRY(node_arena_open(&probe->memory[i], topology, layout, MEMORY_LOCAL,
                            layout->nodes[i].memory_node,
                            node_bytes(layout, i, topology, available), "bandwidth probe", err));
    team_run(probe->team, touch_share, probe);
    return STATUS_OK;
}

static void probe_close(struct probe *probe)
{
    for (int i = 0; probe->memory && i < probe->layout->n_nodes; i++)
        node_arena_close(&probe->memory[i]);
    arena_done(&probe->arena);
}

/* Each node from each; the cells share the time that is left. */
static enum status measure_matrix(struct bandwidth *bandwidth, struct probe *probe,
                                  int64_t until_ns, struct error *err)
{
    int n = bandwidth->n_nodes, n_cells = n * n;
    bandwidth->node_bytes_s = memory_alloc((size_t)n_cells, sizeof(double));
    if (!bandwidth->node_bytes_s)
        return fail_memory(err, "bandwidth of nodes", (size_t)n_cells * sizeof(double));
    for (int i = 0; i < n_cells; i++) {
        int64_t now = clock_ns(), share = (until_ns - now) / (n_cells - i);
        bandwidth->node_bytes_s[i] = cell_speed(probe, i / n, i % n, now + share);
    }
    return STATUS_OK;
}

enum status bandwidth_measure(struct bandwidth *bandwidth, struct thread_team *team,
                              const struct topology *topology, double seconds, bool is_matrix,
                              struct error *err)
{
    int64_t end_ns = clock_ns() + (int64_t)(seconds * 1e9);
    struct probe probe = {.team = team, .layout = team_layout_of(team)};
    *bandwidth = (struct bandwidth){.n_nodes = probe.layout->n_nodes};
    enum status status = probe_open(&probe, topology, err);
    if (status == STATUS_OK) {
        int64_t share_ns = (end_ns - clock_ns()) / (is_matrix ? 2 : 1);
        bandwidth->machine_bytes_s = machine_speed(&probe, clock_ns() + share_ns);
        if (is_matrix)
            status = measure_matrix(bandwidth, &probe, end_ns, err);
    }
    probe_close(&probe);
    return status;
}

void bandwidth_done(struct bandwidth *bandwidth)
{
    memory_free(bandwidth->node_bytes_s);
    *bandwidth = (struct bandwidth){0};
}
