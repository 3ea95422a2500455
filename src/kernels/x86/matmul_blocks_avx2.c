/* matmul of packings with a scale for each block of 32: q4_1, q5_0, q5_1, iq4_nl. Codes of 4 bits
 * times int8 fit int16 pairs for 32 inputs (2 * 8 * 15 * 127 < 2^15), those of 5 bits for 16. The values
 * of iq4_nl are multiplied as in q8_0: |value| times the activation with the value's sign. */
#include "kernels/x86/matmul_avx2.h"
#include "tensor/iq4_values.h"

enum { GROUP = 32, GROUP_STEPS = 4 };

/* A packing; constant in every template. */
struct blocks {
    int zero;       /* the code of value 0 */
    bool has_fifth; /* behind the four steps of a group, one of fifth bits */
    bool has_min;   /* behind the scales of a unit, its minimums */
    bool is_iq4;    /* codes stand for the values of a table */
};

/* What quad k of both halves of a group is multiplied with. */
ALWAYS_INLINE void unpack_codes(const struct blocks *b, const uint8_t *steps, int k,
                                __m256i codes[2])
{
    const __m256i low_4 = _mm256_set1_epi8(15), fifth = _mm256_set1_epi8(16);
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        __m256i v = load_256(steps + k / 2 * STEP_BYTES + 32 * h);
        codes[h] = _mm256_and_si256(_mm256_srli_epi16(v, k % 2 * 4), low_4);
        if (b->is_iq4) {
            __m128i values = _mm_loadu_si128((const __m128i *)iq4_values);
            codes[h] = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), codes[h]);
        }
        if (!b->has_fifth)
            continue;
        __m256i bits = load_256(steps + 4 * STEP_BYTES + 32 * h);
        bits = k < 4 ? _mm256_slli_epi16(bits, 4 - k) : _mm256_srli_epi16(bits, k - 4);
        codes[h] = _mm256_or_si256(codes[h], _mm256_and_si256(bits, fifth));
    }
}

/* sums += value * q of quad k. */
ALWAYS_INLINE void add_values(const __m256i values[2], const int8_t *q, int64_t stride, int n,
                              __m256i sums[MAX_TOKENS][2])
{
    __m256i magnitudes[2] = {_mm256_abs_epi8(values[0]), _mm256_abs_epi8(values[1])};
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) {
        __m256i quad = broadcast_quad(q + t * stride);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256i signed_quad = _mm256_sign_epi8(quad, values[h]);
            __m256i pairs = _mm256_maddubs_epi16(magnitudes[h], signed_quad);
            sums[t][h] = _mm256_add_epi32(sums[t][h], sum_pairs(pairs));
        }
    }
}

/* sums += code * q of n_quads quads, which int16 pairs can hold. */
ALWAYS_INLINE void add_codes(const struct blocks *b, const uint8_t *steps, int quad0, int n_quads,
                             const int8_t *q, int64_t stride, int n, __m256i sums[MAX_TOKENS][2])
{
    __m256i dot[MAX_TOKENS][2];
#pragma GCC unroll 4
    for (int t = 0; t < n; t++)
        dot[t][0] = dot[t][1] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int k = quad0; k < quad0 + n_quads; k++) {
        __m256i codes[2];
        unpack_codes(b, steps, k, codes);
#pragma GCC unroll 4
        for (int t = 0; t < n; t++) {
            __m256i quad = broadcast_quad(q + t * stride + 4 * k);
            dot[t][0] = add_quad_16(dot[t][0], codes[0], quad);
            dot[t][1] = add_quad_16(dot[t][1], codes[1], quad);
        }
    }
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) {
        sums[t][0] = _mm256_add_epi32(sums[t][0], sum_pairs(dot[t][0]));
        sums[t][1] = _mm256_add_epi32(sums[t][1], sum_pairs(dot[t][1]));
    }
}

/* sums = sums of value * q of a group, or of code * q. */
ALWAYS_INLINE void dot_group(const struct blocks *b, const uint8_t *steps, const int8_t *q,
                             int64_t stride, int n, __m256i sums[MAX_TOKENS][2])
{
    const int n_quads = b->has_fifth ? 4 : 8; /* of an int16 sum */
#pragma GCC unroll 4
    for (int t = 0; t < n; t++)
        sums[t][0] = sums[t][1] = _mm256_setzero_si256();
    if (!b->is_iq4) {
#pragma GCC unroll 2
        for (int k = 0; k < 8; k += n_quads)
            add_codes(b, steps, k, n_quads, q, stride, n, sums);
        return;
    }
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        __m256i values[2];
        unpack_codes(b, steps, k, values);
        add_values(values, q + 4 * k, stride, n, sums);
    }
}

/* y += (sums - zero * act sum) * scale * act scale + minimum * act scale * act sum, as contracted.
 * header: the line of scales, at those of the group. */
ALWAYS_INLINE void add_block(const struct blocks *b, const struct activations *a, int token,
                             int64_t g, const uint8_t *header, int n,
                             const __m256i sums[MAX_TOKENS][2], struct chains *chains)
{
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) {
        float s = a->scale[(int64_t)(token + t) * a->n_scales + g];
        int32_t act_sum = a->sum[(int64_t)(token + t) * a->n_sums + g];
        __m256i offset = _mm256_set1_epi32(b->zero * act_sum);
        __m256 low = _mm256_set1_ps(s * (float)act_sum);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256i sum = b->zero ? _mm256_sub_epi32(sums[t][h], offset) : sums[t][h];
            __m256 y = add_group(chains->y[t][h], sum, f16_scales(header + 16 * h), s);
            if (b->has_min)
                y = _mm256_fmadd_ps(f16_scales(header + STEP_BYTES + 16 * h), low, y);
            chains->y[t][h] = y;
        }
    }
}

ALWAYS_INLINE void tile_tokens(const struct matmul_job *job, const uint8_t *tile, int row0,
                               int token, const struct blocks *b, int n)
{
    const struct activations *a = &job->a;
    const int8_t *q = a->q + token * a->stride;
    const int n_extra = 1 + b->has_min + 2 * b->has_fifth; /* lines of a unit beside steps */
    const uint8_t *at = tile, *header = tile;
    struct fetch fetch = fetch_behind(job, tile, row0, token, 4);
    struct chains chains;
    chains_clear(&chains, n);
    for (int64_t g = 0; g < a->n_cols / GROUP; g++, q += GROUP) {
        if (g % 2 == 0) {
            header = at;
            at += (1 + b->has_min) * STEP_BYTES;
        }
        fetch_lines(&fetch, g % 8 < n_extra ? 8 : 4);
        __m256i sums[MAX_TOKENS][2];
        dot_group(b, at, q, a->stride, n, sums);
        at += (GROUP_STEPS + b->has_fifth) * STEP_BYTES;
        add_block(b, a, token, g, header + g % 2 * 32, n, sums, &chains);
    }
    chains_finish(&chains, job, row0, token, n);
}

/* The kernel of a packing. */
#define BLOCKS(name, ...)                                                                          \
    ALWAYS_INLINE void name##_tokens(const struct matmul_job *job, const uint8_t *tile, int row0,  \
                                     int token, int n)                                             \
    {                                                                                              \
        static const struct blocks blocks = {__VA_ARGS__};                                         \
        tile_tokens(job, tile, row0, token, &blocks, n);                                           \
    }                                                                                              \
    TILE_KERNEL(name##_1, name##_tokens, 1)                                                        \
    TILE_KERNEL(name##_2, name##_tokens, 2)                                                        \
    TILE_KERNEL(name##_4, name##_tokens, 4)                                                        \
    void matmul_##name##_avx2(const union job *job, int begin, int end)                            \
    {                                                                                              \
        static const struct tile_kernels kernels = {name##_1, name##_2, name##_4, NULL};           \
        matmul_tiles_avx2(&job->matmul, begin, end, &kernels);                                     \
    }

BLOCKS(q4_1, .has_min = true)
BLOCKS(q5_0, .zero = 16, .has_fifth = true)
BLOCKS(q5_1, .has_fifth = true, .has_min = true)
BLOCKS(iq4_nl, .is_iq4 = true)
