/* matmul of packings with a scale for each block of 32: q4_0, q4_1, q5_0, q5_1, q8_0, iq4_nl. */
#include "kernels/x86/matmul_fields_avx512.h"

static const struct fields fields_q4_0 = {.group = 32, .bits = 4, .zero = 8};
static const struct fields fields_q4_1 = {.group = 32, .bits = 4, .has_min = true};
static const struct fields fields_q5_0 = {.group = 32, .bits = 4, .zero = 16, .has_fifth = true};
static const struct fields fields_q5_1 = {
    .group = 32, .bits = 4, .has_fifth = true, .has_min = true};
static const struct fields fields_q8_0 = {.group = 32, .bits = 8, .zero = 128};
static const struct fields fields_iq4_nl = {.group = 32, .bits = 4, .zero = 127, .is_iq4 = true};

INLINE void panel_32(const struct panel *p, int token, __m512i *state, const int n_tiles,
                     const int n_tokens)
{
    panel_scaled(p, token, state, 32, false, n_tiles, n_tokens);
}

INLINE void panel_32_min(const struct panel *p, int token, __m512i *state, const int n_tiles,
                         const int n_tokens)
{
    panel_scaled(p, token, state, 32, true, n_tiles, n_tokens);
}

PANEL_TABLE_3_8(panel_32)
PANEL_TABLE_3_8(panel_32_min)

#define OPS_PLAIN RUNS_3_8(panel_32)
#define OPS_MIN   .has_min = true, RUNS_3_8(panel_32_min)

/* The kernel of a packing from its fields. */
#define BLOCKS(name, ops)                                                                          \
    FEW_RUN(name, 1, fields_grouped_tile, &fields_##name, 1)                                       \
    FEW_RUN(name, 2, fields_grouped_tile, &fields_##name, 2)                                       \
    FEW_RUN(name, 3, fields_grouped_tile, &fields_##name, 3)                                       \
    FEW_RUN(name, 4, fields_grouped_tile, &fields_##name, 4)                                       \
    void unpack_##name##_avx512(const struct panel *p, int64_t tile, int pitch, uint8_t *codes,    \
                                float *scales, int16_t *sub_scales)                                \
    {                                                                                              \
        (void)sub_scales;                                                                          \
        fields_unpack(p, tile, &fields_##name, pitch, codes, scales);                              \
    }                                                                                              \
    void matmul_##name##_avx512(const union job *j, int begin, int end)                            \
    {                                                                                              \
        static few_tokens *const few[MAX_FEW] = {name##_1, name##_2, name##_3, name##_4};          \
        const struct panel_ops panel = {.inputs = 512,                                             \
                                        .zero = fields_##name.zero,                                \
                                        .group = 32,                                               \
                                        .is_scaled = true,                                         \
                                        .unpack = unpack_##name##_avx512,                          \
                                        ops};                                                      \
        if (j->matmul.n_tokens <= FEW_TOKENS)                                                      \
            few_matmul(&j->matmul, few, begin, end);                                               \
        else                                                                                       \
            panel_matmul(&j->matmul, &panel, begin, end);                                          \
    }

BLOCKS(q4_0, OPS_PLAIN)
BLOCKS(q4_1, OPS_MIN)
BLOCKS(q5_0, OPS_PLAIN)
BLOCKS(q5_1, OPS_MIN)
BLOCKS(q8_0, OPS_PLAIN)
BLOCKS(iq4_nl, OPS_PLAIN)
