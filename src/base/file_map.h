/* Maps a file read-only, refusing everything that is no regular file without waiting for it. */
#ifndef TRINE_BASE_FILE_MAP_H
#define TRINE_BASE_FILE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* *bytes gets the mapping, NULL for an empty file. expected: what the file should be, for the
 * message: "a GGUF file". errors: IO with the path and the reason */
enum status file_map(const char *path, const char *expected, const uint8_t **bytes, size_t *size,
                     struct error *err);

/* Accepts NULL. */
void file_unmap(const uint8_t *bytes, size_t size);

#endif
