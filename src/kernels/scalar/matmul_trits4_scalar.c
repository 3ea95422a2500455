/* matmul of trits4: 4 fields of 2 bits, code - 1. */
#include "kernels/scalar/matmul_scalar.h"

static void add_quad_trits4(const uint8_t step[STEP_BYTES], int field, const int8_t q[4],
                            int32_t sums[TILE_ROWS])
{
    for (int i = 0; i < STEP_BYTES; i++)
        sums[i / 4] += ((step[i] >> 2 * field & 3) - 1) * q[i % 4];
}

void matmul_trits4_scalar(const union job *job, int begin, int end)
{
    const struct quad_layout layout = {
        .quads_per_step = 4,
        .group = job->matmul.w.group,
        .unit_inputs = 2 * job->matmul.w.group,
        .header_bytes = 64,
        .add = add_quad_trits4,
    };
    matmul_quads(&job->matmul, begin, end, &layout);
}
