/* Q4_0, Q8_0, IQ4_NL, Q4_K and Q6_K: 16 bytes of four rows are transposed to quads as they come, and
 * their fields then join to steps. */
#include <string.h>

#include "kernels/arm/transpose_neon.h"
#include "kernels/pack_rows.h"

/* How block k of a unit of 16 rows gets there; the header is zeros before. */
typedef void put_block(const struct block_rows *rows, int k, uint8_t *unit);

/* group: inputs of a block. zero: a block of zeros. */
static inline void pack_blocks(const struct pack_job *job, int begin, int end, int group,
                               const uint8_t *zero, put_block *put)
{
    const struct packed *w = &job->w;
    int unit_inputs = packed_unit_inputs(w->packing, w->group);
    int64_t unit_bytes = (int64_t)packed_tile_bytes(w->packing, w->group, unit_inputs);
    for (int64_t row = begin; row < end; row += TILE_ROWS) {
        struct block_rows rows = begin_rows(job, row, zero);
        uint8_t *unit = pack_tile(job, row);
        for (int64_t col = 0; col < w->n_cols; col += unit_inputs, unit += unit_bytes) {
            memset(unit, 0, (size_t)packed_unit_header(w->packing, w->group));
            for (int k = 0; k * group < unit_inputs && col + k * group < w->n_cols; k++) {
                put(&rows, k, unit);
                for (int r = 0; r < TILE_ROWS; r++)
                    rows.block[r] += rows.bytes[r];
            }
        }
    }
}

/* Two bytes of each row. */
static inline void put_halves(const struct block_rows *rows, int at, uint8_t *to)
{
    for (int r = 0; r < TILE_ROWS; r++)
        memcpy(to + 2 * r, rows->block[r] + at, 2);
}

/* Four quads of bytes, from `at` on, of rows 4 v .. 4 v + 3. */
static inline void quads_at(const struct block_rows *rows, int v, int at, uint8x16_t quad[4])
{
    uint8x16_t bytes[4];
    for (int i = 0; i < 4; i++)
        bytes[i] = vld1q_u8(rows->block[4 * v + i] + at);
    transpose_4x4(bytes, quad);
}

/* Vector v of two steps: the low nibbles of four quads, or the high ones. */
static inline void put_low_nibbles(const uint8x16_t quad[4], int v, uint8_t *steps)
{
    vst1q_u8(steps + 16 * v, vsliq_n_u8(quad[0], quad[1], 4));
    vst1q_u8(steps + STEP_BYTES + 16 * v, vsliq_n_u8(quad[2], quad[3], 4));
}

static inline void put_high_nibbles(const uint8x16_t quad[4], int v, uint8_t *steps)
{
    vst1q_u8(steps + 16 * v, vsriq_n_u8(quad[1], quad[0], 4));
    vst1q_u8(steps + STEP_BYTES + 16 * v, vsriq_n_u8(quad[3], quad[2], 4));
}

static void put_q4_0(const struct block_rows *rows, int k, uint8_t *unit)
{
    uint8_t *steps = unit + 64 + k * 4 * STEP_BYTES;
    put_halves(rows, 0, unit + k * 2 * TILE_ROWS);
    for (int v = 0; v < 4; v++) {
        uint8x16_t quad[4];
        quads_at(rows, v, 2, quad);
        put_low_nibbles(quad, v, steps);
        put_high_nibbles(quad, v, steps + 2 * STEP_BYTES);
    }
}

void pack_q4_0_neon(const union job *job, int begin, int end)
{
    static const uint8_t zero[18] = {[2 ... 17] = 0x88};
    pack_blocks(&job->pack, begin, end, 32, zero, put_q4_0);
}

static void put_q8_0(const struct block_rows *rows, int k, uint8_t *unit)
{
    put_halves(rows, 0, unit + k * 2 * TILE_ROWS);
    for (int half = 0; half < 2; half++) {
        uint8_t *steps = unit + 64 + (2 * k + half) * 4 * STEP_BYTES;
        for (int v = 0; v < 4; v++) {
            uint8x16_t quad[4];
            quads_at(rows, v, 2 + 16 * half, quad);
            for (int i = 0; i < 4; i++)
                vst1q_u8(steps + i * STEP_BYTES + 16 * v, veorq_u8(quad[i], vdupq_n_u8(128)));
        }
    }
}

void pack_q8_0_neon(const union job *job, int begin, int end)
{
    static const uint8_t zero[34];
    pack_blocks(&job->pack, begin, end, 32, zero, put_q8_0);
}

/* 64 inputs share 32 bytes: two groups of four steps. */
static void put_q4_k(const struct block_rows *rows, int k, uint8_t *unit)
{
    (void)k; /* a unit is a block */
    uint8_t *steps = unit + PACKED_K_LINES_AT + 12 * TILE_ROWS;
    put_halves(rows, 0, unit);
    put_halves(rows, 2, unit + 2 * TILE_ROWS);
    for (int r = 0; r < TILE_ROWS; r++)
        for (int i = 0; i < 3; i++)
            memcpy(unit + PACKED_K_LINES_AT + i * STEP_BYTES + 4 * r, rows->block[r] + 4 + 4 * i,
                   4);
    for (int i = 0; i < 8; i++) { /* sixteens of bytes */
        uint8_t *to = steps + (i / 2 * 8 + i % 2 * 2) * STEP_BYTES;
        for (int v = 0; v < 4; v++) {
            uint8x16_t quad[4];
            quads_at(rows, v, 16 + 16 * i, quad);
            put_low_nibbles(quad, v, to);
            put_high_nibbles(quad, v, to + 4 * STEP_BYTES);
        }
    }
}

void pack_q4_k_neon(const union job *job, int begin, int end)
{
    static const uint8_t zero[144];
    pack_blocks(&job->pack, begin, end, 256, zero, put_q4_k);
}

/* Byte i of row r becomes byte r of row i. */
static inline void put_transposed(const struct block_rows *rows, int at, uint8_t *to)
{
    uint8x16_t row[16], next[16];
    for (int r = 0; r < 16; r++)
        row[r] = vld1q_u8(rows->block[r] + at);
    for (int i = 0; i < 4; i++) {
        for (int r = 0; r < 8; r++) {
            next[2 * r] = vzip1q_u8(row[r], row[r + 8]);
            next[2 * r + 1] = vzip2q_u8(row[r], row[r + 8]);
        }
        memcpy(row, next, sizeof row);
    }
    for (int r = 0; r < 16; r++)
        vst1q_u8(to + r * TILE_ROWS, row[r]);
}

/* 128 inputs are 64 bytes of nibbles and 32 of fields; a sixteenth of their bytes has four groups of 16
 * inputs, 32 apart: low nibbles of the first and second 32 bytes, then high ones. */
static void put_q6_k(const struct block_rows *rows, int k, uint8_t *unit)
{
    enum { GROUP_BYTES = 3 * STEP_BYTES };
    uint8_t *steps = unit + 64 + 2 * 16 * TILE_ROWS + k * 16 * GROUP_BYTES;
    put_halves(rows, 208, unit + k * 2 * TILE_ROWS);
    put_transposed(rows, 192, unit + 64 + k * 16 * TILE_ROWS);
    for (int i = 0; i < 4; i++)
        for (int v = 0; v < 4; v++) {
            uint8_t *to = steps + (i / 2 * 8 + i % 2) * GROUP_BYTES;
            uint8x16_t first[4], second[4], high[4];
            quads_at(rows, v, i / 2 * 64 + i % 2 * 16, first);
            quads_at(rows, v, i / 2 * 64 + i % 2 * 16 + 32, second);
            quads_at(rows, v, 128 + i * 16, high);
            put_low_nibbles(first, v, to);
            put_low_nibbles(second, v, to + 2 * GROUP_BYTES);
            put_high_nibbles(first, v, to + 4 * GROUP_BYTES);
            put_high_nibbles(second, v, to + 6 * GROUP_BYTES);
            for (int field = 0; field < 4; field++, to += 2 * GROUP_BYTES) {
                vst1q_u8(to + 2 * STEP_BYTES + 16 * v, joined_fields(high));
                for (int quad = 0; quad < 4; quad++)
                    high[quad] = vshrq_n_u8(high[quad], 2);
            }
        }
}

void pack_q6_k_neon(const union job *job, int begin, int end)
{
    static const uint8_t zero[210] = {[128 ... 191] = 0xaa}; /* code 32 */
    pack_blocks(&job->pack, begin, end, 256, zero, put_q6_k);
}
