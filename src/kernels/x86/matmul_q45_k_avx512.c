/* matmul of q4_k and q5_k: a fifth bit apart they are the same. */
#include "kernels/x86/matmul_mins_avx512.h"

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
        const __m512i min[PAIRS] = {min_pair(&subs, 0), min_pair(&subs, 1), min_pair(&subs, 2),
                                    min_pair(&subs, 3)};
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

INLINE void panel_blocks(const struct panel *p, int token, __m512i *state, const int n_tiles,
                         const int n_tokens)
{
    panel_min_blocks(p, token, state, GROUPS, GROUPS, n_tiles, n_tokens);
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

void unpack_q4_k_avx512(const struct panel *p, int64_t tile, int pitch, uint8_t *codes,
                        float *scales, int16_t *sub_scales)
{
    unpack_units(p, tile, false, pitch, codes, scales, sub_scales);
}

void unpack_q5_k_avx512(const struct panel *p, int64_t tile, int pitch, uint8_t *codes,
                        float *scales, int16_t *sub_scales)
{
    unpack_units(p, tile, true, pitch, codes, scales, sub_scales);
}

static void look(struct panel *p)
{
    panel_pair_sums(p, GROUPS);
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
    static const struct panel_ops ops = K_OPS(unpack_q4_k_avx512);
    if (j->matmul.n_tokens <= FEW_TOKENS)
        few_matmul(&j->matmul, few, begin, end);
    else
        panel_matmul(&j->matmul, &ops, begin, end);
}

void matmul_q5_k_avx512(const union job *j, int begin, int end)
{
    static few_tokens *const few[MAX_FEW] = {q5_k_1, q5_k_2, q5_k_3, q5_k_4};
    static const struct panel_ops ops = K_OPS(unpack_q5_k_avx512);
    if (j->matmul.n_tokens <= FEW_TOKENS)
        few_matmul(&j->matmul, few, begin, end);
    else
        panel_matmul(&j->matmul, &ops, begin, end);
}
