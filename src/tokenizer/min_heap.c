#include "tokenizer/min_heap.h"

#include <assert.h>

#include "base/memory.h"

bool min_heap_append(struct min_heap *heap, uint64_t key)
{
    if (heap->n == heap->size) {
        size_t size = heap->size * 2 + 64;
        uint64_t *keys = memory_resize(heap->keys, size, sizeof *keys);
        if (!keys)
            return false;
        heap->keys = keys;
        heap->size = size;
    }
    heap->keys[heap->n++] = key;
    return true;
}

/* Moves the key at index down to where it belongs. */
static void sink(struct min_heap *heap, size_t at)
{
    uint64_t *keys = heap->keys, key = keys[at];
    for (size_t child; (child = 2 * at + 1) < heap->n; at = child) {
        if (child + 1 < heap->n && keys[child + 1] < keys[child])
            child++;
        if (key <= keys[child])
            break;
        keys[at] = keys[child];
    }
    keys[at] = key;
}

void min_heap_order(struct min_heap *heap)
{
    for (size_t i = heap->n / 2; i-- > 0;)
        sink(heap, i);
}

bool min_heap_push(struct min_heap *heap, uint64_t key)
{
    if (!min_heap_append(heap, key))
        return false;
    size_t at = heap->n - 1;
    while (at > 0 && heap->keys[(at - 1) / 2] > key) {
        heap->keys[at] = heap->keys[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->keys[at] = key;
    return true;
}

uint64_t min_heap_pop(struct min_heap *heap)
{
    assert(heap->n > 0);
    uint64_t key = heap->keys[0];
    heap->keys[0] = heap->keys[--heap->n];
    if (heap->n)
        sink(heap, 0);
    return key;
}

void min_heap_done(struct min_heap *heap)
{
    memory_free(heap->keys);
    *heap = (struct min_heap){0};
}
