/* matmul of iq4_xs: values of codes from a table in a register, with 128 added, because the bytes of the
 * multiply-add that the activations do not take are unsigned. |sum| <= 8 * 32 * 32 * 241 * 127 < 2^31. */
#define FETCH_HINT _MM_HINT_T1
#include "kernels/x86/matmul_mins_avx512.h"
#include "tensor/iq4_values.h"

/* A block is a unit: f16 scales, upper and lower bits of scales, 8 groups of 32 inputs, each four steps
 * of nibbles. */
enum { BLOCK = 256, GROUPS = 8, PAIRS = 4, LOWER_AT = 64, CODES_AT = LOWER_AT + 4 * TILE_ROWS };
enum { GROUP_BYTES = 4 * STEP_BYTES, UNIT_BYTES = CODES_AT + GROUPS * GROUP_BYTES };
enum { OFFSET_SHIFT = 7 };

INLINE __m512i values_table(void)
{
    __m128i values = _mm_loadu_si128((const void *)iq4_values);
    return _mm512_broadcast_i32x4(_mm_xor_si128(values, _mm_set1_epi8(-128)));
}

/* Values + 128 of both quads of a step. */
INLINE void unpack_values(const uint8_t *at, __m512i table, __m512i values[2])
{
    const __m512i low_4 = _mm512_set1_epi8(15);
    __m512i step = _mm512_loadu_si512(at);
    values[0] = _mm512_shuffle_epi8(table, _mm512_and_si512(step, low_4));
    step = _mm512_srli_epi16(step, 4);
    values[1] = _mm512_shuffle_epi8(table, _mm512_and_si512(step, low_4));
}

/* Scales in the order of pair_sums. */
INLINE void scale_pairs_at(const uint8_t *unit, __m512i pair[PAIRS])
{
    const __m512i low_4 = _mm512_set1_epi8(15), top_2 = _mm512_set1_epi8(48);
    const __m512i zero = _mm512_set1_epi8(32);
    __m512i lower = _mm512_loadu_si512(unit + LOWER_AT);
    __m512i upper = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(unit + 32)));
    /* Nibble i to byte i. */
    upper = _mm512_or_si512(upper, _mm512_slli_epi32(upper, 8));
    upper = _mm512_and_si512(upper, _mm512_set1_epi32(0x00ff00ff));
    upper = _mm512_or_si512(upper, _mm512_slli_epi32(upper, 4));
    __m512i first = _mm512_and_si512(_mm512_slli_epi32(upper, 4), top_2);
    __m512i second = _mm512_and_si512(_mm512_slli_epi32(upper, 2), top_2);
    first = _mm512_or_si512(first, _mm512_and_si512(lower, low_4));
    second = _mm512_or_si512(second, _mm512_and_si512(_mm512_srli_epi32(lower, 4), low_4));
    signed_pairs(_mm512_sub_epi8(first, zero), pair);
    signed_pairs(_mm512_sub_epi8(second, zero), pair + 2);
}

/* Of four groups, as int32, from two pairs. */
INLINE void scales_of(const __m512i pair[2], __m512i scale[4])
{
    UNROLL
    for (int i = 0; i < 2; i++) {
        scale[i] = _mm512_srai_epi32(_mm512_slli_epi32(pair[i], 16), 16);
        scale[2 + i] = _mm512_srai_epi32(pair[i], 16);
    }
}

/* sum += scale * sum of (value + 128) * q over a group. */
INLINE void add_few_group(const uint8_t *steps, __m512i table, __m512i scale, const int8_t *q,
                          int64_t stride, const int n_tokens, __m512i sum[MAX_FEW])
{
    __m512i dot[MAX_FEW];
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        dot[t] = _mm512_setzero_si512();
    UNROLL
    for (int k = 0; k < 4; k++) {
        __m512i values[2];
        unpack_values(steps + k * STEP_BYTES, table, values);
        UNROLL
        for (int t = 0; t < n_tokens; t++) {
            dot[t] = add_quad(dot[t], values[0], q + t * stride + 8 * k);
            dot[t] = add_quad(dot[t], values[1], q + t * stride + 8 * k + 4);
        }
    }
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        sum[t] = _mm512_add_epi32(sum[t], _mm512_mullo_epi32(dot[t], scale));
}

INLINE void few_tile(const struct matmul_job *job, int64_t tile, int token, const int n_tokens)
{
    const struct activations *a = &job->a;
    const __m512i table = values_table();
    const uint8_t *unit = tile_at(job, tile);
    struct fetch fetch = fetch_behind(job, tile, token);
    const int8_t *q = a->q + token * a->stride;
    __m512 y[MAX_FEW];
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        y[t] = _mm512_setzero_ps();
    for (int64_t b = 0; b < job->w.n_cols / BLOCK; b++, unit += UNIT_BYTES) {
        __m512i sum[MAX_FEW], pair[PAIRS];
        UNROLL
        for (int t = 0; t < n_tokens; t++)
            sum[t] = _mm512_setzero_si512();
        scale_pairs_at(unit, pair);
        if (b % 2 == 0)
            fetch_lines(&fetch, 2 * CODES_AT / STEP_BYTES);
        UNROLL
        for (int half = 0; half < 2; half++) {
            __m512i scale[4];
            scales_of(pair + 2 * half, scale);
            UNROLL
            for (int g = 0; g < 4; g++, q += 32) {
                fetch_lines(&fetch, GROUP_BYTES / STEP_BYTES);
                add_few_group(unit + CODES_AT + (4 * half + g) * GROUP_BYTES, table, scale[g], q,
                              a->stride, n_tokens, sum);
            }
        }
        few_signed_block(a, token, b, unit, pair, GROUPS, OFFSET_SHIFT, sum, n_tokens, y);
    }
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        finish_floats(job, tile, token + t, y[t]);
}

FEW_RUN(few, 1, few_tile, 1)
FEW_RUN(few, 2, few_tile, 2)
FEW_RUN(few, 3, few_tile, 3)
FEW_RUN(few, 4, few_tile, 4)

/* sum += over a group, scale * sum of (value + 128) * q. */
INLINE void panel_group(const uint8_t *codes, const int16_t *scales, struct token_rows *rows,
                        const int n_tiles, const int n_tokens, panel_sums sum)
{
    panel_sums dot;
    set_sums(0, n_tiles, n_tokens, dot);
    UNROLL
    for (int i = 0; i < 2; i++)
        panel_quads(codes + i * 4 * n_tiles * STEP_BYTES, rows, n_tiles, n_tokens, dot);
    UNROLL
    for (int k = 0; k < n_tiles; k++) {
        __m512i scale = _mm512_loadu_si512(scales + k * (2 * TILE_ROWS));
        UNROLL
        for (int t = 0; t < n_tokens; t++)
            sum[t][k] = _mm512_add_epi32(sum[t][k], _mm512_mullo_epi32(dot[t][k], scale));
    }
}

INLINE void panel_blocks(const struct panel *p, int token, __m512i *state, const int n_tiles,
                         const int n_tokens)
{
    const uint8_t *codes = p->codes;
    const int16_t *scales = p->sub_scales;
    for (int64_t b = 0; b < p->n / BLOCK; b++) {
        struct token_rows rows = token_rows(p, token, b * BLOCK, n_tokens);
        panel_sums sum;
        set_sums(0, n_tiles, n_tokens, sum);
        for (int g = 0; g < GROUPS; g++, scales += n_tiles * (2 * TILE_ROWS)) {
            panel_group(codes, scales, &rows, n_tiles, n_tokens, sum);
            codes += 8 * n_tiles * STEP_BYTES;
        }
        panel_mins(p, b, token, scales, PAIRS, n_tiles, n_tokens, sum);
        scales += PAIRS * n_tiles * (2 * TILE_ROWS);
        panel_floats(p, b, token, p->scales + b * n_tiles * TILE_ROWS, false, n_tiles, n_tokens,
                     sum, state);
    }
}

PANEL_TABLE_2_7(panel_blocks)

/* Minimums are -128 * scale. */
void unpack_iq4_xs_avx512(const struct panel *p, int64_t tile, int pitch, uint8_t *codes,
                          float *scales, int16_t *sub_scales)
{
    const __m512i table = values_table();
    const uint8_t *unit = tile_at(p->job, tile) + p->col0 / BLOCK * UNIT_BYTES;
    for (int64_t b = 0; b < p->n / BLOCK; b++, unit += UNIT_BYTES, scales += pitch * TILE_ROWS) {
        __m512i pair[PAIRS], scale[GROUPS];
        _mm512_storeu_ps(scales, halves_at(unit));
        scale_pairs_at(unit, pair);
        scales_of(pair, scale);
        scales_of(pair + 2, scale + 4);
        for (int g = 0; g < GROUPS; g++, sub_scales += 2 * pitch * TILE_ROWS)
            _mm512_storeu_si512(sub_scales, scale[g]);
        for (int i = 0; i < PAIRS; i++, sub_scales += 2 * pitch * TILE_ROWS) {
            __m512i offset = _mm512_slli_epi16(pair[i], OFFSET_SHIFT);
            _mm512_storeu_si512(sub_scales, _mm512_sub_epi16(_mm512_setzero_si512(), offset));
        }
        for (int i = 0; i < BLOCK / 8; i++, codes += 2 * pitch * STEP_BYTES) {
            __m512i values[2];
            prefetch(unit + CODES_AT + i * STEP_BYTES);
            unpack_values(unit + CODES_AT + i * STEP_BYTES, table, values);
            _mm512_storeu_si512(codes, values[0]);
            _mm512_storeu_si512(codes + pitch * STEP_BYTES, values[1]);
        }
    }
}

static void look(struct panel *p)
{
    panel_pair_sums(p, GROUPS);
}

void matmul_iq4_xs_avx512(const union job *j, int begin, int end)
{
    static few_tokens *const few[MAX_FEW] = {few_1, few_2, few_3, few_4};
    static const struct panel_ops ops = {.inputs = 512,
                                         .group = BLOCK,
                                         .sum_inputs = 64,
                                         .sub_scales = GROUPS + PAIRS,
                                         RUNS_2_7(panel_blocks),
                                         .unpack = unpack_iq4_xs_avx512,
                                         .look = look};
    if (j->matmul.n_tokens <= FEW_TOKENS)
        few_matmul(&j->matmul, few, begin, end);
    else
        panel_matmul(&j->matmul, &ops, begin, end);
}
