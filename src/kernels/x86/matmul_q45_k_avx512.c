/* matmul of q4_k and q5_k: a fifth bit apart they are the same. */
#include "kernels/x86/matmul_panel_avx512.h"
#include "kernels/x86/sub_sums.h"

/* A block is a unit: f16 scales, lines of 6-bit scales and minimums, 8 groups of 32 inputs, each four
 * steps of low nibbles and, for q5_k, one of fifth bits. */
enum { BLOCK = 256, GROUPS = 8, PAIRS = 4, CODES_AT = PACKED_K_LINES_AT + 12 * TILE_ROWS };

/* Scales and minimums of groups 0..3 and 4..7, one a byte of each row's lane. */
struct sub_scales {
    __m512i scales[2], mins[2];
};

INLINE struct sub_scales sub_scales_at(const uint8_t *unit)
{
    const __m512i low_6 = _mm512_set1_epi8(63), low_4 = _mm512_set1_epi8(15);
    const __m512i top_2 = _mm512_set1_epi8(48);
    const uint8_t *lines = unit + PACKED_K_LINES_AT;
    __m512i scales = _mm512_loadu_si512(lines), mins = _mm512_loadu_si512(lines + STEP_BYTES);
    __m512i rest = _mm512_loadu_si512(lines + 2 * STEP_BYTES);
    struct sub_scales s = {{_mm512_and_si512(scales, low_6)}, {_mm512_and_si512(mins, low_6)}};
    scales = _mm512_and_si512(_mm512_srli_epi16(scales, 2), top_2);
    mins = _mm512_and_si512(_mm512_srli_epi16(mins, 2), top_2);
    s.scales[1] = _mm512_or_si512(scales, _mm512_and_si512(rest, low_4));
    rest = _mm512_and_si512(_mm512_srli_epi16(rest, 4), low_4);
    s.mins[1] = _mm512_or_si512(mins, rest);
    return s;
}

/* Minimums as pairs of int16 in the order of pair_sums. */
INLINE __m512i min_pair(const struct sub_scales *s, int i)
{
    __m512i bytes = s->mins[i / 2];
    return i % 2 ? _mm512_srli_epi16(bytes, 8) : _mm512_and_si512(bytes, _mm512_set1_epi16(255));
}

/* Codes of quad k (0 to 7) of a group. */
INLINE __m512i codes_at(const uint8_t *steps, const bool has_fifth, const int k)
{
    __m512i v = _mm512_loadu_si512(steps + k / 2 * STEP_BYTES);
    v = _mm512_and_si512(_mm512_srli_epi16(v, k % 2 * 4), _mm512_set1_epi8(15));
    if (!has_fifth)
        return v;
    __m512i bits = _mm512_loadu_si512(steps + 4 * STEP_BYTES);
    bits = k < 4 ? _mm512_slli_epi16(bits, 4 - k) : _mm512_srli_epi16(bits, k - 4);
    return _mm512_or_si512(v, _mm512_and_si512(bits, _mm512_set1_epi8(16)));
}

/* sum += scale * sum of code * q over a group. Four bits: every second quad stays in place, where it
 * counts 16 times. */
INLINE void add_few_group(const uint8_t *steps, const bool has_fifth, __m512i scale,
                          const int8_t *q, int64_t stride, const int n_tokens, __m512i sum[MAX_FEW])
{
    __m512i dot[MAX_FEW][2];
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        dot[t][0] = dot[t][1] = _mm512_setzero_si512();
    UNROLL
    for (int k = 0; k < 8; k++) {
        __m512i codes = has_fifth || k % 2 == 0
                            ? codes_at(steps, has_fifth, k)
                            : _mm512_and_si512(_mm512_loadu_si512(steps + k / 2 * STEP_BYTES),
                                               _mm512_set1_epi8((char)0xf0));
        UNROLL
        for (int t = 0; t < n_tokens; t++)
            dot[t][k % 2] = add_quad(dot[t][k % 2], codes, q + t * stride + 4 * k);
    }
    UNROLL
    for (int t = 0; t < n_tokens; t++) {
        __m512i odd = has_fifth ? dot[t][1] : _mm512_srai_epi32(dot[t][1], 4);
        __m512i all = _mm512_add_epi32(dot[t][0], odd);
        sum[t] = _mm512_add_epi32(sum[t], _mm512_mullo_epi32(all, scale));
    }
}

/* y += sum * d * act scale - (sum of minimum * sum of activations) * dmin * act scale. */
INLINE void add_few_block(const struct activations *a, int token, int64_t b, const uint8_t *unit,
                          const struct sub_scales *subs, const __m512i sum[MAX_FEW],
                          const int n_tokens, __m512 y[MAX_FEW])
{
    __m512 d = halves_at(unit), dmin = halves_at(unit + 32);
    UNROLL
    for (int t = 0; t < n_tokens; t++) {
        __m512 act_scale = _mm512_set1_ps(a->scale[(int64_t)(token + t) * a->n_scales + b]);
        __m128i sums = pair_sums(a->sum + (int64_t)(token + t) * a->n_sums + b * GROUPS);
        __m512i all = _mm512_broadcast_i32x4(sums), min = _mm512_setzero_si512();
        min = _mm512_dpwssd_epi32(min, min_pair(subs, 0), _mm512_shuffle_epi32(all, 0x00));
        min = _mm512_dpwssd_epi32(min, min_pair(subs, 1), _mm512_shuffle_epi32(all, 0x55));
        min = _mm512_dpwssd_epi32(min, min_pair(subs, 2), _mm512_shuffle_epi32(all, 0xaa));
        min = _mm512_dpwssd_epi32(min, min_pair(subs, 3), _mm512_shuffle_epi32(all, 0xff));
        y[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[t]), _mm512_mul_ps(d, act_scale), y[t]);
        y[t] = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(min), _mm512_mul_ps(dmin, act_scale), y[t]);
    }
}

INLINE void few_tile(const struct matmul_job *job, int64_t tile, int token, const bool has_fifth,
                     const int n_tokens)
{
    const struct activations *a = &job->a;
    const int group_bytes = (4 + has_fifth) * STEP_BYTES;
    const uint8_t *unit = tile_at(job, tile);
    struct fetch fetch = fetch_behind(job, tile, token);
    const int8_t *q = a->q + token * a->stride;
    __m512 y[MAX_FEW];
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        y[t] = _mm512_setzero_ps();
    for (int64_t b = 0; b < job->w.n_cols / BLOCK; b++) {
        struct sub_scales subs = sub_scales_at(unit);
        const uint8_t *codes = unit + CODES_AT;
        __m512i sum[MAX_FEW];
        UNROLL
        for (int t = 0; t < n_tokens; t++)
            sum[t] = _mm512_setzero_si512();
        fetch_lines(&fetch, CODES_AT / STEP_BYTES);
        UNROLL
        for (int half = 0; half < 2; half++) {
            __m512i scales = subs.scales[half];
            fetch_lines(&fetch, 4 * group_bytes / STEP_BYTES);
            for (int g = 0; g < 4; g++, q += 32, codes += group_bytes) {
                __m512i scale = _mm512_and_si512(scales, _mm512_set1_epi32(255));
                scales = _mm512_srli_epi32(scales, 8);
                add_few_group(codes, has_fifth, scale, q, a->stride, n_tokens, sum);
            }
        }
        add_few_block(a, token, b, unit, &subs, sum, n_tokens, y);
        unit = codes;
    }
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        finish_floats(job, tile, token + t, y[t]);
}

FEW_RUN(q4_k, 1, few_tile, false, 1)
FEW_RUN(q4_k, 2, few_tile, false, 2)
FEW_RUN(q4_k, 3, few_tile, false, 3)
FEW_RUN(q4_k, 4, few_tile, false, 4)
FEW_RUN(q5_k, 1, few_tile, true, 1)
FEW_RUN(q5_k, 2, few_tile, true, 2)
FEW_RUN(q5_k, 3, few_tile, true, 3)
FEW_RUN(q5_k, 4, few_tile, true, 4)

/* sum += over the groups of a block, scale * sum of code * q. */
INLINE void add_codes(const struct panel *p, int64_t b, int token, const int n_tiles,
                      const int n_tokens, __m512i sum[][PANEL_TILES])
{
    struct token_rows rows = token_rows(p, token, b * BLOCK, n_tokens);
    const uint8_t *codes = p->codes + b * (BLOCK / 4) * n_tiles * STEP_BYTES;
    const int16_t *scales = p->sub_scales + b * (GROUPS + PAIRS) * n_tiles * (2 * TILE_ROWS);
    for (int g = 0; g < GROUPS; g++) {
        __m512i dot[PANEL_TOKENS / 2][PANEL_TILES];
        UNROLL
        for (int t = 0; t < n_tokens; t++) {
            UNROLL
            for (int k = 0; k < n_tiles; k++)
                dot[t][k] = _mm512_setzero_si512();
        }
        panel_quads(codes, &rows, n_tiles, n_tokens, dot);
        panel_quads(codes + 4 * n_tiles * STEP_BYTES, &rows, n_tiles, n_tokens, dot);
        codes += 8 * n_tiles * STEP_BYTES;
        UNROLL
        for (int k = 0; k < n_tiles; k++, scales += 2 * TILE_ROWS) {
            __m512i scale = _mm512_loadu_si512(scales);
            UNROLL
            for (int t = 0; t < n_tokens; t++)
                sum[t][k] = _mm512_add_epi32(sum[t][k], _mm512_mullo_epi32(dot[t][k], scale));
        }
    }
}

/* sum += over the groups of a block, minimum * sum of activations. */
INLINE void add_mins(const struct panel *p, int64_t b, int token, const int n_tiles,
                     const int n_tokens, __m512i sum[][PANEL_TILES])
{
    const int16_t *mins =
        p->sub_scales + (b * (GROUPS + PAIRS) + GROUPS) * n_tiles * (2 * TILE_ROWS);
    const int32_t *pairs = p->zero_sums + token * p->zero_stride + b * PAIRS;
    UNROLL
    for (int i = 0; i < PAIRS; i++) {
        UNROLL
        for (int t = 0; t < n_tokens; t++) {
            __m512i sums = _mm512_set1_epi32(pairs[t * p->zero_stride + i]);
            UNROLL
            for (int k = 0; k < n_tiles; k++) {
                __m512i min = _mm512_loadu_si512(mins + (i * n_tiles + k) * (2 * TILE_ROWS));
                sum[t][k] = _mm512_dpwssd_epi32(sum[t][k], min, sums);
            }
        }
    }
}

/* y += or -= sum * scale * act scale. */
INLINE void add_floats(const float *scales, const float *act_scale, int64_t act_stride,
                       const bool is_minus, const int n_tiles, const int n_tokens,
                       __m512i sum[][PANEL_TILES], __m512 *y)
{
    UNROLL
    for (int t = 0; t < n_tokens; t++) {
        __m512 x = _mm512_set1_ps(act_scale[t * act_stride]);
        UNROLL
        for (int k = 0; k < n_tiles; k++) {
            __m512 scale = _mm512_mul_ps(_mm512_loadu_ps(scales + k * TILE_ROWS), x);
            __m512 s = _mm512_cvtepi32_ps(sum[t][k]), *at = y + t * n_tiles + k;
            *at = is_minus ? _mm512_fnmadd_ps(s, scale, *at) : _mm512_fmadd_ps(s, scale, *at);
        }
    }
}

INLINE void clear_sums(const int n_tiles, const int n_tokens, __m512i sum[][PANEL_TILES])
{
    UNROLL
    for (int t = 0; t < n_tokens; t++) {
        UNROLL
        for (int k = 0; k < n_tiles; k++)
            sum[t][k] = _mm512_setzero_si512();
    }
}

INLINE void panel_blocks(const struct panel *p, int token, __m512i *state, const int n_tiles,
                         const int n_tokens)
{
    const struct activations *a = &p->job->a;
    const float *act_scale = a->scale + (int64_t)token * a->n_scales + p->col0 / BLOCK;
    const float *scales = p->scales;
    for (int64_t b = 0; b < p->n / BLOCK; b++, act_scale++, scales += 2 * n_tiles * TILE_ROWS) {
        __m512i sum[PANEL_TOKENS / 2][PANEL_TILES];
        clear_sums(n_tiles, n_tokens, sum);
        add_codes(p, b, token, n_tiles, n_tokens, sum);
        add_floats(scales, act_scale, a->n_scales, false, n_tiles, n_tokens, sum, (__m512 *)state);
        clear_sums(n_tiles, n_tokens, sum);
        add_mins(p, b, token, n_tiles, n_tokens, sum);
        add_floats(scales + n_tiles * TILE_ROWS, act_scale, a->n_scales, true, n_tiles, n_tokens,
                   sum, (__m512 *)state);
    }
}

PANEL_TABLE(panel_blocks, 4)

/* The scales of a unit's groups to lanes, then pairs of minimums. */
INLINE void unpack_scales(const uint8_t *unit, int pitch, int16_t *sub_scales)
{
    struct sub_scales subs = sub_scales_at(unit);
    for (int g = 0; g < GROUPS; g++, sub_scales += 2 * pitch * TILE_ROWS) {
        __m512i scale = _mm512_srli_epi32(subs.scales[g / 4], (unsigned)(g % 4 * 8));
        _mm512_storeu_si512(sub_scales, _mm512_and_si512(scale, _mm512_set1_epi32(255)));
    }
    for (int i = 0; i < PAIRS; i++, sub_scales += 2 * pitch * TILE_ROWS)
        _mm512_storeu_si512(sub_scales, min_pair(&subs, i));
}

INLINE void unpack_units(const struct panel *p, int64_t tile, const bool has_fifth, int pitch,
                         uint8_t *codes, float *scales, int16_t *sub_scales)
{
    const int group_bytes = (4 + has_fifth) * STEP_BYTES;
    const int unit_bytes = CODES_AT + GROUPS * group_bytes;
    const uint8_t *unit = tile_at(p->job, tile) + p->col0 / BLOCK * unit_bytes;
    for (int64_t b = 0; b < p->n / BLOCK; b++, unit += unit_bytes) {
        _mm512_storeu_ps(scales, halves_at(unit));
        _mm512_storeu_ps(scales + pitch * TILE_ROWS, halves_at(unit + 32));
        scales += 2 * pitch * TILE_ROWS;
        unpack_scales(unit, pitch, sub_scales);
        sub_scales += (GROUPS + PAIRS) * pitch * (2 * TILE_ROWS);
        for (int g = 0; g < GROUPS; g++) {
            UNROLL
            for (int k = 0; k < 8; k++, codes += pitch * STEP_BYTES)
                _mm512_storeu_si512(codes,
                                    codes_at(unit + CODES_AT + g * group_bytes, has_fifth, k));
        }
    }
}

static void unpack_q4_k(const struct panel *p, int64_t tile, int pitch, uint8_t *codes,
                        float *scales, int16_t *sub_scales)
{
    unpack_units(p, tile, false, pitch, codes, scales, sub_scales);
}

static void unpack_q5_k(const struct panel *p, int64_t tile, int pitch, uint8_t *codes,
                        float *scales, int16_t *sub_scales)
{
    unpack_units(p, tile, true, pitch, codes, scales, sub_scales);
}

/* Pairs of the sums of a panel's activations. */
static void look(struct panel *p)
{
    const struct activations *a = &p->job->a;
    for (int t = 0; t < p->job->n_tokens; t++)
        for (int64_t b = 0; b < p->n / BLOCK; b++) {
            const int32_t *sums = a->sum + (int64_t)t * a->n_sums + p->col0 / 32 + b * GROUPS;
            _mm_storeu_si128((void *)(p->zero_sums + t * p->zero_stride + b * PAIRS),
                             pair_sums(sums));
        }
}

#define K_OPS(unpack_codes)                                                                        \
    {                                                                                              \
        .inputs = 512, .group = BLOCK, .sum_group = 64, .has_min = true,                           \
        .sub_scales = GROUPS + PAIRS, .max_tokens = PANEL_TOKENS / 2, .run = panel_blocks_runs,    \
        .unpack = unpack_codes, .look = look                                                       \
    }

void matmul_q4_k_avx512(const union job *j, int begin, int end)
{
    static few_tokens *const few[MAX_FEW] = {q4_k_1, q4_k_2, q4_k_3, q4_k_4};
    static const struct panel_ops ops = K_OPS(unpack_q4_k);
    if (j->matmul.n_tokens <= FEW_TOKENS)
        few_matmul(&j->matmul, few, begin, end);
    else
        panel_matmul(&j->matmul, &ops, begin, end);
}

void matmul_q5_k_avx512(const union job *j, int begin, int end)
{
    static few_tokens *const few[MAX_FEW] = {q5_k_1, q5_k_2, q5_k_3, q5_k_4};
    static const struct panel_ops ops = K_OPS(unpack_q5_k);
    if (j->matmul.n_tokens <= FEW_TOKENS)
        few_matmul(&j->matmul, few, begin, end);
    else
        panel_matmul(&j->matmul, &ops, begin, end);
}
