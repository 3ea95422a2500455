/* matmul of q2_k: 2 bits, a 4-bit scale and minimum per 16 inputs, f16 scales of both per 256. */
#include "kernels/epilogue.h"

enum { BLOCK = 256, GROUP = 16, LINES_AT = 64, CODES_AT = LINES_AT + 16 * TILE_ROWS };

static float half_at(const uint8_t *halves, int i)
{
    uint16_t half;
    memcpy(&half, halves + (int)sizeof half * i, sizeof half);
    return f16_to_f32(half);
}

static void add_block(const uint8_t *unit, const int8_t *q, const int32_t *act_sum, float act_scale,
                      float y[TILE_ROWS])
{
    for (int r = 0; r < TILE_ROWS; r++) {
        int32_t sum = 0, min_sum = 0;
        for (int g = 0; g < BLOCK / GROUP; g++) {
            const uint8_t *step = unit + CODES_AT + g * STEP_BYTES + 4 * r;
            int both = unit[LINES_AT + g / 4 * STEP_BYTES + 4 * r + g % 4];
            int32_t dot = 0;
            for (int i = 0; i < GROUP; i++)
                dot += (step[i % 4] >> i / 4 * 2 & 3) * q[g * GROUP + i];
            sum += (both & 15) * dot;
            min_sum += (both >> 4) * act_sum[g];
        }
        float d = half_at(unit, r) * act_scale, dmin = half_at(unit, TILE_ROWS + r) * act_scale;
        y[r] = fmaf((float)sum, d, y[r]);
        y[r] = fmaf(-(float)min_sum, dmin, y[r]);
    }
}

void matmul_q2_k_scalar(const union job *any, int begin, int end)
{
    const struct matmul_job *job = &any->matmul;
    const struct activations *a = &job->a;
    int64_t tile_bytes = packed_tile_bytes(job->w.packing, job->w.group, job->w.n_cols);
    int64_t unit_bytes = packed_tile_bytes(job->w.packing, job->w.group, BLOCK);
    for (int row0 = begin; row0 < end; row0 += TILE_ROWS)
        for (int token = 0; token < job->n_tokens; token++) {
            const uint8_t *tile = job->w.data + row0 / TILE_ROWS * tile_bytes;
            float y[TILE_ROWS] = {0};
            for (int64_t b = 0; b < a->n_cols / BLOCK; b++)
                add_block(tile + b * unit_bytes, a->q + token * a->stride + b * BLOCK,
                          a->sum + (int64_t)token * a->n_sums + b * (BLOCK / GROUP),
                          a->scale[(int64_t)token * a->n_scales + b], y);
            matmul_finish(job, row0, token, y);
        }
}
