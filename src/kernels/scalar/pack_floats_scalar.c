/* F16 and BF16 as they are; any format that can be decoded as f32. */
#include <string.h>

#include "base/reader.h"
#include "kernels/pack_rows.h"

/* Halves of one row of a tile; the last step may hold one input beyond the last. */
static void put_halves(const uint8_t *halves, int64_t n_cols, int r, uint8_t *tile)
{
    for (int64_t i = 0; i < (n_cols + 1) / 2 * 2; i++)
        store_u16(tile + 2 * (i * TILE_ROWS + r),
                  halves && i < n_cols ? load_u16(halves + 2 * i) : 0);
}

void pack_half_scalar(const union job *job, int begin, int end)
{
    const struct pack_job *pack = &job->pack;
    for (int64_t row = begin; row < pack_end(end); row++) {
        struct pack_source from = pack_source(pack, row);
        put_halves(from.tensor ? pack_source_block(pack, from) : NULL, pack->w.n_cols,
                   (int)(row % TILE_ROWS), pack_tile(pack, row));
    }
}

void pack_f32_scalar(const union job *job, int begin, int end)
{
    const struct pack_job *pack = &job->pack;
    float *values = (float *)pack->scratch;
    for (int64_t row = begin; row < pack_end(end); row++) {
        struct pack_source from = pack_source(pack, row);
        uint8_t *tile = pack_tile(pack, row) + 4 * (row % TILE_ROWS);
        if (from.tensor)
            tensor_decode(from.tensor, from.row, from.row + 1, values);
        for (int64_t i = 0; i < pack->w.n_cols; i++)
            store_f32(tile + i * STEP_BYTES, from.tensor ? values[pack->col0 + i] : 0);
    }
}
