/* The boundary: a model on the whole machine, and sequences of tokens that run through it.
 * Everything that can fail fails in engine_open and session_open; running tokens cannot. One thread
 * drives an engine and its sessions. */
#ifndef TRINE_ENGINE_ENGINE_H
#define TRINE_ENGINE_ENGINE_H

#include "engine/engine_options.h"
#include "model/model_load.h"

struct engine;
struct plan;
struct session;
struct topology;
struct topology_source;
struct trace;

/* Starts the threads, plans, takes the memory, packs the weights. The model is borrowed. progress may
 * be NULL. The calling thread becomes one of the team, pinned until engine_close.
 * errors  as topology_read, plan_make; FORMAT for weights that are not finite */
enum status engine_open(struct engine **engine, const struct model *model,
                        const struct engine_options *options, engine_progress *progress,
                        void *context, struct error *err);
void engine_close(struct engine *engine);

/* The plan alone, to be printed: no weights are read but for what their packing depends on.
 * Freed by engine_close. */
enum status engine_plan(struct engine **engine, const struct model *model,
                        const struct engine_options *options, struct error *err);
/* The same for a machine that need not be this one: nothing is bound, and its memory is the limit. */
enum status engine_plan_on(struct engine **engine, const struct model *model,
                           const struct engine_options *options,
                           const struct topology_source *machine, struct error *err);
/* How many of the machine's nodes a model of that size should use when the user does not say: one,
 * where the barriers between nodes would take longer than reading from more of them saves. */
int engine_best_nodes(int n_nodes, uint64_t bytes, int n_layer);

const struct plan *engine_plan_of(const struct engine *engine);
const struct topology *engine_topology_of(const struct engine *engine);

/* A sequence with room for the engine's n_ctx positions.
 * errors  LIMIT: options.n_sessions are open; MEMORY */
enum status session_open(struct session **session, struct engine *engine, struct error *err);
void session_close(struct session *session);

/* Tokens run so far. */
int session_position(const struct session *session);
/* Positions it has room for. */
int session_n_ctx(const struct session *session);
/* Forgets the positions from `position` on. */
void session_rewind(struct session *session, int position);

/* One token of one sequence. */
struct engine_column {
    struct session *session;
    int32_t token; /* in [0, n_vocab) */
    bool wants_logits;
};

/* Runs n columns (1 to options.n_batch), each at the next position of its session, in order; at most
 * options.n_logits want logits, which lie in order in the result: (n_wanted, n_vocab), valid until
 * the next call. The caller keeps positions below n_ctx.
 * What comes out of a column does not depend on the other columns, bit for bit. */
const float *engine_forward(struct engine *engine, const struct engine_column *columns, int n);

/* All tokens of one sequence in pieces of at most n_batch; logits of the last, NULL for n = 0. */
const float *session_prefill(struct session *session, const int32_t *tokens, int n);
/* One token; its logits. */
const float *session_decode(struct session *session, int32_t token);

/* Calls work(context, i) once for each i of [0, n), on all threads of the engine; returns when all are
 * done. For what is computed from logits; not while a pass runs. */
typedef void engine_work(void *context, int i);
void engine_share(struct engine *engine, int n, engine_work *work, void *context);

/* Where time goes: fills trace (trace_open) from the next batches of its kind on; NULL ends it. */
void engine_set_trace(struct engine *engine, struct trace *trace);

struct engine_report {
    double load_s;
    uint64_t weight_bytes, kv_bytes, scratch_bytes; /* all nodes */
    uint64_t token_bytes;                           /* weights read for one token */
    uint64_t kv_token_bytes; /* of the cache per position that a token sees */
    uint64_t cache_bytes;    /* L3 of all nodes together; 0: not known */
    double placed;           /* share of sampled pages that lie on their node; -1: not known */
    int64_t n_migrated;      /* pages that the kernel has moved since engine_open; -1: not known */
    bool is_bound;           /* memory policies were allowed */
    bool is_pinned;
};
void engine_report(const struct engine *engine, struct engine_report *report);

/* Bytes a second that the team reads, measured now, for about `seconds`.
 * errors  MEMORY */
enum status engine_bandwidth(struct engine *engine, double seconds, double *bytes_s,
                             struct error *err);

/* Lines for the user, without newline: kernels per packing, instruction set and the next one that is
 * missing, threads and nodes; and why nodes and dataflow were chosen. */
void engine_describe(const struct engine *engine, char *text, size_t size);

#endif
