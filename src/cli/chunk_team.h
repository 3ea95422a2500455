/* Threads of a command that goes through its data in chunks. */
#ifndef TRINE_CLI_CHUNK_TEAM_H
#define TRINE_CLI_CHUNK_TEAM_H

#include "machine/thread_team.h"

struct chunk_team {
    struct topology topology;
    struct team_layout layout;
    struct thread_team *team;
    struct chunk_failure *failures; /* owned: per thread */
};

/* n_threads: 0: one per core that may be used.
 * errors  as topology_read, team_layout_make, team_open */
enum status chunk_team_open(struct chunk_team *team, int64_t n_threads, struct error *err);

/* Accepts a zeroed object. */
void chunk_team_close(struct chunk_team *team);

static inline int chunk_team_size(const struct chunk_team *team)
{
    return team->layout.n_threads;
}

/* Does one chunk; thread: 0 ... chunk_team_size() - 1, for memory of its own. */
typedef enum status chunk_work(void *context, int64_t chunk, int thread, struct error *err);

/* Does chunks [0, n), begun in their order, each by the next thread that is free. Returns when none is
 * under way.
 * errors  that of the first chunk that fails, whichever thread has it; later ones may not be done */
enum status chunk_team_run(struct chunk_team *team, int64_t n, chunk_work *work, void *context,
                           struct error *err);

#endif
