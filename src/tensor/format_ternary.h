/* What the ternary formats share: a layout turns one block of bytes to codes and back; where its
 * scale lies follows from the table of formats. Codes 0, 1, 2 are -1, 0, +1; the 2-bit layouts can
 * also hold 3 = +2. For the files of this folder only. */
#ifndef TRINE_TENSOR_FORMAT_TERNARY_H
#define TRINE_TENSOR_FORMAT_TERNARY_H

#include "tensor/tensor.h"

enum { TERNARY_MAX_BLOCK = 256 };

/* One block of a row. lane: which of the rows that are interleaved in these bytes, else 0.
 * pack overwrites only the bits of its lane, so interleaved bytes must begin as zeros. */
struct ternary_layout {
    void (*unpack)(const uint8_t *block, int lane, uint8_t *codes);
    void (*pack)(const uint8_t *codes, int lane, uint8_t *block);
    bool has_code_3;
};

extern const struct ternary_layout layout_tq1_0, layout_tq2_0, layout_ptq1_0;
extern const struct ternary_layout layout_q2_0, layout_q2_0_g128; /* the latter also of PQ2_0 */
extern const struct ternary_layout layout_iq1_bn, layout_iq2_bn, layout_iq2_bn_r4;
extern const struct ternary_layout layout_i2_s, layout_i2_s_4row, layout_i2_s_arm;

/* The layout of a ternary format. */
const struct ternary_layout *ternary_layout_of(enum format_id id);

/* Weights per scale in a row of n_cols; n_cols where one scale serves the row or the tensor. */
int64_t ternary_group(enum format_id id, int64_t n_cols);

/* Byte of the scale of group `group` of a row. */
int64_t ternary_scale_at(enum format_id id, int64_t n_rows, int64_t n_cols, int64_t row,
                         int64_t group);

/* Reads or writes a scale as the format stores it. */
float ternary_load_scale(enum format_id id, const uint8_t *p);
void ternary_store_scale(enum format_id id, float scale, uint8_t *p);

/* Codes of one row, all blocks. data: start of the tensor. */
void ternary_unpack_row(enum format_id id, const uint8_t *data, int64_t n_cols, int64_t row,
                        uint8_t *codes);

/* Base-3 digit n of a byte of five, the most significant being 0. Bytes are fractions of 256:
 * times 3, the integer part is the next digit. Every byte value gives digits 0..2. */
static inline uint8_t trit_digit(uint8_t byte, int n)
{
    static const uint8_t powers[5] = {1, 3, 9, 27, 81};
    uint8_t rest = (uint8_t)(byte * powers[n]);
    return (uint8_t)(rest * 3 >> 8);
}

/* The byte of five digits, given as their number 0..242: rounded up, else digits would be lost. */
static inline uint8_t trit_byte(int number)
{
    return (uint8_t)((number * 256 + 242) / 243);
}

/* n bytes of `per_byte` trits each, the digits of one byte `n` codes apart, most significant first;
 * missing digits of a byte are zeros at its low end. */
static inline void unpack_trits(const uint8_t *restrict bytes, int n, int per_byte,
                                uint8_t *restrict codes)
{
    for (int digit = 0; digit < per_byte; digit++)
        for (int i = 0; i < n; i++)
            codes[digit * n + i] = trit_digit(bytes[i], digit);
}

static inline void pack_trits(const uint8_t *restrict codes, int n, int per_byte,
                              uint8_t *restrict bytes)
{
    for (int i = 0; i < n; i++) {
        int number = 0;
        for (int digit = 0; digit < 5; digit++)
            number = number * 3 + (digit < per_byte ? codes[digit * n + i] : 0);
        bytes[i] = trit_byte(number);
    }
}

/* n bytes of four 2-bit codes, the codes of one byte `n` apart, lowest bits first. */
static inline void unpack_strided(const uint8_t *restrict bytes, int n, uint8_t *restrict codes)
{
    for (int part = 0; part < 4; part++)
        for (int i = 0; i < n; i++)
            codes[part * n + i] = bytes[i] >> 2 * part & 3;
}

static inline void pack_strided(const uint8_t *restrict codes, int n, uint8_t *restrict bytes)
{
    for (int i = 0; i < n; i++)
        bytes[i] =
            (uint8_t)(codes[i] | codes[n + i] << 2 | codes[2 * n + i] << 4 | codes[3 * n + i] << 6);
}

#endif
