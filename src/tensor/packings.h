/* Packings: layouts of weight matrices in memory, as kernels want them. Many formats meet few
 * packings; kernels exist per packing.
 *
 * A packed matrix is a sequence of tiles of 16 rows (outputs). A tile is one sequential stream:
 * with one scale per row 16 f32 scales and then steps; otherwise units, each of the scales of some
 * groups of inputs (padded to 64 bytes) and then the steps of those inputs. A step is 64 bytes in
 * which bytes 4r..4r+3 belong to row r and every field of a byte 4r+j to input
 *     first input of the field's quad + j          (a quad is 4 consecutive inputs)
 *
 *   packing   bits per byte     inputs per step   inputs per scale       a unit
 *   trits4    4 fields of 2     16: quad f        row; 64, 128, 256      2 groups
 *   trits5    5 trits           20: quad f        row; 64, 128, 256      1280 inputs
 *   q4_0      2 fields of 4     8: quad f         32                     2 groups
 *   q8_0      1 of 8            4                 32                     2 groups
 *   q4_1      2 fields of 4     8: quad f         32 (d, m)              2 groups
 *   q5_0      see below         32 in 5 steps     32                     2 groups
 *   q5_1      see below         32 in 5 steps     32 (d, m)              2 groups
 *   iq4_nl    2 fields of 4     8: quad f         32                     2 groups
 *   q6_k      see below         16 in 3 steps     256 (d), 16 (int8)     2 blocks of 256
 *   q4_k      2 fields of 4     8: quad f         256 (d, dmin), 32      a block of 256
 *   q5_k      see below         32 in 5 steps     256 (d, dmin), 32      a block of 256
 *   q2_k      4 fields of 2     16: quad f        256 (d, dmin), 16      a block of 256
 *   q3_k      see below         32 in 3 steps     256 (d), 16            a block of 256
 *   iq4_xs    2 fields of 4     8: quad f         256 (d), 32            a block of 256
 *   f16,bf16  one half a row    2                 -                      -
 *   f32       one f32 a row     1                 -                      -
 *
 * Scales of groups are f16, 16 rows of the unit's first group, then 16 of the next. The header has
 * the same size in every unit; a last unit with fewer inputs has zeros there, and holds only the
 * steps it needs. n_cols is a multiple of the group. Minimums (m) are a second line of 64 bytes.
 *
 * Codes: trits4 holds value + 1 (0..2; 3 for +2 where a format has it); trits5 see trits5_code;
 * q4_0 the nibble of the format (value + 8), iq4_nl too (it stands for one of iq4_values); q4_1 and
 * q5_1 the code (value = d * code + m); q5_0 value + 16; q8_0 value + 128; q6_k the 6 bits of the
 * format (value + 32): for 16 inputs two steps of low nibbles (8 inputs each, as q4_0), then one step of the high
 * 2 bits (as trits4). Its unit: 2 x 16 f16 d (64 bytes), then 2 x 16 groups x 16 rows of int8
 * scales (512 bytes; group major), then 2 x 16 x 3 steps. f16 and bf16: 32 bytes of each of two
 * inputs.
 *
 * q4_k and q5_k hold the codes and the 12 bytes of 6-bit scales and minimums of their formats (value
 * = d * scale * code - dmin * minimum; see packed_k_scales). A unit: 16 f16 d, 16 f16 dmin, the 12
 * bytes as three lines of which line i has bytes 4i..4i+3 of row r at 4r, then 8 groups of 32 inputs:
 * four steps of low nibbles (as q4_0) and, for q5_k, one of fifth bits (bit f of a byte: quad f). So
 * are 32 inputs of q5_0 and q5_1.
 * q2_k the same with the 16 bytes of scales (low 4 bits) and minimums of its format as four lines,
 * and 16 steps as those of trits4.
 *
 * q3_k holds the 3-bit codes and the 12 bytes of 6-bit scales of its format (value = d * scale * (code
 * - 4); see packed_q3_k_scale). A unit: 16 f16 d, 32 zero bytes, the 12 bytes as three lines as above,
 * then 8 times 32 inputs in three steps: quads 2s and 2s + 1 are the low 3 and the next 3 bits of step s;
 * the low 2 bits of quads 6 and 7 are the upper 2 of steps 0 and 1, their high bits bits 6 and 7 of
 * step 2. That needs fewer instructions than a plane of 2 bits and one of 1: six of eight quads are
 * plain fields.
 * iq4_xs holds the nibbles of its format, which stand for iq4_values, and its 6-bit scales (value = d *
 * scale * iq4_values[code]; see packed_iq4_xs_scale). A unit: 16 f16 d; 16 u16 of the upper two bits, of
 * groups i and i + 4 (i = 0..3) at bits 4i and 4i + 2; a line with the lower four bits of row r and these
 * groups in the lower and upper half of byte 4r + i; then 32 steps as those of q4_0.
 *
 * Rows beyond the last are zeros: the code of value 0 (iq4_nl and iq4_xs: 8, the value nearest to 0), scale
 * and minimum 0 (so are trits whose scale is 0).
 * Inputs beyond the last are code 0 in all rows, and their activations are 0, so that they add
 * nothing.
 * source  why this shape: docs/measurements/kernels.md */
#ifndef TRINE_TENSOR_PACKINGS_H
#define TRINE_TENSOR_PACKINGS_H

#include "tensor/ternary.h"

#define PACKING_LIST(X)                                                                            \
    X(trits4)                                                                                      \
    X(trits5)                                                                                      \
    X(q4_0)                                                                                        \
    X(q8_0)                                                                                        \
    X(q6_k)                                                                                        \
    X(q4_k)                                                                                        \
    X(q5_k)                                                                                        \
    X(q2_k)                                                                                        \
    X(q4_1)                                                                                        \
    X(q5_0)                                                                                        \
    X(q5_1)                                                                                        \
    X(iq4_nl)                                                                                      \
    X(q3_k)                                                                                        \
    X(iq4_xs)                                                                                      \
    X(f16)                                                                                         \
    X(bf16)                                                                                        \
    X(f32)

#define PACKING_ENUM(name) PACKING_##name,
enum packing { PACKING_none, PACKING_LIST(PACKING_ENUM) N_PACKINGS };
#undef PACKING_ENUM

#define TILE_ROWS  16
#define STEP_BYTES 64

/* A packed matrix, or a slice of one. */
struct packed {
    enum packing packing;
    int group;      /* trits: inputs per scale, 0: one scale per row; others: as the table above */
    int64_t n_rows; /* real rows; the last tile may have more */
    int64_t n_cols; /* real inputs */
    uint8_t *data;  /* borrowed: 64-byte aligned, packed_bytes() */
};

/* What a packing multiplies: activations are int8 with one scale per act_group inputs (0: one per
 * token) and one sum per sum_group inputs (0: one per token), or floats (is_float). */
struct packing_needs {
    bool is_float;
    int act_group, sum_group;
};

const char *packing_name(enum packing packing);
struct packing_needs packing_needs(enum packing packing, int group);

static inline bool packing_needs_same(struct packing_needs a, struct packing_needs b)
{
    return a.is_float == b.is_float && a.act_group == b.act_group && a.sum_group == b.sum_group;
}

/* The packing's own inputs per scale, where it has one: 32, 256; 0 for trits and floats. */
int packing_group(enum packing packing);

/* Sizes. tile: all units of 16 rows. */
uint64_t packed_tile_bytes(enum packing packing, int group, int64_t n_cols);
uint64_t packed_bytes(enum packing packing, int group, int64_t n_rows, int64_t n_cols);
int packed_unit_inputs(enum packing packing, int group); /* 0: the whole row is one unit */
int packed_unit_header(enum packing packing, int group); /* bytes before a unit's steps */
int packed_step_inputs(enum packing packing);            /* inputs of packed_step_bytes of codes */
int packed_step_bytes(enum packing packing);             /* 64; q3_k, q6_k: 192; of 5 bits: 320 */

/* 5 trits t[0..4] (0..2) as the byte of trits5: v = t0 + 3 t1 + 9 t2 + 27 t3; v < 64: t4 << 6 | v,
 * else 192 | (17 t4 + v - 64). */
uint8_t trits5_code(const uint8_t t[5]);

/* The 6-bit scale and minimum of group i (0..7) of row r from the lines of a unit of q4_k or q5_k. */
void packed_k_scales(const uint8_t *unit, int r, int i, int *scale, int *min);
#define PACKED_K_LINES_AT 64 /* in a unit */

/* The scale (-32..31) of group i of row r from a unit; groups of 16 (q3_k) or 32 (iq4_xs). */
int packed_q3_k_scale(const uint8_t *unit, int r, int i);
int packed_iq4_xs_scale(const uint8_t *unit, int r, int i);

/* The code (0..7) of quad 0 to 7 of three steps of q3_k; byte: 4r + j. */
int packed_q3_k_code(const uint8_t *step, int byte, int quad);

/* How a tensor is best packed. */
struct packing_choice {
    enum packing packing; /* PACKING_none: this type has no packing of its own; decode to f32 */
    int group;            /* for struct packed; trits: of row, 256, 128, 64 the coarsest that
                             changes no value and divides n_cols */
    bool has_code3;       /* ternary with +2: trits5 cannot hold it */
    bool is_half; /* trits: all scales are f16 numbers, so that finer groups hold them too */
};

/* Looks at the scales and codes of all rows of a ternary tensor, and at the values of any other but
 * F32, until they are seen not to be ternary; not of one whose first 64 rows are all zeros. Groups of scale 0 or of zeros only constrain nothing.
 * F32 stays what it is: the type for which nothing is rounded. allow_trits5: prefer trits5 where
 * the tensor can take it. scratch: PACKING_CHOOSE_SCRATCH(n_cols) bytes, aligned to 4. */
struct packing_choice packing_choose(const struct tensor *t, bool allow_trits5, void *scratch);
#define PACKING_CHOOSE_SCRATCH(n_cols) TERNARY_SCRATCH(n_cols)

/* The same of rows [row0, row1) alone, multiples of the format's row_group. The choice for a tensor is
 * that for all its parts, joined in any order. */
struct packing_choice packing_choose_rows(const struct tensor *t, int64_t row0, int64_t row1,
                                          bool allow_trits5, void *scratch);
struct packing_choice packing_join(enum format_id format, struct packing_choice a,
                                   struct packing_choice b);

/* The finer of two groupings of inputs by scales; 0: the row. */
int packing_finer_group(int a, int b);

/* The choice for a format whose values are not ternary, from the format alone. */
struct packing_choice packing_of_format(enum format_id format);

static inline bool packing_is_trits(enum packing packing)
{
    return packing == PACKING_trits4 || packing == PACKING_trits5;
}

/* The exact values of rows [row0, row1) as floats, for tests: (row1 - row0, n_cols). */
void packed_decode(const struct packed *w, int64_t row0, int64_t row1, float *out);

#endif
