#include "gguf/gguf_split.h"

#include <stdio.h>
#include <string.h>

#include "gguf/gguf_metadata.h"

enum { POSTFIX_BYTES = sizeof "-00001-of-00002.gguf" };

static void write_postfix(char postfix[POSTFIX_BYTES], int no, int count)
{
    snprintf(postfix, POSTFIX_BYTES, "-%05u-of-%05u.gguf", (unsigned)(no + 1) % 100000,
             (unsigned)count % 100000);
}

/* Length of the path before its postfix, whatever numbers that holds; -1 if it has none. */
static int prefix_length(const char *path)
{
    size_t n = strlen(path), postfix = POSTFIX_BYTES - 1;
    if (n < postfix)
        return -1;
    static const char pattern[] = "-ddddd-of-ddddd.gguf";
    const char *p = path + n - postfix;
    for (size_t i = 0; i < postfix; i++)
        if (pattern[i] == 'd' ? p[i] < '0' || p[i] > '9' : p[i] != pattern[i])
            return -1;
    return (int)(n - postfix);
}

enum status gguf_split_count(const struct gguf_file *header, int *count, struct error *err)
{
    int64_t value = 1;
    TRY(gguf_optional_integer(header, "split.count", 0, 65535, &value, err));
    *count = value > 1 ? (int)value : 1;
    return STATUS_OK;
}

static enum status fail_not_first(const char *path, int64_t no, int count, struct error *err)
{
    char first[POSTFIX_BYTES];
    int prefix = prefix_length(path);
    write_postfix(first, 0, count);
    return fail(err, STATUS_UNSUPPORTED,
                "%s: file %d of %d of a split model, expected the first; open %.*s%s", path,
                (int)no + 1, count, prefix < 0 ? 0 : prefix, path, prefix < 0 ? first + 1 : first);
}

enum status gguf_split_check(const struct gguf_file *header, int no, int count, struct error *err)
{
    const char *path = header->shards[0].path;
    int64_t stored_no = 0, stored_count = 0;
    TRY(gguf_integer(header, "split.no", 0, 65535, &stored_no, err));
    TRY(gguf_integer(header, "split.count", 0, 65535, &stored_count, err));
    if (no == 0 && stored_no != 0)
        return fail_not_first(path, stored_no, (int)stored_count, err);
    if (stored_count != count)
        return fail(err, STATUS_FORMAT,
                    "%s: key 'split.count' is %d, expected %d as in the first file; the files "
                    "belong to different models",
                    path, (int)stored_count, count);
    if (stored_no != no)
        return fail(err, STATUS_FORMAT,
                    "%s: key 'split.no' is %d, expected %d; the files of the split model were "
                    "renamed or mixed: download them again",
                    path, (int)stored_no, no);
    char postfix[POSTFIX_BYTES];
    write_postfix(postfix, no, count);
    if (!text_ends(text_of(path), postfix))
        return fail(err, STATUS_FORMAT,
                    "%s: first of %d files of a split model, expected a name that ends in %s; give "
                    "all files the names they were published under",
                    path, count, postfix);
    return STATUS_OK;
}

char *gguf_split_name(struct arena *arena, const char *path, int no, int count)
{
    size_t n = strlen(path);
    char *name = arena_text(arena, path, n);
    if (name)
        write_postfix(name + n - (POSTFIX_BYTES - 1), no, count);
    return name;
}

enum status gguf_split_check_total(const struct gguf_file *header, size_t n_tensors,
                                   struct error *err)
{
    int64_t total = 0;
    TRY(gguf_integer(header, "split.tensors.count", 0, INT64_MAX, &total, err));
    if ((uint64_t)total != n_tensors)
        return fail(err, STATUS_FORMAT,
                    "%s: key 'split.tensors.count' is %lld, but the files of the split model hold "
                    "%zu tensors; download them again",
                    header->shards[0].path, (long long)total, n_tensors);
    return STATUS_OK;
}
