/* Files of full predictions, in the layout that llama-perplexity writes and reads with
 * --kl-divergence-base, so that bases go from one program to another. All numbers little-endian:
 *
 *   char[8]  "_logits_"
 *   u32      n_ctx: tokens of a chunk
 *   i32      n_vocab
 *   i32      n_chunk
 *   i32      tokens[n_chunk][n_ctx], as in the text: no token of a chunk is replaced by BOS
 *   row      rows[n_chunk][chunk_scored(n_ctx)], one for each token that is scored:
 *     f32      step
 *     f32      lowest
 *     u16      codes[n_vocab], and one more if n_vocab is odd
 *              log p = lowest + step * code
 *
 * The steps are 65535 in number and reach from the largest logit to the smallest, at most 16 below:
 * what lies deeper has code 0. So a log p is kept to 16 / 65535 / 2 = 0.00012. ik_llama.cpp writes
 * the same file but lets the steps reach to the smallest logit, however deep; both kinds are read.
 * A row's probabilities must sum to 1 within what the steps round. */
#ifndef TRINE_MEASURE_LOGITS_FILE_H
#define TRINE_MEASURE_LOGITS_FILE_H

#include <stdint.h>

#include "base/output_file.h"
#include "measure/divergence.h"

#define LOGITS_DEPTH 16.0 /* nats below the most likely token that a row keeps */

struct logits_shape {
    int n_ctx, n_vocab, n_chunk;
};

struct logits_writer {
    struct output_file out;
    int n_vocab;
    uint8_t *row; /* owned */
};

/* tokens: n_chunk * n_ctx of the text. errors: IO, MEMORY */
enum status logits_writer_open(struct logits_writer *writer, const char *path,
                               const struct logits_shape *shape, const int32_t *tokens,
                               struct error *err);
/* The next row, of finite logits. errors: IO */
enum status logits_writer_add(struct logits_writer *writer, const float *logits, struct error *err);
/* The file appears. errors: IO */
enum status logits_writer_commit(struct logits_writer *writer, struct error *err);
/* Removes what was not committed. Accepts a zeroed object. */
void logits_writer_close(struct logits_writer *writer);

struct logits_reader {
    FILE *stream;     /* owned */
    const char *path; /* borrowed */
    struct logits_shape shape;
    int32_t *tokens; /* owned: n_chunk * n_ctx, each in [0, n_vocab) */
    uint8_t *bytes;  /* owned: a row as it lies in the file */
    double *log_p;   /* owned: the row that was read last */
    int64_t n_read;  /* rows */
};

/* Checks that the file has exactly the bytes that its shape says.
 * errors: IO, FORMAT, MEMORY */
enum status logits_reader_open(struct logits_reader *reader, const char *path, struct error *err);
/* The next row; lasts until the next call. errors: IO; FORMAT for numbers that cannot be right */
enum status logits_reader_next(struct logits_reader *reader, struct base_row *row,
                               struct error *err);
/* Accepts a zeroed object. */
void logits_reader_close(struct logits_reader *reader);

#endif
