#include "convert/safetensors.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file_map.h"
#include "base/reader.h"
#include "convert/hf_files.h"
#include "convert/json_read.h"

/* As the format's own reader bounds it. */
#define MAX_HEADER 100000000

static const struct {
    const char *name;
    int bytes;
    enum safetensor_type type;
} types[] = {
    {"F32", 4, SAFETENSOR_F32},           {"F16", 2, SAFETENSOR_F16},
    {"BF16", 2, SAFETENSOR_BF16},         {"U8", 1, SAFETENSOR_U8},
    {"F64", 8, SAFETENSOR_OTHER},         {"I64", 8, SAFETENSOR_OTHER},
    {"U64", 8, SAFETENSOR_OTHER},         {"I32", 4, SAFETENSOR_OTHER},
    {"U32", 4, SAFETENSOR_OTHER},         {"I16", 2, SAFETENSOR_OTHER},
    {"U16", 2, SAFETENSOR_OTHER},         {"I8", 1, SAFETENSOR_OTHER},
    {"BOOL", 1, SAFETENSOR_OTHER},        {"F8_E4M3", 1, SAFETENSOR_OTHER},
    {"F8_E5M2", 1, SAFETENSOR_OTHER},     {"F8_E8M0", 1, SAFETENSOR_OTHER},
    {"F8_E4M3FNUZ", 1, SAFETENSOR_OTHER}, {"F8_E5M2FNUZ", 1, SAFETENSOR_OTHER},
};
#define N_TYPES (sizeof types / sizeof types[0])

/* A file while its header is read. */
struct header {
    struct safetensors *s;
    int file;
    size_t data_at; /* byte of the file where the data begins */
    const char *path;
    struct error *err;
};

uint64_t safetensor_count(const struct safetensor *t)
{
    uint64_t n = 1;
    for (int i = 0; i < t->n_dims; i++)
        n *= t->shape[i];
    return n;
}

static enum status read_type(const struct header *h, struct json_object o, struct safetensor *t,
                             int *element_bytes)
{
    const char *name = NULL;
    TRY(json_take_text(o, "dtype", &name, h->err));
    for (size_t i = 0; name && i < N_TYPES; i++)
        if (strcmp(types[i].name, name) == 0) {
            t->type = types[i].type;
            t->type_name = types[i].name;
            *element_bytes = types[i].bytes;
            return STATUS_OK;
        }
    return fail(h->err, STATUS_UNSUPPORTED,
                "%s: dtype is %s%s; known are F32, F16, BF16, U8 and others of whole bytes", o.name,
                name ? "" : "absent", name ? name : "");
}

/* Sets shape and bytes. */
static enum status read_shape(const struct header *h, struct json_object o, struct safetensor *t,
                              int element_bytes)
{
    const json_t *shape = json_member(o, "shape");
    size_t n = json_array_size(shape);
    if (!json_is_array(shape) || n > SAFETENSOR_MAX_DIMS)
        return fail(h->err, STATUS_FORMAT,
                    "%s: 'shape' is %s of %zu, expected a list of at most %d", o.name,
                    json_kind(shape), n, SAFETENSOR_MAX_DIMS);
    t->n_dims = (int)n;
    t->bytes = (uint64_t)element_bytes;
    for (size_t i = 0; i < n; i++) {
        const json_t *dim = json_array_get(shape, i);
        int64_t size = -1;
        if (!json_whole(dim, &size) || size < 0)
            return fail(h->err, STATUS_FORMAT,
                        "%s: dimension %zu of 'shape' is no whole number from 0 to 2^53", o.name,
                        i);
        t->shape[i] = (uint64_t)size;
        if (__builtin_mul_overflow(t->bytes, t->shape[i], &t->bytes))
            return fail(h->err, STATUS_FORMAT, "%s: its shape has more bytes than 64 bits count",
                        o.name);
    }
    return STATUS_OK;
}

static enum status read_place(const struct header *h, struct json_object o, struct safetensor *t)
{
    const json_t *offsets = json_member(o, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    int64_t begin, end;
    if (json_array_size(offsets) != 2 || !json_whole(first, &begin) || !json_whole(last, &end))
        return fail(h->err, STATUS_FORMAT, "%s: 'data_offsets' is no list of two whole numbers",
                    o.name);
    const struct safetensors_file *file = &h->s->files[h->file];
    uint64_t room = file->size - h->data_at;
    if (begin < 0 || end < begin)
        return fail(h->err, STATUS_FORMAT,
                    "%s: 'data_offsets' are %lld and %lld, expected 0 <= "
                    "first <= second",
                    o.name, (long long)begin, (long long)end);
    if ((uint64_t)end > room)
        return fail(h->err, STATUS_FORMAT,
                    "%s: its data ends at byte %lld of %llu; the file is cut short: download it "
                    "again",
                    o.name, (long long)end, (unsigned long long)room);
    if ((uint64_t)(end - begin) != t->bytes)
        return fail(h->err, STATUS_FORMAT, "%s: %lld bytes of data, but its shape in %s has %llu",
                    o.name, (long long)(end - begin), t->type_name, (unsigned long long)t->bytes);
    t->data = file->bytes + h->data_at + begin;
    return STATUS_OK;
}

static enum status read_tensor(const struct header *h, const char *name, const json_t *json,
                               struct safetensor *t)
{
    char what[700];
    struct json_object o = {json, what};
    int element_bytes = 0;
    snprintf(what, sizeof what, "%.300s: tensor '%.300s'", h->path, name);
    size_t n = strlen(name);
    const char *copy = arena_text(&h->s->arena, name, n);
    if (!copy)
        return fail_memory(h->err, h->path, n);
    *t = (struct safetensor){.name = {copy, n}, .file = h->file};
    if (!json_is_object(json))
        return fail(h->err, STATUS_FORMAT, "%s: described by %s, expected an object", what,
                    json_kind(json));
    TRY(read_type(h, o, t, &element_bytes));
    TRY(read_shape(h, o, t, element_bytes));
    return read_place(h, o, t);
}

static int by_place(const void *a, const void *b)
{
    const struct safetensor *x = a, *y = b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty ones first */
}

static int by_name(const void *a, const void *b)
{
    const struct safetensor *x = a, *y = b;
    size_t n = x->name.n < y->name.n ? x->name.n : y->name.n;
    int order = memcmp(x->name.bytes, y->name.bytes, n);
    return order ? order : x->name.n < y->name.n ? -1 : x->name.n > y->name.n;
}

/* The format allows no gaps: every byte of the data belongs to one of the n tensors from `first`. */
static enum status check_places(const struct header *h, size_t first, size_t n)
{
    struct safetensor *list = n ? h->s->tensors + first : NULL;
    const struct safetensors_file *file = &h->s->files[h->file];
    const uint8_t *at = file->bytes + h->data_at, *end = file->bytes + file->size;
    if (n)
        qsort(list, n, sizeof *list, by_place);
    for (size_t i = 0; i < n; i++) {
        if (list[i].data < at)
            return fail(h->err, STATUS_FORMAT, "%s: tensors '%.*s' and '%.*s' overlap", h->path,
                        TEXT(list[i - 1].name), TEXT(list[i].name));
        if (list[i].data > at)
            return fail(h->err, STATUS_FORMAT,
                        "%s: %lld bytes before tensor '%.*s' belong to no tensor", h->path,
                        (long long)(list[i].data - at), TEXT(list[i].name));
        at += list[i].bytes;
    }
    if (at != end)
        return fail(h->err, STATUS_FORMAT, "%s: the last %lld bytes belong to no tensor", h->path,
                    (long long)(end - at));
    return STATUS_OK;
}

/* Room for n more tensors; it doubles, because the arena keeps every list that was outgrown. */
static enum status reserve(struct header *h, size_t n)
{
    struct safetensors *s = h->s;
    if (n <= s->tensors_size - s->n_tensors)
        return STATUS_OK;
    size_t size = 2 * s->tensors_size > s->n_tensors + n ? 2 * s->tensors_size : s->n_tensors + n;
    struct safetensor *list = arena_alloc(&s->arena, size, sizeof *list);
    if (!list)
        return fail_memory(h->err, h->path, size * sizeof *list);
    if (s->n_tensors)
        memcpy(list, s->tensors, s->n_tensors * sizeof *list);
    s->tensors = list;
    s->tensors_size = size;
    return STATUS_OK;
}

/* Appends the tensors of a file's header to the list. */
static enum status add_tensors(struct header *h, json_t *root)
{
    size_t before = h->s->n_tensors;
    TRY(reserve(h, json_object_size(root)));
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        TRY(read_tensor(h, name, value, &h->s->tensors[h->s->n_tensors]));
        h->s->n_tensors++;
    }
    return check_places(h, before, h->s->n_tensors - before);
}

/* Reads the header of a file that is mapped. */
static enum status read_header(struct safetensors *s, int file, struct error *err)
{
    const struct safetensors_file *f = &s->files[file];
    struct header h = {.s = s, .file = file, .path = f->path, .err = err};
    struct reader r = {.bytes = f->bytes, .size = f->size};
    uint64_t n = read_u64(&r);
    if (r.failed)
        return fail(err, STATUS_FORMAT, "%s: %zu bytes are no safetensors file; download it again",
                    f->path, f->size);
    if (n > MAX_HEADER || n > reader_left(&r))
        return fail(err, STATUS_FORMAT,
                    "%s: a header of %llu bytes in a file of %zu (at most %d); this is no "
                    "safetensors file, or it is cut short",
                    f->path, (unsigned long long)n, f->size, MAX_HEADER);
    json_t *root;
    h.data_at = r.at + (size_t)n;
    TRY(json_read_bytes((const char *)f->bytes + r.at, (size_t)n, f->path, &root, err));
    enum status status = add_tensors(&h, root);
    json_decref(root);
    return status;
}

static enum status finish(struct safetensors *s, struct error *err)
{
    if (s->n_tensors)
        qsort(s->tensors, s->n_tensors, sizeof *s->tensors, by_name);
    for (size_t i = 1; i < s->n_tensors; i++)
        if (text_equal(s->tensors[i - 1].name, s->tensors[i].name))
            return fail(err, STATUS_FORMAT, "tensor '%.*s' is in %s and in %s",
                        TEXT(s->tensors[i].name), s->files[s->tensors[i - 1].file].path,
                        s->files[s->tensors[i].file].path);
    return STATUS_OK;
}

static enum status join(struct safetensors *s, const char *dir, const char *name, char **path,
                        struct error *err)
{
    size_t n = strlen(dir) + strlen(name) + 2;
    *path = arena_alloc(&s->arena, n, 1);
    if (!*path)
        return fail_memory(err, dir, n);
    snprintf(*path, n, "%s/%s", dir, name);
    return STATUS_OK;
}

static enum status open_file(struct safetensors *s, const char *dir, const char *name,
                             struct error *err)
{
    struct safetensors_file *file = &s->files[s->n_files];
    TRY(join(s, dir, name, &file->path, err));
    TRY(file_map(file->path, "a safetensors file", &file->bytes, &file->size, err));
    s->n_files++;
    return read_header(s, s->n_files - 1, err);
}

/* Opens every file of the map once. Names are those of files in the same folder; opened: an empty
 * object that remembers them. */
static enum status open_names(struct safetensors *s, const char *dir, const char *index,
                              const json_t *map, json_t *opened, struct error *err)
{
    const char *tensor;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)map, tensor, value)
    {
        const char *name = json_string_value(value);
        if (!name || !name[0] || strchr(name, '/'))
            return fail(err, STATUS_FORMAT,
                        "%s: tensor '%s': expected the name of a file in this folder", index,
                        tensor);
        if (json_object_get(opened, name))
            continue;
        if (s->n_files == 4096)
            return fail(err, STATUS_LIMIT, "%s: lists more than 4096 files", index);
        TRY(open_file(s, dir, name, err));
        if (json_object_set_new(opened, name, json_true()) != 0)
            return fail_memory(err, index, strlen(name));
    }
    return STATUS_OK;
}

static enum status open_shards(struct safetensors *s, const char *dir, const char *index,
                               const json_t *map, struct error *err)
{
    json_t *opened = json_object();
    enum status status = opened ? open_names(s, dir, index, map, opened, err)
                                : fail_memory(err, index, sizeof *opened);
    json_decref(opened);
    return status;
}

/* What the index says of each tensor must be so. */
static enum status check_map(const struct safetensors *s, const char *index, const json_t *map,
                             struct error *err)
{
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct safetensor *t = &s->tensors[i];
        const char *listed = json_string_value(json_object_get(map, t->name.bytes));
        if (!listed || strcmp(listed, strrchr(s->files[t->file].path, '/') + 1) != 0)
            return fail(err, STATUS_FORMAT,
                        "%s: tensor '%.*s' is in %s, but the index %s%s; the files do not belong "
                        "together",
                        index, TEXT(t->name), s->files[t->file].path,
                        listed ? "says " : "does not list it", listed ? listed : "");
    }
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)map, name, value)
    {
        if (!safetensors_find(s, name))
            return fail(err, STATUS_FORMAT, "%s: tensor '%s' is listed, but %s does not hold it",
                        index, name, json_string_value(value));
    }
    return STATUS_OK;
}

static enum status open_indexed(struct safetensors *s, const char *dir, const char *index,
                                struct error *err)
{
    json_t *root;
    TRY(json_read_file(index, false, &root, err));
    const json_t *map = json_member((struct json_object){root, index}, "weight_map");
    enum status status =
        json_is_object(map) ? open_shards(s, dir, index, map, err)
                            : fail(err, STATUS_FORMAT, "%s: 'weight_map' is %s, expected an object",
                                   index, json_kind(map));
    if (status == STATUS_OK)
        status = finish(s, err);
    if (status == STATUS_OK)
        status = check_map(s, index, map, err);
    json_decref(root);
    return status;
}

static enum status open_folder(struct safetensors *s, const char *dir, struct error *err)
{
    const char *single = hf_file_names[HF_FILE_TENSORS];
    char *path, *index, *pickle;
    TRY(join(s, dir, single, &path, err));
    TRY(join(s, dir, hf_file_names[HF_FILE_INDEX], &index, err));
    TRY(join(s, dir, "pytorch_model.bin", &pickle, err));
    s->files = arena_alloc(&s->arena, 4096, sizeof *s->files);
    if (!s->files)
        return fail_memory(err, dir, 4096 * sizeof *s->files);
    if (access(path, F_OK) == 0) {
        TRY(open_file(s, dir, single, err));
        return finish(s, err);
    }
    if (access(index, F_OK) == 0)
        return open_indexed(s, dir, index, err);
    if (access(pickle, F_OK) == 0)
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: holds pytorch_model.bin, which only Python can read; save the model as "
                    "safetensors",
                    dir);
    return fail(err, STATUS_IO,
                "%s: neither model.safetensors nor model.safetensors.index.json is there; give "
                "the folder of a model",
                dir);
}

enum status safetensors_open(struct safetensors *s, const char *dir, struct error *err)
{
    *s = (struct safetensors){0};
    enum status status = open_folder(s, dir, err);
    if (status != STATUS_OK)
        safetensors_close(s);
    return status;
}

enum status safetensors_open_bytes(struct safetensors *s, const uint8_t *bytes, size_t size,
                                   const char *path, struct error *err)
{
    *s = (struct safetensors){0};
    enum status status = STATUS_OK;
    s->files = arena_alloc(&s->arena, 1, sizeof *s->files);
    char *name = arena_text(&s->arena, path, strlen(path));
    if (!s->files || !name)
        status = fail_memory(err, path, sizeof *s->files);
    if (status == STATUS_OK) {
        *s->files = (struct safetensors_file){name, bytes, size, true};
        s->n_files = 1;
        status = read_header(s, 0, err);
    }
    if (status == STATUS_OK)
        status = finish(s, err);
    if (status != STATUS_OK)
        safetensors_close(s);
    return status;
}

void safetensors_close(struct safetensors *s)
{
    for (int i = 0; i < s->n_files; i++)
        if (!s->files[i].is_borrowed)
            file_unmap(s->files[i].bytes, s->files[i].size);
    arena_done(&s->arena);
    *s = (struct safetensors){0};
}

const struct safetensor *safetensors_find(const struct safetensors *s, const char *name)
{
    const struct safetensor key = {.name = text_of(name)};
    if (!s->n_tensors)
        return NULL;
    return bsearch(&key, s->tensors, s->n_tensors, sizeof *s->tensors, by_name);
}
