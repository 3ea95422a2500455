/* F32, F16, BF16: plain numbers, little-endian, one after the other. Encoding rounds to nearest,
 * ties to even; what F16 cannot hold becomes infinite. */
#include "base/float16.h"
#include "base/reader.h"
#include "tensor/format_codecs.h"

void decode_f32(const struct tensor *t, int64_t row0, int64_t row1, float *out)
{
    const uint8_t *p = t->data + 4 * row0 * t->n_cols;
    for (int64_t i = 0; i < (row1 - row0) * t->n_cols; i++)
        out[i] = load_f32(p + 4 * i);
}

void decode_f16(const struct tensor *t, int64_t row0, int64_t row1, float *out)
{
    const uint8_t *p = t->data + 2 * row0 * t->n_cols;
    for (int64_t i = 0; i < (row1 - row0) * t->n_cols; i++)
        out[i] = f16_to_f32(load_u16(p + 2 * i));
}

void decode_bf16(const struct tensor *t, int64_t row0, int64_t row1, float *out)
{
    const uint8_t *p = t->data + 2 * row0 * t->n_cols;
    for (int64_t i = 0; i < (row1 - row0) * t->n_cols; i++)
        out[i] = bf16_to_f32(load_u16(p + 2 * i));
}

void encode_f32(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    for (int64_t i = 0; i < n_rows * n_cols; i++)
        store_f32(out + 4 * i, src[i]);
}

void encode_f16(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    for (int64_t i = 0; i < n_rows * n_cols; i++)
        store_u16(out + 2 * i, f32_to_f16(src[i]));
}

void encode_bf16(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)
{
    for (int64_t i = 0; i < n_rows * n_cols; i++)
        store_u16(out + 2 * i, f32_to_bf16(src[i]));
}
