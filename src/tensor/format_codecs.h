/* Decoders and encoders that the table of formats.c points to, and the address of a block. For the
 * files of this folder only; everything else goes through the table. */
#ifndef TRINE_TENSOR_FORMAT_CODECS_H
#define TRINE_TENSOR_FORMAT_CODECS_H

#include "tensor/tensor.h"

format_decode decode_f32, decode_f16, decode_bf16;
format_decode decode_q4_0, decode_q4_1, decode_q5_0, decode_q5_1, decode_q8_0;
format_decode decode_q2_k, decode_q3_k, decode_q4_k, decode_q5_k, decode_q6_k, decode_q8_k;
format_decode decode_iq4_nl, decode_iq4_xs;
format_decode decode_tq2_t, decode_tqk6, decode_tqk7;

/* One decoder for all ternary formats: codes of the layout, minus one, times the scale. */
format_decode decode_ternary, decode_q1_0;

format_encode encode_f32, encode_f16, encode_bf16;
format_encode encode_q4_0, encode_q4_1, encode_q5_0, encode_q5_1, encode_q8_0;
format_encode encode_q2_k, encode_q3_k, encode_q4_k, encode_q5_k, encode_q6_k;
format_encode encode_q1_0, encode_q2_0, encode_q2_0_g128, encode_pq2_0, encode_ptq1_0;
format_encode encode_tq1_0, encode_tq2_0, encode_i2_s, encode_i2_s_4row, encode_i2_s_arm;
format_encode encode_iq1_bn, encode_iq2_bn, encode_iq2_bn_r4;

/* Decodes one block to as many floats as the format's block has. */
typedef void block_decode(const uint8_t *block, float *out);

/* Decodes rows of a format whose rows are nothing but blocks. */
void decode_blocks(const struct tensor *t, int64_t row0, int64_t row1, float *out,
                   block_decode *decode);

/* Byte of block `block` of a row (of the whole group of rows, where rows are interleaved). */
int64_t format_block_at(const struct format *format, int64_t n_cols, int64_t row, int64_t block);

#endif
