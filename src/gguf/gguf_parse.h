/* Reads the header of one GGUF file record by record. Every number is checked against the bytes
 * that are left before it is used, and nothing is allocated: a caller walks the header once to
 * learn that it is whole, and only then reserves memory and walks it again. */
#ifndef TRINE_GGUF_GGUF_PARSE_H
#define TRINE_GGUF_GGUF_PARSE_H

#include "base/reader.h"
#include "gguf/gguf_read.h"

enum { GGUF_DEFAULT_ALIGNMENT = 32, GGUF_MAX_KEY = 65535, GGUF_MAX_NAME = 64 };

/* A place in a header. Copy it to come back to that place. */
struct gguf_cursor {
    struct reader reader;
    const char *path; /* borrowed: for messages */
    uint32_t version;
    uint32_t alignment;          /* set by the caller before the first tensor record is read */
    uint64_t n_pairs, n_tensors; /* as counted in the header */
    uint64_t pair, tensor;       /* number of the record read last, from 1 */
};

/* Magic, version, counts; the cursor then stands at the first pair.
 * errors  FORMAT, UNSUPPORTED (version 1, a newer one, big-endian) */
enum status gguf_parse_start(struct gguf_cursor *cursor, const void *bytes, size_t size,
                             const char *path, struct error *err);

/* The next pair. errors: FORMAT, UNSUPPORTED (array of arrays) */
enum status gguf_parse_pair(struct gguf_cursor *cursor, struct gguf_pair *pair, struct error *err);

/* The next tensor record: name, shape, type id, offset. errors: FORMAT */
enum status gguf_parse_tensor(struct gguf_cursor *cursor, struct gguf_tensor *tensor,
                              struct error *err);

/* True for a power of two from 8 to 65536. */
bool gguf_is_alignment(uint64_t alignment);

/* Refuses bytes that do not begin with the magic and says what they seem to be. errors: FORMAT */
enum status gguf_refuse_foreign(const uint8_t *bytes, size_t size, const char *path,
                                struct error *err);

#endif
