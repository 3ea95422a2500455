/* Greedy continuations of many prompts, and how two sets of them differ. A file has one line for
 * each prompt, in order: {"prompt": T, "tokens": [ID, ...], "text": T}; the text is for people. */
#ifndef TRINE_MEASURE_GREEDY_FILE_H
#define TRINE_MEASURE_GREEDY_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/output_file.h"
#include "base/text.h"

struct continuation {
    struct text prompt; /* borrowed */
    int32_t *tokens;    /* owned */
    int n;
};

/* text: of the continuation. errors: IO, MEMORY */
enum status greedy_file_add(struct output_file *out, const struct continuation *c, struct text text,
                            struct error *err);

/* Reads as many continuations as there are prompts; each line must repeat its prompt. Of each at
 * most n_most tokens are kept.
 * errors: IO; FORMAT with the line's number; MEMORY */
enum status greedy_file_read(const char *path, const struct continuation *prompts,
                             struct continuation *read, size_t n, int n_most, struct error *err);

/* Where two continuations part: the first position with other tokens, or where one of them ends;
 * -1: nowhere. */
int first_difference(const struct continuation *a, const struct continuation *b);

#endif
