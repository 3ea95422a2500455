/* Rows of a tensor in the mapping of the model's file. */
#ifndef TRINE_ENGINE_TENSOR_ROWS_H
#define TRINE_ENGINE_TENSOR_ROWS_H

#include <sys/mman.h>
#include <unistd.h>

#include "tensor/tensor.h"

/* The bytes of rows [row0, row1) of a tensor. */
static inline struct tensor rows_of_tensor(const struct tensor *t, int64_t row0, int64_t row1)
{
    uint64_t row_bytes = format_row_bytes(t->format, (uint64_t)t->n_cols);
    struct tensor part = *t;
    part.n_rows = row1 - row0;
    part.data = t->data + (uint64_t)row0 * row_bytes;
    part.bytes = (uint64_t)part.n_rows * row_bytes;
    return part;
}

/* Reads the pages of rows that will be needed in one call, instead of a fault per 16 pages. */
static inline void populate_rows(const struct tensor *part)
{
#ifdef MADV_POPULATE_READ
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)part->data / page * page;
    uintptr_t end = ((uintptr_t)part->data + part->bytes + page - 1) / page * page;
    madvise((void *)begin, end - begin, MADV_POPULATE_READ);
#else
    (void)part;
#endif
}

#endif
