/* A matrix (or vector) of numbers as stored: a view, no ownership. */
#ifndef TRINE_TENSOR_TENSOR_H
#define TRINE_TENSOR_TENSOR_H

#include <stdint.h>

#include "tensor/formats.h"

struct tensor {
    enum format_id format;
    int64_t n_cols;      /* input features: contiguous in a row */
    int64_t n_rows;      /* output features; further dimensions are folded in */
    const uint8_t *data; /* borrowed: the file's mapping */
    uint64_t bytes;
};

#endif
