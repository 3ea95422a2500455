/* Checks of kernels, shared by test_kernel_check (which compares) and kernel_bench (which times the
 * same calls at a large size). A check builds jobs out of blocks: memory with an inaccessible page
 * directly behind it and a canary before it; inputs cannot be written while a kernel runs. */
#ifndef TRINE_TESTS_KERNELS_CHECK_H
#define TRINE_TESTS_KERNELS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/random.h"
#include "kernels/kernel_select.h"

enum fill { FILL_ZERO, FILL_MIN, FILL_MAX, FILL_ONES, FILL_RANDOM, N_FILLS };
extern const char *const fill_names[];

enum role { ROLE_INPUT, ROLE_OUTPUT, ROLE_SCRATCH };

struct block {
    const char *name;
    enum role role;
    uint8_t *data; /* bytes; bytes + 1 is a fault */
    size_t bytes;
    /* Outputs: rows of row_bytes, of which a kernel may write the first used_bytes; 0: all. */
    size_t row_bytes, used_bytes;
    uint8_t *initial, *expected, *part; /* outputs: copies */
};

#define MAX_BLOCKS 32

/* What a large job does, for rates. */
struct workload {
    int64_t bytes_read; /* distinct bytes that a pass must read */
    int64_t units;      /* weights of matmul and pack, else elements of the input */
    int64_t macs;       /* integer multiplications, for the share of the peak */
};

/* Wanted size of a large job. */
struct large {
    int64_t bytes; /* distinct data */
    int64_t n_cols;
    int group, n_tokens;
    int64_t n_rows; /* of matmul; 0: as many as `bytes` hold */
};

struct check {
    const struct kernel_row *row, *reference;
    uint64_t seed;
    struct random random;
    bool is_large; /* blocks are plain huge pages: for kernel_bench */
    struct block blocks[MAX_BLOCKS];
    int n_blocks;
    struct arena arena; /* what the case needs besides: freed with it */
    union job job;
    char title[160];
    bool failed;
    char message[512];
    int n_cases;
    /* Large: jobs of one pass, each over [0, n_units). */
    union job *jobs;
    int n_jobs, n_units;
    struct workload work;
};

/* The check of one row, from the same random numbers for all rows of an op and packing. Installs
 * handlers of SIGILL, SIGSEGV, SIGBUS, SIGFPE and SIGTRAP. */
void check_kernel(struct check *c, const struct kernel_row *row, uint64_t seed);

/* The large job of a row. False: there is none of that kind. */
bool check_large(struct check *c, const struct kernel_row *row, const struct large *large);
void check_done(struct check *c);

/* True for most cases of a sanitiser build, which has no time for all of them. */
bool check_passes_over(struct check *c);

/* For checks: a new case, its memory, its run. */
void check_begin(struct check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
void *check_block(struct check *c, const char *name, size_t bytes, enum role role);
void *check_rows(struct check *c, const char *name, int64_t n_rows, size_t row_bytes,
                 size_t used_bytes); /* an output */
void *check_memory(struct check *c, size_t n, size_t size);

/* Compares with the reference over [0, n_units) and over parts of it. verify: compares the outputs
 * of a reference with double precision. False once anything failed. */
typedef void check_verify(struct check *c, const void *context);
bool check_run(struct check *c, int n_units, check_verify *verify, const void *context);

/* Runs a kernel; false and a message if it crashes. */
bool check_call(struct check *c, const struct kernel_row *row, const union job *job, int begin,
                int end);

void check_failed(struct check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Fails unless |got - want| <= bound. at: which element, for the message. */
bool check_near(struct check *c, const char *what, int64_t at, double got, double want,
                double bound);

int check_below(struct check *c, int n); /* uniform in [0, n) */
float check_float(struct check *c, enum fill fill);
int8_t check_int8(struct check *c, enum fill fill);
/* n_rows x n floats, the padding up to stride NaN: it must not matter. */
float *check_floats(struct check *c, const char *name, int64_t n_rows, int64_t n, int64_t stride,
                    enum fill fill);

/* Int8 activations (or floats) of a packing, filled; quantized: to be written by a kernel. */
struct activations check_activations(struct check *c, enum packing packing, int group,
                                     int64_t n_cols, int n_tokens, enum fill fill);
struct activations check_quantized(struct check *c, int act_group, int sum_group, int64_t n_cols,
                                   int n_tokens);
/* Compares quantised activations with their source by the rule of quantize_job, within bound
 * (relative to the largest of a group). amax: (n_tokens), at least the largest of each token; NULL:
 * the largest of each group. */
void verify_quantized(struct check *c, const struct activations *a, const double *x,
                      const double *amax, int n_tokens, double bound);

/* A matrix apart from any layout. */
struct weights {
    enum packing packing;
    int group; /* inputs per scale, 0: one per row */
    int64_t n_rows, n_cols;
    int n_groups;
    uint8_t *codes;    /* (n_rows, n_cols) */
    float *scales;     /* (n_rows, n_groups) */
    int sub_inputs;    /* per sub-scale; 0: there are none */
    int8_t *subscales; /* of K packings: (n_rows, n_cols / sub_inputs) */
    int8_t *submins;   /* q4_k, q5_k, q2_k: minimums, the same */
    float *min_scales; /* of minimums: (n_rows, n_groups) */
    float *mins;       /* q4_1, q5_1: minimums, which are added: (n_rows, n_groups) */
    float *floats;     /* float packings: (n_rows, n_cols) */
};

/* Inputs per scale that exist for a packing: 0 terminated after at least one. */
int check_groups(enum packing packing, int groups[4]);
struct weights check_weights(struct check *c, enum packing packing, int group, int64_t n_rows,
                             int64_t n_cols, enum fill fill);
/* Lays it out as packings.h says, element by element: no code shared with the packings. */
void weights_pack(const struct weights *w, uint8_t *out);
void weights_k_scales(const int8_t *scales, const int8_t *mins, uint8_t bytes[12]);
void weights_q3_k_scales(const int8_t *scales, uint8_t bytes[12]);
/* As one element, without its scale and minimum. */
int weights_value(const struct weights *w, int64_t row, int64_t col);
struct packed check_packed(struct check *c, const struct weights *w);

/* One check and one large job per op: an op without them does not link. */
#define CHECK_DECLARE(name)                                                                        \
    void check_##name(struct check *c);                                                            \
    bool large_##name(struct check *c, const struct large *large);
OP_LIST(CHECK_DECLARE)
#undef CHECK_DECLARE

#endif
