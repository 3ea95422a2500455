/* matmul of packings of blocks of 256 whose groups have a signed scale of 6 bits: q3_k, groups of 16, and
 * iq4_xs, groups of 32, whose values are bytes with 128 added. A part is 32 inputs. */
#include "kernels/x86/matmul_k_avxvnni.h"
#include "kernels/x86/matmul_mins_avx2.h"

enum { PARTS = 8, PART_QUADS = 8 };

#define ZERO(kind)       ((kind) == Q3_K ? 4 : 128)
#define HEADER(kind)     ((kind) == Q3_K ? PACKED_K_LINES_AT + 12 * TILE_ROWS : 64 + 4 * TILE_ROWS)
#define PART_BYTES(kind) (((kind) == Q3_K ? 3 : 4) * STEP_BYTES)
#define UNIT(kind)       (HEADER(kind) + PARTS * PART_BYTES(kind))
#define GROUPS(kind)     ((kind) == Q3_K ? 16 : 8)

/* Scales of groups of one half, in lanes: of q3_k int16 above which is zero, because its sums (16 * 4 * 127
 * at most) are multiplied as pairs of int16. */
ALWAYS_INLINE void unpack_scales(const uint8_t *unit, enum k_kind kind, int half, __m256i scale[16])
{
    if (kind == Q3_K) {
        struct sub_scales subs;
        unpack_q3_k_scales(unit + PACKED_K_LINES_AT + 32 * half, &subs);
#pragma GCC unroll 16
        for (int g = 0; g < 16; g++)
            scale[g] = _mm256_srli_epi32(subs.scale[g], 16);
    } else {
        unpack_iq4_xs_scales(unit, half, scale);
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++)
            scale[g] = _mm256_srai_epi32(scale[g], 16);
    }
}

ALWAYS_INLINE void tile_tokens(const struct matmul_job *job, const uint8_t *unit, int row0,
                               int token, enum k_kind kind, int n)
{
    const struct activations *a = &job->a;
    const int8_t *q = a->q + token * a->stride;
    const int part_groups = GROUPS(kind) / PARTS;
    struct fetch fetch = fetch_behind(job, unit, row0, token, 4);
    struct chains chains;
    chains_clear(&chains, n);
    for (int block = 0; block < (int)(a->n_cols / BLOCK); block++, unit += UNIT(kind)) {
        const float *act_scale = a->scale + (int64_t)token * a->n_scales + block;
        int32_t start[MAX_TOKENS][16];
        __m256i scale[2][16], acc[MAX_TOKENS][2];
        unpack_scales(unit, kind, 0, scale[0]);
        unpack_scales(unit, kind, 1, scale[1]);
        const int32_t *act_sum = a->sum + (int64_t)token * a->n_sums + block * GROUPS(kind);
#pragma GCC unroll 4
        for (int t = 0; t < n; t++) {
            start_groups(act_sum + (int64_t)t * a->n_sums, GROUPS(kind), ZERO(kind), start[t]);
            acc[t][0] = acc[t][1] = _mm256_setzero_si256();
        }
        if (kind == Q3_K || block % 2 == 0)
            fetch_lines(&fetch, 4); /* for the header of 4 lines, or two of 2 */
        for (int i = 0; i < PARTS; i++, q += 32) {
            if (kind == IQ4_XS || i % 4) /* q3_k: 4 lines for 3 */
                fetch_lines(&fetch, 4);
            add_part(kind, unit + HEADER(kind) + i * PART_BYTES(kind), q, a->stride,
                     scale[0] + i * part_groups, scale[1] + i * part_groups,
                     start[0] + i * part_groups, n, acc);
        }
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256 d = f16_scales(unit + 16 * h);
#pragma GCC unroll 4
            for (int t = 0; t < n; t++)
                chains.y[t][h] =
                    add_group(chains.y[t][h], acc[t][h], d, act_scale[(int64_t)t * a->n_scales]);
        }
    }
    chains_finish(&chains, job, row0, token, n);
}

/* Many tokens of q3_k: scale * (code - 4), from -124 to 128, with 127 added. Sums of a block without what that
 * adds are at most 16 * 32 * 16 * 4 * 127 = 4161536 < 2^22, as float_of_sum wants. */
enum { PRODUCT_ZERO = 127 };

ALWAYS_INLINE void unpack_units(const struct panel *p, const uint8_t *tile, enum k_kind kind)
{
    const uint8_t *unit = tile + p->col0 / BLOCK * UNIT(kind);
    uint8_t *to = p->codes;
    float *lines = (float *)p->extra;
    for (int b = 0; b < p->n / BLOCK; b++, unit += UNIT(kind)) {
        __m256i scale[2][16];
        panel_scales(p->scales, b, unit);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            unpack_scales(unit, kind, h, scale[h]);
            for (int g = 0; g < GROUPS(kind) && kind == IQ4_XS; g++)
                put_line(lines + (b * GROUPS(kind) + g) * TILE_ROWS, h, float_line(scale[h][g]));
        }
        for (int i = 0; i < PARTS; i++, to += PART_QUADS * STEP_BYTES)
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                const uint8_t *half = unit + HEADER(kind) + i * PART_BYTES(kind) + 32 * h;
#pragma GCC unroll 8
                for (int k = 0; k < PART_QUADS; k++) {
                    __m256i codes = unpack_k_quad(kind, half, k);
                    if (kind == Q3_K) {
                        __m256i s = scale[h][2 * i + k / 4];
                        s = _mm256_or_si256(s, _mm256_slli_epi32(s, 16));
                        __m256i more = _mm256_sub_epi16(_mm256_set1_epi16(PRODUCT_ZERO),
                                                        _mm256_slli_epi16(s, 2));
                        codes = scaled_codes(codes, s, more);
                    }
                    put_line(to + k * STEP_BYTES, h, codes);
                }
            }
    }
}

static void q3_k_unpack(const struct panel *p, const uint8_t *tile)
{
    unpack_units(p, tile, Q3_K);
}

static void iq4_xs_unpack(const struct panel *p, const uint8_t *tile)
{
    unpack_units(p, tile, IQ4_XS);
}

static void q3_k_copy(const struct panel *p)
{
    const struct activations *a = &p->job->a;
    panel_copy(p);
    for (int t = 0; t < p->job->n_tokens; t++) {
        const int32_t *act_sum = a->sum + (int64_t)t * a->n_sums + p->col0 / 16;
        for (int b = 0; b < p->n / BLOCK; b++, act_sum += 16) {
            int32_t sum = 0;
            for (int g = 0; g < 16; g++)
                sum += act_sum[g];
            p->sums[t * p->sum_stride + b] = SUM_START - PRODUCT_ZERO * sum;
        }
    }
}

static void iq4_xs_copy(const struct panel *p)
{
    panel_copy(p);
    panel_start_sums(p, 32, 128, SUM_START);
}

ALWAYS_INLINE void panel_blocks(const struct panel *p, int token, __m256 state[][2], int n)
{
    int64_t act_stride = p->job->a.n_scales;
    const float *act_scale = p->job->a.scale + token * act_stride + p->col0 / BLOCK;
    for (int b = 0; b < p->n / BLOCK; b++) {
        const float *lines = (const float *)p->extra + b * 8 * TILE_ROWS;
        __m256 sum[PANEL_TOKENS][2];
        /* 32 * 32 * 127 * 127 < 2^24 */
        panel_block(p, b, token, lines, 8, 1, true, n, sum);
        panel_floats(p->scales + b * TILE_ROWS, act_scale + b, act_stride, false, n, sum, state);
    }
}

PANEL_RUNS(q3_k_many, panel_groups, BLOCK, false, )
PANEL_RUNS(iq4_xs_many, panel_blocks, )

#define KERNEL_OF(name, kind)                                                                      \
    ALWAYS_INLINE void name##_few(const struct matmul_job *job, const uint8_t *tile, int row0,     \
                                  int token, int n)                                                \
    {                                                                                              \
        tile_tokens(job, tile, row0, token, kind, n);                                              \
    }                                                                                              \
    TILE_KERNEL(name##_few_1, name##_few, 1)                                                       \
    TILE_KERNEL(name##_few_2, name##_few, 2)                                                       \
    TILE_KERNEL(name##_few_4, name##_few, 4)                                                       \
    void matmul_##name##_avxvnni(const union job *j, int begin, int end)                           \
    {                                                                                              \
        static const struct tile_kernels few = {                                                   \
            .one = name##_few_1, .two = name##_few_2, .four = name##_few_4};                       \
        static const struct panel_ops many = {.few = FEW_TOKENS,                                   \
                                              .inputs = PANEL_INPUTS,                              \
                                              .act_bytes = 1,                                      \
                                              .sums = PANEL_INPUTS / 32,                           \
                                              .extra_bytes = PANEL_INPUTS / 32 * STEP_BYTES,       \
                                              .copy = name##_copy,                                 \
                                              .unpack = name##_unpack,                             \
                                              .run = PANEL_NAMES(name##_many)};                    \
        matmul_256(&j->matmul, begin, end, &few, &many);                                           \
    }

KERNEL_OF(q3_k, Q3_K)
KERNEL_OF(iq4_xs, IQ4_XS)
