/* matmul of q3_k: codes times int8 in int16 pairs of 16 inputs (2 * 4 * 7 * 127 < 2^15), times the 6-bit
 * scale in the multiply-add that joins a pair, on top of -4 * scale * sum of activations. */
#include "kernels/x86/matmul_mins_avx2.h"

enum { BLOCK = 256, GROUPS = 16, HEADER = PACKED_K_LINES_AT + 12 * TILE_ROWS };
enum { PART_BYTES = 3 * STEP_BYTES, PARTS = 8, UNIT_BYTES = HEADER + PARTS * PART_BYTES };

/* lines: of the half. */
ALWAYS_INLINE void unpack_scales(const uint8_t *lines, struct sub_scales *to)
{
    const __m256i low_4 = _mm256_set1_epi8(15), top_2 = _mm256_set1_epi8(48);
    __m256i high = load_256(lines + 2 * STEP_BYTES);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m256i low = load_256(lines + i % 2 * STEP_BYTES);
        low = _mm256_and_si256(_mm256_srli_epi16(low, i / 2 * 4), low_4);
        __m256i top =
            i < 2 ? _mm256_slli_epi16(high, 4 - 2 * i) : _mm256_srli_epi16(high, 2 * i - 4);
        __m256i scale = _mm256_or_si256(low, _mm256_and_si256(top, top_2));
        scale = _mm256_sub_epi8(scale, _mm256_set1_epi8(32));
        split_signed(scale, to->scale + 4 * i);
        split_signed_mins(scale, to->min + 2 * i);
    }
}

/* Codes of one quad (0 to 7) of both halves of three steps. */
ALWAYS_INLINE void unpack_codes(const uint8_t *steps, int quad, __m256i codes[2])
{
    const __m256i low_3 = _mm256_set1_epi8(7), high_1 = _mm256_set1_epi8(4);
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const uint8_t *half = steps + 32 * h;
        if (quad < 6) {
            __m256i v = load_256(half + quad / 2 * STEP_BYTES);
            codes[h] = _mm256_and_si256(_mm256_srli_epi16(v, quad % 2 * 3), low_3);
        } else {
            __m256i low = load_256(half + (quad - 6) * STEP_BYTES);
            __m256i high = _mm256_srli_epi16(load_256(half + 2 * STEP_BYTES), quad - 2);
            low = _mm256_srli_epi16(_mm256_and_si256(low, _mm256_set1_epi8((char)0xc0)), 6);
            codes[h] = _mm256_or_si256(low, _mm256_and_si256(high, high_1));
        }
    }
}

/* acc += scale * sum of code * q over a group, four of eight quads. */
ALWAYS_INLINE void add_group_codes(const uint8_t *steps, int quad0, __m256i scale0, __m256i scale1,
                                   const int8_t *q, int64_t stride, int n,
                                   __m256i acc[MAX_TOKENS][2])
{
    __m256i dot[MAX_TOKENS][2];
#pragma GCC unroll 4
    for (int t = 0; t < n; t++)
        dot[t][0] = dot[t][1] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        __m256i codes[2];
        unpack_codes(steps, quad0 + k, codes);
#pragma GCC unroll 4
        for (int t = 0; t < n; t++) {
            __m256i quad = broadcast_quad(q + t * stride + 4 * k);
            dot[t][0] = add_quad_16(dot[t][0], codes[0], quad);
            dot[t][1] = add_quad_16(dot[t][1], codes[1], quad);
        }
    }
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) {
        acc[t][0] = _mm256_add_epi32(acc[t][0], _mm256_madd_epi16(dot[t][0], scale0));
        acc[t][1] = _mm256_add_epi32(acc[t][1], _mm256_madd_epi16(dot[t][1], scale1));
    }
}

/* y += (acc - 4 * sum of scale * sum of activations) * d * act scale. */
ALWAYS_INLINE void finish_block(const struct activations *a, const uint8_t *unit,
                                const struct sub_scales subs[2], int block, int token, int n,
                                __m256i acc[MAX_TOKENS][2], struct chains *chains)
{
    const float *act_scale = a->scale + (int64_t)token * a->n_scales + block;
    const int32_t *act_sum = a->sum + (int64_t)token * a->n_sums + (int64_t)block * GROUPS;
    __m256 d[2] = {f16_scales(unit), f16_scales(unit + 16)};
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) {
        __m256i low[2];
        float s = act_scale[(int64_t)t * a->n_scales];
        int32_t pairs[GROUPS / 2];
        pair_block_sums(act_sum + (int64_t)t * a->n_sums, GROUPS, pairs);
        mins_times(subs, pairs, GROUPS, low);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256i sum = _mm256_add_epi32(acc[t][h], _mm256_slli_epi32(low[h], 2));
            chains->y[t][h] = add_group(chains->y[t][h], sum, d[h], s);
        }
    }
}

ALWAYS_INLINE void tile_tokens(const struct matmul_job *job, const uint8_t *unit, int row0,
                               int token, int n)
{
    const struct activations *a = &job->a;
    const int8_t *q = a->q + token * a->stride;
    struct fetch fetch = fetch_behind(job, unit, row0, token, 4);
    struct chains chains;
    chains_clear(&chains, n);
    for (int block = 0; block < (int)(a->n_cols / BLOCK); block++, unit += UNIT_BYTES) {
        struct sub_scales subs[2];
        __m256i acc[MAX_TOKENS][2];
        unpack_scales(unit + PACKED_K_LINES_AT, &subs[0]);
        unpack_scales(unit + PACKED_K_LINES_AT + 32, &subs[1]);
#pragma GCC unroll 4
        for (int t = 0; t < n; t++)
            acc[t][0] = acc[t][1] = _mm256_setzero_si256();
        fetch_lines(&fetch, HEADER / STEP_BYTES);
        for (int i = 0; i < PARTS; i++, q += 32) {
            const uint8_t *steps = unit + HEADER + i * PART_BYTES;
            if (i % 4) /* 4 lines for 3 */
                fetch_lines(&fetch, 4);
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++)
                add_group_codes(steps, 4 * g, subs[0].scale[2 * i + g], subs[1].scale[2 * i + g],
                                q + 16 * g, a->stride, n, acc);
        }
        finish_block(a, unit, subs, block, token, n, acc, &chains);
    }
    chains_finish(&chains, job, row0, token, n);
}

TILE_KERNELS(tile_tokens)

void matmul_q3_k_avx2(const union job *job, int begin, int end)
{
    matmul_tiles_avx2(&job->matmul, begin, end, &tile_kernels);
}
