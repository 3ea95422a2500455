#include "gguf/gguf_index.h"

#include <string.h>

struct slot {
    uint64_t hash;
    size_t position; /* of the item, plus one; 0 = free */
};

struct gguf_index {
    const uint8_t *items; /* borrowed */
    size_t stride;
    size_t mask;        /* number of slots - 1; at most half of them are used */
    struct slot *slots; /* owned: arena */
};

static const struct text *item_name(const struct gguf_index *index, size_t position)
{
    return (const struct text *)(const void *)(index->items + position * index->stride);
}

/* The slot that holds the name, or the free one where it belongs. */
static struct slot *find_slot(const struct gguf_index *index, struct text name, uint64_t hash)
{
    for (size_t i = (size_t)hash & index->mask;; i = (i + 1) & index->mask) {
        struct slot *slot = &index->slots[i];
        if (slot->position == 0)
            return slot;
        if (slot->hash == hash && text_equal(*item_name(index, slot->position - 1), name))
            return slot;
    }
}

struct gguf_index *gguf_index_build(struct arena *arena, const void *items, size_t n, size_t stride,
                                    size_t *duplicate)
{
    struct gguf_index *index = arena_alloc(arena, 1, sizeof *index);
    size_t n_slots = 4;
    while (n_slots / 2 < n)
        n_slots *= 2;
    struct slot *slots = arena_alloc(arena, n_slots, sizeof *slots);
    if (!index || !slots)
        return NULL;
    *index = (struct gguf_index){items, stride, n_slots - 1, slots};
    for (*duplicate = 0; *duplicate < n; ++*duplicate) {
        struct text name = *item_name(index, *duplicate);
        uint64_t hash = text_hash(name);
        struct slot *slot = find_slot(index, name, hash);
        if (slot->position)
            break;
        *slot = (struct slot){hash, *duplicate + 1};
    }
    return index;
}

const void *gguf_index_find(const struct gguf_index *index, struct text name)
{
    if (!index)
        return NULL;
    const struct slot *slot = find_slot(index, name, text_hash(name));
    return slot->position ? item_name(index, slot->position - 1) : NULL;
}
