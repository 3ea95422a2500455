/* Contracts of matmul and of what prepares its operands: int8 activations, packed weights. */
#ifndef TRINE_KERNELS_JOBS_MATMUL_H
#define TRINE_KERNELS_JOBS_MATMUL_H

#include <stdint.h>

#include "tensor/packings.h"

/* Int8 activations of some tokens, or floats; rows of tokens are `stride` apart.
 *   value[i] = q[i] * scale[i / group]       group 0: one scale per token; -127 <= q <= 127
 *   sum[k]   = sum of q over inputs [k * sum_group, (k + 1) * sum_group)
 * q is zero from n_cols up to stride: a multiple of 64, at least n_cols rounded up to a whole step. */
struct activations {
    int8_t *q;    /* (n_tokens, stride) */
    float *scale; /* (n_tokens, n_scales) */
    int32_t *sum; /* (n_tokens, n_sums) */
    float *x;     /* float packings instead: (n_tokens, stride), zero beyond n_cols */
    int64_t n_cols, stride;
    int group, n_scales, sum_group, n_sums;
};

/* Where a matmul's results go. y is the finished float of packed row r and token t.
 *   STORE      out[t][r] = y
 *   ADD        out[t][r] += y
 *   SILU_MUL   rows 2i and 2i+1 are gate and up of output i: out[t][i] = silu(gate) * up
 *   RELU2_MUL  the same: out[t][i] = relu(gate)^2 * up
 *   ROPE       rows 2j and 2j+1 are a rotated pair (rope_job): out[t][2j], out[t][2j+1] = the turned
 *              pair, by angle (2j % head_dim) / 2 of the token
 *   ROPE_F16   the same, stored as f16 at out_f16: the key cache
 *   F16        stored as f16, row r at out_f16[t][r / head_dim * f16_head_stride + r % head_dim]:
 *              the value cache
 *   PARTIAL    out_int[t][r] = integer sum before any scale (one scale per row only) */
enum epilogue {
    EPILOGUE_STORE,
    EPILOGUE_ADD,
    EPILOGUE_SILU_MUL,
    EPILOGUE_RELU2_MUL,
    EPILOGUE_ROPE,
    EPILOGUE_ROPE_F16,
    EPILOGUE_F16,
    EPILOGUE_PARTIAL
};

/* y[t][r] = scale[r % 2] * token_scale[t] * sum_i W[r][i] a[t][i] + bias[r]
 * order   trits with one scale per row:
 *             s = int32 sum of (code - 1) * q, exact; y = (float)s * (row scale * act scale)
 *         grouped trits, q4_0, q8_0: y = 0, then group after group ascending
 *             y = fma((float)s_g, weight scale_g * act scale_g, y)
 *         q5_0, iq4_nl: the same with code - 16, and with the value that the code stands for
 *         q4_1, q5_1: the same with the code, and after each group, m its minimum,
 *             y = fma(m, act scale * (float)sum of q, y)
 *         q6_k: s_g = int32 sum over a block of 256 of int8 scale * (sum over 16 of (code - 32) * q),
 *             |s_g| <= 16 * 128 * 16 * 32 * 127 < 2^31;  y = fma((float)s_g, d * act scale, y)
 *         q4_k, q5_k: blocks of 256 ascending; s_b = int32 sum over 8 groups of 32 of scale * (sum of
 *             code * q), m_b = the same of minimum * (sum of q), |s_b| <= 8 * 63 * 32 * 31 * 127 < 2^31;
 *             y = fma((float)s_b, d * act scale, y), then y = fma(-(float)m_b, dmin * act scale, y)
 *         q2_k: the same of 16 groups of 16
 *         q3_k: s_b = int32 sum over 16 groups of 16 of scale * (sum of (code - 4) * q), |s_b| <=
 *             16 * 32 * 16 * 4 * 127 < 2^22;  y = fma((float)s_b, d * act scale, y)
 *         iq4_xs: the same of 8 groups of 32 with the values of codes, |s_b| <= 8 * 32 * 32 * 127 * 127 <
 *             2^27
 *         float packings: y = fma(w[i], x[i], y) over all inputs in order, starting from 0
 *         then y = y * row_scale[r] if there is one, then y = y * scale[r % 2] if that is not 1, then y = y * token_scale[t] if there is
 *         one, then y = y + bias[r] if there is one
 * ranges  [begin, end) in rows of the packed matrix; begin a multiple of 16, end too or n_rows
 * shapes  1 <= n_tokens <= 512 */
struct matmul_job {
    struct packed w;
    struct activations a;
    int n_tokens;
    enum epilogue epilogue;
    const float
        *row_scale; /* (n_rows, to a whole tile) or NULL: of rows whose groups have scale 1 */
    float scale[2]; /* of separate scale tensors, for even and odd rows; 1: none */
    const float
        *token_scale;  /* (n_tokens) or NULL: a norm that was left out of a (norm_factor_job) */
    const float *bias; /* (n_rows) or NULL */
    float *out;        /* (n_tokens, out_stride) */
    int64_t out_stride;
    int32_t *out_int;             /* PARTIAL: (n_tokens, out_stride) */
    uint16_t *const *out_f16;     /* ROPE_F16, F16: per token, where its row 0 goes in the cache */
    int64_t f16_head_stride;      /* elements between heads there */
    int head_dim;                 /* ROPE, ROPE_F16, F16: rows per head */
    const float *cosines, *sines; /* ROPE, ROPE_F16: (n_tokens, head_dim / 2) */
    uint8_t *scratch; /* MATMUL_SCRATCH_BYTES of the thread, 64-byte aligned; over 4 tokens */
};

/* Room for a panel of weights, unpacked, and what its tokens need with it: copies of activations, their sums,
 * and sums or chains of results, of as many tiles as the rest holds. It stays in a core's L2. */
#define MATMUL_SCRATCH_BYTES ((size_t)1 << 20)

/* Packs rows [begin, end) (multiples of 16) of a matrix. Packed row r comes from
 * source[r % n_sources], row row_of[r / n_sources] (row_of NULL: the same number), inputs
 * [col0, col0 + w.n_cols); col0 and w.n_cols are multiples of the inputs per scale where there are
 * several. The last range may end with n_rows: its tile is completed by rows of zeros.
 * scratch  PACK_SCRATCH(n_cols of the source) bytes, aligned to 4 */
struct pack_job {
    struct packed w;
    const struct tensor *source[2];
    int n_sources;
    const int32_t *row_of;
    int64_t col0;
    uint8_t *scratch;
};
#define PACK_SCRATCH(n_cols) (16 * (size_t)(n_cols)*5 + 4096)

#endif
