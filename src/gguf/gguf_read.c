#include "gguf/gguf_read.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/file_map.h"
#include "gguf/gguf_index.h"
#include "gguf/gguf_metadata.h"
#include "gguf/gguf_parse.h"
#include "gguf/gguf_spans.h"
#include "gguf/gguf_split.h"

static_assert(offsetof(struct gguf_pair, key) == 0, "the index expects the name first");
static_assert(offsetof(struct gguf_tensor, span) + offsetof(struct tensor_span, name) == 0,
              "the index expects the name first");

static const char expected[] = "a GGUF file";

/* The header of one shard. */
struct header {
    struct gguf_file pairs;     /* a view with one shard and its pairs, for the typed getters */
    struct gguf_cursor records; /* at the first tensor record */
};

static enum status fail_arena(const struct gguf_shard *shard, size_t n, size_t size,
                              struct error *err)
{
    return fail_memory(err, shard->path, n * size);
}

/* Reads pairs from the cursor on, twice: first to see that all are there, then to keep them. */
static enum status read_pairs(struct arena *arena, struct gguf_cursor *cursor,
                              struct gguf_file *view, struct error *err)
{
    struct gguf_cursor start = *cursor;
    struct gguf_pair pair;
    for (uint64_t i = 0; i < cursor->n_pairs; i++)
        TRY(gguf_parse_pair(cursor, &pair, err));
    size_t n = (size_t)cursor->n_pairs, duplicate;
    view->n_pairs = n;
    view->pairs = arena_alloc(arena, n, sizeof *view->pairs);
    if (!view->pairs)
        return fail_arena(view->shards, n, sizeof *view->pairs, err);
    for (size_t i = 0; i < n; i++)
        TRY(gguf_parse_pair(&start, &view->pairs[i], err));
    view->pair_index = gguf_index_build(arena, view->pairs, n, sizeof *view->pairs, &duplicate);
    if (!view->pair_index)
        return fail_arena(view->shards, n, 4 * sizeof(uint64_t), err);
    if (duplicate < n)
        return fail(err, STATUS_FORMAT,
                    "%s: key '%.*s' occurs twice, the second time as metadata pair %zu, expected "
                    "once; the file is damaged or was written by a broken tool",
                    view->shards->path, TEXT(view->pairs[duplicate].key), duplicate + 1);
    return STATUS_OK;
}

static enum status read_alignment(const struct gguf_file *view, uint32_t *alignment,
                                  struct error *err)
{
    const char *path = view->shards->path;
    const struct gguf_pair *pair = gguf_find(view, "general.alignment");
    *alignment = GGUF_DEFAULT_ALIGNMENT;
    if (!pair)
        return STATUS_OK;
    if (pair->type != GGUF_UINT32)
        return fail(err, STATUS_FORMAT,
                    "%s: key 'general.alignment' has type %s, expected uint32; the file was "
                    "written by a broken tool",
                    path, gguf_type_name(pair->type));
    *alignment = load_u32(pair->data);
    if (!gguf_is_alignment(*alignment))
        return fail(err, STATUS_FORMAT,
                    "%s: key 'general.alignment' is %" PRIu32 ", expected a power of two from 8 to "
                    "65536; the file is damaged or was written by a broken tool",
                    path, *alignment);
    return STATUS_OK;
}

/* Reads all of a shard's header but keeps only its pairs; fills the shard. */
static enum status read_header(struct arena *arena, struct gguf_shard *shard, struct header *header,
                               struct error *err)
{
    struct gguf_cursor cursor;
    TRY(gguf_parse_start(&cursor, shard->mapping, shard->size, shard->path, err));
    header->pairs = (struct gguf_file){.shards = shard, .n_shards = 1};
    TRY(read_pairs(arena, &cursor, &header->pairs, err));
    TRY(read_alignment(&header->pairs, &shard->alignment, err));
    cursor.alignment = shard->alignment;
    header->records = cursor;
    struct gguf_tensor tensor;
    for (uint64_t i = 0; i < cursor.n_tensors; i++)
        TRY(gguf_parse_tensor(&cursor, &tensor, err));
    shard->version = cursor.version;
    shard->data_offset = cursor.reader.at;
    if (cursor.n_tensors > 0)
        shard->data_offset =
            (shard->data_offset + shard->alignment - 1) & ~(uint64_t)(shard->alignment - 1);
    return STATUS_OK;
}

static enum status fail_duplicate_tensor(const struct gguf_file *file, size_t duplicate,
                                         struct error *err)
{
    const struct gguf_tensor *second = &file->tensors[duplicate];
    const struct gguf_tensor *first = file->tensors;
    while (!text_equal(first->span.name, second->span.name))
        first++;
    const struct gguf_shard *shard = &file->shards[second->span.shard];
    if (first->span.shard != second->span.shard)
        return fail(err, STATUS_FORMAT,
                    "%s: tensor '%.*s' is also in %s, expected once; the files belong to different "
                    "models: download them again",
                    shard->path, TEXT(second->span.name), file->shards[first->span.shard].path);
    return fail(err, STATUS_FORMAT,
                "%s: tensor '%.*s' occurs twice, expected once; the file is damaged or was written "
                "by a broken tool",
                shard->path, TEXT(second->span.name));
}

/* Keeps the tensor records of all shards. */
static enum status read_tensors(struct gguf_file *file, struct header *headers, struct error *err)
{
    size_t n = 0, at = 0, duplicate;
    for (int i = 0; i < file->n_shards; i++)
        n += (size_t)headers[i].records.n_tensors;
    file->n_tensors = n;
    file->tensors = arena_alloc(&file->arena, n, sizeof *file->tensors);
    if (!file->tensors)
        return fail_arena(file->shards, n, sizeof *file->tensors, err);
    for (int i = 0; i < file->n_shards; i++) {
        struct gguf_cursor *records = &headers[i].records;
        while (records->tensor < records->n_tensors) {
            TRY(gguf_parse_tensor(records, &file->tensors[at], err));
            file->tensors[at++].span.shard = i;
        }
    }
    file->tensor_index =
        gguf_index_build(&file->arena, file->tensors, n, sizeof *file->tensors, &duplicate);
    if (!file->tensor_index)
        return fail_arena(file->shards, n, 4 * sizeof(uint64_t), err);
    return duplicate < n ? fail_duplicate_tensor(file, duplicate, err) : STATUS_OK;
}

/* Maps the files 1.. of a split model and reads their headers. */
static enum status read_other_shards(struct gguf_file *file, struct header *headers,
                                     struct error *err)
{
    for (int i = 1; i < file->n_shards; i++) {
        struct gguf_shard *shard = &file->shards[i];
        shard->path = gguf_split_name(&file->arena, file->shards[0].path, i, file->n_shards);
        if (!shard->path)
            return fail_arena(file->shards, strlen(file->shards[0].path), 1, err);
        struct error reason;
        enum status status =
            file_map(shard->path, expected, &shard->mapping, &shard->size, &reason);
        if (status != STATUS_OK)
            return fail(err, status, "%s (file %d of the %d of this model; put all in one folder)",
                        reason.text, i + 1, file->n_shards);
        TRY(read_header(&file->arena, shard, &headers[i], err));
        TRY(gguf_split_check(&headers[i].pairs, i, file->n_shards, err));
    }
    return STATUS_OK;
}

/* Makes room for n shards, of which the first exists. */
static enum status grow_shards(struct gguf_file *file, struct header **headers, int n,
                               struct error *err)
{
    struct gguf_shard *shards = arena_alloc(&file->arena, (size_t)n, sizeof *shards);
    struct header *grown = arena_alloc(&file->arena, (size_t)n, sizeof *grown);
    if (!shards || !grown)
        return fail_arena(file->shards, (size_t)n, sizeof *shards + sizeof *grown, err);
    shards[0] = file->shards[0];
    grown[0] = **headers;
    grown[0].pairs.shards = shards;
    file->shards = shards;
    file->n_shards = n;
    *headers = grown;
    return STATUS_OK;
}

/* Everything after the first shard is mapped. is_file: other shards may lie beside it. */
static enum status read_all(struct gguf_file *file, bool is_file, span_rule *rule,
                            struct error *err)
{
    struct header first = {0}, *headers = &first;
    TRY(read_header(&file->arena, file->shards, headers, err));
    file->pairs = first.pairs.pairs;
    file->n_pairs = first.pairs.n_pairs;
    file->pair_index = first.pairs.pair_index;
    int count;
    TRY(gguf_split_count(file, &count, err));
    if (count > 1 && !is_file)
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: one of %d files of a split model, expected a whole one; open the first "
                    "file by its path",
                    file->shards->path, count);
    if (count > 1) {
        TRY(gguf_split_check(file, 0, count, err));
        TRY(grow_shards(file, &headers, count, err));
        TRY(read_other_shards(file, headers, err));
    }
    TRY(read_tensors(file, headers, err));
    if (count > 1)
        TRY(gguf_split_check_total(file, file->n_tensors, err));
    return gguf_place_tensors(file, rule, err);
}

/* An object with one shard of that name, not mapped yet. */
static enum status start(struct gguf_file *file, const char *name, struct error *err)
{
    *file = (struct gguf_file){0};
    struct gguf_shard *shard = arena_alloc(&file->arena, 1, sizeof *shard);
    if (!shard)
        return fail_memory(err, name, sizeof *shard);
    shard->path = arena_text(&file->arena, name, strlen(name));
    if (!shard->path)
        return fail_memory(err, name, strlen(name));
    file->shards = shard;
    file->n_shards = 1;
    return STATUS_OK;
}

enum status gguf_open(struct gguf_file *file, const char *path, span_rule *rule, struct error *err)
{
    enum status status = start(file, path, err);
    if (status == STATUS_OK)
        status = file_map(path, expected, &file->shards->mapping, &file->shards->size, err);
    if (status == STATUS_OK)
        status = read_all(file, true, rule, err);
    if (status != STATUS_OK)
        gguf_close(file);
    return status;
}

enum status gguf_open_bytes(struct gguf_file *file, const void *bytes, size_t size,
                            const char *name, span_rule *rule, struct error *err)
{
    enum status status = start(file, name, err);
    if (status == STATUS_OK) {
        file->shards->mapping = bytes;
        file->shards->size = size;
        file->shards->is_borrowed = true;
        status = read_all(file, false, rule, err);
    }
    if (status != STATUS_OK)
        gguf_close(file);
    return status;
}

void gguf_close(struct gguf_file *file)
{
    for (int i = 0; i < file->n_shards; i++)
        if (!file->shards[i].is_borrowed)
            file_unmap(file->shards[i].mapping, file->shards[i].size);
    arena_done(&file->arena);
    *file = (struct gguf_file){0};
}

const struct gguf_pair *gguf_find(const struct gguf_file *file, const char *key)
{
    return gguf_index_find(file->pair_index, text_of(key));
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf_file *file, const char *name)
{
    return gguf_index_find(file->tensor_index, text_of(name));
}
