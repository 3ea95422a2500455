/* Writes GGUF version 3: declare pairs and tensors, write the header, then each tensor's bytes in
 * the order declared. The file appears under its name only when complete (base/output_file.h). */
#ifndef TRINE_GGUF_GGUF_WRITE_H
#define TRINE_GGUF_GGUF_WRITE_H

#include "base/output_file.h"
#include "gguf/gguf_read.h"

struct gguf_writer {
    struct output_file file;
    uint8_t *pairs; /* owned: encoded pairs */
    size_t pairs_bytes, pairs_size;
    uint64_t n_pairs;
    uint8_t *infos; /* owned: encoded tensor infos */
    size_t infos_bytes, infos_size;
    uint64_t n_tensors;
    uint64_t *tensor_bytes; /* owned: declared sizes */
    size_t tensors_size;
    uint64_t next_offset; /* of the next tensor in the data section */
    uint64_t next_tensor; /* index of the tensor whose bytes come next */
    uint64_t tensor_at;   /* bytes of it written so far */
    uint32_t alignment;
    bool header_written;
};

/* errors: IO, MEMORY */
enum status gguf_writer_open(struct gguf_writer *w, const char *path, struct error *err);

/* Each appends one pair. key: 1 to 65535 bytes, not written before. The key general.alignment also
 * sets the alignment; it must come before the first tensor. errors: MEMORY, FORMAT (alignment) */
enum status gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t value, struct error *err);
enum status gguf_put_f32(struct gguf_writer *w, const char *key, float value, struct error *err);
enum status gguf_put_bool(struct gguf_writer *w, const char *key, bool value, struct error *err);
enum status gguf_put_string(struct gguf_writer *w, const char *key, struct text value,
                            struct error *err);
enum status gguf_put_strings(struct gguf_writer *w, const char *key, const struct text *values,
                             size_t n, struct error *err);
enum status gguf_put_f32s(struct gguf_writer *w, const char *key, const float *values, size_t n,
                          struct error *err);
enum status gguf_put_i32s(struct gguf_writer *w, const char *key, const int32_t *values, size_t n,
                          struct error *err);

/* Appends a pair exactly as another file stores it. */
enum status gguf_put_pair(struct gguf_writer *w, const struct gguf_pair *pair, struct error *err);

/* Declares the next tensor: name of 1 to 64 bytes, shape ne[0..n_dims), stored type id, exact size
 * of its data. errors: MEMORY, LIMIT (the file would pass 2^63 bytes) */
enum status gguf_put_tensor(struct gguf_writer *w, struct text name, int n_dims, const uint64_t *ne,
                            uint32_t type_id, uint64_t bytes, struct error *err);

/* Writes header, pairs and infos; no pair or tensor may be declared afterwards. */
enum status gguf_write_header(struct gguf_writer *w, struct error *err);

/* Writes the next n bytes of tensor data, in declaration order; they may be part of a tensor or
 * reach over several. Padding after each tensor is added by the writer. Writing beyond a declared
 * size is a programmer's error. */
enum status gguf_write_data(struct gguf_writer *w, const void *bytes, size_t n, struct error *err);

/* Flushes so that gguf_writer_name can be opened and verified before the commit. All declared bytes
 * must have been written. */
enum status gguf_writer_flush(struct gguf_writer *w, struct error *err);
const char *gguf_writer_name(const struct gguf_writer *w);

/* Puts the file in its place. */
enum status gguf_writer_commit(struct gguf_writer *w, struct error *err);

/* Frees; removes an uncommitted file. Accepts a zeroed object. */
void gguf_writer_close(struct gguf_writer *w);

#endif
