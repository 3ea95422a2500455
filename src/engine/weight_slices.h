/* The weights of a model as the nodes hold them: which rows and inputs of which matrix, in which
 * packing. Data until placement_fill (placement.h) fills the memory. */
#ifndef TRINE_ENGINE_WEIGHT_SLICES_H
#define TRINE_ENGINE_WEIGHT_SLICES_H

#include "engine/cut.h"
#include "engine/engine_options.h"
#include "machine/thread_team.h"
#include "model/model_load.h"

/* y = scale * (W x) + bias for a part of a matrix. */
struct weight_slice {
    const char *role;               /* "attn_q": for messages and prints */
    struct packed w;                /* data: borrowed from the node's arena */
    const struct tensor *source[2]; /* two: rows interleaved */
    int n_sources;
    const int32_t *row_of;    /* owned: arena; row of the source for each packed row of one source;
                              NULL: the same number */
    int64_t col0;             /* first input */
    bool has_code3;           /* trits: with +2, so that only trits4 holds them */
    float scale[2];           /* of even and odd packed rows: of the sources */
    const float *bias;        /* owned: arena; in packed order, or NULL */
    enum format_id converted; /* to this format before it is packed; N_FORMATS: as it is */
    float *group_row_scale; /* owned: arena; --act-scale group: (n_rows, to a whole tile) scales of
                               the rows, whose groups then have scale 1; else NULL */
    float *row_scale; /* owned: arena; (n_rows) of a slice that is summed as integers, else NULL */
};

struct layer_slices {
    struct weight_slice q, k, v, o, gate_up, down;
};

struct node_slices {
    struct layer_slices *layers; /* owned: arena */
    struct weight_slice output;
    struct weight_slice **slices; /* owned: arena; all of these, in the order of a token */
    int n_slices;
    uint64_t bytes; /* of packed weights */
};

struct weight_slices {
    struct cut cut;
    struct node_slices *nodes; /* owned: arena; (n_nodes) */
    struct arena arena;
};

/* Chooses packings (reads scales of ternary tensors, and values that may be ternary) and boundaries. weights: threads of
 * each node. team: reads them together; NULL: the caller alone.
 * errors  MEMORY; UNSUPPORTED for a model that the engine cannot run */
enum status weight_slices_make(struct weight_slices *slices, const struct model *model,
                               const struct engine_options *options, enum dataflow dataflow,
                               int n_nodes, const int *weights, struct thread_team *team,
                               struct error *err);
void weight_slices_done(struct weight_slices *slices);

/* Packed bytes of a slice as its arena takes them. */
uint64_t weight_slice_bytes(const struct weight_slice *slice);
/* Those of a node if trits4 were in the place of trits5. */
uint64_t node_slices_trits4_bytes(const struct node_slices *own);
/* Whether there is a matrix that both trits4 and trits5 can hold. */
bool weight_slices_have_both_trits(const struct weight_slices *slices);

#endif
