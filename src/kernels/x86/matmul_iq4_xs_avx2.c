/* matmul of iq4_xs: |value| times the activation with the value's sign, as in q8_0; the multiply-add that
 * joins a pair (2 * 127 * 127 < 2^15) takes the 6-bit scale with it. */
#include "kernels/x86/matmul_mins_avx2.h"
#include "tensor/iq4_values.h"

enum { BLOCK = 256, GROUPS = 8, LOWER_AT = 64, HEADER = LOWER_AT + 4 * TILE_ROWS };
enum { GROUP_BYTES = 4 * STEP_BYTES, UNIT_BYTES = HEADER + GROUPS * GROUP_BYTES };

/* Of one half: each scale twice in each lane. */
ALWAYS_INLINE void unpack_scales(const uint8_t *unit, int half, __m256i scale[GROUPS])
{
    const __m256i low_4 = _mm256_set1_epi8(15), top_2 = _mm256_set1_epi8(48);
    __m256i lower = load_256(unit + LOWER_AT + 32 * half);
    __m256i upper =
        _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(unit + 32 + 16 * half)));
    /* Nibble i to byte i. */
    upper = _mm256_or_si256(upper, _mm256_slli_epi32(upper, 8));
    upper = _mm256_and_si256(upper, _mm256_set1_epi32(0x00ff00ff));
    upper = _mm256_or_si256(upper, _mm256_slli_epi32(upper, 4));
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        __m256i top = _mm256_and_si256(_mm256_slli_epi32(upper, 4 - 2 * i), top_2);
        __m256i low = _mm256_and_si256(_mm256_srli_epi32(lower, 4 * i), low_4);
        __m256i bytes = _mm256_sub_epi8(_mm256_or_si256(top, low), _mm256_set1_epi8(32));
        split_signed(bytes, scale + 4 * i);
    }
}

/* acc[t] += scale * sum of value * q over a group of one half. */
ALWAYS_INLINE void add_values(const uint8_t *half, __m256i table, __m256i scale, const int8_t *q,
                              int64_t stride, int n, __m256i acc[MAX_TOKENS])
{
    const __m256i low_4 = _mm256_set1_epi8(15);
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        __m256i step = load_256(half + k / 2 * STEP_BYTES);
        step = _mm256_and_si256(_mm256_srli_epi16(step, k % 2 * 4), low_4);
        __m256i value = _mm256_shuffle_epi8(table, step), magnitude = _mm256_abs_epi8(value);
#pragma GCC unroll 8
        for (int t = 0; t < n; t++) {
            __m256i quad = _mm256_sign_epi8(broadcast_quad(q + t * stride + 4 * k), value);
            __m256i pairs = _mm256_maddubs_epi16(magnitude, quad);
            acc[t] = _mm256_add_epi32(acc[t], _mm256_madd_epi16(pairs, scale));
        }
    }
}

ALWAYS_INLINE void tile_tokens(const struct matmul_job *job, const uint8_t *unit, int row0,
                               int token, int n)
{
    const struct activations *a = &job->a;
    const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)iq4_values));
    struct fetch fetch = fetch_behind(job, unit, row0, token, 4);
    struct chains chains;
    chains_clear(&chains, n);
    for (int block = 0; block < (int)(a->n_cols / BLOCK); block++, unit += UNIT_BYTES) {
        const int8_t *q = a->q + token * a->stride + (int64_t)block * BLOCK;
        const float *act_scale = a->scale + (int64_t)token * a->n_scales + block;
        if (block % 2 == 0)
            fetch_lines(&fetch, 4); /* for two headers */
        __m256i scale[2][GROUPS], acc[2][MAX_TOKENS];
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            unpack_scales(unit, h, scale[h]);
#pragma GCC unroll 8
            for (int t = 0; t < n; t++)
                acc[h][t] = _mm256_setzero_si256();
        }
        for (int g = 0; g < GROUPS; g++) {
            fetch_lines(&fetch, 4);
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++)
                add_values(unit + HEADER + g * GROUP_BYTES + 32 * h, table, scale[h][g], q + 32 * g,
                           a->stride, n, acc[h]);
        }
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256 d = f16_scales(unit + 16 * h);
#pragma GCC unroll 8
            for (int t = 0; t < n; t++)
                chains.y[t][h] =
                    add_group(chains.y[t][h], acc[h][t], d, act_scale[(int64_t)t * a->n_scales]);
        }
    }
    chains_finish(&chains, job, row0, token, n);
}

TILE_KERNELS(tile_tokens)

void matmul_iq4_xs_avx2(const union job *job, int begin, int end)
{
    matmul_tiles_avx2(&job->matmul, begin, end, &tile_kernels);
}
