/* barrier_bench [THREADS [NODES]]: how long a step without work takes, from the first report to the
 * last thread that goes on: one unit a thread, all threads, with each kind of sync. Nodes beyond
 * those of the machine are virtual. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "machine/barrier_speed.h"

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(struct thread_team *team, enum sync sync, const char *name)
{
    struct barrier_speed speed;
    struct error err;
    if (barrier_measure(&speed, team, sync, &err) != STATUS_OK) {
        fprintf(stderr, "barrier_bench: %s\n", err.text);
        exit(1);
    }
    printf("%-10s %8.0f %8.0f ns   (%d steps a pass)\n", name, speed.best_s * 1e9,
           speed.median_s * 1e9, speed.n_steps);
}

static void nothing(void *context, const struct team_member *me)
{
    (void)context;
    (void)me;
}

/* team_run, at once or after the caller has done something else for a while. */
static void measure_run(struct thread_team *team, int64_t pause_ns)
{
    double ns[101];
    for (int i = 0; i < 101; i++) {
        int64_t end = clock_ns() + pause_ns;
        while (clock_ns() < end)
            continue;
        int64_t begin = clock_ns();
        team_run(team, nothing, NULL);
        ns[i] = (double)(clock_ns() - begin);
    }
    qsort(ns, 101, sizeof *ns, compare);
    printf("team_run   %8.0f %8.0f ns   after %lld us\n", ns[0], ns[50],
           (long long)pause_ns / 1000);
}

static void measure_all(struct thread_team *team)
{
    const struct team_layout *layout = team_layout_of(team);
    printf("%d threads on %d %snodes, %s, spinning %lld us\n%-10s %8s %8s\n", layout->n_threads,
           layout->n_nodes, layout->is_virtual ? "virtual " : "",
           team_is_pinned(team) ? "pinned" : "not pinned", (long long)team_spin_ns(team) / 1000,
           "sync", "best", "median");
    measure(team, SYNC_NODE, "node");
    measure(team, SYNC_GLOBAL, "two-level");
    measure(team, SYNC_FLAT, "flat");
    for (int64_t pause_ns = 0; pause_ns <= 1000000; pause_ns = pause_ns ? 10 * pause_ns : 10000)
        measure_run(team, pause_ns);
}

int main(int argc, char **argv)
{
    struct team_request request = {.n_threads = argc > 1 ? atoi(argv[1]) : 0,
                                   .n_nodes = argc > 2 ? atoi(argv[2]) : 0};
    struct topology topology = {0};
    struct team_layout layout = {0};
    struct thread_team *team = NULL;
    struct error err = {0};
    enum status status = topology_read(&topology, &(struct topology_source){0}, &err);
    if (status == STATUS_OK)
        status = team_layout_make(&layout, &topology, &request, &err);
    if (status == STATUS_OK)
        status = team_open(&team, &layout, true, &err);
    if (status == STATUS_OK)
        measure_all(team);
    else
        fprintf(stderr, "barrier_bench: %s\n", err.text);
    team_close(team);
    team_layout_done(&layout);
    topology_done(&topology);
    return status != STATUS_OK;
}
