/* Reads GGUF files, versions 2 and 3, whole or split. Knows the container and nothing of what the
 * numbers mean: the size of a tensor's data comes from the caller's span_rule.
 * The file is mapped read-only; every view points into the mapping and lives until gguf_close. As
 * with any mapping, whoever shortens the file meanwhile ends the program.
 * source  GGUF specification; the checks are listed in docs/formats.md */
#ifndef TRINE_GGUF_GGUF_READ_H
#define TRINE_GGUF_GGUF_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/tensor_span.h"
#include "base/text.h"

/* Metadata value types, numbered as in the file. */
enum gguf_type {
    GGUF_UINT8,
    GGUF_INT8,
    GGUF_UINT16,
    GGUF_INT16,
    GGUF_UINT32,
    GGUF_INT32,
    GGUF_FLOAT32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_UINT64,
    GGUF_INT64,
    GGUF_FLOAT64,
    N_GGUF_TYPES
};

/* One key and its value. Scalars and strings have count 1 and element == type. */
struct gguf_pair {
    struct text key;
    enum gguf_type type;
    enum gguf_type element; /* of an array: type of its elements */
    uint64_t count;
    const uint8_t *data; /* first element as stored (strings with their u64 length) */
    uint64_t data_bytes;
};

/* One tensor. span.offset counts from the data section of its own shard. */
struct gguf_tensor {
    struct tensor_span span;
    uint32_t n_dims;     /* as stored, 0..4 */
    const uint8_t *data; /* span.bytes bytes in the mapping */
};

struct gguf_shard {
    char *path;             /* owned: arena */
    const uint8_t *mapping; /* owned unless is_borrowed */
    bool is_borrowed;       /* bytes of the caller of gguf_open_bytes */
    size_t size;            /* bytes of the file */
    uint32_t version, alignment;
    uint64_t data_offset; /* of the data section */
};

struct gguf_file {
    struct gguf_shard *shards; /* owned: arena; shard 0 carries the metadata */
    int n_shards;
    struct gguf_pair *pairs; /* owned: arena; of shard 0, in file order */
    size_t n_pairs;
    struct gguf_tensor *tensors; /* owned: arena; all shards, in file order */
    size_t n_tensors;
    struct gguf_index *pair_index, *tensor_index; /* owned: arena; hash tables by name */
    struct arena arena;
};

/* Opens the file and, for a split model, all its other shards (open the first one).
 * Memory grows with the header of the file, never with a number the file merely claims.
 * errors  IO, FORMAT, UNSUPPORTED, MEMORY; err->text names file, item, expected, found, what to do.
 *         On error the object is closed. */
enum status gguf_open(struct gguf_file *file, const char *path, span_rule *rule, struct error *err);

/* As gguf_open for one shard in memory (tests, fuzzing); bytes stay the caller's. Split models are
 * refused. name: for messages. */
enum status gguf_open_bytes(struct gguf_file *file, const void *bytes, size_t size,
                            const char *name, span_rule *rule, struct error *err);

/* Accepts a zeroed object. */
void gguf_close(struct gguf_file *file);

/* The pair or tensor of that name, or NULL. Constant time. */
const struct gguf_pair *gguf_find(const struct gguf_file *file, const char *key);
const struct gguf_tensor *gguf_find_tensor(const struct gguf_file *file, const char *name);

/* Name of a value type: "uint32", "string", ...; "type 77" has no name and gives "unknown". */
const char *gguf_type_name(enum gguf_type type);

/* Size of one element in bytes; 0 for strings and arrays. */
size_t gguf_type_bytes(enum gguf_type type);

#endif
