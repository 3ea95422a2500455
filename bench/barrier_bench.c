/* barrier_bench [THREADS [NODES]]: how long a step without work takes, from the first report to the
 * last thread that goes on: one unit a thread, all threads, with each kind of sync. Nodes beyond
 * those of the machine are virtual. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "machine/barrier.h"
#include "machine/thread_team.h"

#define N_PASSES 9
#define PASS_NS  20000000 /* about */

struct trial {
    struct thread_team *team;
    struct barrier barrier;
    struct barrier_cursor *cursors; /* (n_threads, 4) one cache line apart */
    enum sync sync;
    int n_rounds;
    int64_t ns; /* of the first thread */
};

/* The first thread of each node makes the node's part of the barrier, so that it lies there. */
static void make_node(void *context, const struct team_member *me)
{
    struct trial *trial = context;
    if (me->in_node == 0)
        trial->barrier.nodes[me->node] = aligned_alloc(4096, 4096);
    if (me->in_node == 0 && trial->barrier.nodes[me->node])
        *trial->barrier.nodes[me->node] = (struct barrier_node){0};
}

static void go_rounds(void *context, const struct team_member *me)
{
    struct trial *trial = context;
    struct barrier_cursor cursor = trial->cursors[4 * me->index];
    int64_t spin_ns = team_spin_ns(trial->team);
    struct step_units step = {.sync = trial->sync,
                              .n_units = (uint32_t)me->n_in_node,
                              .n_units_all = (uint32_t)team_layout_of(trial->team)->n_threads,
                              .n_nodes_busy = (uint32_t)trial->barrier.n_nodes};
    int64_t begin = 0;
    for (int i = -1; i < trial->n_rounds; i++) {
        if (i == 0)
            begin = clock_ns(); /* all have come */
        barrier_next(&trial->barrier, &cursor, me->node, &step);
        barrier_report(&trial->barrier, &cursor, me->node, 1);
        barrier_wait(&trial->barrier, &cursor, me->node, spin_ns);
    }
    if (me->index == 0)
        trial->ns = clock_ns() - begin;
    trial->cursors[4 * me->index] = cursor;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(struct trial *trial, enum sync sync, const char *name)
{
    trial->sync = sync;
    trial->n_rounds = 1000;
    team_run(trial->team, go_rounds, trial);
    double guess = (double)trial->ns / trial->n_rounds;
    trial->n_rounds = 1 + (int)(PASS_NS / (guess > 10 ? guess : 10));
    double ns[N_PASSES];
    for (int p = 0; p < N_PASSES; p++) {
        team_run(trial->team, go_rounds, trial);
        ns[p] = (double)trial->ns / trial->n_rounds;
    }
    qsort(ns, N_PASSES, sizeof *ns, compare);
    printf("%-10s %8.0f %8.0f ns   (%d steps a pass)\n", name, ns[0], ns[N_PASSES / 2],
           trial->n_rounds);
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
    struct trial trial = {.team = team, .barrier = {.n_nodes = layout->n_nodes}};
    trial.barrier.nodes = calloc((size_t)layout->n_nodes, sizeof *trial.barrier.nodes);
    trial.cursors = calloc((size_t)layout->n_threads * 4, sizeof *trial.cursors);
    if (!trial.barrier.nodes || !trial.cursors)
        exit(1);
    team_run(team, make_node, &trial);
    for (int n = 0; n < layout->n_nodes; n++)
        if (!trial.barrier.nodes[n])
            exit(1);
    printf("%d threads on %d %snodes, %s, spinning %lld us\n%-10s %8s %8s\n", layout->n_threads,
           layout->n_nodes, layout->is_virtual ? "virtual " : "",
           team_is_pinned(team) ? "pinned" : "not pinned", (long long)team_spin_ns(team) / 1000,
           "sync", "best", "median");
    measure(&trial, SYNC_NODE, "node");
    measure(&trial, SYNC_GLOBAL, "two-level");
    measure(&trial, SYNC_FLAT, "flat");
    for (int64_t pause_ns = 0; pause_ns <= 1000000; pause_ns = pause_ns ? 10 * pause_ns : 10000)
        measure_run(team, pause_ns);
    for (int n = 0; n < layout->n_nodes; n++)
        free(trial.barrier.nodes[n]);
    free(trial.barrier.nodes);
    free(trial.cursors);
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
