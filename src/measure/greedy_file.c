#include "measure/greedy_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "measure/json_lines.h"

enum status greedy_file_add(struct output_file *out, const struct continuation *c, struct text text,
                            struct error *err)
{
    json_t *tokens = json_array();
    for (int i = 0; i < c->n; i++)
        json_array_append_new(tokens, json_integer(c->tokens[i]));
    json_t *line = json_pack("{s:s%, s:o, s:s%}", "prompt", c->prompt.bytes, c->prompt.n, "tokens",
                             tokens, "text", text.bytes, text.n);
    char *dumped = line ? json_dumps(line, JSON_COMPACT) : NULL;
    json_decref(line);
    if (!dumped)
        return fail_memory(err, out->path, 0);
    enum status status = output_file_write(out, dumped, strlen(dumped), err);
    free(dumped);
    return status == STATUS_OK ? output_file_write(out, "\n", 1, err) : status;
}

static enum status read_ids(const struct json_lines *lines, json_t *ids, struct continuation *c,
                            int n_most, struct error *err)
{
    if (!json_is_array(ids))
        return fail(err, STATUS_FORMAT, "%s: line %ld: expected a list \"tokens\" of ids",
                    lines->path, lines->number);
    size_t n = json_array_size(ids);
    n = n < (size_t)n_most ? n : (size_t)n_most;
    c->tokens = memory_alloc(n, sizeof *c->tokens);
    if (!c->tokens)
        return fail_memory(err, lines->path, n * sizeof *c->tokens);
    for (size_t i = 0; i < n; i++) {
        json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            return fail(err, STATUS_FORMAT, "%s: line %ld: entry %zu of \"tokens\" is no id",
                        lines->path, lines->number, i);
        c->tokens[c->n++] = (int32_t)json_integer_value(id);
    }
    return STATUS_OK;
}

static enum status read_line(const struct json_lines *lines, json_t *line,
                             const struct continuation *expected, struct continuation *c,
                             int n_most, struct error *err)
{
    json_t *prompt = json_object_get(line, "prompt");
    struct text text = {json_string_value(prompt), json_string_length(prompt)};
    if (!text.bytes || !text_equal(text, expected->prompt))
        return fail(err, STATUS_FORMAT,
                    "%s: line %ld: \"prompt\" is not '%.*s', the prompt of that place; expected a "
                    "line for each prompt, in order",
                    lines->path, lines->number, TEXT(expected->prompt));
    return read_ids(lines, json_object_get(line, "tokens"), c, n_most, err);
}

static enum status read_all(struct json_lines *lines, const struct continuation *prompts,
                            struct continuation *read, size_t n, int n_most, struct error *err)
{
    for (size_t i = 0; i <= n; i++) {
        json_t *line;
        TRY(json_lines_next(lines, &line, err));
        enum status status = STATUS_OK;
        if (line && i < n)
            status = read_line(lines, line, &prompts[i], &read[i], n_most, err);
        json_decref(line);
        TRY(status);
        if (!line != (i == n))
            return fail(err, STATUS_FORMAT, "%s: has %s than the %zu prompts", lines->path,
                        line ? "more lines" : "fewer lines", n);
    }
    return STATUS_OK;
}

enum status greedy_file_read(const char *path, const struct continuation *prompts,
                             struct continuation *read, size_t n, int n_most, struct error *err)
{
    struct json_lines lines;
    enum status status = json_lines_open(&lines, path, err);
    if (status == STATUS_OK)
        status = read_all(&lines, prompts, read, n, n_most, err);
    json_lines_close(&lines);
    return status;
}

int first_difference(const struct continuation *a, const struct continuation *b)
{
    int n = a->n < b->n ? a->n : b->n;
    for (int i = 0; i < n; i++)
        if (a->tokens[i] != b->tokens[i])
            return i;
    return a->n == b->n ? -1 : n;
}
