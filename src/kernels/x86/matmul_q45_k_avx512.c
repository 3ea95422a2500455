/* matmul of q4_k and q5_k: a fifth bit apart they are the same. */
#define FETCH_HINT _MM_HINT_T1
#include "kernels/x86/matmul_mins_avx512.h"
#include "kernels/x86/sum_as_float.h"

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

/* Scales or minimums as pairs of int16 in the order of pair_sums. */
INLINE __m512i pair_of(const __m512i of_groups[2], int i)
{
    __m512i bytes = of_groups[i / 2];
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
        const __m512i min[PAIRS] = {pair_of(subs.mins, 0), pair_of(subs.mins, 1),
                                    pair_of(subs.mins, 2), pair_of(subs.mins, 3)};
        few_min_block(a, token, b, unit, min, GROUPS, sum, n_tokens, y);
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

/* Many tokens. A dot product of a group starts at SUM_START: with F = SUM_START_FLOAT it ends as F + dot. One
 * multiply-add with the scale and F - F * scale makes it F + scale * dot, exactly while |scale * dot| <=
 * 2^22, and adding its bits adds scale * dot: two instructions where a product of 32 bits and a sum take
 * three. q4_k: 63 * 32 * 15 * 127 < 2^22. q5_k: the same of code - 16, 63 * 32 * 16 * 127 < 2^22, and
 * 16 * scale * sum of q added by pairs, like minimums. */

/* Lines of a block and tile: of groups the scale and F - F * scale as floats, then pairs of minimums, then
 * for q5_k pairs of 16 * scale. */
INLINE int lines_of(const bool has_fifth)
{
    return 2 * GROUPS + PAIRS + has_fifth * PAIRS;
}

/* sum += scale * sum of code * q over a group, and SUM_START. */
INLINE void panel_group(const uint8_t *codes, const float *scales, struct token_rows *rows,
                        struct token_rows *zero, const bool has_fifth, const int n_tiles,
                        const int n_tokens, panel_sums sum)
{
    panel_sums dot;
    set_sums(SUM_START, n_tiles, n_tokens, dot);
    UNROLL
    for (int t = 0; t < n_tokens * has_fifth; t++) {
        __m512i start = quad_at(row_of(zero, t));
        UNROLL
        for (int k = 0; k < n_tiles; k++)
            dot[t][k] = start;
    }
    if (has_fifth)
        rows_advance(zero, n_tokens, 4);
    UNROLL
    for (int i = 0; i < 2; i++)
        panel_quads(codes + i * 4 * n_tiles * STEP_BYTES, rows, n_tiles, n_tokens, dot);
    UNROLL
    for (int k = 0; k < n_tiles; k++) {
        __m512 scale = _mm512_loadu_ps(scales + k * TILE_ROWS);
        __m512 start = _mm512_loadu_ps(scales + (n_tiles + k) * TILE_ROWS);
        UNROLL
        for (int t = 0; t < n_tokens; t++) {
            __m512 s = _mm512_fmadd_ps(_mm512_castsi512_ps(dot[t][k]), scale, start);
            sum[t][k] = _mm512_add_epi32(sum[t][k], _mm512_castps_si512(s));
        }
    }
}

INLINE void panel_blocks(const struct panel *p, int token, __m512i *state, const bool has_fifth,
                         const int n_tiles, const int n_tokens)
{
    const int line = n_tiles * (2 * TILE_ROWS);
    const float *scales = p->scales;
    const uint8_t *codes = p->codes;
    const int16_t *lines = p->sub_scales;
    struct token_rows rows = token_rows(p, token, 0, n_tokens);
    for (int64_t b = 0; b < p->n / BLOCK; b++, lines += lines_of(has_fifth) * line) {
        struct token_rows zero =
            rows_at(p->extra + token * p->extra_stride + b * GROUPS, p->extra_stride * 4, n_tokens);
        const int16_t *mins = lines + 2 * GROUPS * line;
        panel_sums sum;
        set_sums((int)(0u - GROUPS * (unsigned)SUM_START), n_tiles, n_tokens, sum);
        for (int g = 0; g < GROUPS; g++, codes += 8 * n_tiles * STEP_BYTES)
            panel_group(codes, (const float *)(lines + 2 * g * line), &rows, &zero, has_fifth,
                        n_tiles, n_tokens, sum);
        if (has_fifth)
            panel_mins(p, b, token, mins + PAIRS * line, PAIRS, n_tiles, n_tokens, sum);
        panel_floats(p, b, token, scales, false, n_tiles, n_tokens, sum, state);
        set_sums(0, n_tiles, n_tokens, sum);
        panel_mins(p, b, token, mins, PAIRS, n_tiles, n_tokens, sum);
        panel_floats(p, b, token, scales + n_tiles * TILE_ROWS, true, n_tiles, n_tokens, sum,
                     state);
        scales += 2 * n_tiles * TILE_ROWS;
    }
}

INLINE void panel_q4_k(const struct panel *p, int token, __m512i *state, const int n_tiles,
                       const int n_tokens)
{
    panel_blocks(p, token, state, false, n_tiles, n_tokens);
}

INLINE void panel_q5_k(const struct panel *p, int token, __m512i *state, const int n_tiles,
                       const int n_tokens)
{
    panel_blocks(p, token, state, true, n_tiles, n_tokens);
}

PANEL_TABLE_2_7(panel_q4_k)
PANEL_TABLE_2_7(panel_q5_k)

/* What panel_blocks reads of a unit; returns what follows. */
INLINE int16_t *unpack_lines(const uint8_t *unit, const bool has_fifth, int pitch, int16_t *lines)
{
    const __m512 magic = _mm512_set1_ps(SUM_START_FLOAT);
    struct sub_scales subs = sub_scales_at(unit);
    const int line = pitch * (2 * TILE_ROWS);
    for (int g = 0; g < GROUPS; g++, lines += 2 * line) {
        __m512i scale = _mm512_srli_epi32(subs.scales[g / 4], (unsigned)(g % 4 * 8));
        scale = _mm512_and_si512(scale, _mm512_set1_epi32(255));
        __m512 factor = _mm512_cvtepi32_ps(scale);
        _mm512_storeu_ps(lines, factor);
        _mm512_storeu_ps(lines + line, _mm512_fnmadd_ps(magic, factor, magic));
    }
    for (int i = 0; i < PAIRS; i++, lines += line)
        _mm512_storeu_si512(lines, pair_of(subs.mins, i));
    for (int i = 0; i < PAIRS * has_fifth; i++, lines += line)
        _mm512_storeu_si512(lines, _mm512_slli_epi16(pair_of(subs.scales, i), 4));
    return lines;
}

/* For AMX: the scales of a unit's groups to lanes, then pairs of minimums; returns what follows. */
INLINE int16_t *unpack_scales(const uint8_t *unit, int pitch, int16_t *sub_scales)
{
    struct sub_scales subs = sub_scales_at(unit);
    for (int g = 0; g < GROUPS; g++, sub_scales += 2 * pitch * TILE_ROWS) {
        __m512i scale = _mm512_srli_epi32(subs.scales[g / 4], (unsigned)(g % 4 * 8));
        _mm512_storeu_si512(sub_scales, _mm512_and_si512(scale, _mm512_set1_epi32(255)));
    }
    for (int i = 0; i < PAIRS; i++, sub_scales += 2 * pitch * TILE_ROWS)
        _mm512_storeu_si512(sub_scales, pair_of(subs.mins, i));
    return sub_scales;
}

INLINE void unpack_units(const struct panel *p, int64_t tile, const bool has_fifth,
                         const bool is_amx, int pitch, uint8_t *codes, float *scales,
                         int16_t *sub_scales)
{
    const int group_bytes = (4 + has_fifth) * STEP_BYTES;
    const int unit_bytes = CODES_AT + GROUPS * group_bytes;
    const uint8_t *unit = tile_at(p->job, tile) + p->col0 / BLOCK * unit_bytes;
    for (int64_t b = 0; b < p->n / BLOCK; b++, unit += unit_bytes) {
        _mm512_storeu_ps(scales, halves_at(unit));
        _mm512_storeu_ps(scales + pitch * TILE_ROWS, halves_at(unit + 32));
        scales += 2 * pitch * TILE_ROWS;
        sub_scales = is_amx ? unpack_scales(unit, pitch, sub_scales)
                            : unpack_lines(unit, has_fifth, pitch, sub_scales);
        for (int g = 0; g < GROUPS; g++) {
            UNROLL
            for (int k = 0; k < 8; k++, codes += pitch * STEP_BYTES)
                _mm512_storeu_si512(codes,
                                    codes_at(unit + CODES_AT + g * group_bytes, has_fifth, k));
        }
    }
}

void unpack_q4_k_avx512(const struct panel *p, int64_t tile, int pitch, uint8_t *codes,
                        float *scales, int16_t *sub_scales)
{
    unpack_units(p, tile, false, true, pitch, codes, scales, sub_scales);
}

void unpack_q5_k_avx512(const struct panel *p, int64_t tile, int pitch, uint8_t *codes,
                        float *scales, int16_t *sub_scales)
{
    unpack_units(p, tile, true, true, pitch, codes, scales, sub_scales);
}

static void unpack_q4_k(const struct panel *p, int64_t tile, int pitch, uint8_t *codes,
                        float *scales, int16_t *sub_scales)
{
    unpack_units(p, tile, false, false, pitch, codes, scales, sub_scales);
}

static void unpack_q5_k(const struct panel *p, int64_t tile, int pitch, uint8_t *codes,
                        float *scales, int16_t *sub_scales)
{
    unpack_units(p, tile, true, false, pitch, codes, scales, sub_scales);
}

static void look_q4_k(struct panel *p)
{
    panel_pair_sums(p, GROUPS);
}

static void look_q5_k(struct panel *p)
{
    const struct activations *a = &p->job->a;
    panel_pair_sums(p, GROUPS);
    for (int t = 0; t < p->job->n_tokens; t++) {
        const int32_t *sums = a->sum + (int64_t)t * a->n_sums + p->col0 / 32;
        int32_t *starts = p->extra + t * p->extra_stride;
        for (int64_t g = 0; g < p->n / 32; g += 8) {
            __m256i sum = _mm256_slli_epi32(_mm256_loadu_si256((const void *)(sums + g)), 4);
            sum = _mm256_sub_epi32(_mm256_set1_epi32(SUM_START), sum);
            _mm256_storeu_si256((void *)(starts + g), sum);
        }
    }
}

#define K_OPS(name, n_lines, n_starts)                                                             \
    {                                                                                              \
        .inputs = 512, .group = BLOCK, .sum_inputs = 64, .has_min = true, .sub_scales = n_lines,   \
        RUNS_2_7(panel_##name), .unpack = unpack_##name, .look = look_##name, .extra = n_starts    \
    }

void matmul_q4_k_avx512(const union job *j, int begin, int end)
{
    static few_tokens *const few[MAX_FEW] = {q4_k_1, q4_k_2, q4_k_3, q4_k_4};
    static const struct panel_ops ops = K_OPS(q4_k, 2 * GROUPS + PAIRS, 0);
    if (j->matmul.n_tokens <= FEW_TOKENS)
        few_matmul(&j->matmul, few, begin, end);
    else
        panel_matmul(&j->matmul, &ops, begin, end);
}

void matmul_q5_k_avx512(const union job *j, int begin, int end)
{
    static few_tokens *const few[MAX_FEW] = {q5_k_1, q5_k_2, q5_k_3, q5_k_4};
    static const struct panel_ops ops = K_OPS(q5_k, 2 * GROUPS + 2 * PAIRS, 512 / 32);
    if (j->matmul.n_tokens <= FEW_TOKENS)
        few_matmul(&j->matmul, few, begin, end);
    else
        panel_matmul(&j->matmul, &ops, begin, end);
}
