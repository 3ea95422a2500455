/* A plan for people: what every node does in each step of a batch, and what it takes. Layers that
 * are alike are said once. */
#ifndef TRINE_ENGINE_PLAN_PRINT_H
#define TRINE_ENGINE_PLAN_PRINT_H

#include <stdio.h>

#include "engine/plan.h"

/* Whose memory a step reads its input from, and writes its output to. */
enum reach { REACH_OWN, REACH_FIRST, REACH_ALL };

/* One step of one node. */
struct plan_row {
    enum step_kind kind;
    int layer; /* -1: none */
    enum sync sync;
    bool is_leader;
    int n_rows;       /* outputs of its matrices; 0: it has none */
    int n_units;      /* that the node's threads divide */
    int grain;        /* rows of a unit, of the first part */
    uint64_t bytes;   /* of weights */
    char kernels[96]; /* of its units */
    char each[64];    /* ops that every thread does for itself before */
    enum reach reads, writes;
};

/* Steps that come n_layers times one after the other. */
struct plan_stretch {
    int layer; /* of the first; -1: outside of layers */
    int n_layers;
    int step0, n_steps; /* of the first layer */
};

struct plan_listing {
    const struct plan *plan; /* borrowed; fitted to the batch */
    int n_tokens;
    int n_stretches;
    struct plan_stretch *stretches; /* owned */
};

/* Lists a batch of n_tokens (at most PLAN_FEW_TOKENS) of one sequence, the first of its context. The
 * plan need not have memory. Not while a batch runs.
 * errors  MEMORY */
enum status plan_listing_make(struct plan_listing *listing, const struct plan *plan, int n_tokens,
                              struct error *err);
void plan_listing_done(struct plan_listing *listing);

struct plan_row plan_row(const struct plan_listing *listing, int node, int step);

/* What a batch takes of one node. Every node waits at the same global barriers. */
struct plan_totals {
    int n_steps, n_node_syncs, n_global_syncs;
    uint64_t bytes;             /* of weights that are read */
    uint64_t kv_position_bytes; /* of the cache, for each position that is looked at */
};
struct plan_totals plan_totals(const struct plan_listing *listing, int node);

/* The one that has the most layers. */
const struct plan_stretch *plan_main_stretch(const struct plan_listing *listing);

/* Where a plan alone has trits5 and a timing at load may choose trits4: what the weights of all nodes take
 * then. 0: nothing is left to be chosen. */
uint64_t plan_trits4_bytes(const struct plan *plan);
/* The same as a sentence without newline; empty. */
void plan_describe_trits(const struct plan *plan, char *text, size_t size);

/* "matmul_trits4_avx512, ...": what multiplies the packings of all weights. */
void plan_kernel_names(const struct plan *plan, char *list, size_t size);

const char *sync_name(enum sync sync);

void plan_print_text(FILE *out, const struct plan_listing *listing);

/* One layer as a picture: a column for each node (8 at most), a box for each step, what it leaves in
 * which node's memory, and barriers. */
void plan_print_svg(FILE *out, const struct plan_listing *listing);

#endif
