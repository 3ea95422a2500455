#include "measure/json_lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum status json_lines_open(struct json_lines *lines, const char *path, struct error *err)
{
    *lines = (struct json_lines){.path = path, .stream = fopen(path, "rb")};
    if (!lines->stream)
        return fail(err, STATUS_IO, "%s: cannot open: %s", path, strerror(errno));
    return STATUS_OK;
}

enum status json_lines_next(struct json_lines *lines, json_t **object, struct error *err)
{
    *object = NULL;
    ssize_t n;
    do {
        errno = 0;
        n = getline(&lines->line, &lines->size, lines->stream);
        if (n < 0 && (ferror(lines->stream) || errno == ENOMEM))
            return fail(err, STATUS_IO, "%s: cannot read line %ld: %s", lines->path,
                        lines->number + 1, strerror(errno));
        if (n < 0)
            return STATUS_OK;
        lines->number++;
    } while (strspn(lines->line, " \t\r\n") == (size_t)n);
    json_error_t problem;
    *object = json_loadb(lines->line, (size_t)n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &problem);
    if (json_is_object(*object))
        return STATUS_OK;
    const char *reason = *object ? "is no object" : problem.text;
    json_decref(*object);
    *object = NULL;
    return fail(err, STATUS_FORMAT, "%s: line %ld: expected one JSON object: %s", lines->path,
                lines->number, reason);
}

void json_lines_close(struct json_lines *lines)
{
    if (lines->stream)
        fclose(lines->stream);
    free(lines->line);
    *lines = (struct json_lines){0};
}
