/* Ternary tensors apart from any layout: codes and scales. The way between ternary formats
 * without loss, and the test whether a matrix of floats is ternary at all. */
#ifndef TRINE_TENSOR_TERNARY_H
#define TRINE_TENSOR_TERNARY_H

#include "tensor/tensor.h"

/* Codes and scales of rows of a ternary tensor: value = (code - 1) * scale. */
struct ternary_rows {
    uint8_t *codes; /* (n_rows, n_cols): 0, 1, 2 for -1, 0, +1; 3 for +2 where a format has it */
    float *scales;  /* (n_rows, n_cols / group) */
    int group;      /* weights per scale, divides n_cols */
};

/* Extracts rows [row0, row1) of a ternary format and sets out->group: n_cols for per-row and
 * per-tensor scales, else the format's group. codes and scales are the caller's, of the sizes
 * above. */
void ternary_extract(const struct tensor *t, int64_t row0, int64_t row1, struct ternary_rows *out);

/* Finds codes and scales of one row of floats, with one scale per `group` weights: every |w| of a
 * group is 0 or the same number (the scale; 0 for a group of zeros). False when it is not ternary.
 * codes: n_cols; scales: n_cols / group. Signs of zero do not matter. */
bool ternary_find(const float *row, int64_t n_cols, int group, uint8_t *codes, float *scales);

/* Encodes a whole matrix of codes and scales (per `group` weights) in a ternary format, without any
 * loss. what: for messages.
 * Weights of scale 0 count as zeros, whatever their codes are.
 * errors  UNSUPPORTED, naming row and group: code 3 in a format without it, scales that differ
 *         inside a group of the target (groups of zeros adapt to the others), a scale that f16
 *         cannot hold exactly; FORMAT: a shape that the format cannot have (format_bytes) */
enum status ternary_encode(enum format_id format, const struct ternary_rows *rows, int64_t n_rows,
                           int64_t n_cols, const char *what, uint8_t *out, struct error *err);

#endif
