#include "kernels/x86/matmul_panel_walk_avx512.h"

/* A block: 256 inputs, 16 groups of 16 inputs; a group: two steps of low nibbles, one of high bits.
 * A unit: two blocks after 64 bytes of f16 scales and 512 of int8 scales. */
enum { BLOCK = 256, GROUPS = 16, GROUP_BYTES = 3 * STEP_BYTES, CODES_AT = 64 + 512 };
enum { UNIT_BYTES = CODES_AT + 2 * GROUPS * GROUP_BYTES };

/* Where block b of a tile has what. */
struct block {
    const uint8_t *d, *scales, *codes;
};

INLINE struct block block_at(const uint8_t *tile, int64_t b)
{
    const uint8_t *unit = tile + b / 2 * UNIT_BYTES;
    return (struct block){unit + b % 2 * 32, unit + 64 + b % 2 * (GROUPS * TILE_ROWS),
                          unit + CODES_AT + b % 2 * (GROUPS * GROUP_BYTES)};
}

INLINE __m512i scales_at(const uint8_t *scales)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)scales));
}

/* acc += field under `mask` of v, by quad k of all tokens. */
INLINE void add_field(__m512i v, const int mask, const int k, const int8_t *q, int64_t stride,
                      const int n_tokens, __m512i acc[MAX_FEW])
{
    v = _mm512_and_si512(v, _mm512_set1_epi8((char)mask));
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        acc[t] = add_quad(acc[t], v, q + t * stride + 4 * k);
}

/* sum += scale * (sum of code * q - 32 * sum of q) over a group. All fields stay in place but for a
 * shift of two high ones: low nibbles count 1 and 16 times, high bits 1 and 4 times. */
INLINE void add_sub_group(const uint8_t *codes, __m512i scale, const int8_t *q, int64_t stride,
                          const int32_t *sums, int64_t n_sums, const int n_tokens,
                          __m512i sum[MAX_FEW])
{
    __m512i one[MAX_FEW], four[MAX_FEW], sixteen[MAX_FEW];
    UNROLL
    for (int t = 0; t < n_tokens; t++) {
        one[t] = _mm512_set1_epi32(-32 * sums[t * n_sums]);
        four[t] = sixteen[t] = _mm512_setzero_si512();
    }
    __m512i v = _mm512_loadu_si512(codes);
    add_field(v, 0x0f, 0, q, stride, n_tokens, one);
    add_field(v, 0xf0, 1, q, stride, n_tokens, sixteen);
    v = _mm512_loadu_si512(codes + STEP_BYTES);
    add_field(v, 0x0f, 2, q, stride, n_tokens, one);
    add_field(v, 0xf0, 3, q, stride, n_tokens, sixteen);
    v = _mm512_loadu_si512(codes + 2 * STEP_BYTES);
    add_field(v, 0x30, 2, q, stride, n_tokens, one);
    add_field(v, 0xc0, 3, q, stride, n_tokens, four);
    v = _mm512_slli_epi16(v, 4);
    add_field(v, 0x30, 0, q, stride, n_tokens, one);
    add_field(v, 0xc0, 1, q, stride, n_tokens, four);
    UNROLL
    for (int t = 0; t < n_tokens; t++) {
        __m512i dot = _mm512_add_epi32(_mm512_srai_epi32(sixteen[t], 2), four[t]);
        dot = _mm512_add_epi32(_mm512_srai_epi32(dot, 2), one[t]);
        sum[t] = _mm512_add_epi32(sum[t], _mm512_mullo_epi32(dot, scale));
    }
}

/* Asks for the lines of a unit's scales in their order, long before most of them are needed. Else
 * the stream of lines that the prefetchers of a Zen 4 follow has a gap in every unit: 24 GB/s
 * instead of 62 where plain reads make 69 (December 2026). */
INLINE void touch_header(const uint8_t *unit)
{
    UNROLL
    for (int at = 0; at < CODES_AT; at += STEP_BYTES)
        _mm_prefetch((const char *)unit + at, _MM_HINT_T0);
}

INLINE void few_tile(const struct matmul_job *job, int64_t tile, int token, const int n_tokens)
{
    const struct activations *a = &job->a;
    const uint8_t *w = tile_at(job, tile);
    struct fetch fetch = fetch_behind(job, tile, token);
    const int8_t *q = a->q + token * a->stride;
    const int32_t *sums = a->sum + (int64_t)token * a->n_sums;
    const float *act_scales = a->scale + (int64_t)token * a->n_scales;
    __m512 y[MAX_FEW];
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        y[t] = _mm512_setzero_ps();
    for (int64_t b = 0; b < job->w.n_cols / BLOCK; b++) {
        struct block block = block_at(w, b);
        if (b % 2 == 0)
            touch_header(block.d);
        __m512i sum[MAX_FEW];
        UNROLL
        for (int t = 0; t < n_tokens; t++)
            sum[t] = _mm512_setzero_si512();
        for (int g = 0; g < GROUPS; g++, q += 16, sums++) {
            const uint8_t *codes = block.codes + g * GROUP_BYTES;
            if (g % 4 == 0)
                fetch_lines(&fetch, 12);
            add_sub_group(codes, scales_at(block.scales + g * TILE_ROWS), q, a->stride, sums,
                          a->n_sums, n_tokens, sum);
        }
        UNROLL
        for (int t = 0; t < n_tokens; t++) {
            __m512 act_scale = _mm512_set1_ps(act_scales[t * (int64_t)a->n_scales + b]);
            __m512 scale = _mm512_mul_ps(halves_at(block.d), act_scale);
            y[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[t]), scale, y[t]);
        }
    }
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        finish_floats(job, tile, token + t, y[t]);
}

FEW_RUN(few, 1, few_tile, 1)
FEW_RUN(few, 2, few_tile, 2)
FEW_RUN(few, 3, few_tile, 3)
FEW_RUN(few, 4, few_tile, 4)

/* A block of many tokens. The dot product of a group fits 16 bits unless its activations are
 * unusually large (is_wide): then one 16-bit multiply-add scales and adds it, its upper half being
 * multiplied by the zeros between the scales. */
INLINE void add_block(const struct panel *p, int64_t b, int token, const int n_tiles,
                      const int n_tokens, const bool is_wide, __m512i sum[][PANEL_TILES])
{
    struct token_rows rows = token_rows(p, token, b * BLOCK, n_tokens);
    const int32_t *zero = p->zero_sums + token * p->zero_stride + b * GROUPS;
    const uint8_t *codes = p->codes + b * (BLOCK / 4) * n_tiles * STEP_BYTES;
    const int16_t *scales = p->sub_scales + b * GROUPS * n_tiles * (2 * TILE_ROWS);
    for (int g = 0; g < GROUPS; g++) {
        __m512i dot[PANEL_TOKENS][PANEL_TILES];
        UNROLL
        for (int t = 0; t < n_tokens; t++) {
            UNROLL
            for (int k = 0; k < n_tiles; k++)
                dot[t][k] = _mm512_set1_epi32(zero[t * p->zero_stride + g]);
        }
        panel_quads(codes, &rows, n_tiles, n_tokens, dot);
        codes += 4 * n_tiles * STEP_BYTES;
        UNROLL
        for (int k = 0; k < n_tiles; k++, scales += 2 * TILE_ROWS) {
            __m512i scale = _mm512_loadu_si512(scales);
            if (is_wide)
                scale = _mm512_srai_epi32(_mm512_slli_epi32(scale, 16), 16);
            UNROLL
            for (int t = 0; t < n_tokens; t++)
                sum[t][k] = is_wide
                                ? _mm512_add_epi32(sum[t][k], _mm512_mullo_epi32(dot[t][k], scale))
                                : _mm512_dpwssd_epi32(sum[t][k], dot[t][k], scale);
        }
    }
}

INLINE void panel_blocks(const struct panel *p, int token, __m512i *state, const int n_tiles,
                         const int n_tokens)
{
    const struct activations *a = &p->job->a;
    const float *act_scale = a->scale + (int64_t)token * a->n_scales + p->col0 / BLOCK;
    const int32_t *is_wide = p->extra + token * p->extra_stride;
    __m512 *y = (__m512 *)state;
    for (int64_t b = 0; b < p->n / BLOCK; b++) {
        __m512i sum[PANEL_TOKENS][PANEL_TILES];
        int n_wide = 0;
        UNROLL
        for (int t = 0; t < n_tokens; t++) {
            n_wide += is_wide[t * p->extra_stride + b];
            UNROLL
            for (int k = 0; k < n_tiles; k++)
                sum[t][k] = _mm512_setzero_si512();
        }
        if (n_wide)
            add_block(p, b, token, n_tiles, n_tokens, true, sum);
        else
            add_block(p, b, token, n_tiles, n_tokens, false, sum);
        const float *d = p->scales + b * n_tiles * TILE_ROWS;
        UNROLL
        for (int t = 0; t < n_tokens; t++) {
            __m512 x = _mm512_set1_ps(act_scale[t * (int64_t)a->n_scales + b]);
            UNROLL
            for (int k = 0; k < n_tiles; k++) {
                __m512 scale = _mm512_mul_ps(_mm512_loadu_ps(d + k * TILE_ROWS), x);
                __m512 *at = y + t * n_tiles + k;
                *at = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[t][k]), scale, *at);
            }
        }
    }
}

PANEL_TABLE_2_7(panel_blocks)

void unpack_q6_k_avx512(const struct panel *p, int64_t tile, int pitch, uint8_t *codes,
                        float *scales, int16_t *sub_scales)
{
    const uint8_t *w = tile_at(p->job, tile);
    __m512i low = _mm512_set1_epi8(0x0f), high = _mm512_set1_epi8(0x30);
    __m512i lower_half = _mm512_set1_epi32(0xffff);
    for (int64_t b = 0; b < p->n / BLOCK; b++, scales += pitch * TILE_ROWS) {
        struct block block = block_at(w, p->col0 / BLOCK + b);
        _mm512_storeu_ps(scales, halves_at(block.d));
        for (int g = 0; g < GROUPS; g++, sub_scales += 2 * pitch * TILE_ROWS) {
            __m512i scale = scales_at(block.scales + g * TILE_ROWS);
            _mm512_storeu_si512(sub_scales, _mm512_and_si512(scale, lower_half));
            const uint8_t *steps = block.codes + g * GROUP_BYTES;
            __m512i bits = _mm512_loadu_si512(steps + 2 * STEP_BYTES);
            UNROLL
            for (int i = 0; i < 4; i++, codes += pitch * STEP_BYTES) {
                __m512i v =
                    _mm512_srli_epi16(_mm512_loadu_si512(steps + i / 2 * STEP_BYTES), i % 2 * 4);
                __m512i h = i < 2 ? _mm512_slli_epi16(bits, i ? 2 : 4)
                                  : _mm512_srli_epi16(bits, i == 2 ? 0 : 2);
                v = _mm512_or_si512(_mm512_and_si512(v, low), _mm512_and_si512(h, high));
                _mm512_storeu_si512(codes, v);
            }
        }
    }
}

static void zero_sums(const struct panel *p)
{
    const struct activations *a = &p->job->a;
    for (int t = 0; t < p->job->n_tokens; t++) {
        const int32_t *sums = a->sum + t * (int64_t)a->n_sums + p->col0 / 16;
        int32_t *out = p->zero_sums + t * p->zero_stride;
        for (int64_t g = 0; g < p->n / 16; g += 16) {
            __m512i s = _mm512_slli_epi32(_mm512_loadu_si512(sums + g), 5);
            _mm512_storeu_si512(out + g, _mm512_sub_epi32(_mm512_setzero_si512(), s));
        }
    }
}

/* Marks in p->extra blocks with a group of 16 activations so large that 32 times the sum of their sizes needs
 * more than 16 bits. */
static void look(struct panel *p)
{
    const struct activations *a = &p->job->a;
    zero_sums(p);
    for (int t = 0; t < p->job->n_tokens; t++)
        for (int64_t b = 0; b < p->n / BLOCK; b++) {
            const int8_t *q = a->q + t * a->stride + p->col0 + b * BLOCK;
            __mmask8 found = 0;
            for (int i = 0; i < BLOCK; i += 64) {
                __m512i size = _mm512_abs_epi8(_mm512_loadu_si512(q + i));
                __m512i by8 = _mm512_sad_epu8(size, _mm512_setzero_si512());
                __m512i by16 = _mm512_add_epi64(by8, _mm512_shuffle_epi32(by8, 0x4e));
                found |= _mm512_cmpgt_epi64_mask(by16, _mm512_set1_epi64(1023));
            }
            p->extra[t * p->extra_stride + b] = found != 0;
        }
}

void matmul_q6_k_avx512(const union job *j, int begin, int end)
{
    static few_tokens *const few[MAX_FEW] = {few_1, few_2, few_3, few_4};
    static const struct panel_ops ops = {.inputs = 512,
                                         .group = BLOCK,
                                         .sum_inputs = 16,
                                         .sub_scales = GROUPS,
                                         .extra = 512 / BLOCK,
                                         RUNS_2_7(panel_blocks),
                                         .unpack = unpack_q6_k_avx512,
                                         .look = look};
    const struct matmul_job *job = &j->matmul;
    if (job->n_tokens <= FEW_TOKENS)
        few_matmul(job, few, begin, end);
    else
        panel_matmul(job, &ops, begin, end);
}
