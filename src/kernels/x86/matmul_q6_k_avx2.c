/* matmul of q6_k: codes 0..63 times int8 in int16 pairs of two quads (2 * 2 * 63 * 127 < 2^15),
 * times the int8 scale of 16 inputs; 32 * sum of activations is taken off after that product. */
#include "kernels/x86/matmul_avx2.h"

enum { BLOCK = 256, SUBS = 16, SUB_BYTES = 3 * STEP_BYTES };
enum { SCALES_AT = 64, CODES_AT = 64 + 512, UNIT_BYTES = CODES_AT + 2 * SUBS * SUB_BYTES };

/* The codes of one half and 16 inputs: two steps of low nibbles, one of high bits. */
ALWAYS_INLINE void unpack_codes(const uint8_t *half, __m256i codes[4])
{
    const __m256i nibble = _mm256_set1_epi8(15), top = _mm256_set1_epi8(48);
    __m256i low01 = load_256(half), low23 = load_256(half + STEP_BYTES);
    __m256i high = load_256(half + 2 * STEP_BYTES);
    codes[0] = _mm256_and_si256(low01, nibble);
    codes[1] = _mm256_and_si256(_mm256_srli_epi16(low01, 4), nibble);
    codes[2] = _mm256_and_si256(low23, nibble);
    codes[3] = _mm256_and_si256(_mm256_srli_epi16(low23, 4), nibble);
    codes[0] = _mm256_or_si256(codes[0], _mm256_and_si256(_mm256_slli_epi16(high, 4), top));
    codes[1] = _mm256_or_si256(codes[1], _mm256_and_si256(_mm256_slli_epi16(high, 2), top));
    codes[2] = _mm256_or_si256(codes[2], _mm256_and_si256(high, top));
    codes[3] = _mm256_or_si256(codes[3], _mm256_and_si256(_mm256_srli_epi16(high, 2), top));
}

/* int8 scales of 8 rows, each as an int16 pair. */
ALWAYS_INLINE __m256i scale_pairs(const uint8_t *scales)
{
    __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)scales));
    return _mm256_or_si256(_mm256_slli_epi32(wide, 16),
                           _mm256_and_si256(wide, _mm256_set1_epi32(0xffff)));
}

/* acc[t] += int8 scale * sum of (code - 32) * q over 16 inputs of one half. */
ALWAYS_INLINE void add_sub(const uint8_t *half, const uint8_t *scales, const int8_t *q,
                           int64_t stride, const int32_t *act_sum, int64_t sum_stride, int n,
                           __m256i *acc)
{
    __m256i codes[4], scale = scale_pairs(scales);
    unpack_codes(half, codes);
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) {
        const int8_t *quads = q + t * stride;
        __m256i first = _mm256_maddubs_epi16(codes[0], broadcast_quad(quads));
        __m256i second = _mm256_maddubs_epi16(codes[2], broadcast_quad(quads + 8));
        first = add_quad_16(first, codes[1], broadcast_quad(quads + 4));
        second = add_quad_16(second, codes[3], broadcast_quad(quads + 12));
        /* 16 * sum for each of a pair; |sum| <= 16 * 127 */
        __m256i offset = _mm256_set1_epi16((int16_t)act_sum[t * sum_stride]);
        offset = _mm256_madd_epi16(_mm256_slli_epi16(offset, 4), scale);
        first = _mm256_add_epi32(_mm256_madd_epi16(first, scale), _mm256_madd_epi16(second, scale));
        acc[t] = _mm256_add_epi32(acc[t], _mm256_sub_epi32(first, offset));
    }
}

/* One block of 256. One token takes both halves of a line at once, as it comes from memory. */
ALWAYS_INLINE void add_block(const struct activations *a, const uint8_t *unit, int block, int token,
                             int n, struct chains *chains)
{
    int in_unit = block % 2, halves = n == 1 ? 2 : 1;
    const uint8_t *codes = unit + CODES_AT + in_unit * SUBS * SUB_BYTES;
    const uint8_t *scales = unit + SCALES_AT + in_unit * SUBS * TILE_ROWS;
    const int8_t *q = a->q + token * a->stride + (int64_t)block * BLOCK;
    const int32_t *act_sum = a->sum + (int64_t)token * a->n_sums + block * SUBS;
    const float *act_scale = a->scale + (int64_t)token * a->n_scales + block;
    __m256i acc[2][4];
    for (int half = 0; half < 2; half++)
#pragma GCC unroll 4
        for (int t = 0; t < n; t++)
            acc[half][t] = _mm256_setzero_si256();
#pragma GCC unroll 2
    for (int first = 0; first < 2; first += halves)
        for (int sub = 0; sub < SUBS; sub++) {
            const uint8_t *at = codes + sub * SUB_BYTES;
            for (int s = 0; s < 3; s++)
                _mm_prefetch((const char *)at + s * STEP_BYTES + PREFETCH_AHEAD, _MM_HINT_T0);
#pragma GCC unroll 2
            for (int half = first; half < first + halves; half++)
                add_sub(at + half * 32, scales + sub * TILE_ROWS + half * 8, q + sub * 16,
                        a->stride, act_sum + sub, a->n_sums, n, acc[half]);
        }
    for (int half = 0; half < 2; half++) {
        __m256 scale = f16_scales(unit + in_unit * 32 + half * 16);
        for (int t = 0; t < n; t++)
            chains->y[t][half] = add_group(chains->y[t][half], acc[half][t], scale,
                                           act_scale[(int64_t)t * a->n_scales]);
    }
}

ALWAYS_INLINE void tile_tokens(const struct matmul_job *job, const uint8_t *tile, int row0,
                               int token, int n)
{
    struct chains chains;
    chains_clear(&chains, n);
    for (int block = 0; block < (int)(job->a.n_cols / BLOCK); block++)
        add_block(&job->a, tile + (int64_t)(block / 2) * UNIT_BYTES, block, token, n, &chains);
    chains_finish(&chains, job, row0, token, n);
}

TILE_KERNEL(one_token, tile_tokens, 1)
TILE_KERNEL(two_tokens, tile_tokens, 2)
TILE_KERNEL(four_tokens, tile_tokens, 4)

void matmul_q6_k_avx2(const union job *job, int begin, int end)
{
    static const struct tile_kernels kernels = {one_token, two_tokens, four_tokens, NULL};
    matmul_tiles_avx2(&job->matmul, begin, end, &kernels);
}
