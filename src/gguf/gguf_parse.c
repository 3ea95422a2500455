#include "gguf/gguf_parse.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* The failure of a read beyond the end; the arguments say inside which item. */
static enum status __attribute__((format(printf, 3, 4)))
fail_end(const struct gguf_cursor *cursor, struct error *err, const char *format, ...)
{
    char item[400];
    va_list args;
    va_start(args, format);
    vsnprintf(item, sizeof item, format, args);
    va_end(args);
    return fail(
        err, STATUS_FORMAT,
        "%s: the file ends at byte %zu, inside %s; it is cut short, or a count or length in "
        "it is wrong: download it again",
        cursor->path, cursor->reader.size, item);
}

static enum status check_version(uint32_t version, const char *path, struct error *err)
{
    if (version == 2 || version == 3)
        return STATUS_OK;
    if (version == 0)
        return fail(err, STATUS_FORMAT,
                    "%s: GGUF version 0, expected 2 or 3; the file is damaged: download it again",
                    path);
    if ((version & 0xffff) == 0)
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: big-endian GGUF file, expected little-endian; convert the model again "
                    "for little-endian machines",
                    path);
    if (version == 1)
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: GGUF version 1, which has 32-bit counts, expected 2 or 3; convert the "
                    "model again with a current tool",
                    path);
    return fail(err, STATUS_UNSUPPORTED,
                "%s: GGUF version %" PRIu32 ", expected 2 or 3; the file is damaged or newer than "
                "this program",
                path, version);
}

enum status gguf_parse_start(struct gguf_cursor *cursor, const void *bytes, size_t size,
                             const char *path, struct error *err)
{
    *cursor = (struct gguf_cursor){.reader = {.bytes = bytes, .size = size}, .path = path};
    cursor->alignment = GGUF_DEFAULT_ALIGNMENT;
    if (size == 0)
        return fail(err, STATUS_FORMAT, "%s: the file is empty; download it again", path);
    if (memcmp(bytes, "GGUF", size < 4 ? size : 4) != 0)
        return gguf_refuse_foreign(bytes, size, path, err);
    reader_take(&cursor->reader, 4);
    cursor->version = read_u32(&cursor->reader);
    if (cursor->reader.failed)
        return fail_end(cursor, err, "the magic and version");
    TRY(check_version(cursor->version, path, err));
    cursor->n_tensors = read_u64(&cursor->reader);
    cursor->n_pairs = read_u64(&cursor->reader);
    if (cursor->reader.failed)
        return fail_end(cursor, err, "the counts of tensors and metadata pairs");
    return STATUS_OK;
}

static enum status parse_key(struct gguf_cursor *cursor, struct text *key, struct error *err)
{
    struct reader *reader = &cursor->reader;
    size_t start = reader->at;
    uint64_t n = read_u64(reader);
    if (!reader->failed && (n == 0 || n > GGUF_MAX_KEY))
        return fail(err, STATUS_FORMAT,
                    "%s: metadata pair %" PRIu64 " of %" PRIu64 ", at byte %zu: key of %" PRIu64
                    " bytes, expected 1 to %d; the file is damaged, or the header's count of "
                    "metadata pairs is wrong: download it again",
                    cursor->path, cursor->pair, cursor->n_pairs, start, n, GGUF_MAX_KEY);
    key->n = (size_t)n;
    key->bytes = (const char *)reader_take(reader, n);
    if (reader->failed)
        return fail_end(cursor, err, "the key of metadata pair %" PRIu64 " of %" PRIu64,
                        cursor->pair, cursor->n_pairs);
    return STATUS_OK;
}

/* Refuses to end inside the value of a pair. */
static enum status fail_value_end(const struct gguf_cursor *cursor, const struct gguf_pair *pair,
                                  struct error *err)
{
    if (pair->type == GGUF_ARRAY)
        return fail_end(cursor, err,
                        "the array of %" PRIu64 " elements of type %s of key '%.*s' (metadata pair "
                        "%" PRIu64 " of %" PRIu64 ")",
                        pair->count, gguf_type_name(pair->element), TEXT(pair->key), cursor->pair,
                        cursor->n_pairs);
    return fail_end(cursor, err, "the %s of key '%.*s' (metadata pair %" PRIu64 " of %" PRIu64 ")",
                    gguf_type_name(pair->type), TEXT(pair->key), cursor->pair, cursor->n_pairs);
}

static enum status parse_type(struct gguf_cursor *cursor, struct gguf_pair *pair, struct error *err)
{
    uint32_t type = read_u32(&cursor->reader);
    if (cursor->reader.failed)
        return fail_end(cursor, err,
                        "the type of key '%.*s' (metadata pair %" PRIu64 " of %" PRIu64 ")",
                        TEXT(pair->key), cursor->pair, cursor->n_pairs);
    if (type >= N_GGUF_TYPES)
        return fail(err, STATUS_FORMAT,
                    "%s: key '%.*s': value type %" PRIu32 ", expected 0 to %d; the file is damaged "
                    "or newer than this program",
                    cursor->path, TEXT(pair->key), type, N_GGUF_TYPES - 1);
    pair->type = pair->element = (enum gguf_type)type;
    pair->count = 1;
    return STATUS_OK;
}

static enum status parse_array_head(struct gguf_cursor *cursor, struct gguf_pair *pair,
                                    struct error *err)
{
    uint32_t element = read_u32(&cursor->reader);
    uint64_t count = read_u64(&cursor->reader);
    if (cursor->reader.failed)
        return fail_end(cursor, err,
                        "the array head of key '%.*s' (metadata pair %" PRIu64 " of %" PRIu64 ")",
                        TEXT(pair->key), cursor->pair, cursor->n_pairs);
    if (element == GGUF_ARRAY)
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: key '%.*s': array of arrays, expected an array of numbers or strings; "
                    "remove the key",
                    cursor->path, TEXT(pair->key));
    if (element >= N_GGUF_TYPES)
        return fail(err, STATUS_FORMAT,
                    "%s: key '%.*s': array element type %" PRIu32 ", expected 0 to %d; the file is "
                    "damaged or newer than this program",
                    cursor->path, TEXT(pair->key), element, N_GGUF_TYPES - 1);
    pair->element = (enum gguf_type)element;
    pair->count = count;
    return STATUS_OK;
}

/* Steps over strings; every one takes its 8 bytes, so a false count ends with the file. */
static bool skip_strings(struct reader *reader, uint64_t count)
{
    if (count > reader_left(reader) / 8)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t n = read_u64(reader);
        if (!reader_take(reader, n))
            return false;
    }
    return true;
}

static bool skip_values(struct reader *reader, const struct gguf_pair *pair)
{
    if (pair->element == GGUF_STRING)
        return skip_strings(reader, pair->count);
    uint64_t bytes;
    if (__builtin_mul_overflow(pair->count, gguf_type_bytes(pair->element), &bytes))
        return false;
    return reader_take(reader, bytes) != NULL;
}

static enum status check_bools(const struct gguf_cursor *cursor, const struct gguf_pair *pair,
                               struct error *err)
{
    for (uint64_t i = 0; i < pair->count; i++)
        if (pair->data[i] > 1)
            return fail(err, STATUS_FORMAT,
                        "%s: key '%.*s': bool %" PRIu64 " is %d, expected 0 or 1; the file is "
                        "damaged or was written by a broken tool",
                        cursor->path, TEXT(pair->key), i, pair->data[i]);
    return STATUS_OK;
}

enum status gguf_parse_pair(struct gguf_cursor *cursor, struct gguf_pair *pair, struct error *err)
{
    struct reader *reader = &cursor->reader;
    cursor->pair++;
    TRY(parse_key(cursor, &pair->key, err));
    TRY(parse_type(cursor, pair, err));
    if (pair->type == GGUF_ARRAY)
        TRY(parse_array_head(cursor, pair, err));
    pair->data = reader->bytes + reader->at;
    if (!skip_values(reader, pair))
        return fail_value_end(cursor, pair, err);
    pair->data_bytes = (uint64_t)(reader->bytes + reader->at - pair->data);
    return pair->element == GGUF_BOOL ? check_bools(cursor, pair, err) : STATUS_OK;
}

static enum status parse_name(struct gguf_cursor *cursor, struct text *name, struct error *err)
{
    struct reader *reader = &cursor->reader;
    size_t start = reader->at;
    uint64_t n = read_u64(reader);
    /* An empty name would be legal, but nobody can mean one, and zeros are what stands behind the
     * last record when the header counts more records than there are. */
    if (!reader->failed && (n == 0 || n > GGUF_MAX_NAME))
        return fail(err, STATUS_FORMAT,
                    "%s: tensor record %" PRIu64 " of %" PRIu64 ", at byte %zu: name of %" PRIu64
                    " bytes, expected 1 to %d; the header's count of %" PRIu64
                    " tensors or %" PRIu64
                    " metadata pairs is wrong, or the file is damaged: download it again",
                    cursor->path, cursor->tensor, cursor->n_tensors, start, n, GGUF_MAX_NAME,
                    cursor->n_tensors, cursor->n_pairs);
    name->n = (size_t)n;
    name->bytes = (const char *)reader_take(reader, n);
    if (reader->failed)
        return fail_end(cursor, err,
                        "the name of tensor record %" PRIu64 " of the %" PRIu64
                        " that the header counts",
                        cursor->tensor, cursor->n_tensors);
    return STATUS_OK;
}

static enum status fail_record_end(const struct gguf_cursor *cursor, struct text name,
                                   struct error *err)
{
    return fail_end(cursor, err,
                    "tensor record %" PRIu64 " ('%.*s') of the %" PRIu64 " that the header counts",
                    cursor->tensor, TEXT(name), cursor->n_tensors);
}

static enum status parse_dimensions(struct gguf_cursor *cursor, struct tensor_span *span,
                                    uint32_t n_dims, struct error *err)
{
    uint64_t elements = 1;
    for (uint32_t i = 0; i < 4; i++)
        span->ne[i] = 1;
    for (uint32_t i = 0; i < n_dims; i++) {
        uint64_t n = read_u64(&cursor->reader);
        if (cursor->reader.failed)
            return fail_record_end(cursor, span->name, err);
        if (n == 0 || n > INT64_MAX)
            return fail(err, STATUS_FORMAT,
                        "%s: tensor '%.*s': dimension %" PRIu32 " is %" PRIu64
                        ", expected 1 to %" PRId64 "; the file is damaged or was written by a "
                        "broken tool",
                        cursor->path, TEXT(span->name), i, n, INT64_MAX);
        span->ne[i] = n;
        if (__builtin_mul_overflow(elements, n, &elements) || elements > INT64_MAX)
            return fail(err, STATUS_FORMAT,
                        "%s: tensor '%.*s': dimensions 0 to %" PRIu32 " multiply to more than 2^63 "
                        "elements; the file is damaged or was written by a broken tool",
                        cursor->path, TEXT(span->name), i);
    }
    return STATUS_OK;
}

enum status gguf_parse_tensor(struct gguf_cursor *cursor, struct gguf_tensor *tensor,
                              struct error *err)
{
    struct reader *reader = &cursor->reader;
    struct tensor_span *span = &tensor->span;
    *tensor = (struct gguf_tensor){.n_dims = 0};
    cursor->tensor++;
    TRY(parse_name(cursor, &span->name, err));
    tensor->n_dims = read_u32(reader);
    if (reader->failed)
        return fail_record_end(cursor, span->name, err);
    if (tensor->n_dims > 4)
        return fail(err, STATUS_FORMAT,
                    "%s: tensor '%.*s': %" PRIu32 " dimensions, expected at most 4; the file is "
                    "damaged, or a count in its header is wrong",
                    cursor->path, TEXT(span->name), tensor->n_dims);
    TRY(parse_dimensions(cursor, span, tensor->n_dims, err));
    span->type_id = read_u32(reader);
    span->offset = read_u64(reader);
    if (reader->failed)
        return fail_record_end(cursor, span->name, err);
    if (span->offset % cursor->alignment != 0)
        return fail(err, STATUS_FORMAT,
                    "%s: tensor '%.*s': offset %" PRIu64 " is no multiple of the alignment %" PRIu32
                    "; the file is damaged or was written by a broken tool",
                    cursor->path, TEXT(span->name), span->offset, cursor->alignment);
    return STATUS_OK;
}

bool gguf_is_alignment(uint64_t alignment)
{
    return alignment >= 8 && alignment <= 65536 && (alignment & (alignment - 1)) == 0;
}
