#include "cli/chunk_team.h"

#include <stdatomic.h>

struct chunk_failure {
    int64_t chunk;
    struct error error;
};

/* Chunks of one run. */
struct chunk_run {
    struct chunk_team *team;
    chunk_work *work;
    void *context;
    int64_t n;
    _Alignas(64) _Atomic int64_t next;
    _Atomic bool has_failed;
};

enum status chunk_team_open(struct chunk_team *c, int64_t n_threads, struct error *err)
{
    struct team_request request = {.n_threads = (int)n_threads};
    *c = (struct chunk_team){0};
    TRY(topology_read(&c->topology, NULL, err));
    TRY(team_layout_make(&c->layout, &c->topology, &request, err));
    c->failures = memory_alloc((size_t)c->layout.n_threads, sizeof *c->failures);
    if (!c->failures)
        return fail_memory(err, "threads", (size_t)c->layout.n_threads * sizeof *c->failures);
    return team_open(&c->team, &c->layout, false, err);
}

void chunk_team_close(struct chunk_team *c)
{
    team_close(c->team);
    team_layout_done(&c->layout);
    topology_done(&c->topology);
    memory_free(c->failures);
    *c = (struct chunk_team){0};
}

/* When one fails all before it have been begun, and are finished. */
static void do_chunks(void *context, const struct team_member *me)
{
    struct chunk_run *run = context;
    struct chunk_failure *failure = &run->team->failures[me->index];
    failure->chunk = run->n;
    while (!atomic_load(&run->has_failed)) {
        int64_t chunk = atomic_fetch_add(&run->next, 1);
        if (chunk >= run->n)
            return;
        if (run->work(run->context, chunk, me->index, &failure->error) != STATUS_OK) {
            failure->chunk = chunk;
            atomic_store(&run->has_failed, true);
            return;
        }
    }
}

enum status chunk_team_run(struct chunk_team *c, int64_t n, chunk_work *work, void *context,
                           struct error *err)
{
    struct chunk_run run = {.team = c, .work = work, .context = context, .n = n};
    const struct chunk_failure *first = &c->failures[0];
    team_run(c->team, do_chunks, &run);
    for (int i = 1; i < c->layout.n_threads; i++)
        if (c->failures[i].chunk < first->chunk)
            first = &c->failures[i];
    if (first->chunk == n)
        return STATUS_OK;
    if (err)
        *err = first->error;
    return first->error.status;
}
