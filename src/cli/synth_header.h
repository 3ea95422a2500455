/* What a file of `trine synth` would begin with. */
#ifndef TRINE_CLI_SYNTH_HEADER_H
#define TRINE_CLI_SYNTH_HEADER_H

#include <stdint.h>

#include "base/error.h"

/* Writes all of the file but the tensors' bytes to a pipe; *n_bytes: of the whole file. The types of
 * the tables are those that `synth` chooses.
 * errors  USAGE: unknown shape or type; IO, MEMORY */
enum status synth_write_header(const char *shape, const char *type, const char *pipe,
                               uint64_t *n_bytes, struct error *err);

#endif
