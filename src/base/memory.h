/* Allocation of everything that is not on the stack. Two forms: single blocks, which the owner
 * frees, and arenas, which live and die as a whole. Both can be told to fail, so that a test can
 * walk through every out-of-memory path. */
#ifndef TRINE_BASE_MEMORY_H
#define TRINE_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* n * size bytes, zeroed; NULL when there is no memory or the product overflows. Never NULL for
 * zero bytes. Free with memory_free. */
void *memory_alloc(size_t n, size_t size);

/* As realloc, but of n * size bytes with an overflow check. New bytes are not zeroed. */
void *memory_resize(void *block, size_t n, size_t size);

void memory_free(void *block);

/* Makes the allocation after `count` successful ones fail, and all that follow; a negative count
 * (the default) never fails. For tests. */
void memory_fail_after(long count);

/* Bump allocator. All blocks are freed together by arena_done. A zeroed arena is empty and valid.
 */
struct arena {
    struct arena_chunk *chunks; /* owned, newest first */
    size_t used, size;          /* bytes of the newest chunk */
    size_t total;               /* bytes handed out, for reports */
};

/* n * size zeroed bytes, aligned to 64; NULL when there is no memory. Owned by the arena. */
void *arena_alloc(struct arena *arena, size_t n, size_t size);

/* The n bytes of text copied and terminated; NULL when there is no memory. */
char *arena_text(struct arena *arena, const char *text, size_t n);

void arena_done(struct arena *arena);

/* The failure that follows a NULL from above: "what: cannot allocate N bytes". */
enum status fail_memory(struct error *err, const char *what, size_t bytes);

#endif
