/* Binary heap of 64-bit keys, smallest first. */
#ifndef TRINE_TOKENIZER_MIN_HEAP_H
#define TRINE_TOKENIZER_MIN_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A zeroed heap is empty and valid. */
struct min_heap {
    uint64_t *keys; /* owned */
    size_t n, size;
};

/* Puts a key at the end without regard to order; call min_heap_order before the next pop.
 * False: no memory. */
bool min_heap_append(struct min_heap *heap, uint64_t key);
void min_heap_order(struct min_heap *heap);

/* False: no memory. */
bool min_heap_push(struct min_heap *heap, uint64_t key);

/* Takes the smallest key; the heap must not be empty. */
uint64_t min_heap_pop(struct min_heap *heap);

void min_heap_done(struct min_heap *heap);

#endif
