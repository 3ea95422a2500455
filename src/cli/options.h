/* Options as data: one table per command makes the parser, --help and the manual. */
#ifndef TRINE_CLI_OPTIONS_H
#define TRINE_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum option_type {
    OPT_FLAG,      /* bool */
    OPT_INT,       /* int64_t in [min, max] */
    OPT_NUMBER,    /* double in [min, max] */
    OPT_TEXT,      /* const char *: borrowed from argv */
    OPT_MAYBE_XML, /* const char *: borrowed from argv; "" when the option stands alone: its value
                      is the next argument only if that ends in .xml; any stands behind "=" */
    OPT_CHOICE /* int: min, and index into the words of `value`, which are separated by |; with a
                      min of 1 and no default 0 is "not given" */
};

/* A name without a dash ("MODEL") can be given by position; rows take positions in table order.
 * A row with a NULL name and a help text begins a group; a zeroed row ends the table. */
struct option {
    const char *names;   /* "-n, --predict" */
    const char *value;   /* what the value is called: "N"; NULL for a flag */
    const char *initial; /* default, as the user would write it; NULL: none */
    const char *help;
    enum option_type type;
    size_t offset; /* in the command's options struct */
    double min, max;
};

struct command {
    const char *name;
    const char *summary; /* a verb sentence without full stop */
    const char *details; /* paragraph for --help and the manual */
    const struct option *options;
    size_t options_bytes;            /* size of the options struct */
    int (*run)(const void *options); /* exit status */
};

/* All commands; ends with NULL. */
extern const struct command *const commands[];

/* Fills values (zeroed, options_bytes) with defaults, then from argv (after the command's name).
 * *wants_help: --help was given. errors: USAGE with one line of text. */
enum status options_parse(const struct command *command, int argc, char **argv, void *values,
                          bool *wants_help, struct error *err);

/* Prints help of one command, or of all, to standard output. */
void options_help(const struct command *command);
void options_overview(void);

/* Prints the manual page (man(7) macros) to standard output. */
void options_manual(void);

#endif
