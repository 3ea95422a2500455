/* Contracts of attention and of the key-value cache it reads. */
#ifndef TRINE_KERNELS_JOBS_ATTENTION_H
#define TRINE_KERNELS_JOBS_ATTENTION_H

#include <stdint.h>

/* KV cache. A page holds KV_PAGE positions of one layer and some heads:
 *   f16   keys [head][position][head_pad] f16, then values the same; head_pad = head_dim rounded up
 *         to 32
 *   q8_0  per head and position head_pad int8 in [head][position][head_pad], then f16 scales per 32
 *         elements [head][position][head_pad / 32]; keys first, then values
 * Elements beyond head_dim are zero: pages are zeroed when they are allocated, and kv_store keeps it
 * so. Every part begins at a multiple of 64 bytes. */
#define KV_PAGE 256
enum kv_format { KV_FORMAT_F16, KV_FORMAT_Q8_0 };
struct kv_page_layout {
    int head_pad;
    int64_t key_at, key_scale_at, value_at, value_scale_at, bytes; /* offsets in bytes */
};
struct kv_page_layout kv_page_layout(enum kv_format format, int n_heads, int head_dim);

/* Writes keys and values of tokens into pages (q8_0; f16 rows are stored where they are made).
 * q8_0 is quantised as quantize_job in groups of 32, the scale then rounded to f16.
 * ranges  tokens */
struct kv_store_job {
    enum kv_format format;
    int n_heads, head_dim;
    const float *k, *v; /* (n_tokens, stride), heads in order */
    int64_t stride;
    const int32_t *position; /* (n_tokens) */
    /* per token its sequence's pages: page p holds positions [256 p, 256 (p + 1)) */
    uint8_t *const *const *pages;
};

/* Attention of tokens over the cache.
 *   s[p] = dot16(q, k[p]) * scale: 16 lanes by fma, over head_pad elements, q zero beyond head_dim
 *   m = max s + 0;  e[p] = exp(s[p] - m);  l = sum of e over 16 lanes of p
 *   o[i] = fma(e[p], v[p][i], o[i]) in ascending p
 * Two ways to cut it into units, with equal bits:
 *   token_block 0  u = kv_head * n_own + i, chunk = chunk0 + i * chunk_step, of which there are n_own
 *                  below n_chunks; all query heads of the kv head and all tokens that see the chunk
 *                  walk it together and leave partial results, (token, query head, chunk) of m, l,
 *                  o[head_dim], for attention_fold; for few tokens
 *   otherwise      u = kv_head * ceil(n_tokens / token_block) + block: the tokens of a block walk all
 *                  their chunks, each chunk is folded at once and out is finished: for prompts, or
 *                  where the heads are units enough
 * Query head h reads KV head (h + head_offset) / group of the job, which is head kv_head0 more of
 * the pages: a job may begin and end within a group, and see a part of the heads of its pages. */
#define ATTENTION_MAX_HEAD_DIM 512
#define ATTENTION_MAX_QUERIES  512 /* token_block * group */
struct attention_job {
    enum kv_format format;
    int n_heads, n_heads_kv, head_dim; /* of this job */
    int group,
        head_offset; /* query heads per KV head; those of the first that are not in the job */
    int n_page_heads, kv_head0; /* KV heads of a page; the first of the job */
    int chunk0, chunk_step;     /* token_block 0: chunks of this job */
    int n_tokens, n_chunks;
    float scale;
    const float *q; /* (n_tokens, n_heads * head_dim), rows q_stride apart */
    int64_t q_stride;
    const int32_t *position;      /* (n_tokens): sees positions 0..position of its sequence */
    uint8_t *const *const *pages; /* per token */
    float *partial;               /* (n_tokens, n_heads, n_chunks, 2 + head_dim) */
    int token_block;
    float *out; /* token_block > 0: (n_tokens, out_stride) */
    int64_t out_stride;
};

/* Joins chunks in ascending order, 0 to position / KV_PAGE. The first is taken as it is; then
 *   M' = max(M, m), a = exp(M - M'), b = exp(m - M'), L = fma(l, b, L * a), O = fma(o, b, O * a)
 * and at the end out = O / L.
 * ranges  unit u = token * n_heads + head */
struct attention_fold_job {
    int n_heads, head_dim, n_chunks;
    const float *partial;
    const int32_t *position;
    float *out; /* (n_tokens, out_stride) */
    int64_t out_stride;
};

#endif
