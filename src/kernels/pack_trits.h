/* The common part of all pack kernels for trits: rows, scales and groups. An instruction set adds
 * how codes are extracted and how steps are made of them. */
#ifndef TRINE_KERNELS_PACK_TRITS_H
#define TRINE_KERNELS_PACK_TRITS_H

#include "kernels/kernels.h"

/* Codes of blocks [block0, block0 + n_blocks) of a row of a ternary tensor, one byte each. scratch:
 * n_cols codes and n_cols / 64 + 1 floats. */
typedef void trits_expand(const struct tensor *t, int64_t row, int64_t block0, int64_t n_blocks,
                          uint8_t *codes, uint8_t *scratch);

/* Steps of 16 rows of codes, `stride` apart. Up to 128 bytes may be read beyond the inputs of the
 * steps. */
typedef void trits_fold(const uint8_t *codes, int64_t stride, int64_t n_steps, uint8_t *steps);

/* By the plain decoder. */
trits_expand trits_expand_plain;

/* Packs rows [begin, end) of the job; sources that are not of a ternary format must have ternary
 * values (packing_choose). The scale of a packed group is the first one of its source
 * groups that is not 0 and belongs to codes that are not all zeros, else the first that is not 0,
 * else 0. */
void pack_trits(const struct pack_job *job, int begin, int end, trits_expand *expand,
                trits_fold *fold);

/* The first block of a row; in a format of interleaved rows, of its rows. */
const uint8_t *pack_trits_blocks(const struct tensor *t, int64_t row);

/* A trits_expand of an instruction set that has expand_block for formats of 2 bits, and leaves the others to
 * the plain decoder. lane: of the row in a format of interleaved rows. */
typedef void trits_expand_block(enum format_id format, const uint8_t *block, int lane,
                                uint8_t *codes);
static inline __attribute__((always_inline)) void
trits_expand_2_bits(const struct tensor *t, int64_t row, int64_t block0, int64_t n_blocks,
                    uint8_t *codes, uint8_t *scratch, trits_expand_block *expand_block)
{
    const struct format *f = format_of(t->format);
    if (4 * f->block_bytes < f->block) {
        trits_expand_plain(t, row, block0, n_blocks, codes, scratch);
        return;
    }
    int64_t block_bytes = (int64_t)f->block_bytes * f->row_group;
    const uint8_t *p = pack_trits_blocks(t, row) + block0 * block_bytes;
    for (int64_t i = 0; i < n_blocks; i++, p += block_bytes, codes += f->block)
        expand_block(t->format, p, (int)(row % f->row_group), codes);
}

#endif
