/* matmul of iq4_xs: 4-bit codes of uneven values, a 6-bit scale per 32 inputs, an f16 scale per 256. */
#include "kernels/scalar/matmul_k_scalar.h"
#include "tensor/iq4_values.h"

enum { GROUP = 32, CODES_AT = 64 + 4 * TILE_ROWS };

/* Sum of value * q over a group of a row. */
static int32_t dot_group(const uint8_t *steps, int row, const int8_t q[GROUP])
{
    int32_t sum = 0;
    for (int i = 0; i < GROUP; i++) {
        int both = steps[i / 8 * STEP_BYTES + 4 * row + i % 4];
        sum += iq4_values[both >> i / 4 % 2 * 4 & 15] * q[i];
    }
    return sum;
}

static void add_block(const uint8_t *unit, const int8_t *q, const int32_t *act_sum, float act_scale,
                      float y[TILE_ROWS])
{
    (void)act_sum;
    for (int r = 0; r < TILE_ROWS; r++) {
        int32_t sum = 0;
        for (int g = 0; g < K_BLOCK / GROUP; g++) {
            const uint8_t *steps = unit + CODES_AT + g * 4 * STEP_BYTES;
            sum += packed_iq4_xs_scale(unit, r, g) * dot_group(steps, r, q + g * GROUP);
        }
        add_row_sum(unit, r, (float)sum, act_scale, &y[r]);
    }
}

void matmul_iq4_xs_scalar(const union job *job, int begin, int end)
{
    matmul_k_blocks(&job->matmul, begin, end, add_block);
}
