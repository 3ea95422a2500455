/* What the two dataflows build their lists with: buffers of nodes and threads, parts, steps. Only for
 * plan*.c and dataflow_*.c. */
#ifndef TRINE_ENGINE_PLAN_BUILDER_H
#define TRINE_ENGINE_PLAN_BUILDER_H

#include "engine/plan.h"
#include "model/arch.h"

/* Memory handed out in order. base NULL: bytes are only counted. */
struct space {
    uint8_t *base; /* borrowed */
    uint64_t used;
};
void *space_take(struct space *space, int64_t n, size_t size);

/* Floats of tokens: rows `stride` apart, zero beyond the columns, so that they can be the
 * activations of float packings too. */
struct rows {
    float *x;
    int64_t n_cols, stride;
};

/* Read by all nodes, written by the thread that starts a batch; and the result. On the first node. */
struct shared_buffers {
    int32_t *tokens, *position; /* (n_batch) */
    int32_t *wanted;            /* (n_logits) columns whose logits are wanted, ascending */
    float *cosines, *sines;     /* (n_batch, head_dim / 2) */
    float *logits;              /* (n_logits, n_vocab) */
    struct rows squares[2]; /* column-split sub-norms of attended and gated: blocks of all nodes */
};

static inline float *rows_from(const struct rows *rows, int64_t col)
{
    return rows->x ? rows->x + col : NULL;
}

struct node_buffers {
    struct rows residual, q, attended, gated;
    struct rows k, v;             /* before they are stored: q8_0 cache, or keys to be normed */
    struct rows partial[2];       /* sums of O and of down; two, because a node may be one ahead */
    float *attention_partial;     /* see attention_job; few tokens */
    struct barrier_node *barrier; /* of the executor */
    void *claims;                 /* of the executor: (threads of the node) cache lines */
    float *peaks[2];              /* (n_batch) of attended and gated */
    struct rows squares;          /* of a sub-norm, where threads don't each have them */
    float *factors;               /* (n_batch) the same */
    struct rows chosen[N_PROGRAMS];  /* of the node; stride 0: not yet */
    uint8_t *const **pages;          /* (n_layer, n_batch): page list of the token's sequence */
    uint16_t **key_out, **value_out; /* (n_layer, n_batch): where the token's row goes, f16 cache */
};

/* Whose activations: purpose and needs identify a set of buffers. */
enum act_purpose { ACT_NORMED, ACT_ATTENDED, ACT_GATED, ACT_OUTPUT, ACT_SCALE };
struct act_set {
    enum act_purpose purpose;
    struct packing_needs needs;
    int program, thread; /* thread -1: the node's */
    bool is_taken;       /* has memory */
    struct activations a;
};
#define MAX_ACT_SETS 48 /* purposes x needs x programs */

struct builder {
    struct plan *plan;
    const struct model_config *config;
    struct space *spaces; /* (n_nodes) scratch */
    struct shared_buffers *shared;
    struct node_buffers *buffers; /* (n_nodes) */
    struct part *pending;         /* what every thread does itself before the next step's units */
    int n_pending, max_pending;
    struct act_set sets[MAX_ACT_SETS]; /* of the present node */
    int n_sets;
    enum program_kind kind;
    int node, thread;
    struct program *program;
    bool is_counting;        /* no memory yet: buffers are NULL */
    int n_node_syncs;        /* of the present layer, for --promote-barriers */
    uint8_t *matmul_scratch; /* of the thread */
    struct rows folded;      /* of the thread and program; stride 0: not yet */
    struct rows squares;     /* the same */
    struct rows factors;     /* the same; one row */
    bool is_out_of_memory;
};

/* Buffers of all nodes, once. */
void builder_buffers(struct builder *b);

/* Columns that the program takes. */
int builder_capacity(const struct builder *b);
/* Whether every thread prepares activations for itself. */
bool builder_is_each(const struct builder *b);

/* The set for a packing; float sets that have a source of their own use its rows. */
struct activations builder_activations(struct builder *b, enum act_purpose purpose,
                                       const struct packed *w, const struct rows *source);

/* Where the present thread folds partial results of attention for itself. */
struct rows builder_folded(struct builder *b, int64_t n_cols);
/* Where blocks of squares of n_cols inputs, and the factors of their norms, are kept: the thread's or
 * the node's. */
struct rows builder_squares(struct builder *b, int64_t n_cols);
float *builder_factors(struct builder *b);
/* Where the columns whose logits are wanted are put side by side: the thread's or the node's. */
struct rows builder_chosen(struct builder *b);

/* A step with room for n parts; takes the pending ones. NULL without memory. */
struct step *builder_step(struct builder *b, enum step_kind kind, int layer, enum sync sync, int n);
/* Adds a part to a step's units; nothing if per is 0. */
void step_add(struct step *step, const struct part *part);
/* Has every thread do all of a part before the next step's units. */
void builder_each(struct builder *b, const struct part *part);

/* Parts that prepare activations: done by every thread, or in a step of their own, which a node that has
 * none (n = 0) must have too, because all lists are of equal length. */
void builder_prepare(struct builder *b, enum step_kind kind, int layer, const struct part *parts,
                     int n);

/* Whether the units of attention are chunks of the cache; with --row-attention position, whether all
 * KV heads of a page lie on one node. */
bool builder_by_chunks(const struct builder *b);
bool builder_is_by_position(const struct builder *b);

/* Parts. */
/* Tokens [*first, *end) of range `block` of a matmul's. */
void part_token_range(const struct part *part, int block, int *first, int *end);
/* The same products for tokens [first, end) only. */
void matmul_tokens(struct matmul_job *job, int first, int end);
kernel *builder_kernel(const struct builder *b, enum op op, enum packing packing);
struct part part_matmul(struct builder *b, const struct weight_slice *w, struct activations a,
                        enum epilogue epilogue, float *out, int64_t out_stride);
struct part part_norm(struct builder *b, const struct rows *x, const float *gain,
                      struct activations a);
struct part part_quantize(struct builder *b, const struct rows *x, struct activations a);
struct part part_attention(struct builder *b, int layer);
/* out_at: first column of the heads in out. */
struct part part_fold(struct builder *b, const struct rows *out, int64_t out_at, int n_heads);
/* parts: (n_parts) addresses of sums, strides as out. */
struct part part_reduce(struct builder *b, const void *const *parts, int n_parts,
                        const struct rows *out);
/* Row-owned: after a matmul whose floats lie from column `at` of rows `rows_at` (an offset in struct
 * node_buffers) of the own node: to the same place on all other nodes. divisor: packed rows a float. */
void part_scatter(struct builder *b, struct part *part, size_t rows_at, int64_t at, int divisor);

/* Memory for the lists themselves. NULL sets is_out_of_memory. */
void *builder_take(struct builder *b, int64_t n, size_t size);

/* Steps that both dataflows have. */
void build_qkv(struct builder *b, int layer);
/* By chunks: partial results, still to be folded. Otherwise the floats of the own heads. */
void build_attention(struct builder *b, int layer, enum sync sync);
void build_gate_up(struct builder *b, int layer, enum sync sync);
/* Prepares activations of w from rows times gain (NULL: none); *a gets them. */
void build_quantize(struct builder *b, int layer, enum act_purpose purpose,
                    const struct weight_slice *w, const struct rows *rows, const float *gain,
                    const float *const *peaks, int n_peaks, struct activations *a);

/* A norm before O or down (bitnet): its gain is multiplied in with the activations and its factor with
 * the products, because the inputs of a token may lie on several nodes. */
struct part part_squares(struct builder *b, const struct rows *x, const struct rows *squares,
                         int64_t block0);
/* The factor of each token from the squares of all its n_cols inputs. */
const float *build_norm_factor(struct builder *b, int layer, const struct rows *squares,
                               int64_t n_cols);
/* The same where x has all inputs. */
const float *build_own_norm_factor(struct builder *b, int layer, const struct rows *x);

void build_column_layer(struct builder *b, int layer);
void build_row_layer(struct builder *b, int layer);

/* Builds all programs of a plan whose slices are made. */
enum status plan_build(struct plan *plan, struct space *spaces, struct shared_buffers *shared,
                       struct node_buffers *buffers, struct error *err);

#endif
