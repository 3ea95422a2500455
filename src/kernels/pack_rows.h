/* What all pack kernels share: where a packed row comes from. */
#ifndef TRINE_KERNELS_PACK_ROWS_H
#define TRINE_KERNELS_PACK_ROWS_H

#include <stddef.h>

#include "kernels/kernels.h"
#include "tensor/tensor.h"

struct pack_source {
    const struct tensor *tensor; /* NULL: a row beyond the last */
    int64_t row;
};

static inline struct pack_source pack_source(const struct pack_job *job, int64_t r)
{
    if (r >= job->w.n_rows)
        return (struct pack_source){NULL, 0};
    int64_t i = r / job->n_sources;
    return (struct pack_source){job->source[r % job->n_sources], job->row_of ? job->row_of[i] : i};
}

/* A range that ends with the last row has the whole last tile. */
static inline int64_t pack_end(int64_t end)
{
    return (end + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
}

/* Block of a row at the first column of the job; for formats of plain blocks. */
static inline const uint8_t *pack_source_block(const struct pack_job *job, struct pack_source from)
{
    const struct format *f = format_of(from.tensor->format);
    uint64_t n_cols = (uint64_t)from.tensor->n_cols;
    return from.tensor->data + (uint64_t)from.row * format_row_bytes(from.tensor->format, n_cols) +
           job->col0 / f->block * f->block_bytes;
}

/* The blocks of 16 rows, for formats of plain blocks. Rows beyond the last stay at one block of zeros. */
struct block_rows {
    const uint8_t *block[TILE_ROWS];
    int bytes[TILE_ROWS]; /* to the next block; 0 beyond the last row */
};

static inline struct block_rows begin_rows(const struct pack_job *job, int64_t row,
                                           const uint8_t *zero)
{
    struct block_rows rows;
    for (int r = 0; r < TILE_ROWS; r++) {
        struct pack_source from = pack_source(job, row + r);
        rows.block[r] = from.tensor ? pack_source_block(job, from) : zero;
        rows.bytes[r] = from.tensor ? format_of(from.tensor->format)->block_bytes : 0;
    }
    return rows;
}

static inline uint8_t *pack_tile(const struct pack_job *job, int64_t row)
{
    const struct packed *w = &job->w;
    return w->data +
           (uint64_t)(row / TILE_ROWS) * packed_tile_bytes(w->packing, w->group, w->n_cols);
}

#endif
