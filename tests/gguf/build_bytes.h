/* Hand-made GGUF headers, also wrong ones, for the tests of this folder. */
#ifndef TRINE_TESTS_GGUF_BUILD_BYTES_H
#define TRINE_TESTS_GGUF_BUILD_BYTES_H

#include <stdlib.h>

#include "../support.h"
#include "base/reader.h"
#include "gguf/gguf_read.h"

struct bytes {
    uint8_t *data; /* owned */
    size_t n;
};

static inline uint8_t *put_room(struct bytes *b, size_t n)
{
    b->data = realloc(b->data, b->n + n + 1);
    assert_non_null(b->data);
    memset(b->data + b->n, 0, n);
    b->n += n;
    return b->data + b->n - n;
}

static inline void put_u32(struct bytes *b, uint32_t v)
{
    store_u32(put_room(b, 4), v);
}

static inline void put_u64(struct bytes *b, uint64_t v)
{
    store_u64(put_room(b, 8), v);
}

static inline void put_text(struct bytes *b, const char *text, size_t n)
{
    put_u64(b, n);
    memcpy(put_room(b, n), text, n);
}

static inline void put_head(struct bytes *b, uint32_t version, uint64_t n_tensors, uint64_t n_pairs)
{
    memcpy(put_room(b, 4), "GGUF", 4);
    put_u32(b, version);
    put_u64(b, n_tensors);
    put_u64(b, n_pairs);
}

static inline void put_key(struct bytes *b, const char *key, uint32_t type)
{
    put_text(b, key, strlen(key));
    put_u32(b, type);
}

static inline void put_array(struct bytes *b, const char *key, uint32_t element, uint64_t count)
{
    put_key(b, key, GGUF_ARRAY);
    put_u32(b, element);
    put_u64(b, count);
}

static inline void put_info(struct bytes *b, const char *name, uint32_t n_dims, const uint64_t *ne,
                            uint32_t type_id, uint64_t offset)
{
    put_text(b, name, strlen(name));
    put_u32(b, n_dims);
    for (uint32_t i = 0; i < n_dims && i < 8; i++)
        put_u64(b, ne[i]);
    put_u32(b, type_id);
    put_u64(b, offset);
}

static inline void put_padding(struct bytes *b, size_t alignment)
{
    put_room(b, (size_t)(-b->n % alignment));
}

static inline void drop(struct bytes *b)
{
    free(b->data);
    *b = (struct bytes){0};
}

#endif
