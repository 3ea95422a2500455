/* Hugging Face folders written by hand: safetensors from a list of tensors, JSON from texts. */
#ifndef TRINE_TESTS_CONVERT_FOLDER_H
#define TRINE_TESTS_CONVERT_FOLDER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../support.h"
#include "base/reader.h"

/* Bytes of a file with this header; the data are zeros. The caller frees. */
static inline uint8_t *safetensors_bytes(const char *header, size_t data_bytes, size_t *size)
{
    size_t n = strlen(header);
    *size = 8 + n + data_bytes;
    uint8_t *bytes = calloc(1, *size);
    assert_non_null(bytes);
    store_u64(bytes, n);
    memcpy(bytes + 8, header, n);
    return bytes;
}

/* A safetensors file that grows. */
struct tensor_file {
    char header[1 << 16];
    size_t header_bytes;
    uint8_t *data;
    size_t data_bytes;
};

/* Appends a tensor; cols 0: a vector of `rows`. */
static inline void add_tensor(struct tensor_file *f, const char *name, const char *dtype,
                              uint64_t rows, uint64_t cols, const void *bytes, size_t n)
{
    f->data = realloc(f->data, f->data_bytes + n);
    assert_non_null(f->data);
    memcpy(f->data + f->data_bytes, bytes, n);
    char shape[64];
    snprintf(shape, sizeof shape, cols ? "[%llu,%llu]" : "[%llu]", (unsigned long long)rows,
             (unsigned long long)cols);
    f->header_bytes += (size_t)snprintf(
        f->header + f->header_bytes, sizeof f->header - f->header_bytes,
        "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
        f->header_bytes ? "," : "{", name, dtype, shape, f->data_bytes, f->data_bytes + n);
    assert_true(f->header_bytes < sizeof f->header);
    f->data_bytes += n;
}

static inline void write_tensors(struct tensor_file *f, const char *path)
{
    f->header[f->header_bytes++] = '}';
    size_t size = 8 + f->header_bytes + f->data_bytes;
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    store_u64(bytes, f->header_bytes);
    memcpy(bytes + 8, f->header, f->header_bytes);
    memcpy(bytes + 8 + f->header_bytes, f->data, f->data_bytes);
    write_whole(path, bytes, size);
    free(bytes);
    free(f->data);
    *f = (struct tensor_file){0};
}

/* "DIR/NAME" of the scratch folder; makes DIR. */
static inline const char *in_folder(const char *dir, const char *name)
{
    char path[256];
    mkdir(scratch_path(dir), 0777);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return scratch_path(path);
}

static inline void write_text(const char *path, const char *text)
{
    write_whole(path, text, strlen(text));
}

#endif
