/* matmul of q8_0: a byte each, code - 128. */
#include "kernels/scalar/matmul_scalar.h"

static void add_quad_q8_0(const uint8_t step[STEP_BYTES], int field, const int8_t q[4],
                          int32_t sums[TILE_ROWS])
{
    (void)field;
    for (int i = 0; i < STEP_BYTES; i++)
        sums[i / 4] += (step[i] - 128) * q[i % 4];
}

void matmul_q8_0_scalar(const union job *job, int begin, int end)
{
    static const struct quad_layout layout = {.quads_per_step = 1,
                                              .group = 32,
                                              .unit_inputs = 64,
                                              .header_bytes = 64,
                                              .add = add_quad_q8_0};
    matmul_quads(&job->matmul, begin, end, &layout);
}
