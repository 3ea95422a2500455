/* matmul of q4_0 and q8_0: one field of 4 or 8 bits apart they are the same, groups of 32 with f16
 * scales. */
#include "kernels/x86/matmul_fields_avx512.h"

enum { Q4_BITS = 4, Q4_ZERO = 8, Q8_BITS = 8, Q8_ZERO = 128 };

FEW_RUN(q4, 1, fields_grouped_tile, Q4_BITS, Q4_ZERO, 1)
FEW_RUN(q4, 2, fields_grouped_tile, Q4_BITS, Q4_ZERO, 2)
FEW_RUN(q4, 3, fields_grouped_tile, Q4_BITS, Q4_ZERO, 3)
FEW_RUN(q4, 4, fields_grouped_tile, Q4_BITS, Q4_ZERO, 4)
FEW_RUN(q8, 1, fields_grouped_tile, Q8_BITS, Q8_ZERO, 1)
FEW_RUN(q8, 2, fields_grouped_tile, Q8_BITS, Q8_ZERO, 2)
FEW_RUN(q8, 3, fields_grouped_tile, Q8_BITS, Q8_ZERO, 3)
FEW_RUN(q8, 4, fields_grouped_tile, Q8_BITS, Q8_ZERO, 4)

PANEL_TABLE(panel_grouped, 4)

static void unpack_q4(const struct panel *p, int64_t tile, int pitch, uint8_t *codes, float *scales,
                      int16_t *sub_scales)
{
    (void)sub_scales;
    fields_unpack(p->job, tile, p->col0, p->n, Q4_BITS, pitch, codes, scales);
}

static void unpack_q8(const struct panel *p, int64_t tile, int pitch, uint8_t *codes, float *scales,
                      int16_t *sub_scales)
{
    (void)sub_scales;
    fields_unpack(p->job, tile, p->col0, p->n, Q8_BITS, pitch, codes, scales);
}

#define BLOCK_OPS(zero_code, unpack_codes)                                                         \
    {                                                                                              \
        .inputs = 512, .zero = zero_code, .group = 32, .sum_group = 32,                            \
        .max_tokens = PANEL_TOKENS / 2, .run = panel_grouped_runs, .unpack = unpack_codes          \
    }

void matmul_q4_0_avx512(const union job *j, int begin, int end)
{
    static few_tokens *const few[MAX_FEW] = {q4_1, q4_2, q4_3, q4_4};
    static const struct panel_ops ops = BLOCK_OPS(Q4_ZERO, unpack_q4);
    if (j->matmul.n_tokens <= FEW_TOKENS)
        few_matmul(&j->matmul, few, begin, end);
    else
        panel_matmul(&j->matmul, &ops, begin, end);
}

void matmul_q8_0_avx512(const union job *j, int begin, int end)
{
    static few_tokens *const few[MAX_FEW] = {q8_1, q8_2, q8_3, q8_4};
    static const struct panel_ops ops = BLOCK_OPS(Q8_ZERO, unpack_q8);
    if (j->matmul.n_tokens <= FEW_TOKENS)
        few_matmul(&j->matmul, few, begin, end);
    else
        panel_matmul(&j->matmul, &ops, begin, end);
}
