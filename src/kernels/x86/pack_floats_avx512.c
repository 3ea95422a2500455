/* F16, BF16 as they are, f32 of any format: 64 bytes of 16 rows at a time are transposed. */
#include <string.h>

#include "kernels/pack_rows.h"
#include "kernels/x86/transpose_avx512.h"

/* Columns of 16 rows from byte `at` on, of which n (at most 64) are there; NULL: zeros. */
static inline void take_columns(const uint8_t *const rows[TILE_ROWS], int64_t at, int64_t n,
                                __m512i column[16])
{
    uint8_t bytes[TILE_ROWS * 64] __attribute__((aligned(64)));
    __mmask64 mask = n < 64 ? ((__mmask64)1 << n) - 1 : ~(__mmask64)0;
    for (int r = 0; r < TILE_ROWS; r++) {
        __m512i row = _mm512_setzero_si512();
        if (rows[r])
            row = _mm512_maskz_loadu_epi8(mask, rows[r] + at);
        _mm512_store_si512(bytes + 64 * r, row);
    }
    transpose_16x16(bytes, 64, column);
}

/* Column c holds inputs 2 c and 2 c + 1 in turn; a step holds the one, then the other. */
static void put_halves(const uint8_t *const rows[TILE_ROWS], int64_t n_cols, uint8_t *to)
{
    uint16_t order[32];
    for (int i = 0; i < 32; i++)
        order[i] = (uint16_t)(i % 16 * 2 + i / 16);
    const __m512i apart = _mm512_loadu_si512(order);
    for (int64_t i = 0; i < n_cols; i += 32) {
        __m512i column[16];
        take_columns(rows, 2 * i, 2 * (n_cols - i), column);
        for (int c = 0; c < 16 && i + 2 * c < n_cols; c++, to += STEP_BYTES)
            _mm512_storeu_si512(to, _mm512_permutexvar_epi16(apart, column[c]));
    }
}

void pack_half_avx512(const union job *job, int begin, int end)
{
    const struct pack_job *pack = &job->pack;
    for (int64_t row = begin; row < end; row += TILE_ROWS) {
        const uint8_t *rows[TILE_ROWS];
        for (int r = 0; r < TILE_ROWS; r++) {
            struct pack_source from = pack_source(pack, row + r);
            rows[r] = from.tensor ? pack_source_block(pack, from) : NULL;
        }
        put_halves(rows, pack->w.n_cols, pack_tile(pack, row));
    }
}

/* Values of a row from the first column of the job on: decoded to `values` if they must be. */
static const uint8_t *row_values(const struct pack_job *job, struct pack_source from, float *values)
{
    if (!from.tensor)
        return NULL;
    if (from.tensor->format == FORMAT_F32)
        return pack_source_block(job, from);
    tensor_decode(from.tensor, from.row, from.row + 1, values);
    return (const uint8_t *)(values + job->col0);
}

void pack_f32_avx512(const union job *job, int begin, int end)
{
    const struct pack_job *pack = &job->pack;
    int64_t n_cols = pack->w.n_cols, source_cols = pack->source[0]->n_cols;
    for (int64_t row = begin; row < end; row += TILE_ROWS) {
        const uint8_t *rows[TILE_ROWS];
        uint8_t *to = pack_tile(pack, row);
        for (int r = 0; r < TILE_ROWS; r++)
            rows[r] = row_values(pack, pack_source(pack, row + r),
                                 (float *)pack->scratch + r * source_cols);
        for (int64_t i = 0; i < n_cols; i += 16) {
            __m512i column[16];
            take_columns(rows, 4 * i, 4 * (n_cols - i), column);
            for (int c = 0; c < 16 && i + c < n_cols; c++, to += STEP_BYTES)
                _mm512_storeu_si512(to, column[c]);
        }
    }
}
