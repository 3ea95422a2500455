/* matmul of q4_k and q5_k: 4 or 5 bits, a 6-bit scale and minimum per 32 inputs, f16 scales of both
 * per 256. */
#include "kernels/scalar/matmul_k_scalar.h"

enum { GROUP = 32 };

/* Sum of code * q over a group of a row: four steps of low nibbles, for q5_k one of fifth bits. */
static int32_t dot_group(const uint8_t *steps, int row, bool has_fifth, const int8_t q[GROUP])
{
    int32_t sum = 0;
    for (int i = 0; i < GROUP; i++) {
        int byte = 4 * row + i % 4, quad = i / 4;
        int code = steps[quad / 2 * STEP_BYTES + byte] >> 4 * (quad % 2) & 15;
        if (has_fifth)
            code |= (steps[4 * STEP_BYTES + byte] >> quad & 1) << 4;
        sum += code * q[i];
    }
    return sum;
}

static void add_block(const uint8_t *unit, bool has_fifth, const int8_t *q, const int32_t *act_sum,
                      float act_scale, float y[TILE_ROWS])
{
    const uint8_t *codes = unit + PACKED_K_LINES_AT + 12 * TILE_ROWS;
    int group_bytes = (4 + has_fifth) * STEP_BYTES;
    for (int r = 0; r < TILE_ROWS; r++) {
        int32_t sum = 0, min_sum = 0;
        for (int g = 0; g < K_BLOCK / GROUP; g++) {
            int scale, min;
            packed_k_scales(unit, r, g, &scale, &min);
            sum += scale * dot_group(codes + g * group_bytes, r, has_fifth, q + g * GROUP);
            min_sum += min * act_sum[g];
        }
        add_row_sums(unit, r, sum, min_sum, act_scale, &y[r]);
    }
}

static void add_q4_k_block(const uint8_t *unit, const int8_t *q, const int32_t *act_sum,
                           float act_scale, float y[TILE_ROWS])
{
    add_block(unit, false, q, act_sum, act_scale, y);
}

static void add_q5_k_block(const uint8_t *unit, const int8_t *q, const int32_t *act_sum,
                           float act_scale, float y[TILE_ROWS])
{
    add_block(unit, true, q, act_sum, act_scale, y);
}

void matmul_q4_k_scalar(const union job *job, int begin, int end)
{
    matmul_k_blocks(&job->matmul, begin, end, add_q4_k_block);
}

void matmul_q5_k_scalar(const union job *job, int begin, int end)
{
    matmul_k_blocks(&job->matmul, begin, end, add_q5_k_block);
}
