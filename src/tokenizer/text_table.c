#include "tokenizer/text_table.h"

#include "base/memory.h"

/* Smallest power of two that keeps n entries at two thirds of the slots or fewer. */
static size_t slots_for(size_t n)
{
    size_t slots = 16;
    while (slots / 3 * 2 < n)
        slots *= 2;
    return slots;
}

static uint32_t short_hash(struct text text)
{
    uint64_t hash = text_hash(text);
    return (uint32_t)(hash ^ hash >> 32);
}

static struct text_slot *find_slot(const struct text_table *table, struct text text, uint32_t hash)
{
    size_t mask = table->n_slots - 1;
    size_t at = hash & mask;
    for (;; at = (at + 1) & mask) {
        struct text_slot *slot = &table->slots[at];
        if (slot->id == NO_ID)
            return slot;
        if (slot->hash == hash && text_equal(table->texts[slot->id], text))
            return slot;
    }
}

/* Replaces the slots by n_slots new ones. The old ones hold each text once. */
static bool rehash(struct text_table *table, size_t n_slots)
{
    struct text_slot *slots = memory_alloc(n_slots, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < n_slots; i++)
        slots[i].id = NO_ID;
    for (size_t i = 0; i < table->n_slots; i++) {
        struct text_slot old = table->slots[i];
        if (old.id == NO_ID)
            continue;
        size_t at = old.hash & (n_slots - 1);
        while (slots[at].id != NO_ID)
            at = (at + 1) & (n_slots - 1);
        slots[at] = old;
    }
    memory_free(table->slots);
    table->slots = slots;
    table->n_slots = n_slots;
    return true;
}

bool text_table_reserve(struct text_table *table, uint32_t n)
{
    if (n > table->size) {
        struct text *texts = memory_resize(table->texts, n, sizeof *texts);
        if (!texts)
            return false;
        table->texts = texts;
        table->size = n;
    }
    size_t n_slots = slots_for(n);
    return n_slots <= table->n_slots || rehash(table, n_slots);
}

bool text_table_add(struct text_table *table, struct text text, uint32_t *id)
{
    if (table->n == table->size) {
        if (table->n > UINT32_MAX / 2 - 16 || !text_table_reserve(table, table->n * 2 + 16))
            return false;
    }
    uint32_t hash = short_hash(text);
    struct text_slot *slot = find_slot(table, text, hash);
    *slot = (struct text_slot){hash, table->n};
    table->texts[table->n] = text;
    if (id)
        *id = table->n;
    table->n++;
    return true;
}

uint32_t text_table_find(const struct text_table *table, struct text text)
{
    return table->n_slots ? find_slot(table, text, short_hash(text))->id : NO_ID;
}

void text_table_done(struct text_table *table)
{
    memory_free(table->slots);
    memory_free(table->texts);
    *table = (struct text_table){0};
}

bool pair_map_init(struct pair_map *map, size_t n)
{
    size_t n_slots = slots_for(n);
    map->slots = memory_alloc(n_slots, sizeof *map->slots);
    if (!map->slots)
        return false;
    map->n_slots = n_slots;
    for (size_t i = 0; i < n_slots; i++)
        map->slots[i].value = NO_ID;
    return true;
}

void pair_map_done(struct pair_map *map)
{
    memory_free(map->slots);
    *map = (struct pair_map){0};
}

struct pair_slot *pair_map_slot(const struct pair_map *map, uint64_t key)
{
    size_t mask = map->n_slots - 1;
    size_t at = (size_t)number_hash(key) & mask;
    while (map->slots[at].value != NO_ID && map->slots[at].key != key)
        at = (at + 1) & mask;
    return &map->slots[at];
}
