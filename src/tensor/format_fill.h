/* Random weights in any format, fast enough for models of many gigabytes: bytes are drawn directly,
 * never as floats that would have to be encoded. What is decoded has mean 0 and the deviation asked
 * for, so that a model made of it computes with numbers of ordinary size. */
#ifndef TRINE_TENSOR_FORMAT_FILL_H
#define TRINE_TENSOR_FORMAT_FILL_H

#include "base/random.h"
#include "tensor/formats.h"

/* Fills n_rows rows of n_cols weights, format_row_bytes each; n_rows is a multiple of the format's
 * row_group, n_cols of its block. A tensor may be filled in several calls, one after the other.
 * Ternary formats get -1, 0, +1 with a third each, only the bytes an encoder would write, and one
 * scale everywhere, which f16 holds exactly: such a tensor converts to every other ternary format
 * without loss.
 * units  deviation: of the decoded weights; below about 1e-4 f16 scales begin to round it */
void format_fill_rows(enum format_id id, int64_t n_rows, int64_t n_cols, float deviation,
                      struct random *random, uint8_t *out);

/* Writes the tensor_tail bytes behind the last row, with the scale that format_fill_rows stands
 * for; nothing in a format without a tail. */
void format_fill_tail(enum format_id id, float deviation, uint8_t *out);

/* A whole tensor: rows and tail, format_bytes(...) in all. */
void format_fill_random(enum format_id id, int64_t n_rows, int64_t n_cols, float deviation,
                        struct random *random, uint8_t *out);

#endif
