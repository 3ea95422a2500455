/* Contracts of the small ops of a layer: between the matmuls, on rows of floats. */
#ifndef TRINE_KERNELS_JOBS_LAYER_H
#define TRINE_KERNELS_JOBS_LAYER_H

#include <stdbool.h>

#include "kernels/jobs_matmul.h"

/* The way into the layers: out[t] = row tokens[t] of the table, decoded (tensor_decode), times
 * scale.
 * shapes  n_cols of the table; 0 <= tokens[t] < its n_rows
 * ranges  tokens */
struct embed_job {
    const struct tensor *table;
    float scale; /* 1: none */
    const int32_t *tokens;
    int n_cols;
    float *out; /* (n_tokens, out_stride) */
    int64_t out_stride;
};

/* Gathers: out[i] = x[rows[i]], bit for bit. A row may be taken several times; out must not overlap
 * x.
 * ranges  rows of out */
struct copy_rows_job {
    const float *x; /* (any, x_stride) */
    int64_t x_stride;
    const int32_t *rows;
    int n_cols;
    float *out; /* (n, out_stride) */
    int64_t out_stride;
};

/* The highest magnitude of each token: peaks[t] = max over i of |x[t][i]|, or of |x[t][i] * gain[i]|
 * if there is a gain; 0 without inputs.
 * Magnitudes are compared as integers: the order is that of the numbers, and NaN comes above
 * infinity. Column slices of one activation exchange these to get one scale (quantize_job.peaks).
 * ranges  tokens */
struct peak_job {
    const float *x; /* (n_tokens, x_stride) */
    int64_t x_stride;
    const float *gain; /* (n_cols) or NULL */
    int n_cols;
    float *peaks; /* (n_tokens) */
};

/* Activations of int8. With a gain x stands for x[t][i] * gain[i].
 *   amax = max |x| over the group; d = amax / 127; q = round half to even(x * (127 / amax))
 *   amax < 2^-120: d = 0, q = 0; amax infinite or NaN: d = amax / 127, q = 0
 * group and sum_group are 0 or a multiple of 16; a last group may be cut off by n_cols; n_sums may
 * be 0.
 * n_peaks > 0: x is a slice of the inputs of a token and amax that of all slices, the largest of
 * peaks[i][t], i < n_peaks (magnitudes compared as in peak_job; no input of x is larger), also
 * where n_cols is 0. Only with group 0.
 * ranges  tokens */
struct quantize_job {
    const float *x; /* (n_tokens, x_stride) */
    int64_t x_stride;
    const float *gain; /* (n_cols) or NULL; without a.q, a.x gets the products */
    struct activations a;
    int n_peaks;               /* 0: amax of x itself */
    const float *const *peaks; /* each (n_tokens): of every slice, that of x among them */
};

/* out[t][i] = (x[t][i] * r) * gain[i],  r = 1 / sqrt(sum of x[t]^2 / n_cols + epsilon)
 * The sum of squares is over 16 lanes by fma. out may be x. a.q != NULL: also quantised as
 * quantize_job, and out may be NULL.
 * ranges  tokens
 * source  Zhang and Sennrich 2019, arXiv:1910.07467 */
struct rms_norm_job {
    const float *x;
    int64_t x_stride;
    const float *gain;
    int n_cols;
    float epsilon;
    float *out;
    int64_t out_stride;
    struct activations a;
};

/* A norm whose factor comes after the matmul, because the inputs of a token lie on several nodes: sums
 * of squares of blocks of 16, which nodes put side by side, and the factor from all of them. The order
 * does not depend on where the inputs are cut, as long as cuts are multiples of 16.
 *   squares[t][k] = sum over 16 lanes of x[t][16 k + l]^2
 *   factor[t] = 1 / sqrt((sum over 16 lanes of squares[t][k]) / n_cols + epsilon)
 * ranges  tokens */
#define SQUARES_BLOCK 16
struct squares_job {
    const float *x; /* (n_tokens, x_stride) */
    int64_t x_stride;
    int n_cols;
    float *squares; /* (n_tokens, stride): n_cols / 16, rounded up, are written */
    int64_t stride;
};
struct norm_factor_job {
    const float *squares; /* (n_tokens, stride) */
    int64_t stride;
    int n_cols; /* of all nodes together */
    float epsilon;
    float *factor; /* (n_tokens) */
};

/* x' = H(signs o x) per block (a power of two, 16 to 4096, that divides n_cols): butterflies
 * len = 1, 2, 4 ... with (a + c, a - c), then times 1 / sqrt(block); then quantised if a.q.
 * signs: +1 or -1 each; NULL: all +1. out is always needed and may be x.
 * ranges  tokens */
struct hadamard_job {
    const float *x;
    int64_t x_stride;
    const int8_t *signs;
    int n_cols, block;
    float *out;
    int64_t out_stride;
    struct activations a;
};

/* Turns heads: pairs (2j, 2j+1) if is_adjacent, else (j, j + n_rot/2); elements from n_rot on stay.
 *   a' = fma(a, cos, -(b * sin)),  b' = fma(a, sin, b * cos)
 * With a gain each head is normed before, as in rms_norm_job, with n_cols = head_dim. In place, or, with
 * out_f16, stored as f16 as EPILOGUE_ROPE_F16 does.
 * ranges  heads of tokens: unit t * n_heads + head */
struct rope_job {
    float *x; /* (n_tokens, x_stride): n_heads heads of head_dim */
    int64_t x_stride;
    int n_heads, head_dim, n_rot; /* at most ATTENTION_MAX_HEAD_DIM */
    bool is_adjacent;
    const float *cosines, *sines; /* (n_tokens, n_rot / 2) */
    const float *gain;            /* (head_dim) or NULL */
    float epsilon;
    uint16_t *const *out_f16; /* NULL: in place; then x is scratch */
    int64_t f16_head_stride;
};

/* out[t][r] (+)= y, from the sum over parts in order.
 *   floats    y = ((p0 + p1) + p2) ...
 *   integers  s = p0 + p1 + ..., then y = (float)s * (row_scale[r] * act_scale[t])
 *   then y = y * scale if scale != 1, then y = y * token_scale[t] and y = y + bias[r] if there is one
 * The end is that of matmul_job: PARTIAL sums of column slices, reduced, give the bits of the whole
 * matmul with STORE, or with ADD for is_add (added to out).
 * ranges  rows */
struct reduce_job {
    int n_parts;
    const void *const *parts; /* each (n_tokens, stride) */
    bool is_int, is_add;
    int n_tokens;
    int64_t stride;
    const float *row_scale, *act_scale; /* is_int: (n_rows), (n_tokens) */
    float scale;                        /* of a separate scale tensor; 1: none */
    const float *token_scale;           /* (n_tokens) or NULL */
    const float *bias;                  /* (n_rows) or NULL */
    float *out;
    int64_t out_stride;
};

/* The k largest of x[0..n), descending, ties by the lower index, NaN below all; 1 <= k <= n; argmax
 * is k = 1.
 * ranges  rows of x */
struct top_k_job {
    const float *x;
    int64_t x_stride;
    int n, k;
    int32_t *ids;  /* (rows, k) */
    float *values; /* (rows, k) */
};

#endif
