#include "base/memory.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)1 << 16)
#define ALIGNMENT   ((size_t)64)

struct arena_chunk {
    struct arena_chunk *next;
    unsigned char *block; /* owned */
    unsigned char *bytes; /* its first aligned byte */
};

static _Atomic long allocations_left = -1;

void memory_fail_after(long count)
{
    allocations_left = count;
}

/* Counts one allocation; false when this one is to fail. */
static bool may_allocate(void)
{
    long left = allocations_left;
    while (left > 0 && !atomic_compare_exchange_weak(&allocations_left, &left, left - 1))
        ;
    return left != 0;
}

void *memory_alloc(size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes) || !may_allocate())
        return NULL;
    return calloc(1, bytes ? bytes : 1);
}

void *memory_resize(void *block, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes) || !may_allocate())
        return NULL;
    return realloc(block, bytes ? bytes : 1);
}

void memory_free(void *block)
{
    free(block);
}

static bool add_chunk(struct arena *arena, size_t bytes)
{
    struct arena_chunk *chunk = memory_alloc(1, sizeof *chunk);
    if (!chunk)
        return false;
    chunk->block = memory_alloc(bytes + ALIGNMENT, 1); /* large ones stay untouched zero pages */
    if (!chunk->block) {
        memory_free(chunk);
        return false;
    }
    chunk->bytes = chunk->block + (-(uintptr_t)chunk->block & (ALIGNMENT - 1));
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->used = 0;
    arena->size = bytes;
    return true;
}

void *arena_alloc(struct arena *arena, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX - 2 * ALIGNMENT)
        return NULL;
    bytes = (bytes + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
    if (bytes == 0)
        bytes = ALIGNMENT;
    if (arena->size - arena->used < bytes &&
        !add_chunk(arena, bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES))
        return NULL;
    void *block = arena->chunks->bytes + arena->used;
    arena->used += bytes;
    arena->total += bytes;
    return block;
}

char *arena_text(struct arena *arena, const char *text, size_t n)
{
    char *copy = arena_alloc(arena, n + 1, 1);
    if (copy && n)
        memcpy(copy, text, n);
    return copy;
}

void arena_done(struct arena *arena)
{
    while (arena->chunks) {
        struct arena_chunk *chunk = arena->chunks;
        arena->chunks = chunk->next;
        memory_free(chunk->block);
        memory_free(chunk);
    }
    *arena = (struct arena){0};
}

enum status fail_memory(struct error *err, const char *what, size_t bytes)
{
    return fail(err, STATUS_MEMORY,
                "%s: cannot allocate %zu bytes; free memory or use a smaller one", what, bytes);
}
