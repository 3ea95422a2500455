/* A file that appears complete or not at all: written under a temporary name beside the target,
 * renamed when everything is on disk. A file that was there keeps its mode, a symbolic link keeps
 * pointing to it. Devices and pipes are written in place. */
#ifndef TRINE_BASE_OUTPUT_FILE_H
#define TRINE_BASE_OUTPUT_FILE_H

#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

struct output_file {
    FILE *stream;    /* owned; NULL when closed */
    char *path;      /* owned: the final name */
    char *temporary; /* owned: NULL when the target is a device and written in place */
    uint64_t bytes;  /* written so far */
};

/* Creates the temporary file. errors: IO with the path and the reason, MEMORY. */
enum status output_file_open(struct output_file *file, const char *path, struct error *err);

/* Appends n bytes. errors: IO (disk full, closed pipe). */
enum status output_file_write(struct output_file *file, const void *bytes, size_t n,
                              struct error *err);

/* Appends zero bytes until the size is a multiple of alignment. */
enum status output_file_pad(struct output_file *file, size_t alignment, struct error *err);

/* Flushes to disk. The name written so far is output_file_name, so that it can be read back and
 * verified before it is committed. */
enum status output_file_flush(struct output_file *file, struct error *err);
const char *output_file_name(const struct output_file *file);

/* Flushes, closes and renames to the final name. On failure nothing is left. */
enum status output_file_commit(struct output_file *file, struct error *err);

/* Removes the temporary file of the one that is open, if any. Safe in a signal handler. */
void output_file_remove_unfinished(void);

/* Closes and removes what was written unless it was committed. Accepts a zeroed object. */
void output_file_close(struct output_file *file);

#endif
