/* matmul of q6_k: codes 0..63 times int8 in int16 pairs of two quads (2 * 2 * 63 * 127 < 2^15),
 * times the int8 scale of 16 inputs, on top of -32 * scale * sum of activations. */
#include "kernels/x86/matmul_q6_k_avx2.h"
#include "kernels/x86/matmul_signed_panel_avx2.h"

/* Sums of activations over 16 inputs as int16 (at most 16 * 127), of a block and n tokens. */
struct narrow_sums {
    int16_t of[MAX_TOKENS][SUBS];
};

ALWAYS_INLINE void narrow_act_sums(const int32_t *act_sum, int64_t sum_stride, int n,
                                   struct narrow_sums *narrow)
{
    for (int t = 0; t < n; t++)
        for (int sub = 0; sub < SUBS; sub += 8) {
            const int32_t *from = act_sum + t * sum_stride + sub;
            __m128i low = _mm_loadu_si128((const __m128i *)from);
            __m128i high = _mm_loadu_si128((const __m128i *)(from + 4));
            _mm_storeu_si128((__m128i *)(narrow->of[t] + sub), _mm_packs_epi32(low, high));
        }
}

/* acc[t] = -32 * sum over a block of int8 scale * sum of activations, of the rows of one half: two
 * products in one instruction. */
ALWAYS_INLINE void start_block(const uint8_t *scales, const struct narrow_sums *narrow, int n,
                               __m256i acc[MAX_TOKENS])
{
#pragma GCC unroll 4
    for (int t = 0; t < n; t++)
        acc[t] = _mm256_setzero_si256();
    for (int sub = 0; sub < SUBS; sub += 2) {
        __m128i first = _mm_loadl_epi64((const __m128i *)(scales + sub * TILE_ROWS));
        __m128i second = _mm_loadl_epi64((const __m128i *)(scales + (sub + 1) * TILE_ROWS));
        __m256i pairs = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(first, second));
#pragma GCC unroll 4
        for (int t = 0; t < n; t++) {
            __m256i sums = broadcast_quad((const int8_t *)(narrow->of[t] + sub));
            acc[t] = _mm256_sub_epi32(acc[t], _mm256_madd_epi16(pairs, sums));
        }
    }
#pragma GCC unroll 4
    for (int t = 0; t < n; t++)
        acc[t] = _mm256_slli_epi32(acc[t], 5);
}

/* acc[t] += int8 scale * sum of code * q over 16 inputs of one half. */
ALWAYS_INLINE void add_sub(const uint8_t *half, const uint8_t *scales, const int8_t *q,
                           int64_t stride, int n, __m256i acc[MAX_TOKENS])
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
        acc[t] = _mm256_add_epi32(acc[t], _mm256_madd_epi16(first, scale));
        acc[t] = _mm256_add_epi32(acc[t], _mm256_madd_epi16(second, scale));
    }
}

/* One block of 256, n_halves halves from `half` on. */
ALWAYS_INLINE void add_block(const struct activations *a, const uint8_t *unit, int block, int token,
                             int n, int half, int n_halves, const struct narrow_sums *narrow,
                             struct fetch *fetch, struct chains *chains)
{
    int in_unit = block % 2;
    const uint8_t *codes = unit + CODES_AT + in_unit * SUBS * SUB_BYTES + half * 32;
    const uint8_t *scales = unit + SCALES_AT + in_unit * SUBS * TILE_ROWS + half * 8;
    const int8_t *q = a->q + token * a->stride + (int64_t)block * BLOCK;
    const float *act_scale = a->scale + (int64_t)token * a->n_scales + block;
    __m256i acc[2][MAX_TOKENS];
#pragma GCC unroll 2
    for (int h = 0; h < n_halves; h++)
        start_block(scales + h * 8, narrow, n, acc[h]);
    for (int sub = 0; sub < SUBS; sub++) {
        const uint8_t *at = codes + sub * SUB_BYTES;
        if (half == 0 && sub % 4) /* 4 lines for 3 */
            fetch_lines(fetch, 4);
#pragma GCC unroll 2
        for (int h = 0; h < n_halves; h++)
            add_sub(at + h * 32, scales + sub * TILE_ROWS + h * 8, q + sub * 16, a->stride, n,
                    acc[h]);
    }
#pragma GCC unroll 2
    for (int h = 0; h < n_halves; h++) {
        __m256 scale = f16_scales(unit + in_unit * 32 + (half + h) * 16);
#pragma GCC unroll 4
        for (int t = 0; t < n; t++)
            chains->y[t][half + h] = add_group(chains->y[t][half + h], acc[h][t], scale,
                                               act_scale[(int64_t)t * a->n_scales]);
    }
}

ALWAYS_INLINE void tile_tokens(const struct matmul_job *job, const uint8_t *tile, int row0,
                               int token, int n)
{
    struct fetch fetch = fetch_behind(job, tile, row0, token, 4);
    struct chains chains;
    chains_clear(&chains, n);
    for (int block = 0; block < (int)(job->a.n_cols / BLOCK); block++) {
        const uint8_t *unit = tile + (int64_t)(block / 2) * UNIT_BYTES;
        const int32_t *act_sum = job->a.sum + (int64_t)token * job->a.n_sums + block * SUBS;
        struct narrow_sums sums;
        narrow_act_sums(act_sum, job->a.n_sums, n, &sums);
        fetch_lines(&fetch, 4); /* for the header */
        if (n == 1) {           /* both halves of a line at once, as it comes from memory */
            add_block(&job->a, unit, block, token, n, 0, 2, &sums, &fetch, &chains);
            continue;
        }
        add_block(&job->a, unit, block, token, n, 0, 1, &sums, &fetch, &chains);
        add_block(&job->a, unit, block, token, n, 1, 1, &sums, &fetch, &chains);
    }
    chains_finish(&chains, job, row0, token, n);
}

TILE_KERNELS(tile_tokens)

/* Many tokens: codes - 32 as signed bytes, in int16 pairs of two quads (2 * 2 * 255 * 32 < 2^15). */
static void unpack_block(const uint8_t *unit, int in_unit, struct signed_block *b, uint8_t *to)
{
    const uint8_t *codes = unit + CODES_AT + in_unit * SUBS * SUB_BYTES;
    const uint8_t *scales = unit + SCALES_AT + in_unit * SUBS * TILE_ROWS;
    const __m256i zero = _mm256_set1_epi8(32);
    for (int h = 0; h < 2; h++) {
        signed_block_start(b, h, f16_scales(unit + in_unit * 32 + 16 * h));
        for (int sub = 0; sub < SUBS; sub++) {
            __m256i w[4];
            unpack_codes(codes + sub * SUB_BYTES + 32 * h, w);
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++)
                w[k] = _mm256_sub_epi8(w[k], zero);
            signed_block_group(b, sub, h, w, scale_pairs(scales + sub * TILE_ROWS + 8 * h), to);
        }
        signed_block_end(b, h);
    }
}

static void unpack(const struct panel *p, const uint8_t *tile)
{
    const uint8_t *unit = tile + p->col0 / (2 * BLOCK) * UNIT_BYTES;
    for (int i = 0; i < p->n / BLOCK; i++)
        unpack_block(unit, i, (struct signed_block *)p->extra + i,
                     p->codes + i * BLOCK * TILE_ROWS);
}

PANEL_RUNS(blocks, run_signed_blocks, 2, )

static const struct panel_ops panel_ops = SIGNED_PANEL_OPS(unpack, blocks);

void matmul_q6_k_avx2(const union job *job, int begin, int end)
{
    matmul_256(&job->matmul, begin, end, &tile_kernels, &panel_ops);
}
