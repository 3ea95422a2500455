/* Texts numbered in the order they are added, found by content; and numbers found by a pair of
 * numbers. The hash tables of the tokenizer. */
#ifndef TRINE_TOKENIZER_TEXT_TABLE_H
#define TRINE_TOKENIZER_TEXT_TABLE_H

#include "base/text.h"

#define NO_ID UINT32_MAX

struct text_slot {
    uint32_t hash, id; /* id NO_ID: empty */
};

/* A zeroed table is empty and valid. */
struct text_table {
    struct text_slot *slots; /* owned; a power of two */
    size_t n_slots;
    struct text *texts; /* owned array; the bytes are borrowed */
    uint32_t n, size;
};

/* Room for n texts in all, so that adding them allocates no more. False: no memory. */
bool text_table_reserve(struct text_table *table, uint32_t n);

/* Adds a text under the next number, which goes to *id (may be NULL). Of equal texts the last one
 * added is found. False: no memory. */
bool text_table_add(struct text_table *table, struct text text, uint32_t *id);

/* The number of a text, or NO_ID. */
uint32_t text_table_find(const struct text_table *table, struct text text);

void text_table_done(struct text_table *table);

struct pair_slot {
    uint64_t key;
    uint32_t value; /* NO_ID: empty */
};

/* Fixed capacity. A zeroed map is empty; nothing can be added to it. */
struct pair_map {
    struct pair_slot *slots; /* owned; a power of two */
    size_t n_slots;
};

/* Room for n keys. False: no memory. */
bool pair_map_init(struct pair_map *map, size_t n);
void pair_map_done(struct pair_map *map);

/* The slot of this key, or the empty slot where it belongs. */
struct pair_slot *pair_map_slot(const struct pair_map *map, uint64_t key);

/* The value of the pair, or NO_ID. */
static inline uint32_t pair_map_find(const struct pair_map *map, uint32_t first, uint32_t second)
{
    return map->n_slots ? pair_map_slot(map, (uint64_t)first << 32 | second)->value : NO_ID;
}

/* Adds the pair unless it is there. */
static inline void pair_map_add(struct pair_map *map, uint32_t first, uint32_t second,
                                uint32_t value)
{
    struct pair_slot *slot = pair_map_slot(map, (uint64_t)first << 32 | second);
    if (slot->value == NO_ID) {
        slot->key = (uint64_t)first << 32 | second;
        slot->value = value;
    }
}

#endif
