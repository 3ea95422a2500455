/* matmul of q2_k: 2 bits, a 4-bit scale and minimum per 16 inputs, f16 scales of both per 256. */
#include "kernels/scalar/matmul_k_scalar.h"

enum { GROUP = 16, LINES_AT = 64, CODES_AT = LINES_AT + 16 * TILE_ROWS };

static void add_block(const uint8_t *unit, const int8_t *q, const int32_t *act_sum, float act_scale,
                      float y[TILE_ROWS])
{
    for (int r = 0; r < TILE_ROWS; r++) {
        int32_t sum = 0, min_sum = 0;
        for (int g = 0; g < K_BLOCK / GROUP; g++) {
            const uint8_t *step = unit + CODES_AT + g * STEP_BYTES + 4 * r;
            int both = unit[LINES_AT + g / 4 * STEP_BYTES + 4 * r + g % 4];
            int32_t dot = 0;
            for (int i = 0; i < GROUP; i++)
                dot += (step[i % 4] >> i / 4 * 2 & 3) * q[g * GROUP + i];
            sum += (both & 15) * dot;
            min_sum += (both >> 4) * act_sum[g];
        }
        add_row_sums(unit, r, sum, min_sum, act_scale, &y[r]);
    }
}

void matmul_q2_k_scalar(const union job *job, int begin, int end)
{
    matmul_k_blocks(&job->matmul, begin, end, add_block);
}
