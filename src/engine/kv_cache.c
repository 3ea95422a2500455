#include "engine/kv_cache.h"

enum status kv_cache_open(struct kv_cache *cache, const struct plan *plan,
                          struct node_arena *const *arenas, struct error *err)
{
    int n_nodes = plan->layout->n_nodes, n_slots = plan->n_slots;
    *cache = (struct kv_cache){.plan = plan};
    cache->n_pools = plan_is_by_position(plan) ? n_nodes : 1;
    cache->base = arena_alloc(&cache->arena, (size_t)n_nodes, sizeof *cache->base);
    cache->n_free = arena_alloc(&cache->arena, (size_t)cache->n_pools, sizeof *cache->n_free);
    cache->free_slots = arena_alloc(&cache->arena, (size_t)cache->n_pools * (size_t)n_slots,
                                    sizeof *cache->free_slots);
    if (!cache->base || !cache->n_free || !cache->free_slots) {
        arena_done(&cache->arena);
        return fail_memory(err, "KV cache", (size_t)n_slots * sizeof(int));
    }
    for (int node = 0; node < n_nodes; node++)
        cache->base[node] = node_arena_take(arenas[node], plan->sizes[node].kv);
    for (int pool = 0; pool < cache->n_pools; pool++) {
        cache->n_free[pool] = n_slots;
        for (int i = 0; i < n_slots; i++)
            cache->free_slots[pool * n_slots + i] = n_slots - 1 - i;
    }
    return STATUS_OK;
}

void kv_cache_close(struct kv_cache *cache)
{
    arena_done(&cache->arena);
    *cache = (struct kv_cache){0};
}

/* Address of a slot's page of a layer on the node that holds it. */
static uint8_t *page_at(const struct kv_cache *cache, int node, int layer, int slot)
{
    int64_t page = (int64_t)layer * cache->plan->n_slots + slot;
    return cache->base[node] + page * cache->plan->pages[node].bytes;
}

static void list_page(const struct kv_cache *cache, struct kv_pages *pages, int i)
{
    int n_layer = cache->plan->model->config.n_layer, n_nodes = cache->plan->layout->n_nodes;
    for (int node = 0; node < n_nodes; node++) {
        int holder = cache->n_pools > 1 ? i % n_nodes : node;
        for (int layer = 0; layer < n_layer; layer++)
            pages->pages[((int64_t)node * n_layer + layer) * pages->n_pages + i] =
                page_at(cache, holder, layer, pages->slots[i]);
    }
}

enum status kv_pages_open(struct kv_pages *pages, struct kv_cache *cache, int n_ctx,
                          struct error *err)
{
    int n_layer = cache->plan->model->config.n_layer, n_nodes = cache->plan->layout->n_nodes;
    int n = (n_ctx + KV_PAGE - 1) / KV_PAGE;
    size_t n_addresses = (size_t)n_nodes * (size_t)n_layer * (size_t)n;
    *pages = (struct kv_pages){.slots = memory_alloc((size_t)n, sizeof *pages->slots)};
    pages->pages = memory_alloc(n_addresses, sizeof *pages->pages);
    if (!pages->slots || !pages->pages) {
        kv_pages_close(pages, cache);
        return fail_memory(err, "session", n_addresses * sizeof *pages->pages);
    }
    pages->n_pages = n;
    for (int i = 0; i < n; i++)
        pages->slots[i] = -1;
    for (int i = 0; i < n; i++) {
        int pool = cache->n_pools > 1 ? i % cache->n_pools : 0;
        if (cache->n_free[pool] == 0) {
            kv_pages_close(pages, cache);
            return fail(err, STATUS_LIMIT,
                        "the KV cache is taken: it was planned for %d sequences at once",
                        cache->plan->options.n_sessions);
        }
        pages->slots[i] = cache->free_slots[pool * cache->plan->n_slots + --cache->n_free[pool]];
        list_page(cache, pages, i);
    }
    return STATUS_OK;
}

void kv_pages_close(struct kv_pages *pages, struct kv_cache *cache)
{
    for (int i = 0; i < pages->n_pages && pages->slots[i] >= 0; i++) {
        int pool = cache->n_pools > 1 ? i % cache->n_pools : 0;
        cache->free_slots[pool * cache->plan->n_slots + cache->n_free[pool]++] = pages->slots[i];
    }
    memory_free(pages->slots);
    memory_free(pages->pages);
    *pages = (struct kv_pages){0};
}
