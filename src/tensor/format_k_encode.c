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

enum { BLOCK = 256, N_STEPS = 4 }; /* scales tried to each side */

#define STEP 0.25f /* of a code, at the largest weight */

static int clamp_code(float x, int low, int high)
{
    return (int)rintf(fmaxf((float)low, fminf((float)high, x))); /* NaN becomes high */
}

/* x ~ scale * code, low <= code <= high, -low > high */
static float fit_scale(const float *x, int n, int low, int high)
{
    float extreme = 0, best = 0, best_gain = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(extreme))
            extreme = x[i];
    for (int k = -N_STEPS; extreme != 0 && k <= N_STEPS; k++) {
        float inverse = ((float)low + STEP * (float)k) / extreme, xq = 0, qq = 0;
        for (int i = 0; i < n; i++) {
            float code = (float)clamp_code(x[i] * inverse, low, high);
            xq += x[i] * code;
            qq += code * code;
        }
        if (qq > 0 && xq * xq / qq > best_gain) { /* the error is sum of x^2 less this */
            best_gain = xq * xq / qq;
            best = xq / qq;
        }
    }
    return best;
}

/* x ~ scale * code - min, 0 <= code <= high, min >= 0 */
struct affine {
    float scale, min;
};

/* By least squares for codes whose sums are known. */
static struct affine solve(float n, float sum_x, float sum_q, float xq, float qq)
{
    float determinant = n * qq - sum_q * sum_q;
    struct affine a = {0, 0};
    if (determinant > 0) {
        a.scale = (n * xq - sum_x * sum_q) / determinant;
        a.min = (sum_q * xq - qq * sum_x) / determinant;
    }
    if (!(determinant > 0) || a.min < 0)
        a = (struct affine){qq > 0 ? xq / qq : 0, 0};
    return a;
}

static struct affine fit_affine(const float *x, int n, int high)
{
    float lowest = 0, highest = x[0], best_error = 0;
    for (int i = 0; i < n; i++) {
        lowest = fminf(lowest, x[i]);
        highest = fmaxf(highest, x[i]);
    }
    struct affine best = {0, -lowest};
    for (int i = 0; i < n; i++)
        best_error += (x[i] - lowest) * (x[i] - lowest);
    for (int k = -N_STEPS; highest > lowest && k <= N_STEPS; k++) {
        float inverse = ((float)high + STEP * (float)k) / (highest - lowest);
        float sum_x = 0, sum_q = 0, xq = 0, qq = 0, error = 0;
        uint8_t codes[32];
        for (int i = 0; i < n; i++) {
            codes[i] = (uint8_t)clamp_code((x[i] - lowest) * inverse, 0, high);
            float code = codes[i];
            sum_x += x[i];
            sum_q += code;
            xq += x[i] * code;
            qq += code * code;
        }
        struct affine a = solve((float)n, sum_x, sum_q, xq, qq);
        for (int i = 0; i < n; i++) {
            float off = x[i] - (a.scale * (float)codes[i] - a.min);
            error += off * off;
        }
        if (a.scale >= 0 && error < best_error) {
            best_error = error;
            best = a;
        }
    }
    return best;
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
        rounded[i] = d == 0 ? 0 : clamp_code(scales[i] / d, low, high);
}

/* The code of x that scale and min make most of. */
static int code_of(float x, float scale, float min, int low, int high)
{
    return scale == 0 ? 0 : clamp_code((x + min) / scale, low, high);
}

static void encode_q6_k_block(const float *x, uint8_t *b)
{
    float scales[16];
    int rounded[16];
    memset(b, 0, 210);
    for (int i = 0; i < 16; i++)
        scales[i] = fit_scale(x + 16 * i, 16, -32, 31);
    round_scales(scales, 16, -128, -128, 127, rounded, b + 208);
    float d = f16_to_f32(load_u16(b + 208));
    for (int i = 0; i < 16; i++)
        b[192 + i] = (uint8_t)(int8_t)rounded[i];
    for (int j = 0; j < BLOCK; j++) {
        int code = code_of(x[j], d * (float)rounded[j / 16], 0, -32, 31) + 32;
        int half = j / 128, l = j % 32, quarter = j % 128 / 32;
        b[64 * half + l + 32 * (quarter & 1)] |= (uint8_t)((code & 15) << 4 * (quarter >> 1));
        b[128 + 32 * half + l] |= (uint8_t)((code >> 4) << 2 * quarter);
    }
}

static void encode_q3_k_block(const float *x, uint8_t *b)
{
    float scales[16];
    int rounded[16];
    memset(b, 0, 110);
    for (int i = 0; i < 16; i++)
        scales[i] = fit_scale(x + 16 * i, 16, -4, 3);
    round_scales(scales, 16, -32, -32, 31, rounded, b + 108);
    float d = f16_to_f32(load_u16(b + 108));
    for (int i = 0; i < 16; i++) {
        b[96 + i % 8] |= (uint8_t)(((rounded[i] + 32) & 15) << 4 * (i / 8));
        b[104 + i % 4] |= (uint8_t)(((rounded[i] + 32) >> 4) << 2 * (i / 4));
    }
    for (int j = 0; j < BLOCK; j++) {
        int code = code_of(x[j], d * (float)rounded[j / 16], 0, -4, 3) + 4;
        b[32 + j / 128 * 32 + j % 32] |= (uint8_t)((code & 3) << 2 * (j % 128 / 32));
        b[j % 32] |= (uint8_t)((code >> 2) << j / 32);
    }
}

/* Scales and minima of n sub-blocks, both rounded to 0 ... most. d_at: the f16 of scales, then that of
 * minima. */
static void fit_sub_blocks(const float *x, int n, int high, int most, int *scales, int *mins,
                           uint8_t *d_at)
{
    float fitted[2][16];
    for (int i = 0; i < n; i++) {
        struct affine a = fit_affine(x + BLOCK / n * i, BLOCK / n, high);
        fitted[0][i] = a.scale;
        fitted[1][i] = a.min;
    }
    round_scales(fitted[0], n, most, 0, most, scales, d_at);
    round_scales(fitted[1], n, most, 0, most, mins, d_at + 2);
}

static void encode_q2_k_block(const float *x, uint8_t *b)
{
    int scales[16], mins[16];
    memset(b, 0, 84);
    fit_sub_blocks(x, 16, 3, 15, scales, mins, b + 80);
    float d = f16_to_f32(load_u16(b + 80)), dmin = f16_to_f32(load_u16(b + 82));
    for (int i = 0; i < 16; i++)
        b[i] = (uint8_t)(scales[i] | mins[i] << 4);
    for (int j = 0; j < BLOCK; j++) {
        int i = j / 16;
        int code = code_of(x[j], d * (float)scales[i], dmin * (float)mins[i], 0, 3);
        b[16 + j / 128 * 32 + j % 32] |= (uint8_t)(code << 2 * (j % 128 / 32));
    }
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

/* high: where the fifth bits of Q5_K go, or NULL. */
static void encode_q4_q5_k_block(const float *x, uint8_t *b, uint8_t *high, uint8_t *codes)
{
    int scales[8], mins[8], most = high ? 31 : 15;
    fit_sub_blocks(x, 8, most, 63, scales, mins, b);
    float d = f16_to_f32(load_u16(b)), dmin = f16_to_f32(load_u16(b + 2));
    store_q4_k_scales(scales, mins, b + 4);
    for (int j = 0; j < BLOCK; j++) {
        int i = j / 32;
        int code = code_of(x[j], d * (float)scales[i], dmin * (float)mins[i], 0, most);
        codes[j / 64 * 32 + j % 32] |= (uint8_t)((code & 15) << 4 * (i % 2));
        if (high)
            high[j % 32] |= (uint8_t)((code >> 4) << i);
    }
}

static void encode_q4_k_block(const float *x, uint8_t *b)
{
    memset(b, 0, 144);
    encode_q4_q5_k_block(x, b, NULL, b + 16);
}

static void encode_q5_k_block(const float *x, uint8_t *b)
{
    memset(b, 0, 176);
    encode_q4_q5_k_block(x, b, b + 16, b + 48);
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
