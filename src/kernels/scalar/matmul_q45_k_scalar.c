/* matmul of q4_k and q5_k: 4 or 5 bits, a 6-bit scale and minimum per 32 inputs, f16 scales of both
 * per 256. */
#include "kernels/epilogue.h"

enum { BLOCK = 256, GROUP = 32 };

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

static float half_at(const uint8_t *halves, int i)
{
    uint16_t half;
    memcpy(&half, halves + (int)sizeof half * i, sizeof half);
    return f16_to_f32(half);
}

static void add_block(const uint8_t *unit, bool has_fifth, const int8_t *q, const int32_t *act_sum,
                      float act_scale, float y[TILE_ROWS])
{
    const uint8_t *codes = unit + PACKED_K_LINES_AT + 12 * TILE_ROWS;
    int group_bytes = (4 + has_fifth) * STEP_BYTES;
    for (int r = 0; r < TILE_ROWS; r++) {
        int32_t sum = 0, min_sum = 0;
        for (int g = 0; g < BLOCK / GROUP; g++) {
            int scale, min;
            packed_k_scales(unit, r, g, &scale, &min);
            sum += scale * dot_group(codes + g * group_bytes, r, has_fifth, q + g * GROUP);
            min_sum += min * act_sum[g];
        }
        float d = half_at(unit, r) * act_scale, dmin = half_at(unit, TILE_ROWS + r) * act_scale;
        y[r] = fmaf((float)sum, d, y[r]);
        y[r] = fmaf(-(float)min_sum, dmin, y[r]);
    }
}

static void matmul_q45_k(const struct matmul_job *job, int begin, int end, bool has_fifth)
{
    const struct activations *a = &job->a;
    int64_t tile_bytes = packed_tile_bytes(job->w.packing, job->w.group, job->w.n_cols);
    int64_t unit_bytes = packed_tile_bytes(job->w.packing, job->w.group, BLOCK);
    for (int row0 = begin; row0 < end; row0 += TILE_ROWS)
        for (int token = 0; token < job->n_tokens; token++) {
            const uint8_t *tile = job->w.data + row0 / TILE_ROWS * tile_bytes;
            float y[TILE_ROWS] = {0};
            for (int64_t b = 0; b < a->n_cols / BLOCK; b++)
                add_block(tile + b * unit_bytes, has_fifth, a->q + token * a->stride + b * BLOCK,
                          a->sum + (int64_t)token * a->n_sums + b * (BLOCK / GROUP),
                          a->scale[(int64_t)token * a->n_scales + b], y);
            matmul_finish(job, row0, token, y);
        }
}

void matmul_q4_k_scalar(const union job *job, int begin, int end)
{
    matmul_q45_k(&job->matmul, begin, end, false);
}

void matmul_q5_k_scalar(const union job *job, int begin, int end)
{
    matmul_q45_k(&job->matmul, begin, end, true);
}
