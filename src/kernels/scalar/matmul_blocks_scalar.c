/* matmul of packings with a scale for each block of 32: q4_0, q4_1, q5_0, q5_1, q8_0, iq4_nl. */
#include "kernels/scalar/matmul_scalar.h"
#include "tensor/iq4_values.h"

static int nibble_at(const uint8_t step[], int field, int i)
{
    return step[i] >> 4 * field & 15;
}

/* Field 0 to 7 of four steps of nibbles and one of fifth bits. */
static int five_bits_at(const uint8_t step[], int field, int i)
{
    int fifth = step[4 * STEP_BYTES + i] >> field & 1;
    return nibble_at(step + field / 2 * STEP_BYTES, field % 2, i) | fifth << 4;
}

static void add_quad_q4_0(const uint8_t step[], int field, const int8_t q[4],
                          int32_t sums[TILE_ROWS])
{
    for (int i = 0; i < STEP_BYTES; i++)
        sums[i / 4] += (nibble_at(step, field, i) - 8) * q[i % 4];
}

static void add_quad_q4_1(const uint8_t step[], int field, const int8_t q[4],
                          int32_t sums[TILE_ROWS])
{
    for (int i = 0; i < STEP_BYTES; i++)
        sums[i / 4] += nibble_at(step, field, i) * q[i % 4];
}

static void add_quad_iq4_nl(const uint8_t step[], int field, const int8_t q[4],
                            int32_t sums[TILE_ROWS])
{
    for (int i = 0; i < STEP_BYTES; i++)
        sums[i / 4] += iq4_values[nibble_at(step, field, i)] * q[i % 4];
}

static void add_quad_q5_0(const uint8_t step[], int field, const int8_t q[4],
                          int32_t sums[TILE_ROWS])
{
    for (int i = 0; i < STEP_BYTES; i++)
        sums[i / 4] += (five_bits_at(step, field, i) - 16) * q[i % 4];
}

static void add_quad_q5_1(const uint8_t step[], int field, const int8_t q[4],
                          int32_t sums[TILE_ROWS])
{
    for (int i = 0; i < STEP_BYTES; i++)
        sums[i / 4] += five_bits_at(step, field, i) * q[i % 4];
}

static void add_quad_q8_0(const uint8_t step[], int field, const int8_t q[4],
                          int32_t sums[TILE_ROWS])
{
    (void)field;
    for (int i = 0; i < STEP_BYTES; i++)
        sums[i / 4] += (step[i] - 128) * q[i % 4];
}

static void matmul_blocks(const union job *job, int begin, int end, int quads_per_step,
                          bool has_min, add_quad *add)
{
    const struct quad_layout layout = {.quads_per_step = quads_per_step,
                                       .group = 32,
                                       .unit_inputs = 64,
                                       .header_bytes = 64 + 64 * has_min,
                                       .has_min = has_min,
                                       .add = add};
    matmul_quads(&job->matmul, begin, end, &layout);
}

void matmul_q4_0_scalar(const union job *job, int begin, int end)
{
    matmul_blocks(job, begin, end, 2, false, add_quad_q4_0);
}

void matmul_q4_1_scalar(const union job *job, int begin, int end)
{
    matmul_blocks(job, begin, end, 2, true, add_quad_q4_1);
}

void matmul_iq4_nl_scalar(const union job *job, int begin, int end)
{
    matmul_blocks(job, begin, end, 2, false, add_quad_iq4_nl);
}

void matmul_q5_0_scalar(const union job *job, int begin, int end)
{
    matmul_blocks(job, begin, end, 8, false, add_quad_q5_0);
}

void matmul_q5_1_scalar(const union job *job, int begin, int end)
{
    matmul_blocks(job, begin, end, 8, true, add_quad_q5_1);
}

void matmul_q8_0_scalar(const union job *job, int begin, int end)
{
    matmul_blocks(job, begin, end, 1, false, add_quad_q8_0);
}
