/* What a user may choose about a run, apart from the model; one row each in the option table. The
 * defaults, which a zeroed struct has where 0 is a sensible number, are the fastest known. */
#ifndef TRINE_ENGINE_ENGINE_OPTIONS_H
#define TRINE_ENGINE_ENGINE_OPTIONS_H

#include <stdbool.h>

#include "base/isa.h"
#include "kernels/kernels.h"

/* COLUMN: O and down are split by inputs, every node makes partial sums of the whole vector; 2 global
 * barriers a layer. ROW: every matrix is split by outputs, which are scattered to all nodes; 4, or 5
 * with attention by position. */
enum dataflow { DATAFLOW_AUTO, DATAFLOW_COLUMN, DATAFLOW_ROW };

/* Who prepares the int8 activations of a stage. EACH: every thread for itself, without a barrier.
 * LEADER: the first thread of the node, while the others wait. SPLIT: the node's threads, by tokens.
 * AUTO: EACH for few tokens, SPLIT for many. */
enum quantise { QUANTISE_AUTO, QUANTISE_EACH, QUANTISE_LEADER, QUANTISE_SPLIT };

/* Of activations that meet weights with one scale per row: one scale per token and node (finer;
 * column-split only differs), one per token, or one per 256 inputs (128 or 64 where they are no multiple). */
enum act_scale { ACT_SCALE_NODE, ACT_SCALE_TOKEN, ACT_SCALE_GROUP };

/* LOCAL: on the node that reads it. ONE_NODE: all on the first. */
enum placement { PLACEMENT_LOCAL, PLACEMENT_INTERLEAVE, PLACEMENT_ONE_NODE };

/* Row-owned only: which node computes the attention over a position: the one whose heads they are, or
 * the one that holds the page. */
enum row_attention { ROW_ATTENTION_HEAD, ROW_ATTENTION_POSITION };

/* Row-owned only: each thread writes its rows to every node, or each node copies what it lacks. */
enum row_scatter { ROW_SCATTER_DIRECT, ROW_SCATTER_COPY };

/* How ternary weights are packed where both packings hold them: the faster here, or one of the two. */
enum trits { TRITS_AUTO, TRITS_4, TRITS_5 };

/* The type of the output matrix in memory: the file's, or one that it is converted to at load. */
#define HEAD_TYPE_LIST(X)                                                                          \
    X(KEEP, N_FORMATS, none)                                                                       \
    X(Q8_0, FORMAT_Q8_0, q8_0)                                                                     \
    X(Q6_K, FORMAT_Q6_K, q6_k)                                                                     \
    X(Q4_K, FORMAT_Q4_K, q4_k)                                                                     \
    X(Q4_0, FORMAT_Q4_0, q4_0)
#define HEAD_TYPE_ENUM(name, format, packing) HEAD_##name,
enum head_type { HEAD_TYPE_LIST(HEAD_TYPE_ENUM) N_HEAD_TYPES };
#undef HEAD_TYPE_ENUM

#define ENGINE_MAX_BATCH   512  /* columns of one forward pass */
#define ENGINE_DEFAULT_CTX 4096 /* the most that is taken without being asked for */

/* Called by the first thread now and then while weights are packed: bytes done, of all. */
typedef void engine_progress(void *context, uint64_t n_done, uint64_t n_all);

struct engine_options {
    int n_threads;        /* 0: one per usable core */
    int n_nodes;          /* 0: those of the machine; more are virtual */
    int n_threads_a_node; /* 0: evenly */
    enum isa isa;         /* cap; the caller has compared it with the machine */
    bool is_unpinned;

    int n_ctx; /* positions of a session; 0: that of the training, at most 4096 and what fits */
    int n_sessions; /* that can be open at once; 0: 1 */
    int n_batch;    /* most columns of a pass; 0: ENGINE_MAX_BATCH */
    int n_logits;   /* most columns of a pass whose logits are wanted; 0: n_sessions */
    enum kv_format kv_format;
    uint64_t memory_bytes; /* that everything may take; 0: what is free on this machine */
    enum head_type head;
    enum trits trits;

    enum dataflow dataflow;
    bool is_flat_barrier;
    bool is_static_rows;
    enum quantise quantise;
    enum act_scale act_scale;
    bool is_attention_whole; /* a head's cache is walked by one thread */
    enum placement kv_placement, weights_placement;
    int n_extra_barriers;    /* empty global barriers a layer */
    int n_promoted_barriers; /* node barriers a layer that become global */
    int prefetch_wait_kib;   /* of the next weights, into L2, before waiting; 0: none */
    enum row_scatter row_scatter;
    enum row_attention row_attention;
};

#endif
