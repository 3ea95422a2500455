/* Hash table from names to the records of a GGUF header, built once. Names come from strangers, so
 * the hash is keyed by a random number: nobody can choose names that make it slow. */
#ifndef TRINE_GGUF_GGUF_INDEX_H
#define TRINE_GGUF_GGUF_INDEX_H

#include "base/memory.h"
#include "base/text.h"

struct gguf_index;

/* Table over n items of `stride` bytes; each begins with its name, a struct text. *duplicate gets
 * the position of the first item whose name an earlier one has, or n. NULL when there is no memory.
 * Owned by the arena; items are borrowed. */
struct gguf_index *gguf_index_build(struct arena *arena, const void *items, size_t n, size_t stride,
                                    size_t *duplicate);

/* The item of that name, or NULL; index may be NULL. */
const void *gguf_index_find(const struct gguf_index *index, struct text name);

#endif
