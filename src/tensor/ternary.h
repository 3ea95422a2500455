/* Ternary tensors apart from any layout: codes and scales. The way between ternary formats
 * without loss, and the test whether the values of any other format are ternary at all. */
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

/* The scales of a tensor whose values are ternary though its format is not. */
struct ternary_values {
    int group;    /* weights per scale: of 0 (the row), 256, 128 and 64 the coarsest that changes no
                     value and divides n_cols */
    bool is_half; /* all scales are f16 numbers */
};

/* Whether all values of a tensor of a format that is not ternary are ternary, with one scale per
 * row, or with f16 scales per group; groups of zeros fit to any scale. Looks at all rows of a
 * tensor that is, and no further than the first weights that show that it is not. scratch:
 * TERNARY_SCRATCH(n_cols) bytes, aligned to 4. */
bool ternary_recognise(const struct tensor *t, void *scratch, struct ternary_values *found);
#define TERNARY_SCRATCH(n_cols) ((size_t)(n_cols)*5 + 64)

/* Codes and scales of one row of such a tensor, with one scale (0 for zeros only) per `group`
 * weights: n_cols, 256, 128 or 64. False when the row is not ternary with these groups. codes: n_cols;
 * scales: n_cols / group; scratch as above. */
bool ternary_read(const struct tensor *t, int64_t row, int group, void *scratch, uint8_t *codes,
                  float *scales);

/* The next finer grouping after `group` (0: the row) that divides rows of n_cols: 256, 128 or 64; 0
 * if there is none. */
int ternary_finer_group(int group, int64_t n_cols);

/* Rows [row0, row0 + n_rows) of a matrix of codes and scales, which begin at row0. */
struct ternary_part {
    const struct ternary_rows *rows; /* borrowed */
    int64_t row0, n_rows, n_cols;
    const char *what; /* borrowed; for messages */
};

/* What the rows of a format with one scale for all have in common. Zeroed: of no rows. */
struct ternary_scale {
    float scale; /* of rows that are not zero; before there are some that of row 0 */
    bool is_found;
};

/* Adds rows in their order to what is known of the tensor's scale; nothing in a format with scales of
 * its rows or groups. errors: as ternary_encode */
enum status ternary_gather_scale(enum format_id format, const struct ternary_part *part,
                                 struct ternary_scale *scale, struct error *err);

/* Encodes rows, format_row_bytes each, whose number and first row are multiples of the format's row_group.
 * scale: of all rows. errors: as ternary_encode */
enum status ternary_encode_rows(enum format_id format, const struct ternary_part *part,
                                const struct ternary_scale *scale, uint8_t *out, struct error *err);

/* Writes the tensor_tail bytes behind the last row; nothing in a format without a tail. */
void ternary_encode_tail(enum format_id format, const struct ternary_scale *scale, uint8_t *out);

/* Encodes a whole matrix of codes and scales (per `group` weights) in a ternary format, without any
 * loss. what: for messages.
 * Weights of scale 0 count as zeros, whatever their codes are.
 * errors  UNSUPPORTED, naming row and group: code 3 in a format without it, scales that differ
 *         inside a group of the target (groups of zeros adapt to the others), a scale that f16
 *         cannot hold exactly; FORMAT: a shape that the format cannot have (format_bytes) */
enum status ternary_encode(enum format_id format, const struct ternary_rows *rows, int64_t n_rows,
                           int64_t n_cols, const char *what, uint8_t *out, struct error *err);

#endif
