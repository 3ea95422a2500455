/* matmul of q3_k: 3 bits, a 6-bit scale per 16 inputs, an f16 scale per 256. */
#include "kernels/scalar/matmul_k_scalar.h"

enum { GROUP = 16, CODES_AT = PACKED_K_LINES_AT + 12 * TILE_ROWS };

/* Sum of (code - 4) * q over a group of a row: four of the eight quads of its three steps. */
static int32_t dot_group(const uint8_t *step, int row, int quad0, const int8_t q[GROUP])
{
    int32_t sum = 0;
    for (int i = 0; i < GROUP; i++)
        sum += (packed_q3_k_code(step, 4 * row + i % 4, quad0 + i / 4) - 4) * q[i];
    return sum;
}

static void add_block(const uint8_t *unit, const int8_t *q, const int32_t *act_sum, float act_scale,
                      float y[TILE_ROWS])
{
    (void)act_sum;
    for (int r = 0; r < TILE_ROWS; r++) {
        int32_t sum = 0;
        for (int g = 0; g < K_BLOCK / GROUP; g++) {
            const uint8_t *step = unit + CODES_AT + g / 2 * 3 * STEP_BYTES;
            sum += packed_q3_k_scale(unit, r, g) * dot_group(step, r, g % 2 * 4, q + g * GROUP);
        }
        add_row_sum(unit, r, (float)sum, act_scale, &y[r]);
    }
}

void matmul_q3_k_scalar(const union job *job, int begin, int end)
{
    matmul_k_blocks(&job->matmul, begin, end, add_block);
}
