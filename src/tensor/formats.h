/* Formats: layouts of tensors on disk. One table row each: name, GGUF type id, block geometry,
 * decoder, encoder. Which format a stored type id means is decided for a whole file at once by
 * format_resolve, because some ids mean different layouts in different programs. */
#ifndef TRINE_TENSOR_FORMATS_H
#define TRINE_TENSOR_FORMATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/tensor_span.h"

/* Order: as the table in formats.c. */
/* clang-format off */
enum format_id {
    FORMAT_F32, FORMAT_F16, FORMAT_BF16,
    FORMAT_Q4_0, FORMAT_Q4_1, FORMAT_Q5_0, FORMAT_Q5_1, FORMAT_Q8_0,
    FORMAT_Q2_K, FORMAT_Q3_K, FORMAT_Q4_K, FORMAT_Q5_K, FORMAT_Q6_K, FORMAT_Q8_K,
    FORMAT_IQ4_NL, FORMAT_IQ4_XS,
    FORMAT_TQ1_0, FORMAT_TQ2_0,
    FORMAT_I2_S, FORMAT_I2_S_4ROW, FORMAT_I2_S_ARM, /* one id, three byte orders */
    FORMAT_Q1_0, FORMAT_Q2_0, FORMAT_Q2_0_G128,
    FORMAT_IQ1_BN, FORMAT_IQ2_BN, FORMAT_IQ2_BN_R4,
    FORMAT_PQ2_0, FORMAT_PTQ1_0, FORMAT_TQ2_T, FORMAT_TQK6, FORMAT_TQK7,
    N_FORMATS
};
/* clang-format on */

struct tensor;

/* Decodes rows [row0, row1) to out: (row1 - row0, n_cols) floats. */
typedef void format_decode(const struct tensor *t, int64_t row0, int64_t row1, float *out);

/* Encodes a whole matrix from src: (n_rows, n_cols) floats, into out: format_bytes(...) bytes. */
typedef void format_encode(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out);

struct format {
    const char *name; /* as users write it: "TQ2_0" */
    uint32_t type_id; /* as stored in GGUF */
    int block;        /* weights per block along a row */
    int block_bytes;
    int row_prefix;       /* bytes before the blocks of each row */
    int tensor_tail;      /* bytes after the last row */
    int row_group;        /* rows stored together; n_rows must be a multiple */
    bool is_ternary;      /* values -1, 0, +1 (some: +2) times a scale */
    int scale_group;      /* ternary: weights per scale; 0 = row, -1 = tensor */
    bool is_scale_f32;    /* the scale is f32, else f16 */
    int scale_at, min_at; /* byte in a block of the scale, of the minimum's scale; -1: none there */
    format_decode *decode;
    format_encode *encode; /* NULL: none here */
};

/* The table row; never NULL for a valid id. */
const struct format *format_of(enum format_id id);

/* By the name a user types, any case ("tq2_0", "Q4_K"); N_FORMATS if unknown. */
enum format_id format_by_name(const char *name);

/* Exact data size in bytes of n_rows × n_cols. errors: FORMAT (n_cols no multiple of the block,
 * n_rows no multiple of row_group, overflow); what: for the message, e.g. "FILE: tensor 'x'". */
enum status format_bytes(enum format_id id, uint64_t n_rows, uint64_t n_cols, const char *what,
                         uint64_t *bytes, struct error *err);

/* The span_rule for GGUF files (base/tensor_span.h): fills format and bytes of every span.
 * Ambiguous ids (36..42, 142..146) are decided from the spans of all tensors of that id; the
 * reason is format_decision. I2_S is read as the published byte order. */
span_rule format_resolve;

/* The same with I2_S read in the byte order that somebody chose.
 * errors  also USAGE when no tensor is I2_S; FORMAT for a shape that the order cannot have */
span_rule format_resolve_i2_s_published, format_resolve_i2_s_arm, format_resolve_i2_s_4row;

/* Why a type id with several meanings is read as this format, in one sentence for `inspect`, or
 * NULL when the id has one meaning only. How it was decided for a given file is said in the field
 * `reason` of its spans. */
const char *format_decision(enum format_id id);

/* Bytes of one row with its prefix; in a format with row groups the mean over the group. */
uint64_t format_row_bytes(enum format_id id, uint64_t n_cols);

/* Bits per weight of this many rows and columns. */
double format_bits_per_weight(enum format_id id, uint64_t n_rows, uint64_t n_cols);

/* Checks that scales (of float formats: weights) are finite, as every decoder assumes.
 * errors: FORMAT naming the tensor and the row. */
enum status format_check_scales(const struct tensor *t, const char *what, struct error *err);

/* Decodes rows [row0, row1). */
void tensor_decode(const struct tensor *t, int64_t row0, int64_t row1, float *out);

#endif
