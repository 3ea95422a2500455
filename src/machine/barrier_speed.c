#include "machine/barrier_speed.h"

#include <stdlib.h>

#include "base/clock.h"

#define N_PASSES    9
#define PASS_NS     20000000 /* about */
#define FIRST_STEPS 1000     /* to guess how many a pass has */
#define NODE_BYTES  4096     /* a page: it lies on the node that writes it first */
_Static_assert(sizeof(struct barrier_node) <= NODE_BYTES, "a node's part is within its page");

/* Each thread's is on lines of its own. */
struct thread_cursor {
    _Alignas(64) struct barrier_cursor cursor;
};

struct trial {
    struct thread_team *team;
    struct barrier barrier;
    struct thread_cursor *cursors; /* owned: arena; (n_threads) */
    enum sync sync;
    int n_steps;
    int64_t ns; /* of the first thread */
    struct arena arena;
};

/* The first thread of each node makes the node's part of the barrier, so that it lies there. */
static void make_node(void *context, const struct team_member *me)
{
    struct trial *trial = context;
    if (me->in_node == 0)
        trial->barrier.nodes[me->node] = aligned_alloc(NODE_BYTES, NODE_BYTES);
    if (me->in_node == 0 && trial->barrier.nodes[me->node])
        *trial->barrier.nodes[me->node] = (struct barrier_node){0};
}

static void go_steps(void *context, const struct team_member *me)
{
    struct trial *trial = context;
    struct barrier_cursor cursor = trial->cursors[me->index].cursor;
    int64_t spin_ns = team_spin_ns(trial->team);
    struct step_units step = {.sync = trial->sync,
                              .n_units = (uint32_t)me->n_in_node,
                              .n_units_all = (uint32_t)team_layout_of(trial->team)->n_threads,
                              .n_nodes_busy = (uint32_t)trial->barrier.n_nodes};
    int64_t begin = 0;
    for (int i = -1; i < trial->n_steps; i++) {
        if (i == 0)
            begin = clock_ns(); /* all have come */
        barrier_next(&trial->barrier, &cursor, me->node, &step);
        barrier_report(&trial->barrier, &cursor, me->node, 1);
        barrier_wait(&trial->barrier, &cursor, me->node, spin_ns);
    }
    if (me->index == 0)
        trial->ns = clock_ns() - begin;
    trial->cursors[me->index].cursor = cursor;
}

static double pass_seconds(struct trial *trial)
{
    team_run(trial->team, go_steps, trial);
    return (double)trial->ns / 1e9 / trial->n_steps;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum status open_trial(struct trial *trial, struct error *err)
{
    const struct team_layout *layout = team_layout_of(trial->team);
    size_t n_nodes = (size_t)layout->n_nodes, n_threads = (size_t)layout->n_threads;
    trial->barrier.n_nodes = layout->n_nodes;
    trial->barrier.nodes = arena_alloc(&trial->arena, n_nodes, sizeof(void *));
    trial->cursors = arena_alloc(&trial->arena, n_threads, sizeof *trial->cursors);
    if (!trial->barrier.nodes || !trial->cursors)
        return fail_memory(err, "barrier probe", n_threads * sizeof *trial->cursors);
    team_run(trial->team, make_node, trial);
    for (size_t i = 0; i < n_nodes; i++)
        if (!trial->barrier.nodes[i])
            return fail_memory(err, "barrier probe", NODE_BYTES);
    return STATUS_OK;
}

static void close_trial(struct trial *trial)
{
    for (int i = 0; trial->barrier.nodes && i < trial->barrier.n_nodes; i++)
        free(trial->barrier.nodes[i]);
    arena_done(&trial->arena);
}

enum status barrier_measure(struct barrier_speed *speed, struct thread_team *team, enum sync sync,
                            struct error *err)
{
    struct trial trial = {.team = team, .sync = sync, .n_steps = FIRST_STEPS};
    enum status status = open_trial(&trial, err);
    if (status == STATUS_OK) {
        double guess = pass_seconds(&trial), seconds[N_PASSES];
        trial.n_steps = 1 + (int)(PASS_NS / 1e9 / (guess > 1e-8 ? guess : 1e-8));
        for (int i = 0; i < N_PASSES; i++)
            seconds[i] = pass_seconds(&trial);
        qsort(seconds, N_PASSES, sizeof *seconds, compare);
        *speed = (struct barrier_speed){seconds[0], seconds[N_PASSES / 2], trial.n_steps};
    }
    close_trial(&trial);
    return status;
}
