/* Maps a file read-only, refusing everything that is no regular file without waiting for it. */
#ifndef TRINE_GGUF_GGUF_MAP_H
#define TRINE_GGUF_GGUF_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* *bytes gets the mapping, NULL for an empty file. errors: IO with the path and the reason */
enum status gguf_map(const char *path, const uint8_t **bytes, size_t *size, struct error *err);

/* Accepts NULL. */
void gguf_unmap(const uint8_t *bytes, size_t size);

#endif
