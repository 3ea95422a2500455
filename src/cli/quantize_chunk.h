/* Rows of one tensor under `trine quantize`: encoded, and compared with the source. Chunks are cut the
 * same way for any number of threads. */
#ifndef TRINE_CLI_QUANTIZE_CHUNK_H
#define TRINE_CLI_QUANTIZE_CHUNK_H

#include "cli/quantize_plan.h"
#include "tensor/ternary.h"

/* Weights of a chunk, if its rows have no more: their floats stay in the second-level cache. */
#define CHUNK_WEIGHTS ((int64_t)1 << 16)

/* What chunks of one tensor have in common. */
struct chunk_source {
    const char *in_path; /* borrowed; for messages */
    const struct gguf_tensor *tensor;
    const struct tensor_plan *plan;
    struct tensor source;
    int64_t n_rows;             /* of a chunk; of the last one fewer */
    struct ternary_scale scale; /* CODES: of a target with one scale in all */
};

struct chunk_source chunk_source_of(const char *in_path, const struct gguf_tensor *tensor,
                                    const struct tensor_plan *plan);
int64_t chunk_count(const struct chunk_source *s);

/* Rows [row, end). */
struct chunk_rows {
    int64_t row, end;
};
struct chunk_rows chunk_rows_of(const struct chunk_source *s, int64_t chunk);

/* Memory of one thread. A zeroed one can be closed. */
struct chunk_memory {
    float *before, *after; /* owned: values */
    uint8_t *codes;        /* owned */
    float *scales;         /* owned */
};

/* Weights of a chunk: whole rows, as many as the target stores together. */
int64_t chunk_weights(enum format_id target, int64_t n_cols);

/* n: weights of the largest chunk. errors: MEMORY */
enum status chunk_memory_open(struct chunk_memory *m, int64_t n, const char *what,
                              struct error *err);
void chunk_memory_close(struct chunk_memory *m);

/* What was found in a chunk. */
struct chunk_result {
    double difference2, weight2; /* sums over its weights */
    uint64_t hash;               /* of the bytes */
    struct ternary_scale scale;  /* CODES: of these rows alone */
};

/* CODES: finds the scale of a target that has one in all, from these rows alone.
 * errors  as ternary_encode, of these rows alone */
enum status chunk_gather(const struct chunk_source *s, int64_t chunk, struct chunk_memory *m,
                         struct chunk_result *result, struct error *err);

/* The same, of all rows in their order: says what is wrong where chunks by themselves were not enough. */
enum status chunk_gather_all(struct chunk_source *s, struct chunk_memory *m, struct error *err);

/* Encodes a chunk to out; VALUES are compared at once.
 * errors  UNSUPPORTED: a value that the target does not hold */
enum status chunk_encode(const struct chunk_source *s, int64_t chunk, struct chunk_memory *m,
                         uint8_t *out, struct chunk_result *result, struct error *err);

/* CODES: compares what was written with the source. errors: UNSUPPORTED */
enum status chunk_compare(const struct chunk_source *s, int64_t chunk, const struct tensor *written,
                          struct chunk_memory *m, struct chunk_result *result, struct error *err);

#endif
