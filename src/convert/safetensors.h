/* Reads the tensors of a folder in safetensors: one file model.safetensors, or the shards that
 * model.safetensors.index.json lists. A file is the length of its header (8 bytes, little-endian),
 * the header in JSON, then the data without gaps. Files are mapped; views live until
 * safetensors_close.
 * source  the format's description by Hugging Face */
#ifndef TRINE_CONVERT_SAFETENSORS_H
#define TRINE_CONVERT_SAFETENSORS_H

#include "base/memory.h"
#include "base/text.h"

#define SAFETENSOR_MAX_DIMS 8

enum safetensor_type {
    SAFETENSOR_F32,
    SAFETENSOR_F16,
    SAFETENSOR_BF16,
    SAFETENSOR_U8,
    SAFETENSOR_OTHER /* known and measured, but in no tensor that can be converted */
};

struct safetensor {
    struct text name;
    enum safetensor_type type;
    const char *type_name; /* as stored: "BF16" */
    int n_dims;
    uint64_t shape[SAFETENSOR_MAX_DIMS]; /* outermost first: rows, columns */
    const uint8_t *data;                 /* `bytes` of the mapping */
    uint64_t bytes;
    int file;
};

struct safetensors_file {
    char *path;           /* owned: arena */
    const uint8_t *bytes; /* owned mapping, or the caller's bytes */
    size_t size;
    bool is_borrowed;
};

struct safetensors {
    struct safetensors_file *files; /* owned: arena */
    int n_files;
    struct safetensor *tensors; /* owned: arena; sorted by name */
    size_t n_tensors, tensors_size;
    struct arena arena;
};

/* dir: of the model. Closes itself on error.
 * errors  IO for files that are absent; FORMAT, naming file and tensor, for a header or a length
 *         that is wrong, tensors that overlap or leave gaps, a file that is cut short, names that
 *         occur twice or that the index does not list so; LIMIT, MEMORY */
enum status safetensors_open(struct safetensors *s, const char *dir, struct error *err);

/* One file from memory, which is borrowed; path: for messages. */
enum status safetensors_open_bytes(struct safetensors *s, const uint8_t *bytes, size_t size,
                                   const char *path, struct error *err);

/* Accepts a zeroed object. */
void safetensors_close(struct safetensors *s);

/* NULL when there is none of that name. */
const struct safetensor *safetensors_find(const struct safetensors *s, const char *name);

/* Elements of the shape; it was checked not to overflow. */
uint64_t safetensor_count(const struct safetensor *t);

#endif
