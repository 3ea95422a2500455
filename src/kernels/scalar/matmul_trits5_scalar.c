/* matmul of trits5: 5 trits a byte. */
#include "kernels/scalar/matmul_scalar.h"

/* Inverse of trits5_code: trit `field` of a byte, 0..2. */
static int trit_of(uint8_t byte, int field)
{
    static const int powers[4] = {1, 3, 9, 27};
    int low = byte & 63, top = byte >> 6;
    int value = top < 3 ? low : low % 17 + 64, last = top < 3 ? top : low / 17;
    return field == 4 ? last : value / powers[field] % 3;
}

static void add_quad_trits5(const uint8_t step[STEP_BYTES], int field, const int8_t q[4],
                            int32_t sums[TILE_ROWS])
{
    for (int i = 0; i < STEP_BYTES; i++)
        sums[i / 4] += (trit_of(step[i], field) - 1) * q[i % 4];
}

void matmul_trits5_scalar(const union job *job, int begin, int end)
{
    int group = job->matmul.w.group;
    const struct quad_layout layout = {
        .quads_per_step = 5,
        .group = group,
        .unit_inputs = group ? 1280 : 0,
        .header_bytes = group ? (1280 / group * 32 + 63) / 64 * 64 : 0,
        .add = add_quad_trits5,
    };
    matmul_quads(&job->matmul, begin, end, &layout);
}
