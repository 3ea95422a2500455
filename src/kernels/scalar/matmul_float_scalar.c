/* matmul of f32, f16 and bf16: one chain of fused multiply-adds per row and token. */
#include "kernels/epilogue.h"

static float f32_at(const uint8_t *tile, int64_t i)
{
    float value;
    memcpy(&value, tile + i * (int64_t)sizeof value, sizeof value);
    return value;
}

static uint16_t half_at(const uint8_t *tile, int64_t i)
{
    uint16_t value;
    memcpy(&value, tile + i * (int64_t)sizeof value, sizeof value);
    return value;
}

static float f16_at(const uint8_t *tile, int64_t i)
{
    return f16_to_f32(half_at(tile, i));
}

static float bf16_at(const uint8_t *tile, int64_t i)
{
    return bf16_to_f32(half_at(tile, i));
}

static void matmul_floats(const struct matmul_job *job, int begin, int end,
                          float (*weight)(const uint8_t *tile, int64_t i))
{
    const struct activations *a = &job->a;
    int64_t tile_bytes = packed_tile_bytes(job->w.packing, job->w.group, job->w.n_cols);
    for (int row0 = begin; row0 < end; row0 += TILE_ROWS)
        for (int token = 0; token < job->n_tokens; token++) {
            const uint8_t *tile = job->w.data + row0 / TILE_ROWS * tile_bytes;
            const float *x = a->x + token * a->stride;
            float y[TILE_ROWS] = {0};
            for (int64_t i = 0; i < a->n_cols; i++)
                for (int r = 0; r < TILE_ROWS; r++)
                    y[r] = fmaf(weight(tile, i * TILE_ROWS + r), x[i], y[r]);
            matmul_finish(job, row0, token, y);
        }
}

void matmul_f32_scalar(const union job *job, int begin, int end)
{
    matmul_floats(&job->matmul, begin, end, f32_at);
}

void matmul_f16_scalar(const union job *job, int begin, int end)
{
    matmul_floats(&job->matmul, begin, end, f16_at);
}

void matmul_bf16_scalar(const union job *job, int begin, int end)
{
    matmul_floats(&job->matmul, begin, end, bf16_at);
}
