/* matmul of q4_0: 2 fields of 4 bits, code - 8. */
#include "kernels/scalar/matmul_scalar.h"

static void add_quad_q4_0(const uint8_t step[STEP_BYTES], int field, const int8_t q[4],
                          int32_t sums[TILE_ROWS])
{
    for (int i = 0; i < STEP_BYTES; i++)
        sums[i / 4] += ((step[i] >> 4 * field & 15) - 8) * q[i % 4];
}

void matmul_q4_0_scalar(const union job *job, int begin, int end)
{
    static const struct quad_layout layout = {.quads_per_step = 2,
                                              .group = 32,
                                              .unit_inputs = 64,
                                              .header_bytes = 64,
                                              .add = add_quad_q4_0};
    matmul_quads(&job->matmul, begin, end, &layout);
}
