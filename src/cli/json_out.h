/* JSON results of commands. */
#ifndef TRINE_CLI_JSON_OUT_H
#define TRINE_CLI_JSON_OUT_H

#include <jansson.h>
#include <stdio.h>

#include "base/error.h"

/* Prints a value, indented, with a newline, and frees it. NULL stands for one that could not be made.
 * flags: of jansson, beside the indentation.
 * errors  MEMORY */
enum status json_out(FILE *out, json_t *value, size_t flags, struct error *err);

#endif
