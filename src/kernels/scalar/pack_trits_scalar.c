/* Trits from any ternary format, by plain loops. */
#include "kernels/pack_trits.h"

static void fold_trits4(const uint8_t *codes, int64_t stride, int64_t n_steps, uint8_t *steps)
{
    for (int64_t s = 0; s < n_steps; s++, codes += 16)
        for (int r = 0; r < TILE_ROWS; r++)
            for (int j = 0; j < 4; j++) {
                const uint8_t *c = codes + r * stride + j;
                *steps++ = (uint8_t)(c[0] | c[4] << 2 | c[8] << 4 | c[12] << 6);
            }
}

static void fold_trits5(const uint8_t *codes, int64_t stride, int64_t n_steps, uint8_t *steps)
{
    for (int64_t s = 0; s < n_steps; s++, codes += 20)
        for (int r = 0; r < TILE_ROWS; r++)
            for (int j = 0; j < 4; j++) {
                const uint8_t *c = codes + r * stride + j;
                *steps++ = trits5_code((const uint8_t[]){c[0], c[4], c[8], c[12], c[16]});
            }
}

void pack_trits4_scalar(const union job *job, int begin, int end)
{
    pack_trits(&job->pack, begin, end, trits_expand_plain, fold_trits4);
}

void pack_trits5_scalar(const union job *job, int begin, int end)
{
    pack_trits(&job->pack, begin, end, trits_expand_plain, fold_trits5);
}
