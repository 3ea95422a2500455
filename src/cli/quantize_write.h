/* Carries out a plan of `trine quantize`: writes the file under a temporary name, reads it back,
 * compares, and only then gives it its name. */
#ifndef TRINE_CLI_QUANTIZE_WRITE_H
#define TRINE_CLI_QUANTIZE_WRITE_H

#include "cli/chunk_team.h"
#include "cli/quantize_plan.h"

/* What a conversion changed, as sums over the weights of one tensor. */
struct quantize_error {
    double difference2; /* of squared differences */
    double weight2;     /* of squared weights */
};

/* in_path: for messages. type: what general.file_type says. errors: per tensor of the file, filled. The file
 * and the errors are the same for any number of threads.
 * Read back, of CODES every value is the source's; of VALUES every byte is as the encoder made it (by
 * a hash of 64 bits), and what it decodes to was compared with the source; of KEEP every byte is the
 * source's.
 * errors  IO, MEMORY; UNSUPPORTED: a ternary type cannot hold the scales, a value is out of a type's
 *         range, or the file would be read as another type. Nothing is left of the output. */
enum status quantize_write(const struct quantize_plan *plan, const struct gguf_file *in,
                           const char *in_path, const char *out_path, enum format_id type,
                           struct chunk_team *team, struct quantize_error *errors,
                           struct error *err);

#endif
