/* Files of one JSON object a line, made by anybody. */
#ifndef TRINE_MEASURE_JSON_LINES_H
#define TRINE_MEASURE_JSON_LINES_H

#include <jansson.h>
#include <stdio.h>

#include "base/error.h"

struct json_lines {
    FILE *stream;     /* owned */
    const char *path; /* borrowed */
    char *line;       /* owned */
    size_t size;
    long number; /* of the line that was read last, from 1 */
};

/* errors: IO */
enum status json_lines_open(struct json_lines *lines, const char *path, struct error *err);
/* The next object, blank lines skipped; NULL at the end. Its texts may hold zero bytes. The caller
 * decrefs it.
 * errors: IO; FORMAT with the line's number */
enum status json_lines_next(struct json_lines *lines, json_t **object, struct error *err);
/* Accepts a zeroed object. */
void json_lines_close(struct json_lines *lines);

#endif
