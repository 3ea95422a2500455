/* matmul of q6_k: 6 bits, int8 scales per 16 inputs, f16 scales per 256. */
#include "kernels/epilogue.h"

enum { BLOCK = 256, SUB = 16, UNIT_BLOCKS = 2, SUB_BYTES = 3 * STEP_BYTES };
enum { SCALES_AT = 64, CODES_AT = 64 + 512, UNIT_BYTES = CODES_AT + 32 * SUB_BYTES };

/* Sum of (code - 32) * q over 16 inputs of a row: two steps of low nibbles, one of high bits. */
static int32_t dot_sub(const uint8_t *steps, int row, const int8_t q[SUB])
{
    int32_t sum = 0;
    for (int i = 0; i < SUB; i++) {
        int byte = 4 * row + i % 4, quad = i / 4;
        int low = steps[quad / 2 * STEP_BYTES + byte] >> 4 * (quad % 2) & 15;
        int high = steps[2 * STEP_BYTES + byte] >> 2 * quad & 3;
        sum += ((low | high << 4) - 32) * q[i];
    }
    return sum;
}

static void add_block(const uint8_t *unit, int in_unit, int n_subs, const int8_t *q,
                      float act_scale, float y[TILE_ROWS])
{
    const int8_t *scales = (const int8_t *)unit + SCALES_AT + in_unit * 16 * TILE_ROWS;
    const uint8_t *codes = unit + CODES_AT + in_unit * 16 * SUB_BYTES;
    for (int r = 0; r < TILE_ROWS; r++) {
        uint16_t d;
        int32_t sum = 0;
        memcpy(&d, unit + (in_unit * TILE_ROWS + r) * (int)sizeof d, sizeof d);
        for (int sub = 0; sub < n_subs; sub++)
            sum += scales[sub * TILE_ROWS + r] * dot_sub(codes + sub * SUB_BYTES, r, q + sub * SUB);
        float scale = f16_to_f32(d) * act_scale;
        y[r] = fmaf((float)sum, scale, y[r]);
    }
}

void matmul_q6_k_scalar(const union job *any, int begin, int end)
{
    const struct matmul_job *job = &any->matmul;
    const struct activations *a = &job->a;
    int64_t tile_bytes = packed_tile_bytes(job->w.packing, job->w.group, job->w.n_cols);
    for (int row0 = begin; row0 < end; row0 += TILE_ROWS)
        for (int token = 0; token < job->n_tokens; token++) {
            const uint8_t *tile = job->w.data + row0 / TILE_ROWS * tile_bytes;
            float y[TILE_ROWS] = {0};
            for (int64_t b = 0; b * BLOCK < a->n_cols; b++) {
                int64_t left = a->n_cols - b * BLOCK;
                int n_subs = left < BLOCK ? (int)(left + SUB - 1) / SUB : BLOCK / SUB;
                add_block(tile + b / UNIT_BLOCKS * UNIT_BYTES, (int)(b % UNIT_BLOCKS), n_subs,
                          a->q + token * a->stride + b * BLOCK,
                          a->scale[(int64_t)token * a->n_scales + b], y);
            }
            matmul_finish(job, row0, token, y);
        }
}
