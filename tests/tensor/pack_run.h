/* What the tests of packings share: random numbers, the choice of a packing, and a job run by all
 * pack kernels of this machine, whose values must be the format's own and whose bytes the same. */
#ifndef TRINE_TESTS_PACK_RUN_H
#define TRINE_TESTS_PACK_RUN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"
#include "base/float16.h"
#include "base/random.h"
#include "base/reader.h"
#include "kernels/kernel_select.h"
#include "machine/cpu_features.h"
#include "tensor/ternary.h"

static struct random source;
static enum isa isa_cap;

static inline int pick(int n)
{
    return (int)(random_bits(&source) % (uint64_t)n);
}

static inline struct packing_choice choose(const struct tensor *t, bool allow_trits5)
{
    void *scratch = malloc(PACKING_CHOOSE_SCRATCH(t->n_cols));
    assert_non_null(scratch);
    struct packing_choice choice = packing_choose(t, allow_trits5, scratch);
    free(scratch);
    return choice;
}

/* Runs one kernel into fresh memory; the result is freed by the caller. */
static inline uint8_t *pack(const struct kernel_row *row, const struct pack_job *job, int fill)
{
    const struct packed *w = &job->w;
    uint64_t bytes = packed_bytes(w->packing, w->group, w->n_rows, w->n_cols);
    uint8_t *data = aligned_alloc(64, bytes), *scratch;
    scratch = aligned_alloc(64, (PACK_SCRATCH(job->source[0]->n_cols) + 63) / 64 * 64);
    assert_true(data && scratch);
    memset(data, fill, bytes);
    memset(scratch, ~fill, PACK_SCRATCH(job->source[0]->n_cols));
    union job all = {.pack = *job};
    all.pack.w.data = data;
    all.pack.scratch = scratch;
    int middle = (int)(w->n_rows / 32 * 16); /* two ranges */
    row->run(&all, 0, middle);
    row->run(&all, middle, (int)w->n_rows);
    free(scratch);
    return data;
}

/* The values of a job by the formats' decoders. */
static inline float *expected_values(const struct pack_job *job)
{
    int64_t source_cols = job->source[0]->n_cols, n_cols = job->w.n_cols;
    float *values = malloc((size_t)(job->w.n_rows * n_cols) * sizeof *values);
    float *whole = malloc((size_t)source_cols * sizeof *whole);
    assert_true(values && whole);
    for (int64_t r = 0; r < job->w.n_rows; r++) {
        int64_t i = r / job->n_sources, from = job->row_of ? job->row_of[i] : i;
        tensor_decode(job->source[r % job->n_sources], from, from + 1, whole);
        memcpy(values + r * n_cols, whole + job->col0, (size_t)n_cols * sizeof *values);
    }
    free(whole);
    return values;
}

static inline void check_values(const struct pack_job *job, uint8_t *data, const char *what)
{
    struct packed w = job->w;
    int64_t n = w.n_rows * w.n_cols;
    int64_t all_rows = (w.n_rows + 15) / 16 * 16;
    float *expected = expected_values(job);
    float *values = malloc((size_t)(all_rows * w.n_cols) * sizeof *values);
    assert_non_null(values);
    w.data = data;
    w.n_rows = all_rows;
    packed_decode(&w, 0, all_rows, values);
    for (int64_t i = 0; i < n; i++)
        if (!(values[i] == expected[i]))
            fail_msg("%s: row %d, input %d: %g, not %g", what, (int)(i / w.n_cols),
                     (int)(i % w.n_cols), (double)values[i], (double)expected[i]);
    for (int64_t i = n; i < all_rows * w.n_cols; i++)
        if (values[i] != 0)
            fail_msg("%s: padding row %d is not zero", what, (int)(i / w.n_cols));
    free(values);
    free(expected);
}

static inline void check_same(const uint8_t *data, const uint8_t *first, uint64_t n,
                              const char *what)
{
    for (uint64_t i = 0; i < n; i++)
        if (data[i] != first[i])
            fail_msg("%s: byte %d of %d is %02x, not %02x", what, (int)i, (int)n, data[i],
                     first[i]);
}

/* Packs by all kernels of this machine: the first gives the format's values, the others its bytes.
 */
static inline void check_job(struct pack_job *job)
{
    char what[200];
    const struct packed *w = &job->w;
    uint64_t bytes = packed_bytes(w->packing, w->group, w->n_rows, w->n_cols);
    uint8_t *first = NULL;
    for (const struct kernel_row *row = kernel_rows; row < kernel_rows + n_kernel_rows; row++) {
        if (row->op != OP_pack || row->packing != w->packing || !isa_includes(isa_cap, row->isa))
            continue;
        snprintf(what, sizeof what, "%s: %s to group %d, %d x %d from column %d", row->name,
                 format_of(job->source[0]->format)->name, w->group, (int)w->n_rows, (int)w->n_cols,
                 (int)job->col0);
        uint8_t *data = pack(row, job, first ? 0xa5 : 0x5a);
        if (!first) {
            check_values(job, data, what);
            first = data;
            data = pack(row, job, 0xa5); /* every byte is written */
        }
        check_same(data, first, bytes, what);
        free(data);
    }
    assert_non_null(first);
    free(first);
}

/* All trits that a ternary tensor can become: with the coarsest scales and, in f16, finer ones. */
static inline void check_trits(struct pack_job *job, enum packing packing,
                               struct packing_choice choice)
{
    const struct tensor *t = job->source[0];
    job->w.packing = packing;
    job->w.group = choice.group;
    check_job(job);
    for (int group = 256; group >= 64; group /= 2) {
        if (!choice.is_half || t->n_cols % group || (choice.group > 0 && group >= choice.group))
            continue;
        job->w.group = group;
        check_job(job);
    }
}

#endif
