#include "gguf/gguf_spans.h"

#include <inttypes.h>
#include <stdlib.h>

/* Bytes of the data section that are there. */
static uint64_t data_size(const struct gguf_shard *shard)
{
    return shard->size > shard->data_offset ? shard->size - shard->data_offset : 0;
}

static int compare_spans(const void *a, const void *b)
{
    const struct tensor_span *x = *(struct tensor_span *const *)a;
    const struct tensor_span *y = *(struct tensor_span *const *)b;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Sorts by place in the files and fills room and is_last. A file cut short keeps the rooms between
 * the tensors, so that the rule still finds the sizes and the cut can be told by name. */
static void fill_rooms(const struct gguf_file *file, struct tensor_span **order, size_t n)
{
    qsort(order, n, sizeof *order, compare_spans);
    for (size_t i = 0; i < n; i++) {
        struct tensor_span *span = order[i];
        span->is_last = i + 1 == n || order[i + 1]->shard != span->shard;
        uint64_t end = span->is_last ? data_size(&file->shards[span->shard]) : order[i + 1]->offset;
        span->room = end > span->offset ? end - span->offset : 0;
    }
}

static enum status fail_cut(const struct gguf_shard *shard, const struct tensor_span *span,
                            struct error *err)
{
    uint64_t present = data_size(shard), begin;
    present = present > span->offset ? present - span->offset : 0;
    if (__builtin_add_overflow(shard->data_offset, span->offset, &begin))
        return fail(err, STATUS_FORMAT,
                    "%s: tensor '%.*s': offset %" PRIu64 " lies beyond any file; the file is "
                    "damaged: download it again",
                    shard->path, TEXT(span->name), span->offset);
    return fail(err, STATUS_FORMAT,
                "%s: tensor '%.*s' needs %" PRIu64 " bytes from byte %" PRIu64 " on, %" PRIu64
                " are there; the file is cut short at byte %zu: download it again",
                shard->path, TEXT(span->name), span->bytes, begin, present, shard->size);
}

static enum status check_extents(const struct gguf_file *file, struct tensor_span *const *order,
                                 size_t n, struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct tensor_span *span = order[i];
        const struct gguf_shard *shard = &file->shards[span->shard];
        if (!span->is_last && span->bytes > span->room)
            return fail(err, STATUS_FORMAT,
                        "%s: tensors '%.*s' and '%.*s' overlap: the first has %" PRIu64
                        " bytes and the second begins %" PRIu64 " bytes after it; the file is "
                        "damaged or a count in its header is wrong",
                        shard->path, TEXT(span->name), TEXT(order[i + 1]->name), span->bytes,
                        span->room);
        uint64_t end;
        if (__builtin_add_overflow(span->offset, span->bytes, &end) || end > data_size(shard))
            return fail_cut(shard, span, err);
    }
    return STATUS_OK;
}

static enum status place(struct gguf_file *file, struct tensor_span *spans,
                         struct tensor_span **order, span_rule *rule, struct error *err)
{
    size_t n = file->n_tensors;
    for (size_t i = 0; i < n; i++) {
        spans[i] = file->tensors[i].span;
        spans[i].alignment = file->shards[spans[i].shard].alignment;
        order[i] = &spans[i];
    }
    fill_rooms(file, order, n);
    TRY(rule(spans, n, file->shards[0].path, err));
    TRY(check_extents(file, order, n, err));
    for (size_t i = 0; i < n; i++) {
        const struct gguf_shard *shard = &file->shards[spans[i].shard];
        file->tensors[i].span = spans[i];
        file->tensors[i].data = shard->mapping + shard->data_offset + spans[i].offset;
    }
    return STATUS_OK;
}

enum status gguf_place_tensors(struct gguf_file *file, span_rule *rule, struct error *err)
{
    size_t n = file->n_tensors;
    struct tensor_span *spans = memory_alloc(n, sizeof *spans);
    struct tensor_span **order = memory_alloc(n, sizeof *order);
    enum status status = STATUS_MEMORY;
    if (spans && order)
        status = place(file, spans, order, rule, err);
    else
        fail_memory(err, file->shards[0].path, n * (sizeof *spans + sizeof *order));
    memory_free(order);
    memory_free(spans);
    return status;
}
