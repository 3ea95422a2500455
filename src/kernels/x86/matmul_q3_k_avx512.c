/* matmul of q3_k. Few tokens: the dot product of a group fits 16 bits (16 * 7 * 127 < 2^15), so one
 * 16-bit multiply-add scales and adds it. Many tokens: scale * (code - 4) is from -124 to 128, so with 127
 * added it is a byte again, and the block one group without scales inside. */
#include "kernels/x86/matmul_mins_avx512.h"

/* A block is a unit: f16 scales, three lines of 6-bit scales, 16 groups of 16 inputs, two of them three
 * steps. */
enum { BLOCK = 256, GROUPS = 16, PAIRS = 8, CODES_AT = PACKED_K_LINES_AT + 12 * TILE_ROWS };
enum { PART_BYTES = 3 * STEP_BYTES, PARTS = 8, UNIT_BYTES = CODES_AT + PARTS * PART_BYTES };
enum { OFFSET_SHIFT = 2, SCALED_ZERO = 127 };

INLINE __m512i byte_mask(__m512i v, const int mask)
{
    return _mm512_and_si512(v, _mm512_set1_epi8((char)mask));
}

/* Scales of groups 4i to 4i + 3, signed bytes of each row's lane. */
INLINE __m512i scales_at(const uint8_t *unit, const int i)
{
    const uint8_t *lines = unit + PACKED_K_LINES_AT;
    __m512i low = _mm512_loadu_si512(lines + i % 2 * STEP_BYTES);
    __m512i high = _mm512_loadu_si512(lines + 2 * STEP_BYTES);
    low = byte_mask(i < 2 ? low : _mm512_srli_epi16(low, 4), 15);
    high = i < 2 ? _mm512_slli_epi16(high, 4 - 2 * i) : _mm512_srli_epi16(high, 2 * i - 4);
    return _mm512_sub_epi8(_mm512_or_si512(low, byte_mask(high, 48)), _mm512_set1_epi8(32));
}

/* The codes of eight quads. */
INLINE void unpack_codes(const uint8_t *steps, __m512i codes[8])
{
    __m512i step[3];
    UNROLL
    for (int i = 0; i < 3; i++) {
        step[i] = _mm512_loadu_si512(steps + i * STEP_BYTES);
        codes[2 * i] = byte_mask(step[i], 7);
        codes[2 * i + 1] = byte_mask(_mm512_srli_epi16(step[i], 3), 7);
    }
    UNROLL
    for (int i = 0; i < 2; i++) {
        __m512i low = _mm512_srli_epi16(byte_mask(step[i], 0xc0), 6);
        __m512i high = _mm512_srli_epi16(step[2], 4 + (unsigned)i);
        codes[6 + i] = _mm512_or_si512(low, byte_mask(high, 4));
    }
}

/* sum += over a group, scale * sum of code * q. */
INLINE void add_few_group(const __m512i codes[4], __m512i scale, const int8_t *q, int64_t stride,
                          const int n_tokens, __m512i sum[MAX_FEW])
{
    __m512i dot[MAX_FEW];
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        dot[t] = _mm512_setzero_si512();
    UNROLL
    for (int k = 0; k < 4; k++) {
        UNROLL
        for (int t = 0; t < n_tokens; t++)
            dot[t] = add_quad(dot[t], codes[k], q + t * stride + 4 * k);
    }
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        sum[t] = _mm512_dpwssd_epi32(sum[t], dot[t], scale);
}

/* The same over 64 inputs. pair: their scales; the upper half of a dot product, which is its sign, must
 * meet a zero. n_lines: to fetch before each half of them. */
INLINE void add_few_part(const uint8_t *steps, const __m512i pair[2], const int8_t *q,
                         int64_t stride, const int n_tokens, struct fetch *fetch,
                         const int n_lines[2], __m512i sum[MAX_FEW])
{
    const __m512i lower = _mm512_set1_epi32(0xffff);
    const __m512i scale[4] = {_mm512_and_si512(pair[0], lower), _mm512_and_si512(pair[1], lower),
                              _mm512_srli_epi32(pair[0], 16), _mm512_srli_epi32(pair[1], 16)};
    UNROLL
    for (int i = 0; i < 2; i++) {
        __m512i codes[8];
        fetch_lines(fetch, n_lines[i]);
        unpack_codes(steps + i * PART_BYTES, codes);
        add_few_group(codes, scale[2 * i], q + 32 * i, stride, n_tokens, sum);
        add_few_group(codes + 4, scale[2 * i + 1], q + 32 * i + 16, stride, n_tokens, sum);
    }
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
        __m512i sum[MAX_FEW], pair[PAIRS];
        UNROLL
        for (int t = 0; t < n_tokens; t++)
            sum[t] = _mm512_setzero_si512();
        UNROLL
        for (int i = 0; i < PAIRS / 2; i++)
            signed_pairs(scales_at(unit, i), pair + 2 * i);
        fetch_lines(&fetch, CODES_AT / STEP_BYTES);
        for (int i = 0; i < PAIRS / 2; i++, q += 64) {
            const int n_lines[2] = {4, i % 2 ? 0 : 4}; /* 12 steps in two rounds */
            add_few_part(unit + CODES_AT + i * 2 * PART_BYTES, pair + 2 * i, q, a->stride, n_tokens,
                         &fetch, n_lines, sum);
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

PANEL_TABLE_3_8(panel_grouped)

/* Bytes of scale * (code - 4) + 127 of two groups, bit after bit of the code: modulo 256 exact. */
INLINE void unpack_scaled(const uint8_t *steps, const __m512i scale[2], int pitch, uint8_t *codes)
{
    __m512i step[3], base[2], times[2][3];
    UNROLL
    for (int i = 0; i < 3; i++)
        step[i] = _mm512_loadu_si512(steps + i * STEP_BYTES);
    UNROLL
    for (int g = 0; g < 2; g++) {
        times[g][0] = scale[g];
        times[g][1] = _mm512_add_epi8(times[g][0], times[g][0]);
        times[g][2] = _mm512_add_epi8(times[g][1], times[g][1]);
        base[g] = _mm512_sub_epi8(_mm512_set1_epi8(SCALED_ZERO), times[g][2]);
    }
    UNROLL
    for (int k = 0; k < 8; k++, codes += pitch * STEP_BYTES) {
        const int g = k / 4;
        __m512i low = step[k < 6 ? k / 2 : k - 6], v = base[g];
        v = add_where(v, low, k < 6 ? k % 2 * 3 : 6, times[g][0]);
        v = add_where(v, low, k < 6 ? k % 2 * 3 + 1 : 7, times[g][1]);
        v = add_where(v, k < 6 ? low : step[2], k < 6 ? k % 2 * 3 + 2 : k, times[g][2]);
        _mm512_storeu_si512(codes, v);
    }
}

void unpack_q3_k_avx512(const struct panel *p, int64_t tile, int pitch, uint8_t *codes,
                        float *scales, int16_t *sub_scales)
{
    (void)sub_scales;
    const uint8_t *unit = tile_at(p->job, tile) + p->col0 / BLOCK * UNIT_BYTES;
    for (int64_t b = 0; b < p->n / BLOCK; b++, unit += UNIT_BYTES, scales += pitch * TILE_ROWS) {
        _mm512_storeu_ps(scales, halves_at(unit));
        UNROLL
        for (int i = 0; i < PARTS; i++, codes += 8 * pitch * STEP_BYTES) {
            __m512i bytes = scales_at(unit, i / 2), scale[2];
            UNROLL
            for (int g = 0; g < 2; g++)
                scale[g] = spread_byte(bytes, i % 2 * 2 + g);
            prefetch(unit + CODES_AT + i * PART_BYTES);
            unpack_scaled(unit + CODES_AT + i * PART_BYTES, scale, pitch, codes);
        }
    }
}

/* What 127 too much in every byte adds: of blocks, whose sums are those of their groups. */
static void look(struct panel *p)
{
    const struct activations *a = &p->job->a;
    for (int t = 0; t < p->job->n_tokens; t++)
        for (int64_t b = 0; b < p->n / BLOCK; b++) {
            const int32_t *sums = a->sum + (int64_t)t * a->n_sums + (p->col0 / BLOCK + b) * GROUPS;
            int32_t sum = 0;
            for (int g = 0; g < GROUPS; g++)
                sum += sums[g];
            int32_t *pair = p->zero_sums + t * p->zero_stride + 2 * b;
            pair[0] = -SCALED_ZERO * sum;
            memcpy(pair + 1, a->scale + (int64_t)t * a->n_scales + p->col0 / BLOCK + b, 4);
        }
}

void matmul_q3_k_avx512(const union job *j, int begin, int end)
{
    static few_tokens *const few[MAX_FEW] = {few_1, few_2, few_3, few_4};
    static const struct panel_ops ops = {.inputs = 512,
                                         .group = BLOCK,
                                         .is_scaled = true,
                                         .tiles = PANEL_TILES,
                                         .max_tokens = PANEL_TOKENS,
                                         .run = panel_grouped_runs,
                                         .unpack = unpack_q3_k_avx512,
                                         .look = look};
    if (j->matmul.n_tokens <= FEW_TOKENS)
        few_matmul(&j->matmul, few, begin, end);
    else
        panel_matmul(&j->matmul, &ops, begin, end);
}
