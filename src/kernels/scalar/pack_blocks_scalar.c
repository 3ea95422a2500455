/* Q4_0 to Q8_0, IQ4_NL, Q2_K to Q6_K and IQ4_XS without loss: the same codes and scales in another order. */
#include <string.h>

#include "base/reader.h"
#include "kernels/pack_rows.h"

/* How blocks of a format become rows of a tile. block NULL: a row of zeros. */
typedef void put_block(const uint8_t *block, int group, int r, uint8_t *unit);

/* All units of some tiles. group: inputs of a block. */
static void pack_blocks(const struct pack_job *job, int begin, int end, int group, put_block *put)
{
    const struct packed *w = &job->w;
    int unit_inputs = packed_unit_inputs(w->packing, w->group);
    uint64_t unit_bytes = packed_tile_bytes(w->packing, w->group, unit_inputs);
    for (int64_t row = begin; row < end; row += TILE_ROWS) {
        uint8_t *tile = pack_tile(job, row);
        for (int64_t col = 0; col < w->n_cols; col += unit_inputs)
            memset(tile + (uint64_t)(col / unit_inputs) * unit_bytes, 0,
                   (size_t)packed_unit_header(w->packing, w->group));
        for (int r = 0; r < TILE_ROWS; r++) {
            struct pack_source from = pack_source(job, row + r);
            const uint8_t *block = from.tensor ? pack_source_block(job, from) : NULL;
            int block_bytes = block ? format_of(from.tensor->format)->block_bytes : 0;
            for (int64_t col = 0; col < w->n_cols; col += group) {
                put(block, (int)(col % unit_inputs / group), r,
                    tile + (uint64_t)(col / unit_inputs) * unit_bytes);
                block = block ? block + block_bytes : NULL;
            }
        }
    }
}

static void put_half(uint8_t *halves, int group, int r, const uint8_t *half)
{
    if (half)
        store_u16(halves + 2 * (group * TILE_ROWS + r), load_u16(half));
}

/* The low four bits of 32 codes to four steps; returns the step behind them. */
static uint8_t *put_nibbles(const int code[32], int r, uint8_t *steps)
{
    for (int i = 0; i < 32; i += 8, steps += STEP_BYTES)
        for (int j = i; j < i + 4; j++)
            steps[4 * r + j % 4] = (uint8_t)((code[j] & 15) | (code[j + 4] & 15) << 4);
    return steps;
}

/* The fifth bits. */
static uint8_t *put_fifths(const int code[32], int r, uint8_t *step)
{
    for (int j = 0; j < 4; j++) {
        int bits = 0;
        for (int quad = 0; quad < 8; quad++)
            bits |= code[4 * quad + j] >> 4 << quad;
        step[4 * r + j] = (uint8_t)bits;
    }
    return step + STEP_BYTES;
}

/* Code i of a block of 32: behind d and a minimum, if it has one, 4 bytes of fifth bits, if it has
 * them, and nibbles. */
static int code_of_32(const uint8_t *block, bool has_min, bool has_fifth, int i)
{
    const uint8_t *fifths = block + 2 + 2 * has_min, *nibbles = fifths + 4 * has_fifth;
    int low = nibbles[i % 16] >> (i < 16 ? 0 : 4) & 15;
    return has_fifth ? low | (fifths[i / 8] >> i % 8 & 1) << 4 : low;
}

/* zero: the code of a row of zeros. */
static void put_32(const uint8_t *block, int group, int r, uint8_t *unit, bool has_min,
                   bool has_fifth, int zero)
{
    uint8_t *steps = unit + 64 + 64 * has_min + group * (4 + has_fifth) * STEP_BYTES;
    int code[32];
    put_half(unit, group, r, block);
    if (has_min)
        put_half(unit + 64, group, r, block ? block + 2 : NULL);
    for (int i = 0; i < 32; i++)
        code[i] = block ? code_of_32(block, has_min, has_fifth, i) : zero;
    steps = put_nibbles(code, r, steps);
    if (has_fifth)
        put_fifths(code, r, steps);
}

static void put_q4_0(const uint8_t *block, int group, int r, uint8_t *unit)
{
    put_32(block, group, r, unit, false, false, 8);
}

static void put_q4_1(const uint8_t *block, int group, int r, uint8_t *unit)
{
    put_32(block, group, r, unit, true, false, 0);
}

static void put_q5_0(const uint8_t *block, int group, int r, uint8_t *unit)
{
    put_32(block, group, r, unit, false, true, 16);
}

static void put_q5_1(const uint8_t *block, int group, int r, uint8_t *unit)
{
    put_32(block, group, r, unit, true, true, 0);
}

static void put_q8_0(const uint8_t *block, int group, int r, uint8_t *unit)
{
    uint8_t *steps = unit + 64 + group * 8 * STEP_BYTES;
    put_half(unit, group, r, block);
    for (int i = 0; i < 32; i++)
        steps[i / 4 * STEP_BYTES + 4 * r + i % 4] = (uint8_t)((block ? block[2 + i] : 0) ^ 128);
}

/* The 6 bits of weight i; 32 for a row of zeros. */
static int q6_k_code(const uint8_t *block, int i)
{
    if (!block)
        return 32;
    int half = i / 128, l = i % 32, quarter = i % 128 / 32;
    int low = block[64 * half + l + 32 * (quarter & 1)] >> 4 * (quarter >> 1) & 15;
    int high = block[128 + 32 * half + l] >> 2 * quarter & 3;
    return low | high << 4;
}

static void put_q6_k(const uint8_t *block, int group, int r, uint8_t *unit)
{
    uint8_t *scales = unit + 64 + group * 16 * TILE_ROWS;
    uint8_t *steps = unit + 64 + 2 * 16 * TILE_ROWS + group * 16 * 3 * STEP_BYTES;
    put_half(unit, group, r, block ? block + 208 : NULL);
    for (int k = 0; k < 16; k++, steps += 3 * STEP_BYTES) {
        scales[k * TILE_ROWS + r] = block ? block[192 + k] : 0;
        for (int j = 0; j < 4; j++) {
            int code[4];
            for (int quad = 0; quad < 4; quad++)
                code[quad] = q6_k_code(block, 16 * k + 4 * quad + j);
            uint8_t *to = steps + 4 * r + j;
            to[0] = (uint8_t)((code[0] & 15) | (code[1] & 15) << 4);
            to[STEP_BYTES] = (uint8_t)((code[2] & 15) | (code[3] & 15) << 4);
            to[2 * STEP_BYTES] =
                (uint8_t)(code[0] >> 4 | code[1] >> 4 << 2 | code[2] >> 4 << 4 | code[3] >> 4 << 6);
        }
    }
}

/* Code i of Q4_K and Q5_K; 0 for a row of zeros. high: the fifth bits, or NULL. */
static int q45_k_code(const uint8_t *codes, const uint8_t *high, int i)
{
    if (!codes)
        return 0;
    int low = codes[i / 64 * 32 + i % 32] >> 4 * (i / 32 % 2) & 15;
    return low | (high ? (high[i % 32] >> i / 32 & 1) << 4 : 0);
}

/* The 12 bytes of scales of a row. */
static void put_k_lines(const uint8_t *scales, int r, uint8_t *unit)
{
    for (int i = 0; scales && i < 12; i++)
        unit[PACKED_K_LINES_AT + i / 4 * STEP_BYTES + 4 * r + i % 4] = scales[i];
}

static void put_k_header(const uint8_t *block, int r, uint8_t *unit)
{
    put_half(unit, 0, r, block);
    put_half(unit, 1, r, block ? block + 2 : NULL);
    put_k_lines(block ? block + 4 : NULL, r, unit);
}

static void put_q4_k(const uint8_t *block, int group, int r, uint8_t *unit)
{
    (void)group;
    uint8_t *steps = unit + packed_unit_header(PACKING_q4_k, 256);
    put_k_header(block, r, unit);
    for (int first = 0; first < 256; first += 32) {
        int code[32];
        for (int i = 0; i < 32; i++)
            code[i] = q45_k_code(block ? block + 16 : NULL, NULL, first + i);
        steps = put_nibbles(code, r, steps);
    }
}

static void put_q5_k(const uint8_t *block, int group, int r, uint8_t *unit)
{
    (void)group;
    uint8_t *steps = unit + packed_unit_header(PACKING_q5_k, 256);
    put_k_header(block, r, unit);
    for (int first = 0; first < 256; first += 32) {
        int code[32];
        for (int i = 0; i < 32; i++)
            code[i] = q45_k_code(block ? block + 48 : NULL, block ? block + 16 : NULL, first + i);
        steps = put_fifths(code, r, put_nibbles(code, r, steps));
    }
}

static void put_q2_k(const uint8_t *block, int group, int r, uint8_t *unit)
{
    (void)group;
    uint8_t *to = unit + 64 + 4 * r;
    put_half(unit, 0, r, block ? block + 80 : NULL);
    put_half(unit, 1, r, block ? block + 82 : NULL);
    for (int i = 0; block && i < 16; i++)
        to[i / 4 * STEP_BYTES + i % 4] = block[i];
    to += 4 * STEP_BYTES;
    for (int first = 0; first < 256; first += 16, to += STEP_BYTES)
        for (int j = 0; j < 4; j++) {
            int byte = 0;
            for (int quad = 0; block && quad < 4; quad++) {
                int i = first + 4 * quad + j;
                byte |= (block[16 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3) << 2 * quad;
            }
            to[j] = (uint8_t)byte;
        }
}

/* Code i of Q3_K; 4, the value 0, for a row of zeros. */
static int q3_k_code(const uint8_t *block, int i)
{
    if (!block)
        return 4;
    int low = block[32 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
    return low | (block[i % 32] >> i / 32 & 1) << 2;
}

static void put_q3_k(const uint8_t *block, int group, int r, uint8_t *unit)
{
    (void)group;
    uint8_t *to = unit + packed_unit_header(PACKING_q3_k, 256) + 4 * r;
    put_half(unit, 0, r, block ? block + 108 : NULL);
    put_k_lines(block ? block + 96 : NULL, r, unit);
    for (int first = 0; first < 256; first += 32, to += 3 * STEP_BYTES)
        for (int j = 0; j < 4; j++) {
            int code[8];
            for (int quad = 0; quad < 8; quad++)
                code[quad] = q3_k_code(block, first + 4 * quad + j);
            int high = code[6] >> 2 << 6 | code[7] >> 2 << 7;
            to[j] = (uint8_t)(code[0] | code[1] << 3 | code[6] << 6);
            to[STEP_BYTES + j] = (uint8_t)(code[2] | code[3] << 3 | code[7] << 6);
            to[2 * STEP_BYTES + j] = (uint8_t)(code[4] | code[5] << 3 | high);
        }
}

/* 8 for a row of zeros, the code of the value nearest to it. */
static void put_iq4_xs(const uint8_t *block, int group, int r, uint8_t *unit)
{
    (void)group;
    uint8_t *steps = unit + packed_unit_header(PACKING_iq4_xs, 256);
    put_half(unit, 0, r, block);
    for (int i = 0; block && i < 8; i++) {
        int low = block[4 + i / 2] >> i % 2 * 4 & 15, high = block[2 + i / 4] >> i % 4 * 2 & 3;
        unit[64 + 4 * r + i % 4] |= (uint8_t)(low << i / 4 * 4);
        unit[32 + 2 * r + i % 4 / 2] |= (uint8_t)(high << (i % 2 * 4 + i / 4 * 2));
    }
    for (int first = 0; first < 256; first += 32) {
        int code[32];
        for (int i = 0; i < 32; i++)
            code[i] = block ? block[8 + first / 2 + i % 16] >> i / 16 * 4 & 15 : 8;
        steps = put_nibbles(code, r, steps);
    }
}

void pack_q4_0_scalar(const union job *job, int begin, int end)
{
    pack_blocks(&job->pack, begin, end, 32, put_q4_0);
}

void pack_q4_1_scalar(const union job *job, int begin, int end)
{
    pack_blocks(&job->pack, begin, end, 32, put_q4_1);
}

void pack_q5_0_scalar(const union job *job, int begin, int end)
{
    pack_blocks(&job->pack, begin, end, 32, put_q5_0);
}

void pack_q5_1_scalar(const union job *job, int begin, int end)
{
    pack_blocks(&job->pack, begin, end, 32, put_q5_1);
}

void pack_q8_0_scalar(const union job *job, int begin, int end)
{
    pack_blocks(&job->pack, begin, end, 32, put_q8_0);
}

void pack_q6_k_scalar(const union job *job, int begin, int end)
{
    pack_blocks(&job->pack, begin, end, 256, put_q6_k);
}

void pack_q4_k_scalar(const union job *job, int begin, int end)
{
    pack_blocks(&job->pack, begin, end, 256, put_q4_k);
}

void pack_q5_k_scalar(const union job *job, int begin, int end)
{
    pack_blocks(&job->pack, begin, end, 256, put_q5_k);
}

void pack_q2_k_scalar(const union job *job, int begin, int end)
{
    pack_blocks(&job->pack, begin, end, 256, put_q2_k);
}

void pack_q3_k_scalar(const union job *job, int begin, int end)
{
    pack_blocks(&job->pack, begin, end, 256, put_q3_k);
}

void pack_iq4_xs_scalar(const union job *job, int begin, int end)
{
    pack_blocks(&job->pack, begin, end, 256, put_iq4_xs);
}
