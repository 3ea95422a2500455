/* matmul of q6_k: groups of 16 inputs. */
#include "kernels/x86/matmul_k_avxvnni.h"
#include "kernels/x86/matmul_q6_k_avx2.h"

enum { ZERO = 32, SUB_QUADS = 4 };

/* Scales of 8 rows. */
ALWAYS_INLINE __m256i wide_scales(const uint8_t *scales)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)scales));
}

/* acc[t][half] += scale * sum of (code - ZERO) * q over a group. */
ALWAYS_INLINE void add_sub(const uint8_t *steps, const uint8_t *scales, const int8_t *q,
                           int64_t stride, int32_t start[MAX_TOKENS][SUBS], int sub, int half,
                           int n, __m256i acc[MAX_TOKENS][2])
{
    __m256i codes[4];
    unpack_codes(steps, codes);
    __m256i scale = wide_scales(scales);
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) {
        __m256i dot = _mm256_set1_epi32(start[t][sub]);
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++)
            dot = add_quad(dot, codes[k], broadcast_quad(q + t * stride + 4 * k));
        acc[t][half] = _mm256_add_epi32(acc[t][half], _mm256_mullo_epi32(dot, scale));
    }
}

ALWAYS_INLINE void add_block(const struct activations *a, const uint8_t *unit, int block, int token,
                             int n, struct fetch *fetch, struct chains *chains)
{
    int in_unit = block % 2;
    const uint8_t *codes = unit + CODES_AT + in_unit * SUBS * SUB_BYTES;
    const uint8_t *scales = unit + SCALES_AT + in_unit * SUBS * TILE_ROWS;
    const int8_t *q = a->q + token * a->stride + (int64_t)block * BLOCK;
    const float *act_scale = a->scale + (int64_t)token * a->n_scales + block;
    int32_t start[MAX_TOKENS][SUBS];
    __m256i acc[MAX_TOKENS][2];
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) {
        start_groups(a->sum + (int64_t)(token + t) * a->n_sums + block * SUBS, SUBS, ZERO,
                     start[t]);
        acc[t][0] = acc[t][1] = _mm256_setzero_si256();
    }
    for (int sub = 0; sub < SUBS; sub++, codes += SUB_BYTES, scales += TILE_ROWS, q += 16) {
        if (sub % 4) /* 4 lines for 3 */
            fetch_lines(fetch, 4);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++)
            add_sub(codes + 32 * h, scales + 8 * h, q, a->stride, start, sub, h, n, acc);
    }
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        __m256 d = f16_scales(unit + in_unit * 32 + h * 16);
#pragma GCC unroll 4
        for (int t = 0; t < n; t++)
            chains->y[t][h] =
                add_group(chains->y[t][h], acc[t][h], d, act_scale[(int64_t)t * a->n_scales]);
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
        fetch_lines(&fetch, 4); /* for the header */
        add_block(&job->a, unit, block, token, n, &fetch, &chains);
    }
    chains_finish(&chains, job, row0, token, n);
}

TILE_KERNELS(tile_tokens)

static void copy(const struct panel *p)
{
    panel_copy(p);
    panel_start_sums(p, 16, ZERO, SUM_START);
}

static void unpack(const struct panel *p, const uint8_t *tile)
{
    uint8_t *to = p->codes, *lines = p->extra;
    for (int b = 0; b < p->n / BLOCK; b++) {
        int64_t block = p->col0 / BLOCK + b;
        const uint8_t *unit = tile + block / 2 * UNIT_BYTES, *d = unit + block % 2 * 32;
        const uint8_t *codes = unit + CODES_AT + block % 2 * SUBS * SUB_BYTES;
        const uint8_t *scales = unit + SCALES_AT + block % 2 * SUBS * TILE_ROWS;
        panel_scales(p->scales, b, d);
        for (int sub = 0; sub < SUBS; sub++, codes += SUB_BYTES, scales += TILE_ROWS) {
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                __m256i four[4];
                unpack_codes(codes + 32 * h, four);
#pragma GCC unroll 4
                for (int k = 0; k < 4; k++)
                    put_line(to + k * STEP_BYTES, h, four[k]);
                put_line(lines, h, float_line(wide_scales(scales + 8 * h)));
            }
            to += 4 * STEP_BYTES;
            lines += STEP_BYTES;
        }
    }
}

ALWAYS_INLINE void panel_blocks(const struct panel *p, int token, __m256 state[][2], int n)
{
    int64_t act_stride = p->job->a.n_scales;
    const float *act_scale = p->job->a.scale + token * act_stride + p->col0 / BLOCK;
    for (int b = 0; b < p->n / BLOCK; b++) {
        const float *lines = (const float *)p->extra + b * SUBS * TILE_ROWS;
        __m256 sum[PANEL_TOKENS][2];
        /* 2 * 128 * 16 * 32 * 127 < 2^24 */
        panel_block(p, b, token, lines, SUB_QUADS, 2, true, n, sum);
        panel_floats(p->scales + b * TILE_ROWS, act_scale + b, act_stride, false, n, sum, state);
    }
}

PANEL_RUNS(many, panel_blocks, )

void matmul_q6_k_avxvnni(const union job *j, int begin, int end)
{
    static const struct panel_ops ops = {.few = FEW_TOKENS,
                                         .inputs = PANEL_INPUTS,
                                         .act_bytes = 1,
                                         .sums = PANEL_INPUTS / 16,
                                         .extra_bytes = PANEL_INPUTS / 16 * STEP_BYTES,
                                         .copy = copy,
                                         .unpack = unpack,
                                         .run = PANEL_NAMES(many)};
    matmul_256(&j->matmul, begin, end, &tile_kernels, &ops);
}
