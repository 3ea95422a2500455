/* What the tests of ops share: random data, and the kernels that this machine can run. */
#ifndef TRINE_TESTS_KERNELS_OP_FIXTURE_H
#define TRINE_TESTS_KERNELS_OP_FIXTURE_H

#include <stdlib.h>
#include <string.h>

#include "../support.h"
#include "base/random.h"
#include "kernels/kernel_select.h"
#include "machine/cpu_features.h"

static struct random source;

/* Fails with a message unless the condition holds. */
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg(__VA_ARGS__);                                                                 \
    } while (0)

static inline void *bytes_of(size_t size, int fill)
{
    void *block = malloc(size ? size : 1);
    assert_non_null(block);
    return memset(block, fill, size);
}

static inline float *floats(int64_t n)
{
    float *x = bytes_of((size_t)n * sizeof *x, 0);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)random_normal(&source);
    return x;
}

static inline int below(int n)
{
    return (int)(random_bits(&source) % (uint64_t)n);
}

#define EACH(shape, shapes)                                                                        \
    for (const typeof(*(shapes)) *shape = shapes;                                                  \
         shape < (shapes) + sizeof(shapes) / sizeof *(shapes); shape++)

/* The rows of an op that this machine can run, the scalar one first; n: how far it got. */
static inline const struct kernel_row *next_row(enum op op, int *n)
{
    for (; *n < n_kernel_rows; ++*n)
        if (kernel_rows[*n].op == op && cpu_has_isa(kernel_rows[*n].isa))
            return &kernel_rows[(*n)++];
    return NULL;
}

static inline kernel *scalar_of(enum op op)
{
    const struct kernel_row *row = kernel_select(op, PACKING_none, ISA_scalar);
    assert_non_null(row);
    return row->run;
}

#endif
