/* What an engine is made of; for engine*.c and session.c. */
#ifndef TRINE_ENGINE_ENGINE_STATE_H
#define TRINE_ENGINE_ENGINE_STATE_H

#include "engine/engine.h"
#include "engine/executor.h"
#include "engine/kv_cache.h"
#include "engine/plan_builder.h"

/* Memory of one node. */
struct node_memory {
    struct node_arena weights, kv, scratch;
};

struct engine {
    const struct model *model; /* borrowed */
    struct topology topology;
    struct team_layout layout;
    struct plan plan;
    struct node_memory *memory; /* owned: arena; (n_nodes) */
    struct shared_buffers shared;
    struct node_buffers *buffers; /* owned: arena; (n_nodes) */
    struct thread_team *team;
    struct executor *executor;
    struct kv_cache kv;
    struct trace *trace; /* borrowed, or NULL */
    int64_t load_ns, n_migrated;
    bool is_loaded;
    bool is_kept_small; /* fewer nodes than the machine has, because the model is small */
    struct arena arena;
};

struct session {
    struct engine *engine; /* borrowed */
    int position;
    struct kv_pages pages;
    struct engine_column *columns; /* owned: (n_batch), for session_prefill */
};

#endif
