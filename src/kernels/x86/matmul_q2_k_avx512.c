/* matmul of q2_k. Few tokens: the dot product of a group fits 16 bits, so one 16-bit multiply-add scales
 * and adds it. Many tokens: scale * code is at most 15 * 3, a byte, and the block one group without
 * scales inside. */
#include "kernels/x86/matmul_mins_avx512.h"

/* A block is a unit: f16 scales, four lines of 4-bit scales and minimums, 16 groups of 16 inputs, each
 * a step. */
enum { BLOCK = 256, GROUPS = 16, PAIRS = 8, LINES_AT = 64, CODES_AT = LINES_AT + 16 * TILE_ROWS };
enum { UNIT_BYTES = CODES_AT + GROUPS * STEP_BYTES };

INLINE __m512i line_at(const uint8_t *unit, const int i)
{
    return _mm512_loadu_si512(unit + LINES_AT + i * STEP_BYTES);
}

/* Minimums as pairs of int16 in the order of pair_sums. */
INLINE __m512i min_pair(const uint8_t *unit, const int i)
{
    __m512i line = line_at(unit, i / 2);
    line = i % 2 ? _mm512_srli_epi16(line, 12) : _mm512_srli_epi16(line, 4);
    return _mm512_and_si512(line, _mm512_set1_epi16(15));
}

INLINE __m512i codes_at(__m512i step, const int k)
{
    return _mm512_and_si512(_mm512_srli_epi16(step, 2 * k), _mm512_set1_epi8(3));
}

/* sum += scale * sum of code * q over a group. */
INLINE void add_few_group(const uint8_t *step, __m512i scale, const int8_t *q, int64_t stride,
                          const int n_tokens, __m512i sum[MAX_FEW])
{
    __m512i v = _mm512_loadu_si512(step), dot[MAX_FEW];
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        dot[t] = _mm512_setzero_si512();
    UNROLL
    for (int k = 0; k < 4; k++) {
        __m512i codes = codes_at(v, k);
        UNROLL
        for (int t = 0; t < n_tokens; t++)
            dot[t] = add_quad(dot[t], codes, q + t * stride + 4 * k);
    }
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        sum[t] = _mm512_dpwssd_epi32(sum[t], dot[t], scale);
}

INLINE void few_tile(const struct matmul_job *job, int64_t tile, int token, const int n_tokens)
{
    const struct activations *a = &job->a;
    const uint8_t *unit = tile_at(job, tile);
    struct fetch fetch = fetch_behind(job, tile, token);
    const int8_t *q = a->q + token * a->stride;
    __m512 y[MAX_FEW];
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        y[t] = _mm512_setzero_ps();
    for (int64_t b = 0; b < job->w.n_cols / BLOCK; b++, unit += UNIT_BYTES) {
        __m512i sum[MAX_FEW], min[PAIRS];
        UNROLL
        for (int t = 0; t < n_tokens; t++)
            sum[t] = _mm512_setzero_si512();
        UNROLL
        for (int i = 0; i < GROUPS / 4; i++) {
            __m512i scales = line_at(unit, i);
            fetch_lines(&fetch, i ? 4 : 9);
            for (int g = 4 * i; g < 4 * i + 4; g++, q += 16) {
                __m512i scale = _mm512_and_si512(scales, _mm512_set1_epi32(15));
                scales = _mm512_srli_epi32(scales, 8);
                add_few_group(unit + CODES_AT + g * STEP_BYTES, scale, q, a->stride, n_tokens, sum);
            }
        }
        UNROLL
        for (int i = 0; i < PAIRS; i++)
            min[i] = min_pair(unit, i);
        few_min_block(a, token, b, unit, min, GROUPS, sum, n_tokens, y);
    }
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        finish_floats(job, tile, token + t, y[t]);
}

FEW_RUN(few, 1, few_tile, 1)
FEW_RUN(few, 2, few_tile, 2)
FEW_RUN(few, 3, few_tile, 3)
FEW_RUN(few, 4, few_tile, 4)

INLINE void panel_blocks(const struct panel *p, int token, __m512i *state, const int n_tiles,
                         const int n_tokens)
{
    const float *scales = p->scales;
    const int16_t *mins = p->sub_scales;
    for (int64_t b = 0; b < p->n / BLOCK; b++, mins += PAIRS * n_tiles * (2 * TILE_ROWS)) {
        panel_sums sum;
        set_sums(0, n_tiles, n_tokens, sum);
        panel_scaled_codes(p, b, token, n_tiles, n_tokens, sum);
        panel_floats(p, b, token, scales, false, n_tiles, n_tokens, sum, state);
        set_sums(0, n_tiles, n_tokens, sum);
        panel_mins(p, b, token, mins, PAIRS, n_tiles, n_tokens, sum);
        panel_floats(p, b, token, scales + n_tiles * TILE_ROWS, true, n_tiles, n_tokens, sum,
                     state);
        scales += 2 * n_tiles * TILE_ROWS;
    }
}

PANEL_TABLE_3_8(panel_blocks)

void unpack_q2_k_avx512(const struct panel *p, int64_t tile, int pitch, uint8_t *codes,
                        float *scales, int16_t *sub_scales)
{
    const uint8_t *unit = tile_at(p->job, tile) + p->col0 / BLOCK * UNIT_BYTES;
    for (int64_t b = 0; b < p->n / BLOCK; b++, unit += UNIT_BYTES) {
        _mm512_storeu_ps(scales, halves_at(unit));
        _mm512_storeu_ps(scales + pitch * TILE_ROWS, halves_at(unit + 32));
        scales += 2 * pitch * TILE_ROWS;
        UNROLL
        for (int i = 0; i < PAIRS; i++, sub_scales += 2 * pitch * TILE_ROWS)
            _mm512_storeu_si512(sub_scales, min_pair(unit, i));
        for (int g = 0; g < GROUPS; g++) {
            __m512i step = _mm512_loadu_si512(unit + CODES_AT + g * STEP_BYTES);
            __m512i scale = spread_byte(line_at(unit, g / 4), g % 4);
            scale = _mm512_and_si512(scale, _mm512_set1_epi8(15));
            UNROLL
            for (int k = 0; k < 4; k++, codes += pitch * STEP_BYTES) {
                __m512i v = add_where(_mm512_setzero_si512(), step, 2 * k, scale);
                v = add_where(v, step, 2 * k + 1, _mm512_add_epi8(scale, scale));
                _mm512_storeu_si512(codes, v);
            }
        }
    }
}

static void look(struct panel *p)
{
    panel_pair_sums(p, GROUPS);
}

void matmul_q2_k_avx512(const union job *j, int begin, int end)
{
    static few_tokens *const few[MAX_FEW] = {few_1, few_2, few_3, few_4};
    static const struct panel_ops ops = {.inputs = 512,
                                         .group = BLOCK,
                                         .sum_inputs = 32,
                                         .has_min = true,
                                         .sub_scales = PAIRS,
                                         RUNS_3_8(panel_blocks),
                                         .unpack = unpack_q2_k_avx512,
                                         .look = look};
    if (j->matmul.n_tokens <= FEW_TOKENS)
        few_matmul(&j->matmul, few, begin, end);
    else
        panel_matmul(&j->matmul, &ops, begin, end);
}
