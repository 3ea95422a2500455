/* The KV cache: pages of KV_PAGE positions, in the memory of the nodes that read them. A slot is a page
 * of every layer (and of every node that has KV heads); sessions hold slots and could share them. */
#ifndef TRINE_ENGINE_KV_CACHE_H
#define TRINE_ENGINE_KV_CACHE_H

#include "engine/plan.h"
#include "machine/node_memory.h"

struct kv_cache {
    const struct plan *plan; /* borrowed */
    uint8_t **base;          /* owned: arena; (n_nodes) borrowed memory: (n_layer, n_slots) pages */
    int *free_slots;         /* owned: arena; stacks: (n_pools, n_slots) */
    int *n_free;             /* owned: arena; (n_pools) */
    int n_pools;             /* 1; with row-attention by position one per node */
    struct arena arena;
};

/* Page list of one sequence. */
struct kv_pages {
    int n_pages;
    int *slots;      /* owned; (n_pages) */
    uint8_t **pages; /* owned; (n_nodes, n_layer, n_pages) */
};

/* Takes its memory from the arenas, one per node, which have room for plan->sizes[node].kv.
 * errors  MEMORY */
enum status kv_cache_open(struct kv_cache *cache, const struct plan *plan,
                          struct node_arena *const *arenas, struct error *err);
void kv_cache_close(struct kv_cache *cache);

/* Slots for n_ctx positions.
 * errors  LIMIT: all are taken; MEMORY */
enum status kv_pages_open(struct kv_pages *pages, struct kv_cache *cache, int n_ctx,
                          struct error *err);
void kv_pages_close(struct kv_pages *pages, struct kv_cache *cache);

/* The pages of a node and layer in order of positions. */
static inline uint8_t *const *kv_pages_of(const struct kv_pages *pages, int n_layer, int node,
                                          int layer)
{
    return pages->pages + ((int64_t)node * n_layer + layer) * pages->n_pages;
}

#endif
