/* Encoders of Q2_K ... Q6_K (layouts: format_k_quants.c). Each sub-block of 16 or 32 weights is fitted by
 * itself: codes are rounded for a few scales about the one that the largest weight asks for, the best
 * scale (and minimum) for those codes follows by least squares, and the pair with the least squared
 * error is kept. Then the scales of a block are rounded to their small integers and the codes once
 * more to what those stand for. Other programs search in other ways; their bytes differ. */
#include <math.h>
#include <string.h>

#include "base/float16.h"
#include "base/reader.h"
#include "tensor/format_codecs.h"
#include "tensor/format_ternary.h"

enum { BLOCK = 256, N_STEPS = 4 }; /* scales tried to each side */

#define STEP 0.25f /* of a code, at the largest weight */

/* Sub-blocks are fitted eight at a time, weight i of all side by side: the loops over them vectorise, and
 * each sub-block's sums keep their order. */
enum { LANES = 8 };
typedef float lanes[LANES];

static inline void side_by_side(const float *restrict x, int n, lanes *restrict out)
{
    for (int s = 0; s < LANES; s++)
        for (int i = 0; i < n; i++)
            out[i][s] = x[n * s + i];
}

/* a where the condition holds, else b: as bits, for a choice between numbers might become a branch. */
static inline float choose(bool condition, float a, float b)
{
    return f32_from_bits(choose_bits(condition, bits_from_f32(a), bits_from_f32(b)));
}

/* To the nearest integer, halves to even: from 1.5 * 2^23 on f32 holds integers only. */
static inline float round_code(float x)
{
    return x + 0x1.8p23f - 0x1.8p23f;
}

/* To the nearest integer of [low, high]. NaN becomes high. Constant limits would become branches. */
static inline float clamp_code(float x, float low, float high)
{
    x = x < high ? x : high;
    x = x > low ? x : low;
    return round_code(x);
}

static inline void find_extremes(const lanes *x, int n, float *restrict extreme)
{
    for (int s = 0; s < LANES; s++)
        extreme[s] = 0;
    for (int i = 0; i < n; i++)
        for (int s = 0; s < LANES; s++)
            extreme[s] = fabsf(x[i][s]) > fabsf(extreme[s]) ? x[i][s] : extreme[s];
}

/* x ~ scale * code, low <= code <= high, -low > high. A scale 0 where all is zero: then no gain is above
 * 0. */
static inline void fit_scales(const lanes *x, int n, float low, float high, float *restrict best)
{
    lanes extreme, best_gain = {0};
    find_extremes(x, n, extreme);
    for (int s = 0; s < LANES; s++)
        best[s] = 0;
    for (int k = -N_STEPS; k <= N_STEPS; k++) {
        lanes inverse, xq = {0}, qq = {0};
        for (int s = 0; s < LANES; s++)
            inverse[s] = (low + STEP * (float)k) / extreme[s];
        for (int i = 0; i < n; i++)
            for (int s = 0; s < LANES; s++) {
                float code = clamp_code(x[i][s] * inverse[s], low, high);
                xq[s] += x[i][s] * code;
                qq[s] += code * code;
            }
        for (int s = 0; s < LANES; s++) {
            float gain = xq[s] * xq[s] / qq[s]; /* the error is sum of x^2 less this */
            bool is_better = (qq[s] > 0) & (gain > best_gain[s]);
            best_gain[s] = choose(is_better, gain, best_gain[s]);
            best[s] = choose(is_better, xq[s] / qq[s], best[s]);
        }
    }
}

/* x ~ scale * code - min, 0 <= code <= high, min >= 0 */
struct affine {
    lanes scale, min;
};

/* Sums of a try, over the weights of each sub-block. */
struct sums {
    lanes q, xq, qq;
};

/* By least squares for codes whose sums are known. */
static inline void solve(float n, const float *sum_x, const struct sums *sums,
                         struct affine *restrict a)
{
    for (int s = 0; s < LANES; s++) {
        float q = sums->q[s], xq = sums->xq[s], qq = sums->qq[s];
        float determinant = n * qq - q * q;
        float scale = (n * xq - sum_x[s] * q) / determinant;
        float min = (q * xq - qq * sum_x[s]) / determinant;
        float alone = choose(qq > 0, xq / qq, 0);
        bool has_min = (determinant > 0) & !(min < 0);
        a->scale[s] = choose(has_min, scale, alone);
        a->min[s] = choose(has_min, min, 0);
    }
}

/* The codes of a try, and their sums. */
static inline void try_codes(const lanes *x, int n, const float *inverse, const float *lowest,
                             float high, lanes *restrict codes, struct sums *restrict sums)
{
    *sums = (struct sums){0};
    for (int i = 0; i < n; i++)
        for (int s = 0; s < LANES; s++) {
            float code = (x[i][s] - lowest[s]) * inverse[s];
            code = code < high ? code : high;
            code = round_code(choose(code > 0, code, 0));
            codes[i][s] = code;
            sums->q[s] += code;
            sums->xq[s] += x[i][s] * code;
            sums->qq[s] += code * code;
        }
}

static inline void find_errors(const lanes *x, int n, const lanes *codes, const struct affine *a,
                               float *restrict errors)
{
    for (int s = 0; s < LANES; s++)
        errors[s] = 0;
    for (int i = 0; i < n; i++)
        for (int s = 0; s < LANES; s++) {
            float off = x[i][s] - (a->scale[s] * codes[i][s] - a->min[s]);
            errors[s] += off * off;
        }
}

static inline void fit_affine(const lanes *x, int n, float high, struct affine *restrict best)
{
    lanes lowest = {0}, highest, sum_x = {0}, best_error = {0}, errors, inverse, codes[32];
    struct affine a;
    struct sums sums;
    for (int s = 0; s < LANES; s++)
        highest[s] = -INFINITY;
    for (int i = 0; i < n; i++)
        for (int s = 0; s < LANES; s++) {
            lowest[s] = x[i][s] < lowest[s] ? x[i][s] : lowest[s];
            highest[s] = x[i][s] > highest[s] ? x[i][s] : highest[s];
            sum_x[s] += x[i][s];
        }
    for (int i = 0; i < n; i++)
        for (int s = 0; s < LANES; s++)
            best_error[s] += (x[i][s] - lowest[s]) * (x[i][s] - lowest[s]);
    for (int s = 0; s < LANES; s++) {
        best->scale[s] = 0;
        best->min[s] = -lowest[s];
    }
    for (int k = -N_STEPS; k <= N_STEPS; k++) {
        for (int s = 0; s < LANES; s++)
            inverse[s] = (high + STEP * (float)k) / (highest[s] - lowest[s]);
        try_codes(x, n, inverse, lowest, high, codes, &sums);
        solve((float)n, sum_x, &sums, &a);
        find_errors(x, n, codes, &a, errors);
        for (int s = 0; s < LANES; s++) {
            bool is_better =
                (highest[s] > lowest[s]) & (a.scale[s] >= 0) & (errors[s] < best_error[s]);
            best_error[s] = choose(is_better, errors[s], best_error[s]);
            best->scale[s] = choose(is_better, a.scale[s], best->scale[s]);
            best->min[s] = choose(is_better, a.min[s], best->min[s]);
        }
    }
}

/* Rounds n scales to integers of [low, high] times an f16, which is stored; the largest becomes `unit`. */
static void round_scales(const float *scales, int n, int unit, int low, int high, int *rounded,
                         uint8_t *d_at)
{
    float extreme = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(scales[i]) > fabsf(extreme))
            extreme = scales[i];
    uint16_t half = f32_to_f16(extreme / (float)unit);
    float d = f16_to_f32(half);
    store_u16(d_at, half);
    for (int i = 0; i < n; i++)
        rounded[i] = d == 0 ? 0 : (int)clamp_code(scales[i] / d, (float)low, (float)high);
}

/* The codes of 16 weights that scale and min make most of, from `low` on. */
static void put_codes(const float *restrict x, float scale, float min, float low, float high,
                      uint8_t *restrict codes)
{
    if (scale == 0)
        memset(codes, -(int)low, 16);
    else
        for (int j = 0; j < 16; j++)
            codes[j] = (uint8_t)(int)(clamp_code((x[j] + min) / scale, low, high) - low);
}

/* 16 sub-blocks with a scale each: the scales, and the codes from `low` on. */
static inline void encode_symmetric(const float *x, float low, float high, int unit, int most,
                                    int *scales, uint8_t *d_at, uint8_t *codes)
{
    lanes side[16];
    float fitted[16];
    for (int i = 0; i < 16; i += LANES) {
        side_by_side(x + 16 * i, 16, side);
        fit_scales(side, 16, low, high, fitted + i);
    }
    round_scales(fitted, 16, unit, unit, most, scales, d_at);
    float d = f16_to_f32(load_u16(d_at));
    for (int i = 0; i < 16; i++)
        put_codes(x + 16 * i, d * (float)scales[i], 0, low, high, codes + 16 * i);
}

static void encode_q6_k_block(const float *restrict x, uint8_t *restrict b)
{
    int scales[16];
    uint8_t codes[BLOCK];
    encode_symmetric(x, -32, 31, -128, 127, scales, b + 208, codes);
    for (int i = 0; i < 16; i++)
        b[192 + i] = (uint8_t)(int8_t)scales[i];
    for (int half = 0; half < 2; half++) {
        const uint8_t *c = codes + 128 * half;
        uint8_t *low = b + 64 * half, *high = b + 128 + 32 * half;
        for (int l = 0; l < 64; l++)
            low[l] = (uint8_t)((c[l] & 15) | (c[64 + l] & 15) << 4);
        for (int l = 0; l < 32; l++)
            high[l] = (uint8_t)(c[l] >> 4 | c[32 + l] >> 4 << 2 | c[64 + l] >> 4 << 4 |
                                c[96 + l] >> 4 << 6);
    }
}

/* Bit `bit` of the codes: byte l holds those of weights l, l + 32, ... */
static inline void put_bits(const uint8_t *restrict codes, int bit, uint8_t *restrict bits)
{
    uint8_t all[32] = {0};
    for (int i = 0; i < 8; i++)
        for (int l = 0; l < 32; l++)
            all[l] |= (uint8_t)((codes[32 * i + l] >> bit & 1) << i);
    memcpy(bits, all, sizeof all);
}

static void encode_q3_k_block(const float *restrict x, uint8_t *restrict b)
{
    int scales[16];
    uint8_t codes[BLOCK];
    encode_symmetric(x, -4, 3, -32, 31, scales, b + 108, codes);
    memset(b + 96, 0, 12);
    for (int i = 0; i < 16; i++) {
        b[96 + i % 8] |= (uint8_t)(((scales[i] + 32) & 15) << 4 * (i / 8));
        b[104 + i % 4] |= (uint8_t)(((scales[i] + 32) >> 4) << 2 * (i / 4));
    }
    put_bits(codes, 2, b);
    for (int j = 0; j < BLOCK; j++)
        codes[j] &= 3;
    pack_strided(codes, 32, b + 32);
    pack_strided(codes + 128, 32, b + 64);
}

/* n sub-blocks with a scale and a minimum each, both rounded to 0 ... most, and the codes. d_at: the f16 of
 * scales, then that of minima. */
static inline void encode_affine(const float *x, int n, float high, int most, int *scales,
                                 int *mins, uint8_t *d_at, uint8_t *codes)
{
    float fitted[2][16];
    int size = BLOCK / n;
    for (int i = 0; i < n; i += LANES) {
        lanes side[32];
        struct affine a;
        side_by_side(x + size * i, size, side);
        fit_affine(side, size, high, &a);
        memcpy(fitted[0] + i, a.scale, sizeof a.scale);
        memcpy(fitted[1] + i, a.min, sizeof a.min);
    }
    round_scales(fitted[0], n, most, 0, most, scales, d_at);
    round_scales(fitted[1], n, most, 0, most, mins, d_at + 2);
    float d = f16_to_f32(load_u16(d_at)), dmin = f16_to_f32(load_u16(d_at + 2));
    for (int j = 0; j < BLOCK; j += 16)
        put_codes(x + j, d * (float)scales[j / size], dmin * (float)mins[j / size], 0, high,
                  codes + j);
}

static void encode_q2_k_block(const float *restrict x, uint8_t *restrict b)
{
    int scales[16], mins[16];
    uint8_t codes[BLOCK];
    encode_affine(x, 16, 3, 15, scales, mins, b + 80, codes);
    for (int i = 0; i < 16; i++)
        b[i] = (uint8_t)(scales[i] | mins[i] << 4);
    pack_strided(codes, 32, b + 16);
    pack_strided(codes + 128, 32, b + 48);
}

/* Six bits each of scale and minimum of 8 sub-blocks: four whole pairs, then four split ones. */
static void store_q4_k_scales(const int *scales, const int *mins, uint8_t *s)
{
    for (int i = 0; i < 4; i++) {
        s[i] = (uint8_t)(scales[i] | (scales[i + 4] >> 4) << 6);
        s[i + 4] = (uint8_t)(mins[i] | (mins[i + 4] >> 4) << 6);
        s[i + 8] = (uint8_t)((scales[i + 4] & 15) | (mins[i + 4] & 15) << 4);
    }
}

/* Both begin with their scales; nibbles: behind the fifth bits of Q5_K. */
static inline void encode_q4_q5_k_block(const float *restrict x, float high, uint8_t *restrict b,
                                        uint8_t *restrict nibbles, uint8_t *restrict codes)
{
    int scales[8], mins[8];
    encode_affine(x, 8, high, 63, scales, mins, b, codes);
    store_q4_k_scales(scales, mins, b + 4);
    for (int i = 0; i < 4; i++)
        for (int l = 0; l < 32; l++)
            nibbles[32 * i + l] =
                (uint8_t)((codes[64 * i + l] & 15) | (codes[64 * i + 32 + l] & 15) << 4);
}

static void encode_q4_k_block(const float *x, uint8_t *b)
{
    uint8_t codes[BLOCK];
    encode_q4_q5_k_block(x, 15, b, b + 16, codes);
}

static void encode_q5_k_block(const float *x, uint8_t *b)
{
    uint8_t codes[BLOCK];
    encode_q4_q5_k_block(x, 31, b, b + 48, codes);
    put_bits(codes, 4, b + 16);
}

typedef void block_encode(const float *x, uint8_t *block);

static void encode_blocks(const float *src, int64_t n_rows, int64_t n_cols, int block_bytes,
                          uint8_t *out, block_encode *encode)
{
    for (int64_t i = 0; i < n_rows * n_cols / BLOCK; i++)
        encode(src + i * BLOCK, out + i * block_bytes);
}

void encode_q2_k(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    encode_blocks(src, n_rows, n_cols, 84, out, encode_q2_k_block);
}

void encode_q3_k(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    encode_blocks(src, n_rows, n_cols, 110, out, encode_q3_k_block);
}

void encode_q4_k(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    encode_blocks(src, n_rows, n_cols, 144, out, encode_q4_k_block);
}

void encode_q5_k(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    encode_blocks(src, n_rows, n_cols, 176, out, encode_q5_k_block);
}

void encode_q6_k(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    encode_blocks(src, n_rows, n_cols, 210, out, encode_q6_k_block);
}
