#define FETCH_HINT _MM_HINT_T1
#include "kernels/x86/matmul_fields_avx512.h"

static const struct fields fields = {.bits = 2, .zero = 1};

/* One tile with one scale per row. Two steps at once for one token: each of four accumulators could
 * take one multiply-add in 5 cycles only. */
INLINE void row_tile(const struct matmul_job *job, int64_t tile, int token, const int n_tokens)
{
    const uint8_t *scales = tile_at(job, tile), *w = scales + STEP_BYTES;
    int64_t stride = job->a.stride;
    const int8_t *q = job->a.q + token * stride;
    int64_t left = (job->w.n_cols + 15) / 16;
    struct fetch fetch = fetch_behind(job, tile, token);
    __m512i total[MAX_FEW], acc[MAX_FEW][4], odd[MAX_FEW][4], sum[MAX_FEW];
    __m512i none = _mm512_setzero_si512();
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        total[t] = _mm512_set1_epi32(-job->a.sum[(token + t) * (int64_t)job->a.n_sums]);
    while (left > 0) {
        int64_t n = left < FLUSH_STEPS ? left : FLUSH_STEPS, s = 0;
        left -= n;
        fields_clear(n_tokens, acc);
        fields_clear(n_tokens, odd);
        while (s < n) {
            int64_t end = s + FETCH_STEPS < n ? s + FETCH_STEPS : n;
            fetch_lines(&fetch, FETCH_STEPS);
            for (; n_tokens == 1 && s + 2 <= end; s += 2, w += 2 * STEP_BYTES, q += 32) {
                fields_step(&fields, w, 0, none, q, stride, n_tokens, acc);
                fields_step(&fields, w + STEP_BYTES, 0, none, q + 16, stride, n_tokens, odd);
            }
            for (; s < end; s++, w += STEP_BYTES, q += 16) {
                fetch_ahead(w, n_tokens);
                fields_step(&fields, w, 0, none, q, stride, n_tokens, acc);
            }
        }
        fields_join(&fields, n_tokens, acc, sum);
        UNROLL
        for (int t = 0; t < n_tokens; t++)
            total[t] = _mm512_add_epi32(total[t], sum[t]);
        if (n_tokens == 1) {
            fields_join(&fields, n_tokens, odd, sum);
            total[0] = _mm512_add_epi32(total[0], sum[0]);
        }
    }
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        finish_sums(job, tile, scales, token + t, total[t]);
}

FEW_RUN(row, 1, row_tile, 1)
FEW_RUN(row, 2, row_tile, 2)
FEW_RUN(row, 3, row_tile, 3)
FEW_RUN(row, 4, row_tile, 4)
FEW_RUN(grouped, 1, fields_grouped_tile, &fields, 1)
FEW_RUN(grouped, 2, fields_grouped_tile, &fields, 2)
FEW_RUN(grouped, 3, fields_grouped_tile, &fields, 3)
FEW_RUN(grouped, 4, fields_grouped_tile, &fields, 4)

PANEL_TABLE_3_8(panel_row)
PANEL_TABLE_3_8(panel_grouped)

void unpack_trits4_avx512(const struct panel *p, int64_t tile, int pitch, uint8_t *codes,
                          float *scales, int16_t *sub_scales)
{
    (void)sub_scales;
    fields_unpack(p, tile, &fields, pitch, codes, scales);
}

void matmul_trits4_avx512(const union job *j, int begin, int end)
{
    static few_tokens *const few[2][MAX_FEW] = {{row_1, row_2, row_3, row_4},
                                                {grouped_1, grouped_2, grouped_3, grouped_4}};
    const struct matmul_job *job = &j->matmul;
    int group = job->w.group;
    if (job->n_tokens <= FEW_TOKENS) {
        few_matmul(job, few[group != 0], begin, end);
        return;
    }
    const struct panel_ops ops = {.inputs = 512,
                                  .zero = 1,
                                  .group = group,
                                  .is_scaled = group != 0,
                                  .tiles = PANEL_TILES,
                                  .max_tokens = PANEL_TOKENS,
                                  .run = group ? panel_grouped_runs : panel_row_runs,
                                  .unpack = unpack_trits4_avx512};
    panel_matmul(job, &ops, begin, end);
}
