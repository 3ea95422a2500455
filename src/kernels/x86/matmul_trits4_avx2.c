/* matmul of trits4: codes times int8 in int16 pairs, at most 128 inputs (2 * 3 * 127 * 32 < 2^15)
 * before they are joined to int32. */
#include "kernels/x86/matmul_panel_avx2.h"

/* Two streams beat four here: medians of 1, 2, 4, 8 tokens by 6, 6, 4, 6 %, per 128 by 14 %. */
enum { PART_STEPS = 4, CHUNK_STEPS = 8, FETCH_STREAMS = 2 };

/* Adds n_steps <= PART_STEPS steps of one token: sums of codes * q, times 4. Fields 1 and 3 are left
 * in place, as 4 * code, with sums of their own: two masks instead of a shift each. Those sums take
 * 3 * 4 * 127 * 2 * 2 a step. */
ALWAYS_INLINE void part_one(const uint8_t *steps, int n_steps, const int8_t *q, __m256i sums[2])
{
    const __m256i low = _mm256_set1_epi8(3), high = _mm256_set1_epi8(12);
    __m256i ones[2], fours[2];
    ones[0] = ones[1] = fours[0] = fours[1] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int s = 0; s < n_steps; s++) {
        const uint8_t *step = steps + s * STEP_BYTES;
        /* into L1, what the streams brought into L2 (per 128: 30.4 GB/s against 27.6 without) */
        _mm_prefetch((const char *)step + PREFETCH_AHEAD, _MM_HINT_T0);
        __m256i quad0 = broadcast_quad(q + s * 16), quad1 = broadcast_quad(q + s * 16 + 4);
        __m256i quad2 = broadcast_quad(q + s * 16 + 8), quad3 = broadcast_quad(q + s * 16 + 12);
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            __m256i w = load_256(step + half * 32), shifted = _mm256_srli_epi16(w, 4);
            ones[half] = add_quad_16(ones[half], _mm256_and_si256(w, low), quad0);
            fours[half] = add_quad_16(fours[half], _mm256_and_si256(w, high), quad1);
            ones[half] = add_quad_16(ones[half], _mm256_and_si256(shifted, low), quad2);
            fours[half] = add_quad_16(fours[half], _mm256_and_si256(shifted, high), quad3);
        }
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        __m256i joined = _mm256_madd_epi16(ones[half], _mm256_set1_epi16(4));
        joined = _mm256_add_epi32(joined, sum_pairs(fours[half]));
        sums[half] = _mm256_add_epi32(sums[half], joined);
    }
}

/* Adds n_steps <= CHUNK_STEPS steps of n tokens: codes are unpacked once, a broadcast serves both
 * halves. */
ALWAYS_INLINE void chunk_many(const uint8_t *steps, int n_steps, const int8_t *q, int64_t stride,
                              int n, __m256i sums[MAX_TOKENS][2])
{
    const __m256i mask = _mm256_set1_epi8(3);
    __m256i acc[MAX_TOKENS][2];
#pragma GCC unroll 4
    for (int t = 0; t < n; t++)
        acc[t][0] = acc[t][1] = _mm256_setzero_si256();
    for (int s = 0; s < n_steps; s++, steps += STEP_BYTES, q += 16) {
        __m256i w[2] = {load_256(steps), load_256(steps + 32)};
        add_field(w, 0, mask, q, stride, false, n, acc);
        add_field(w, 2, mask, q + 4, stride, false, n, acc);
        add_field(w, 4, mask, q + 8, stride, false, n, acc);
        add_field(w, 6, mask, q + 12, stride, false, n, acc);
    }
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) {
        sums[t][0] = _mm256_add_epi32(sums[t][0], sum_pairs(acc[t][0]));
        sums[t][1] = _mm256_add_epi32(sums[t][1], sum_pairs(acc[t][1]));
    }
}

/* Adds sums of codes * q of n_steps steps; of one token times 4. */
ALWAYS_INLINE void add_steps(const uint8_t *steps, int n_steps, const int8_t *q, int64_t stride,
                             int n, struct fetch *fetch, __m256i sums[MAX_TOKENS][2])
{
    const int most = n == 1 ? PART_STEPS : CHUNK_STEPS;
    int s = 0;
    for (; s + most <= n_steps; s += most, steps += most * STEP_BYTES, q += most * 16) {
        fetch_lines(fetch, most);
        if (n == 1)
            part_one(steps, PART_STEPS, q, sums[0]);
        else
            chunk_many(steps, CHUNK_STEPS, q, stride, n, sums);
    }
    if (n == 1)
        for (; s < n_steps; s++, steps += STEP_BYTES, q += 16)
            part_one(steps, 1, q, sums[0]);
    else if (s < n_steps)
        chunk_many(steps, n_steps - s, q, stride, n, sums);
}

/* Exact sums of (code - 1) * q of n_steps steps. act_sum: sum of q of each token, sum_stride apart.
 */
ALWAYS_INLINE void dot_steps(const uint8_t *steps, int n_steps, const int8_t *q, int64_t stride,
                             const int32_t *act_sum, int64_t sum_stride, int n, struct fetch *fetch,
                             __m256i sums[MAX_TOKENS][2])
{
    const int shift = n == 1 ? 2 : 0;
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) {
        __m256i sum = _mm256_slli_epi32(_mm256_set1_epi32(act_sum[t * sum_stride]), shift);
        sums[t][0] = sums[t][1] = _mm256_sub_epi32(_mm256_setzero_si256(), sum);
    }
    add_steps(steps, n_steps, q, stride, n, fetch, sums);
    for (int half = 0; n == 1 && half < 2; half++)
        sums[0][half] = _mm256_srai_epi32(sums[0][half], shift);
}

ALWAYS_INLINE void tile_rows(const struct matmul_job *job, const uint8_t *tile, int row0, int token,
                             int n)
{
    const struct activations *a = &job->a;
    struct fetch fetch = fetch_behind(job, tile, row0, token, FETCH_STREAMS);
    __m256i sums[MAX_TOKENS][2];
    dot_steps(tile + 64, (int)((a->n_cols + 15) / 16), a->q + token * a->stride, a->stride,
              a->sum + (int64_t)token * a->n_sums, a->n_sums, n, &fetch, sums);
    for (int t = 0; t < n; t++)
        finish_sums(job, tile, row0, token + t, sums[t]);
}

ALWAYS_INLINE void tile_groups(const struct matmul_job *job, const uint8_t *tile, int row0,
                               int token, int n)
{
    const struct activations *a = &job->a;
    int group = job->w.group, n_groups = (int)(a->n_cols / group), n_steps = group / 16;
    const int8_t *q = a->q + token * a->stride;
    const float *act_scale = a->scale + (int64_t)token * a->n_scales;
    const int32_t *act_sum = a->sum + (int64_t)token * a->n_sums;
    const uint8_t *at = tile; /* the group's steps; units hold two groups */
    struct fetch fetch = fetch_behind(job, tile, row0, token, FETCH_STREAMS);
    struct chains chains;
    __m256i sums[MAX_TOKENS][2];
    chains_clear(&chains, n);
    for (int g = 0; g < n_groups; g++) {
        const uint8_t *scales = g % 2 ? at - n_steps * STEP_BYTES - 32 : at;
        at += g % 2 ? 0 : 64;
        if (g % 8 == 0)
            fetch_lines(&fetch, 4); /* for four headers */
        dot_steps(at, n_steps, q + (int64_t)g * group, a->stride, act_sum + g, a->n_sums, n, &fetch,
                  sums);
        for (int half = 0; half < 2; half++) {
            __m256 scale = f16_scales(scales + half * 16);
            for (int t = 0; t < n; t++)
                chains.y[t][half] = add_group(chains.y[t][half], sums[t][half], scale,
                                              act_scale[(int64_t)t * a->n_scales + g]);
        }
        at += n_steps * STEP_BYTES;
    }
    chains_finish(&chains, job, row0, token, n);
}

ALWAYS_INLINE void tile_tokens(const struct matmul_job *job, const uint8_t *tile, int row0,
                               int token, int n)
{
    if (job->w.group)
        tile_groups(job, tile, row0, token, n);
    else
        tile_rows(job, tile, row0, token, n);
}

TILE_KERNELS(tile_tokens)

/* Many tokens: int16 pairs of 32 quads, as above. */
enum { CHUNK_QUADS = CHUNK_STEPS * 4 };

static void unpack_rows(const struct panel *p, const uint8_t *tile)
{
    const uint8_t *steps = tile + 64 + p->col0 / 16 * STEP_BYTES;
    for (int s = 0; s < (p->n + 15) / 16; s++)
        panel_unpack_step(steps + s * STEP_BYTES, 2, p->codes + s * 4 * STEP_BYTES);
}

/* The state is integers: sums of codes * q. */
ALWAYS_INLINE void run_rows(const struct panel *p, int token, __m256 state[][2], int n)
{
    __m256i(*sums)[2] = (__m256i(*)[2])state;
    const int8_t *q = p->q + token * p->stride;
    int n_quads = (p->n + 15) / 16 * 4;
    for (int k = 0; k < n_quads; k += CHUNK_QUADS) {
        __m256i acc[PANEL_TOKENS][2];
        int most = n_quads - k < CHUNK_QUADS ? n_quads - k : CHUNK_QUADS;
        panel_chunk(p->codes + k * STEP_BYTES, q + 4 * k, p->stride, most, n, acc);
#pragma GCC unroll 4
        for (int t = 0; t < n; t++) {
            sums[t][0] = _mm256_add_epi32(sums[t][0], sum_pairs(acc[t][0]));
            sums[t][1] = _mm256_add_epi32(sums[t][1], sum_pairs(acc[t][1]));
        }
    }
}

static void finish_codes(const struct matmul_job *job, const uint8_t *tile, int row0, int token,
                         const __m256i codes[2])
{
    __m256i act_sum = _mm256_set1_epi32(job->a.sum[(int64_t)token * job->a.n_sums]);
    __m256i sums[2] = {_mm256_sub_epi32(codes[0], act_sum), _mm256_sub_epi32(codes[1], act_sum)};
    finish_sums(job, tile, row0, token, sums);
}

static void unpack_groups(const struct panel *p, const uint8_t *tile)
{
    int group = p->job->w.group, n_steps = group / 16;
    int unit_bytes = 64 + 2 * n_steps * STEP_BYTES;
    const uint8_t *unit = tile + p->col0 / (2 * group) * unit_bytes;
    uint8_t *codes = p->codes;
    for (int g = 0; g < p->n / group; g++) {
        panel_scales(p->scales, g, unit + g % 2 * 32);
        const uint8_t *steps = unit + 64 + g % 2 * n_steps * STEP_BYTES;
        for (int s = 0; s < n_steps; s++, codes += 4 * STEP_BYTES)
            panel_unpack_step(steps + s * STEP_BYTES, 2, codes);
        unit += g % 2 * unit_bytes;
    }
}

static void copy_groups(const struct panel *p)
{
    panel_copy(p);
    panel_start_sums(p, p->job->w.group, 1, 0);
}

PANEL_RUNS(rows, run_rows, )
PANEL_RUNS(groups_64, panel_groups, 64, 16, false, )
PANEL_RUNS(groups_128, panel_groups, 128, CHUNK_QUADS, false, )
PANEL_RUNS(groups_256, panel_groups, 256, CHUNK_QUADS, false, )

#define PANEL_OPS(runs, ...)                                                                       \
    {                                                                                              \
        .few = FEW_TOKENS, .inputs = PANEL_INPUTS, .act_bytes = 1, .run = PANEL_NAMES(runs),       \
        __VA_ARGS__                                                                                \
    }
#define GROUP_OPS(group)                                                                           \
    PANEL_OPS(groups_##group, .sums = PANEL_INPUTS / group, .copy = copy_groups,                   \
              .unpack = unpack_groups)
static const struct panel_ops group_ops[] = {GROUP_OPS(64), GROUP_OPS(128), GROUP_OPS(256)};
static const struct panel_ops row_ops =
    PANEL_OPS(rows, .copy = panel_copy, .unpack = unpack_rows, .finish = finish_codes);

void matmul_trits4_avx2(const union job *job, int begin, int end)
{
    int group = job->matmul.w.group;
    matmul_256(&job->matmul, begin, end, &tile_kernels, group ? &group_ops[group / 128] : &row_ops);
}
