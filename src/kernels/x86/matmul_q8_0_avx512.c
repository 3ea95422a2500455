#include "kernels/x86/matmul_fields_avx512.h"

enum { BITS = 8, ZERO = 128 };

FEW_RUN(few, 1, fields_grouped_tile, BITS, ZERO, 1)
FEW_RUN(few, 2, fields_grouped_tile, BITS, ZERO, 2)
FEW_RUN(few, 3, fields_grouped_tile, BITS, ZERO, 3)
FEW_RUN(few, 4, fields_grouped_tile, BITS, ZERO, 4)

PANEL_TABLE(panel_grouped, 4)

static void unpack(const struct panel *p, int64_t tile, int pitch, uint8_t *codes, float *scales,
                   int16_t *sub_scales)
{
    (void)sub_scales;
    fields_unpack(p->job, tile, p->col0, p->n, BITS, pitch, codes, scales);
}

void matmul_q8_0_avx512(const union job *j, int begin, int end)
{
    static few_tokens *const few[MAX_FEW] = {few_1, few_2, few_3, few_4};
    static const struct panel_ops ops = {.inputs = 512,
                                         .zero = ZERO,
                                         .group = 32,
                                         .sum_group = 32,
                                         .max_tokens = PANEL_TOKENS / 2,
                                         .run = panel_grouped_runs,
                                         .unpack = unpack};
    const struct matmul_job *job = &j->matmul;
    if (job->n_tokens <= FEW_TOKENS)
        few_matmul(job, few, begin, end);
    else
        panel_matmul(job, &ops, begin, end);
}
