/* How a model is divided over nodes. A cut is a list of boundaries, one more than nodes: node n has
 * [at[n], at[n + 1]), which may be empty. No divisibility is asked of a model. */
#ifndef TRINE_ENGINE_CUT_H
#define TRINE_ENGINE_CUT_H

#include "base/memory.h"

/* n units over nodes as evenly as multiples of `multiple` allow; the last boundary is n. weights:
 * (n_nodes) the share of each, threads say. at: (n_nodes + 1). */
void cut_even(int64_t n, int64_t multiple, const int *weights, int n_nodes, int64_t *at);

/* Boundaries of everything that is divided. */
struct cut {
    int n_nodes;
    int64_t *heads; /* query heads */
    int64_t *ff;    /* rows of gate and up, inputs of down */
    int64_t *embd;  /* row-owned: rows of O and down */
    int64_t *vocab; /* rows of the output matrix */
};

/* The KV heads that a node's query heads read: [kv0, kv1), one that two nodes need belongs to both.
 * first: how many query heads of kv0 belong to nodes before. */
struct kv_range {
    int kv0, kv1, first;
};
struct kv_range cut_kv_range(const struct cut *cut, int node, int n_head, int n_head_kv);
/* Those of which the first query head is the node's: no KV head belongs to two nodes. */
struct kv_range cut_kv_own(const struct cut *cut, int node, int n_head, int n_head_kv);

#endif
