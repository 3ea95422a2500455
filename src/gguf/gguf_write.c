#include "gguf/gguf_write.h"

#include <assert.h>
#include <inttypes.h>

#include "base/reader.h"
#include "gguf/gguf_parse.h"

enum status gguf_writer_open(struct gguf_writer *w, const char *path, struct error *err)
{
    *w = (struct gguf_writer){.alignment = GGUF_DEFAULT_ALIGNMENT};
    return output_file_open(&w->file, path, err);
}

/* n more bytes at the end of a growing buffer; NULL (and a failure) when there is no memory. */
static uint8_t *extend(struct gguf_writer *w, uint8_t **buffer, size_t *used, size_t *size,
                       size_t n, struct error *err)
{
    if (*size - *used < n) {
        size_t grown = *used + n + *size / 2 + 1024;
        uint8_t *bytes = grown > n ? memory_resize(*buffer, grown, 1) : NULL;
        if (!bytes) {
            fail_memory(err, w->file.path, grown);
            return NULL;
        }
        *buffer = bytes;
        *size = grown;
    }
    uint8_t *end = *buffer + *used;
    *used += n;
    return end;
}

/* Appends key and type; the result is where the value's n bytes go. */
static uint8_t *begin_pair(struct gguf_writer *w, struct text key, enum gguf_type type, size_t n,
                           struct error *err)
{
    assert(!w->header_written && key.n > 0 && key.n <= GGUF_MAX_KEY);
    size_t head = 8 + key.n + 4;
    uint8_t *p = extend(w, &w->pairs, &w->pairs_bytes, &w->pairs_size, head + n, err);
    if (!p)
        return NULL;
    store_u64(p, key.n);
    memcpy(p + 8, key.bytes, key.n);
    store_u32(p + 8 + key.n, type);
    w->n_pairs++;
    return p + head;
}

static uint8_t *begin_array(struct gguf_writer *w, const char *key, enum gguf_type element,
                            size_t n, size_t bytes, struct error *err)
{
    uint8_t *p = begin_pair(w, text_of(key), GGUF_ARRAY, 12 + bytes, err);
    if (!p)
        return NULL;
    store_u32(p, element);
    store_u64(p + 4, n);
    return p + 12;
}

/* The alignment decides offsets, so it must be known before the first tensor. */
static enum status set_alignment(struct gguf_writer *w, uint32_t alignment, struct error *err)
{
    assert(w->n_tensors == 0);
    if (!gguf_is_alignment(alignment))
        return fail(err, STATUS_FORMAT,
                    "%s: alignment %" PRIu32 ", expected a power of two from 8 to 65536",
                    w->file.path, alignment);
    w->alignment = alignment;
    return STATUS_OK;
}

enum status gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t value, struct error *err)
{
    if (text_is(text_of(key), "general.alignment"))
        TRY(set_alignment(w, value, err));
    uint8_t *p = begin_pair(w, text_of(key), GGUF_UINT32, 4, err);
    if (!p)
        return STATUS_MEMORY;
    store_u32(p, value);
    return STATUS_OK;
}

enum status gguf_put_f32(struct gguf_writer *w, const char *key, float value, struct error *err)
{
    uint8_t *p = begin_pair(w, text_of(key), GGUF_FLOAT32, 4, err);
    if (!p)
        return STATUS_MEMORY;
    store_f32(p, value);
    return STATUS_OK;
}

enum status gguf_put_bool(struct gguf_writer *w, const char *key, bool value, struct error *err)
{
    uint8_t *p = begin_pair(w, text_of(key), GGUF_BOOL, 1, err);
    if (!p)
        return STATUS_MEMORY;
    *p = value;
    return STATUS_OK;
}

static uint8_t *store_text(uint8_t *p, struct text text)
{
    store_u64(p, text.n);
    if (text.n)
        memcpy(p + 8, text.bytes, text.n);
    return p + 8 + text.n;
}

enum status gguf_put_string(struct gguf_writer *w, const char *key, struct text value,
                            struct error *err)
{
    uint8_t *p = begin_pair(w, text_of(key), GGUF_STRING, 8 + value.n, err);
    if (!p)
        return STATUS_MEMORY;
    store_text(p, value);
    return STATUS_OK;
}

enum status gguf_put_strings(struct gguf_writer *w, const char *key, const struct text *values,
                             size_t n, struct error *err)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += 8 + values[i].n;
    uint8_t *p = begin_array(w, key, GGUF_STRING, n, bytes, err);
    if (!p)
        return STATUS_MEMORY;
    for (size_t i = 0; i < n; i++)
        p = store_text(p, values[i]);
    return STATUS_OK;
}

enum status gguf_put_f32s(struct gguf_writer *w, const char *key, const float *values, size_t n,
                          struct error *err)
{
    uint8_t *p = begin_array(w, key, GGUF_FLOAT32, n, 4 * n, err);
    if (!p)
        return STATUS_MEMORY;
    for (size_t i = 0; i < n; i++)
        store_f32(p + 4 * i, values[i]);
    return STATUS_OK;
}

enum status gguf_put_i32s(struct gguf_writer *w, const char *key, const int32_t *values, size_t n,
                          struct error *err)
{
    uint8_t *p = begin_array(w, key, GGUF_INT32, n, 4 * n, err);
    if (!p)
        return STATUS_MEMORY;
    for (size_t i = 0; i < n; i++)
        store_u32(p + 4 * i, (uint32_t)values[i]);
    return STATUS_OK;
}

enum status gguf_put_pair(struct gguf_writer *w, const struct gguf_pair *pair, struct error *err)
{
    if (text_is(pair->key, "general.alignment"))
        TRY(set_alignment(w, pair->type == GGUF_UINT32 ? load_u32(pair->data) : 0, err));
    size_t n = (size_t)pair->data_bytes, head = pair->type == GGUF_ARRAY ? 12 : 0;
    uint8_t *p = begin_pair(w, pair->key, pair->type, head + n, err);
    if (!p)
        return STATUS_MEMORY;
    if (head) {
        store_u32(p, pair->element);
        store_u64(p + 4, pair->count);
    }
    if (n)
        memcpy(p + head, pair->data, n);
    return STATUS_OK;
}

/* Appends the record of a tensor at the next offset. */
static enum status add_info(struct gguf_writer *w, struct text name, int n_dims, const uint64_t *ne,
                            uint32_t type_id, struct error *err)
{
    size_t n = 8 + name.n + 4 + 8 * (size_t)n_dims + 4 + 8;
    uint8_t *p = extend(w, &w->infos, &w->infos_bytes, &w->infos_size, n, err);
    if (!p)
        return STATUS_MEMORY;
    p = store_text(p, name);
    store_u32(p, (uint32_t)n_dims);
    for (int i = 0; i < n_dims; i++)
        store_u64(p + 4 + 8 * i, ne[i]);
    store_u32(p + 4 + 8 * n_dims, type_id);
    store_u64(p + 8 + 8 * n_dims, w->next_offset);
    return STATUS_OK;
}

enum status gguf_put_tensor(struct gguf_writer *w, struct text name, int n_dims, const uint64_t *ne,
                            uint32_t type_id, uint64_t bytes, struct error *err)
{
    assert(!w->header_written && n_dims >= 0 && n_dims <= 4 && bytes > 0);
    assert(name.n > 0 && name.n <= GGUF_MAX_NAME);
    uint64_t end;
    if (__builtin_add_overflow(w->next_offset, bytes, &end) ||
        end > (uint64_t)INT64_MAX - w->alignment)
        return fail(err, STATUS_LIMIT,
                    "%s: tensor '%.*s' of %" PRIu64 " bytes makes the file "
                    "larger than a file can be",
                    w->file.path, TEXT(name), bytes);
    if (w->n_tensors == w->tensors_size) {
        size_t grown = w->tensors_size * 2 + 64;
        uint64_t *sizes = memory_resize(w->tensor_bytes, grown, sizeof *sizes);
        if (!sizes)
            return fail_memory(err, w->file.path, grown * sizeof *sizes);
        w->tensor_bytes = sizes;
        w->tensors_size = grown;
    }
    TRY(add_info(w, name, n_dims, ne, type_id, err));
    w->tensor_bytes[w->n_tensors++] = bytes;
    w->next_offset = (end + w->alignment - 1) & ~(uint64_t)(w->alignment - 1);
    return STATUS_OK;
}

enum status gguf_write_header(struct gguf_writer *w, struct error *err)
{
    assert(!w->header_written);
    uint8_t head[24] = {'G', 'G', 'U', 'F', 3};
    store_u64(head + 8, w->n_tensors);
    store_u64(head + 16, w->n_pairs);
    w->header_written = true;
    TRY(output_file_write(&w->file, head, sizeof head, err));
    TRY(output_file_write(&w->file, w->pairs, w->pairs_bytes, err));
    TRY(output_file_write(&w->file, w->infos, w->infos_bytes, err));
    return w->n_tensors ? output_file_pad(&w->file, w->alignment, err) : STATUS_OK;
}

enum status gguf_write_data(struct gguf_writer *w, const void *bytes, size_t n, struct error *err)
{
    assert(w->header_written);
    const uint8_t *p = bytes;
    while (n > 0) {
        assert(w->next_tensor < w->n_tensors);
        uint64_t left = w->tensor_bytes[w->next_tensor] - w->tensor_at;
        size_t part = n < left ? n : (size_t)left;
        TRY(output_file_write(&w->file, p, part, err));
        w->tensor_at += part;
        p += part;
        n -= part;
        if (w->tensor_at == w->tensor_bytes[w->next_tensor]) {
            TRY(output_file_pad(&w->file, w->alignment, err));
            w->next_tensor++;
            w->tensor_at = 0;
        }
    }
    return STATUS_OK;
}

enum status gguf_writer_flush(struct gguf_writer *w, struct error *err)
{
    assert(w->header_written && w->next_tensor == w->n_tensors);
    return output_file_flush(&w->file, err);
}

const char *gguf_writer_name(const struct gguf_writer *w)
{
    return output_file_name(&w->file);
}

enum status gguf_writer_commit(struct gguf_writer *w, struct error *err)
{
    assert(w->header_written && w->next_tensor == w->n_tensors);
    return output_file_commit(&w->file, err);
}

void gguf_writer_close(struct gguf_writer *w)
{
    output_file_close(&w->file);
    memory_free(w->pairs);
    memory_free(w->infos);
    memory_free(w->tensor_bytes);
    *w = (struct gguf_writer){0};
}
