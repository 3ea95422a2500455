#include "kernels/x86/matmul_panel_walk_avx512.h"

enum { QUADS = 5, STEP_INPUTS = 20, UNIT_INPUTS = 1280 };

/* Tables of 64 bytes. */
#define ROW_16(F, i)                                                                               \
    F(i), F(i + 1), F(i + 2), F(i + 3), F(i + 4), F(i + 5), F(i + 6), F(i + 7), F(i + 8),          \
        F(i + 9), F(i + 10), F(i + 11), F(i + 12), F(i + 13), F(i + 14), F(i + 15)
#define TABLE(F)                                                                                   \
    {                                                                                              \
        ROW_16(F, 0), ROW_16(F, 16), ROW_16(F, 32), ROW_16(F, 48)                                  \
    }

/* v = t0 + 3 t1 + 9 t2 + 27 t3 as fields of 2 bits. */
#define FIELDS(v) ((v) % 3 | (v) / 3 % 3 << 2 | (v) / 9 % 3 << 4 | (v) / 27 % 3 << 6)
#define SMALL(i)  FIELDS(i)
#define LARGE(i)  FIELDS(64 + (i) % 17)
#define FIFTH(i)  ((i) / 17 << 6)
static const uint8_t small_fields[64] = TABLE(SMALL); /* of bytes below 192 */
static const uint8_t large_fields[64] = TABLE(LARGE); /* of the others */
static const uint8_t large_fifth[64] = TABLE(FIFTH);  /* trit 4 of the others, in bits 6 and 7 */

struct tables {
    __m512i small, large, fifth;
};

/* A step: four trits as fields of 2 bits; the fifth in bits 6 and 7 of `high`. */
struct trits {
    __m512i low, high;
};

INLINE struct tables load_tables(void)
{
    return (struct tables){_mm512_loadu_si512(small_fields), _mm512_loadu_si512(large_fields),
                           _mm512_loadu_si512(large_fifth)};
}

INLINE struct trits decode(const uint8_t *step, const struct tables *tables)
{
    __m512i v = _mm512_loadu_si512(step);
    __mmask64 is_large = _mm512_cmpge_epu8_mask(v, _mm512_set1_epi8((char)192));
    __m512i low = _mm512_permutexvar_epi8(v, tables->small);
    return (struct trits){_mm512_mask_permutexvar_epi8(low, is_large, v, tables->large),
                          _mm512_mask_permutexvar_epi8(v, is_large, v, tables->fifth)};
}

/* Accumulators of a token: trits in place count 1, 4, 16, 64 and 64 times; with more than two
 * tokens the last two share one. */
INLINE int n_places(const int n_tokens)
{
    return n_tokens <= 2 ? 5 : 4;
}

/* Adds trits [first, end) of a step; q: activations of the step's first quad. */
INLINE void add_trits(const struct trits *trits, const int first, const int end, const int8_t *q,
                      int64_t stride, const int n_tokens, __m512i acc[MAX_FEW][5])
{
    UNROLL
    for (int f = first; f < end; f++) {
        const int place = f < n_places(n_tokens) ? f : 3;
        __m512i v = f < 4 ? trits->low : trits->high;
        v = _mm512_and_si512(v, _mm512_set1_epi8((char)(3 << (f < 4 ? 2 * f : 6))));
        UNROLL
        for (int t = 0; t < n_tokens; t++)
            acc[t][place] = add_quad(acc[t][place], v, q + t * stride + 4 * f);
    }
}

INLINE void clear(const int n_tokens, __m512i acc[MAX_FEW][5])
{
    UNROLL
    for (int t = 0; t < n_tokens; t++) {
        UNROLL
        for (int k = 0; k < QUADS; k++)
            acc[t][k] = _mm512_setzero_si512();
    }
}

INLINE void join(const int n_tokens, __m512i acc[MAX_FEW][5], __m512i sum[MAX_FEW])
{
    UNROLL
    for (int t = 0; t < n_tokens; t++) {
        sum[t] = acc[t][3];
        if (n_places(n_tokens) == 5)
            sum[t] = _mm512_add_epi32(sum[t], acc[t][4]);
        UNROLL
        for (int k = 3; k > 0; k--)
            sum[t] = _mm512_add_epi32(_mm512_srai_epi32(sum[t], 2), acc[t][k - 1]);
    }
}

/* One tile with one scale per row. */
INLINE void row_tile(const struct matmul_job *job, int64_t tile, int token, const int n_tokens)
{
    const struct tables tables = load_tables();
    const uint8_t *scales = tile_at(job, tile), *w = scales + STEP_BYTES;
    const int8_t *q = job->a.q + token * job->a.stride;
    int64_t left = (job->w.n_cols + STEP_INPUTS - 1) / STEP_INPUTS;
    struct fetch fetch = fetch_behind(job, tile, token);
    __m512i total[MAX_FEW], acc[MAX_FEW][5], sum[MAX_FEW];
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        total[t] = _mm512_set1_epi32(-job->a.sum[(token + t) * (int64_t)job->a.n_sums]);
    while (left > 0) {
        int64_t n = left < FLUSH_STEPS ? left : FLUSH_STEPS;
        left -= n;
        clear(n_tokens, acc);
        for (int64_t s = 0; s < n; s++, w += STEP_BYTES, q += STEP_INPUTS) {
            if (s % FETCH_STEPS == 0)
                fetch_lines(&fetch, FETCH_STEPS);
            fetch_ahead(w, n_tokens);
            struct trits trits = decode(w, &tables);
            add_trits(&trits, 0, QUADS, q, job->a.stride, n_tokens, acc);
        }
        join(n_tokens, acc, sum);
        UNROLL
        for (int t = 0; t < n_tokens; t++)
            total[t] = _mm512_add_epi32(total[t], sum[t]);
    }
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        finish_sums(job, tile, scales, token + t, total[t]);
}

/* Where a walk over groups is: of a step that a group ends in, the rest belongs to the next. */
struct walk {
    const uint8_t *w;
    const int8_t *q;
    struct trits trits;
    struct fetch fetch;
};

/* Adds a group of n_quads that begins at trit `first` of a step. */
INLINE void add_quads(struct walk *walk, const struct tables *tables, const int first,
                      const int n_quads, int64_t stride, const int n_tokens,
                      __m512i acc[MAX_FEW][5])
{
    const int after = n_quads - (QUADS - first) % QUADS;
    fetch_lines(&walk->fetch, n_quads / QUADS + 1);
    if (first) {
        add_trits(&walk->trits, first, QUADS, walk->q, stride, n_tokens, acc);
        walk->q += STEP_INPUTS;
    }
    for (int s = 0; s < after / QUADS; s++, walk->w += STEP_BYTES, walk->q += STEP_INPUTS) {
        fetch_ahead(walk->w, n_tokens);
        walk->trits = decode(walk->w, tables);
        add_trits(&walk->trits, 0, QUADS, walk->q, stride, n_tokens, acc);
    }
    if (after % QUADS) {
        walk->trits = decode(walk->w, tables);
        add_trits(&walk->trits, 0, after % QUADS, walk->q, stride, n_tokens, acc);
        walk->w += STEP_BYTES;
    }
}

/* One tile with a scale per group: five groups begin at the five trits of a step in turn, then all
 * begins anew. */
INLINE void grouped_tile(const struct matmul_job *job, int64_t tile, int token, const int group,
                         const int n_tokens)
{
    const struct tables tables = load_tables();
    const uint8_t *scales = NULL;
    struct walk walk = {.w = tile_at(job, tile),
                        .q = job->a.q + token * job->a.stride,
                        .fetch = fetch_behind(job, tile, token)};
    walk.trits = (struct trits){_mm512_setzero_si512(), _mm512_setzero_si512()};
    int64_t n_groups = job->w.n_cols / group;
    __m512 y[MAX_FEW];
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        y[t] = _mm512_setzero_ps();
    for (int64_t g = 0; g < n_groups; g += QUADS) {
        if (g % (UNIT_INPUTS / group) == 0) {
            scales = walk.w;
            walk.w += (UNIT_INPUTS / group * 32 + 63) / 64 * 64;
        }
        UNROLL
        for (int k = 0; k < QUADS; k++, scales += 32) {
            if (g + k >= n_groups)
                break;
            __m512i acc[MAX_FEW][5], sum[MAX_FEW];
            clear(n_tokens, acc);
            add_quads(&walk, &tables, k * group / 4 % QUADS, group / 4, job->a.stride, n_tokens,
                      acc);
            join(n_tokens, acc, sum);
            add_group(&job->a, token, g + k, halves_at(scales), n_tokens, 1, sum, y);
        }
    }
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        finish_floats(job, tile, token + t, y[t]);
}

#define FEW(T)                                                                                     \
    FEW_RUN(row, T, row_tile, T)                                                                   \
    FEW_RUN(group_64, T, grouped_tile, 64, T)                                                      \
    FEW_RUN(group_128, T, grouped_tile, 128, T)                                                    \
    FEW_RUN(group_256, T, grouped_tile, 256, T)
FEW(1)
FEW(2)
FEW(3)
FEW(4)
#undef FEW

PANEL_TABLE_3_8(panel_row)
PANEL_TABLE_3_8(panel_grouped)

/* Panels begin at a unit. */
void unpack_trits5_avx512vbmi(const struct panel *p, int64_t tile, int pitch, uint8_t *codes,
                              float *scales, int16_t *sub_scales)
{
    (void)sub_scales;
    const struct tables tables = load_tables();
    const uint8_t *w = tile_at(p->job, tile) + p->col0 / STEP_INPUTS * STEP_BYTES;
    int header = packed_unit_header(PACKING_trits5, p->group);
    w += p->group ? p->col0 / UNIT_INPUTS * header : header;
    for (int64_t i = 0; i < p->n; i += STEP_INPUTS, w += STEP_BYTES) {
        if (p->group && i % UNIT_INPUTS == 0) {
            int64_t left = p->n - i < UNIT_INPUTS ? p->n - i : UNIT_INPUTS;
            for (int64_t g = 0; g < left / p->group; g++, scales += pitch * TILE_ROWS)
                _mm512_storeu_ps(scales, halves_at(w + 32 * g));
            w += header;
        }
        prefetch(w);
        struct trits trits = decode(w, &tables);
        UNROLL
        for (int f = 0; f < QUADS; f++, codes += pitch * STEP_BYTES) {
            __m512i v = _mm512_srli_epi16(f < 4 ? trits.low : trits.high, f < 4 ? 2 * f : 6);
            _mm512_storeu_si512(codes, _mm512_and_si512(v, _mm512_set1_epi8(3)));
        }
    }
}

void matmul_trits5_avx512vbmi(const union job *j, int begin, int end)
{
    static few_tokens *const few[4][MAX_FEW] = {
        {row_1, row_2, row_3, row_4},
        {group_64_1, group_64_2, group_64_3, group_64_4},
        {group_128_1, group_128_2, group_128_3, group_128_4},
        {group_256_1, group_256_2, group_256_3, group_256_4}};
    const struct matmul_job *job = &j->matmul;
    int group = job->w.group;
    if (job->n_tokens <= FEW_TOKENS) {
        few_matmul(job, few[group == 0 ? 0 : group == 64 ? 1 : group == 128 ? 2 : 3], begin, end);
        return;
    }
    const struct panel_ops ops = {.inputs = group ? UNIT_INPUTS : 640,
                                  .zero = 1,
                                  .group = group,
                                  .is_scaled = group != 0,
                                  .tiles = PANEL_TILES,
                                  .max_tokens = PANEL_TOKENS,
                                  .run = group ? panel_grouped_runs : panel_row_runs,
                                  .unpack = unpack_trits5_avx512vbmi};
    panel_matmul(job, &ops, begin, end);
}
