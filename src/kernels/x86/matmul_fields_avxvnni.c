/* matmul of packings whose bytes are 4, 2 or 1 fields of 2, 4 or 8 bits, two groups of scales a unit:
 * trits4, q4_0, q8_0. */
#include "kernels/x86/matmul_panel_avxvnni.h"

enum { T4_BITS = 2, T4_ZERO = 1, Q4_BITS = 4, Q4_ZERO = 8, Q8_BITS = 8, Q8_ZERO = 128 };
enum { FEW = 4, FLUSH_STEPS = 4096 }; /* of sums in place: 4096 * 4 * 3 * 64 * 128 < 2^31 */

/* acc += a step times n tokens. A field is masked in one of `places` places, after a shift if need
 * be; what counts 2^k times there has an accumulator of its own. */
ALWAYS_INLINE void add_step(const uint8_t *step, const int8_t *q, int64_t stride, int bits,
                            int places, int n, __m256i acc[FEW][2][4])
{
    __m256i w[2] = {load_256(step), load_256(step + 32)};
#pragma GCC unroll 4
    for (int f = 0; f < 8 / bits; f++) {
        const int place = f % places;
        const __m256i mask = _mm256_set1_epi8((char)(((1 << bits) - 1) << place * bits));
        __m256i codes[2];
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            codes[h] = f == place ? w[h] : _mm256_srli_epi16(w[h], (f - place) * bits);
            codes[h] = bits == 8 ? codes[h] : _mm256_and_si256(codes[h], mask);
        }
#pragma GCC unroll 4
        for (int t = 0; t < n; t++) {
            __m256i quad = broadcast_quad(q + t * stride + 4 * f);
            acc[t][0][place] = add_quad(acc[t][0][place], codes[0], quad);
            acc[t][1][place] = add_quad(acc[t][1][place], codes[1], quad);
        }
    }
}

/* sums += codes * q of n_steps steps and n tokens. */
ALWAYS_INLINE void add_steps(const uint8_t *steps, int n_steps, const int8_t *q, int64_t stride,
                             int bits, int n, struct fetch *fetch, __m256i sums[FEW][2])
{
    const int places = n == 1 ? 8 / bits : n == 2 && bits < 8 ? 2 : 1;
    __m256i acc[FEW][2][4];
#pragma GCC unroll 4
    for (int t = 0; t < n; t++)
#pragma GCC unroll 4
        for (int i = 0; i < places; i++)
            acc[t][0][i] = acc[t][1][i] = _mm256_setzero_si256();
    int s = 0;
    for (; s + 4 <= n_steps; s += 4) {
        fetch_lines(fetch, 4);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++, steps += STEP_BYTES, q += 32 / bits)
            add_step(steps, q, stride, bits, places, n, acc);
    }
    for (; s < n_steps; s++, steps += STEP_BYTES, q += 32 / bits)
        add_step(steps, q, stride, bits, places, n, acc);
#pragma GCC unroll 4
    for (int t = 0; t < n; t++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256i sum = acc[t][h][places - 1];
#pragma GCC unroll 4
            for (int i = places - 1; i > 0; i--)
                sum = _mm256_add_epi32(_mm256_srai_epi32(sum, bits), acc[t][h][i - 1]);
            sums[t][h] = _mm256_add_epi32(sums[t][h], sum);
        }
}

/* -zero * the sums of q of n tokens, from where the caller's token and group are. */
ALWAYS_INLINE void start_sums(const int32_t *act_sum, int64_t sum_stride, int zero, int n,
                              __m256i sums[FEW][2])
{
#pragma GCC unroll 4
    for (int t = 0; t < n; t++)
        sums[t][0] = sums[t][1] = _mm256_set1_epi32(-zero * act_sum[t * sum_stride]);
}

ALWAYS_INLINE void tile_rows(const struct matmul_job *job, const uint8_t *tile, int row0, int token,
                             int n)
{
    const struct activations *a = &job->a;
    struct fetch fetch = fetch_behind(job, tile, row0, token, 4);
    const int8_t *q = a->q + token * a->stride;
    const uint8_t *steps = tile + STEP_BYTES;
    __m256i sums[FEW][2];
    start_sums(a->sum + (int64_t)token * a->n_sums, a->n_sums, T4_ZERO, n, sums);
    for (int64_t left = (a->n_cols + 15) / 16; left > 0; left -= FLUSH_STEPS) {
        int n_steps = left < FLUSH_STEPS ? (int)left : FLUSH_STEPS;
        add_steps(steps, n_steps, q, a->stride, T4_BITS, n, &fetch, sums);
        steps += FLUSH_STEPS * STEP_BYTES;
        q += FLUSH_STEPS * 16;
    }
    for (int t = 0; t < n; t++)
        finish_sums(job, tile, row0, token + t, sums[t]);
}

ALWAYS_INLINE void tile_groups(const struct matmul_job *job, const uint8_t *tile, int row0,
                               int token, int group, int bits, int zero, int n)
{
    const struct activations *a = &job->a;
    int n_groups = (int)(a->n_cols / group), n_steps = group * bits / 32;
    const int8_t *q = a->q + token * a->stride;
    const float *act_scale = a->scale + (int64_t)token * a->n_scales;
    const int32_t *act_sum = a->sum + (int64_t)token * a->n_sums;
    const uint8_t *at = tile; /* the group's steps; units hold two groups */
    struct fetch fetch = fetch_behind(job, tile, row0, token, 4);
    struct chains chains;
    chains_clear(&chains, n);
    for (int g = 0; g < n_groups; g++, at += n_steps * STEP_BYTES) {
        const uint8_t *scales = g % 2 ? at - n_steps * STEP_BYTES - 32 : at;
        at += g % 2 ? 0 : STEP_BYTES;
        if (g % 8 == 0)
            fetch_lines(&fetch, 4); /* for four headers */
        __m256i sums[FEW][2];
        start_sums(act_sum + g, a->n_sums, zero, n, sums);
        add_steps(at, n_steps, q + (int64_t)g * group, a->stride, bits, n, &fetch, sums);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256 scale = f16_scales(scales + h * 16);
#pragma GCC unroll 4
            for (int t = 0; t < n; t++)
                chains.y[t][h] = add_group(chains.y[t][h], sums[t][h], scale,
                                           act_scale[(int64_t)t * a->n_scales + g]);
        }
    }
    chains_finish(&chains, job, row0, token, n);
}

ALWAYS_INLINE void trits4_tokens(const struct matmul_job *job, const uint8_t *tile, int row0,
                                 int token, int n)
{
    if (job->w.group)
        tile_groups(job, tile, row0, token, job->w.group, T4_BITS, T4_ZERO, n);
    else
        tile_rows(job, tile, row0, token, n);
}

ALWAYS_INLINE void q4_0_tokens(const struct matmul_job *job, const uint8_t *tile, int row0,
                               int token, int n)
{
    tile_groups(job, tile, row0, token, 32, Q4_BITS, Q4_ZERO, n);
}

ALWAYS_INLINE void q8_0_tokens(const struct matmul_job *job, const uint8_t *tile, int row0,
                               int token, int n)
{
    tile_groups(job, tile, row0, token, 32, Q8_BITS, Q8_ZERO, n);
}

TILE_KERNEL(trits4_1, trits4_tokens, 1)
TILE_KERNEL(trits4_2, trits4_tokens, 2)
TILE_KERNEL(trits4_4, trits4_tokens, 4)
TILE_KERNEL(q4_0_1, q4_0_tokens, 1)
TILE_KERNEL(q4_0_2, q4_0_tokens, 2)
TILE_KERNEL(q4_0_4, q4_0_tokens, 4)
TILE_KERNEL(q8_0_1, q8_0_tokens, 1)
TILE_KERNEL(q8_0_2, q8_0_tokens, 2)
TILE_KERNEL(q8_0_4, q8_0_tokens, 4)

/* Unpacks n_steps steps to a quad of 64 bytes a field. */
ALWAYS_INLINE void unpack_steps(const uint8_t *steps, int n_steps, int bits, uint8_t *codes)
{
    const __m256i mask = _mm256_set1_epi8((char)((1 << bits) - 1));
    for (const uint8_t *end = steps + n_steps * STEP_BYTES; steps < end; steps += STEP_BYTES) {
        __m256i w[2] = {load_256(steps), load_256(steps + 32)};
#pragma GCC unroll 4
        for (int f = 0; f < 8 / bits; f++, codes += STEP_BYTES)
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++)
                _mm256_store_si256((__m256i *)(codes + 32 * h),
                                   _mm256_and_si256(_mm256_srli_epi16(w[h], f * bits), mask));
    }
}

ALWAYS_INLINE void unpack_groups(const struct panel *p, const uint8_t *tile, int group, int bits)
{
    int n_steps = group * bits / 32;
    const uint8_t *at = tile + p->col0 / (2 * group) * (2 * n_steps + 1) * STEP_BYTES;
    for (int g = 0; g < p->n / group; g++, at += n_steps * STEP_BYTES) {
        const uint8_t *scales = g % 2 ? at - n_steps * STEP_BYTES - 32 : at;
        at += g % 2 ? 0 : STEP_BYTES;
        panel_scales(p->scales, g, scales);
        unpack_steps(at, n_steps, bits, p->codes + g * group / 4 * STEP_BYTES);
    }
}

static void unpack_rows(const struct panel *p, const uint8_t *tile)
{
    unpack_steps(tile + STEP_BYTES + p->col0 / 16 * STEP_BYTES, (p->n + 15) / 16, T4_BITS,
                 p->codes);
}

static void unpack_trits4(const struct panel *p, const uint8_t *tile)
{
    unpack_groups(p, tile, p->job->w.group, T4_BITS);
}

static void unpack_q4_0(const struct panel *p, const uint8_t *tile)
{
    unpack_groups(p, tile, 32, Q4_BITS);
}

static void unpack_q8_0(const struct panel *p, const uint8_t *tile)
{
    unpack_groups(p, tile, 32, Q8_BITS);
}

/* One scale per row: the state is integers. Beyond the last input activations are zeros. */
ALWAYS_INLINE void panel_rows(const struct panel *p, int token, __m256 state[][2], int n)
{
    const int8_t *q = p->q + token * PANEL_INPUTS;
    const int32_t *act_sum = p->job->a.sum + (int64_t)token * p->job->a.n_sums;
    const uint8_t *codes = p->codes;
    __m256i acc[PANEL_TOKENS][2];
#pragma GCC unroll 6
    for (int t = 0; t < n; t++) {
        __m256i start = _mm256_set1_epi32(-T4_ZERO * act_sum[(int64_t)t * p->job->a.n_sums]);
        acc[t][0] = p->col0 ? _mm256_castps_si256(state[t][0]) : start;
        acc[t][1] = p->col0 ? _mm256_castps_si256(state[t][1]) : start;
    }
    for (int i = 0; i < p->n; i += 16, codes += 4 * STEP_BYTES, q += 16)
        panel_quads(codes, q, 4, n, acc);
#pragma GCC unroll 6
    for (int t = 0; t < n; t++) {
        state[t][0] = _mm256_castsi256_ps(acc[t][0]);
        state[t][1] = _mm256_castsi256_ps(acc[t][1]);
    }
}

ALWAYS_INLINE void copy_groups(const struct panel *p, int group, int zero)
{
    panel_copy(p);
    panel_start_sums(p, group, zero, SUM_START);
}

static void copy_trits4(const struct panel *p)
{
    copy_groups(p, p->job->w.group, T4_ZERO);
}

ALWAYS_INLINE void panel_trits4(const struct panel *p, int token, __m256 state[][2], int n)
{
    panel_groups(p, token, state, p->job->w.group, false, n);
}

static void copy_q4_0(const struct panel *p)
{
    copy_groups(p, 32, Q4_ZERO);
}

static void copy_q8_0(const struct panel *p)
{
    copy_groups(p, 32, Q8_ZERO);
}

PANEL_RUNS(many_rows, panel_rows, )
PANEL_RUNS(many_trits4, panel_trits4, )
PANEL_RUNS(many_32, panel_groups, 32, false, )

#define PANEL_OPS(runs, ...)                                                                       \
    {                                                                                              \
        .few = FEW_TOKENS, .inputs = PANEL_INPUTS, .act_bytes = 1, .run = PANEL_NAMES(runs),       \
        __VA_ARGS__                                                                                \
    }
#define GROUP_OPS(runs, packing)                                                                   \
    PANEL_OPS(runs, .sums = PANEL_INPUTS / 32, .copy = copy_##packing, .unpack = unpack_##packing)
static const struct panel_ops row_ops =
    PANEL_OPS(many_rows, .copy = panel_copy, .unpack = unpack_rows, .finish = finish_sums);
static const struct panel_ops trits4_ops = GROUP_OPS(many_trits4, trits4);
static const struct panel_ops q4_0_ops = GROUP_OPS(many_32, q4_0);
static const struct panel_ops q8_0_ops = GROUP_OPS(many_32, q8_0);

void matmul_trits4_avxvnni(const union job *j, int begin, int end)
{
    static const struct tile_kernels few = {.one = trits4_1, .two = trits4_2, .four = trits4_4};
    matmul_256(&j->matmul, begin, end, &few, j->matmul.w.group ? &trits4_ops : &row_ops);
}

void matmul_q4_0_avxvnni(const union job *j, int begin, int end)
{
    static const struct tile_kernels few = {.one = q4_0_1, .two = q4_0_2, .four = q4_0_4};
    matmul_256(&j->matmul, begin, end, &few, &q4_0_ops);
}

void matmul_q8_0_avxvnni(const union job *j, int begin, int end)
{
    static const struct tile_kernels few = {.one = q8_0_1, .two = q8_0_2, .four = q8_0_4};
    matmul_256(&j->matmul, begin, end, &few, &q8_0_ops);
}
