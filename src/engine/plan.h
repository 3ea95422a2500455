/* A plan: what every thread does for one batch of token columns, as data. Made once for a model, a
 * machine and options; walked for every batch (executor.h). Row-owned and column-split are two
 * builders of the same list (dataflow_row.c, dataflow_column.c).
 *
 * Every thread has a list of its own, of equal length, so that it reads only its own memory; the
 * lists differ in pointers. A step is divided in units (grains of rows, tokens, ...), which the
 * threads of a node take; it ends when all its units are finished (barrier.h). */
#ifndef TRINE_ENGINE_PLAN_H
#define TRINE_ENGINE_PLAN_H

#include "engine/trits_choice.h"
#include "engine/weight_slices.h"
#include "kernels/kernel_select.h"
#include "machine/barrier.h"
#include "machine/topology.h"

/* What changes from batch to batch. */
struct batch_shape {
    int n_tokens, n_logits;
    int n_chunks;    /* of KV_PAGE positions, of the longest sequence */
    int token_block; /* tokens that walk the cache together; 0: chunks are units (attention_job) */
};

/* How many rows, tokens or units a part has: `per` times this. */
enum extent {
    EXTENT_ONE,
    EXTENT_TOKENS,
    EXTENT_CHUNKS,
    EXTENT_OWN_CHUNKS, /* chunks that lie on the node: row-owned, attention by position */
    EXTENT_BLOCKS,     /* ceil(n_tokens / token_block) */
    EXTENT_LOGITS,
    EXTENT_ANY_LOGITS /* 1 if there are any */
};

/* Rows that were just computed are copied to the same place on other nodes. */
struct scatter {
    int n_nodes;
    float **to; /* owned: plan memory; (n_nodes), the own node's is NULL */
    const float *from;
    int64_t stride; /* of tokens, in floats, everywhere */
    int divisor;    /* rows of the part per float: 2 where pairs of rows make one */
};

struct part {
    kernel *run;
    union job job;
    void (*fit)(struct part *part, const struct batch_shape *shape); /* sets the job's sizes */
    struct scatter *scatter; /* owned: plan memory, or NULL */
    enum extent extent;
    int per, grain;
    int n_token_blocks;     /* matmul: units are rows by that many ranges of tokens; 0 or 1: all */
    int n_blocks;           /* ranges that the present batch has tokens for, at most so many */
    int n;                  /* of the present batch: per * extent */
    const uint8_t *weights; /* matmul: what it reads, and how much */
    uint64_t weight_bytes;
};

/* What a step is, for prints and the trace. */
#define STEP_KIND_LIST(X)                                                                          \
    X(EMBED, "embed")                                                                              \
    X(NORM, "norm")                                                                                \
    X(QKV, "qkv")                                                                                  \
    X(HEAD_NORM, "head_norm")                                                                      \
    X(KV_STORE, "kv_store")                                                                        \
    X(ATTENTION, "attention")                                                                      \
    X(FOLD, "fold")                                                                                \
    X(QUANTISE, "quantise")                                                                        \
    X(ATTN_OUTPUT, "attn_output")                                                                  \
    X(GATE_UP, "gate_up")                                                                          \
    X(DOWN, "down")                                                                                \
    X(REDUCE, "reduce")                                                                            \
    X(OUTPUT, "output")                                                                            \
    X(EXTRA, "extra barrier")
#define STEP_KIND_ENUM(name, text) STEP_##name,
enum step_kind { STEP_KIND_LIST(STEP_KIND_ENUM) N_STEP_KINDS };
#undef STEP_KIND_ENUM
const char *step_kind_name(enum step_kind kind);

struct step {
    enum step_kind kind;
    int layer;       /* -1: none */
    enum sync sync;  /* as planned; a step without units in a batch has none */
    bool is_leader;  /* only the first thread of the node has work */
    bool is_private; /* nobody helps others */
    int n_each, n_parts;
    struct part *each;  /* done whole by every thread for itself, before its units */
    struct part *parts; /* divided: units are numbered through all parts */
    /* Units of all nodes: fixed + per * extent. */
    enum extent extent;
    int fixed_all, per_all, n_nodes_busy;
    struct step_units units; /* of the present batch */
    /* The weights that this thread will read first in a later step, to be fetched while it waits. */
    const uint8_t *next_weights;
    uint64_t next_bytes;
};

/* One thread's list. */
struct program {
    int n_steps;
    struct step *steps; /* owned: node arena */
    struct batch_shape shape;
};

/* Few tokens: prepared by every thread for itself, attention by chunks. Many: by tokens. */
enum program_kind { PROGRAM_FEW, PROGRAM_MANY, N_PROGRAMS };
#define PLAN_FEW_TOKENS 8

#define PLAN_MAX_UNITS  0xffff /* of one thread in one step */

/* Sizes of one node, in bytes. */
struct node_sizes {
    uint64_t weights, kv, scratch;
};

struct plan {
    const struct model *model;        /* borrowed */
    const struct team_layout *layout; /* borrowed */
    struct engine_options options;    /* with every default resolved */
    struct weight_slices slices;
    const struct kernel_row
        *matmul[N_PACKINGS]; /* that multiply: kernel_select, or the next below */
    struct trits_choice trits;
    bool is_tiles_untimed;        /* kernel_choose_products found no memory */
    bool is_ctx_cut;              /* nobody asked for a context, and the usual does not fit */
    struct kv_page_layout *pages; /* owned: arena; (n_nodes) */
    int *n_kv_heads;              /* owned: arena; (n_nodes) */
    int n_slots;                  /* pages of each layer and node */
    struct program *programs[N_PROGRAMS]; /* owned: arena; (n_threads) */
    struct node_sizes *sizes;             /* owned: arena; (n_nodes) */
    struct arena arena;
    struct arena lists; /* of programs without addresses; empty once they have them */
};

/* Everything that can fail, but for taking the memory: sizes are known afterwards.
 * options->isa etc. are resolved by the caller; the layout has its nodes. team: reads the weights' scales;
 * NULL: the caller alone.
 * errors  MEMORY, UNSUPPORTED, LIMIT: what fits does not hold the context that was asked for */
enum status plan_make(struct plan *plan, const struct model *model,
                      const struct team_layout *layout, const struct engine_options *options,
                      struct thread_team *team, struct error *err);
void plan_done(struct plan *plan);

/* The part's n and its job for a batch; the step's units. */
void program_fit(struct program *program, const struct batch_shape *shape, int n_nodes, int node);

/* Units of a step that thread `in_node` of a node of n begins with: [*begin, *end). */
static inline void step_range(const struct step *step, int in_node, int n, int *begin, int *end)
{
    int64_t units = step->units.n_units;
    *begin = step->is_leader ? (in_node > 0) * (int)units : (int)(units * in_node / n);
    *end = step->is_leader ? (int)units : (int)(units * (in_node + 1) / n);
}

/* Row-owned with attention by position: pages hold all KV heads and are dealt out to the nodes. */
static inline bool plan_is_by_position(const struct plan *plan)
{
    return plan->options.dataflow == DATAFLOW_ROW &&
           plan->options.row_attention == ROW_ATTENTION_POSITION;
}

/* token_block of PROGRAM_FEW: attention by chunks, or all chunks by one thread. */
static inline int plan_few_block(const struct plan *plan, int n_tokens)
{
    const struct model_config *c = &plan->model->config;
    int most = ATTENTION_MAX_QUERIES / (c->n_head / c->n_head_kv);
    if (!plan->options.is_attention_whole)
        return 0;
    return n_tokens < most ? n_tokens : most;
}

/* Grains of n rows, tokens or units, and units of a part: one range of tokens after the other. */
static inline int part_grains(const struct part *part, int n)
{
    return (n + part->grain - 1) / part->grain;
}

static inline int part_units(const struct part *part)
{
    return part_grains(part, part->n) * (part->n_token_blocks > 1 ? part->n_token_blocks : 1);
}

/* Units are as many in every batch, because other nodes count them; grains of ranges, one range after the
 * other, as many as a batch has ranges. Unit u does grains [part_first_grain(u), part_first_grain(u + 1)): of
 * a short batch some do none, evenly, so that a thread with a fixed share of the units has its share of the work. */
static inline int part_first_grain(const struct part *part, int unit)
{
    if (part->n_token_blocks <= 1)
        return unit;
    return (int)((int64_t)unit * part->n_blocks / part->n_token_blocks);
}

#endif
