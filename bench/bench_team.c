#include "bench_team.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "machine/thread_team.h"

/* What one thread last measured; a cache line each. */
struct span {
    _Alignas(64) int64_t begin;
    int64_t end;
};

static struct {
    struct topology topology;
    struct team_layout layout;
    struct thread_team *team;
    struct span *spans; /* (n_threads) */
    struct arena arena;
    bench_work *work;
    void *context;
    int n_active;
} bench;

static void must(enum status status, const struct error *err)
{
    if (status == STATUS_OK)
        return;
    fprintf(stderr, "kernel_bench: %s\n", err->text);
    exit(1);
}

static void read_machine(void)
{
    struct error err;
    if (!bench.topology.n_nodes)
        must(topology_read(&bench.topology, NULL, &err), &err);
}

int bench_team_cores(void)
{
    read_machine();
    return bench.topology.n_usable;
}

void bench_team_start(int n_threads)
{
    struct error err;
    read_machine();
    struct team_request request = {.n_threads = n_threads};
    must(team_layout_make(&bench.layout, &bench.topology, &request, &err), &err);
    must(team_open(&bench.team, &bench.layout, true, &err), &err);
    bench.spans = arena_alloc(&bench.arena, (size_t)n_threads, sizeof *bench.spans);
    if (!bench.spans)
        must(fail_memory(&err, "threads", sizeof *bench.spans), &err);
}

static void run_one(void *context, const struct team_member *me)
{
    (void)context;
    if (me->index >= bench.n_active)
        return;
    bench.spans[me->index].begin = clock_ns();
    bench.work(bench.context, me->index, bench.n_active);
    bench.spans[me->index].end = clock_ns();
}

int64_t bench_team_run(bench_work *work, void *context, int n_threads)
{
    bench.work = work;
    bench.context = context;
    bench.n_active = n_threads < bench.layout.n_threads ? n_threads : bench.layout.n_threads;
    team_run(bench.team, run_one, NULL);
    int64_t first = bench.spans[0].begin, last = bench.spans[0].end;
    for (int i = 1; i < bench.n_active; i++) {
        first = bench.spans[i].begin < first ? bench.spans[i].begin : first;
        last = bench.spans[i].end > last ? bench.spans[i].end : last;
    }
    return last - first;
}

void bench_team_stop(void)
{
    team_close(bench.team);
    team_layout_done(&bench.layout);
    topology_done(&bench.topology);
    arena_done(&bench.arena);
}
