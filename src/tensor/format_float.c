/* F32, F16, BF16: plain numbers, little-endian, one after the other. Encoding rounds to nearest,
 * ties to even; what F16 cannot hold becomes infinite. */
#include "base/float16.h"
#include "base/reader.h"
#include "tensor/format_codecs.h"

/* Loops over a constant number of weights vectorise. */
enum { PIECE = 32 };

#define DECODER(name, bytes, value_at)                                                             \
    static inline void name##_piece(const uint8_t *restrict p, int n, float *restrict out)         \
    {                                                                                              \
        for (int i = 0; i < n; i++, p += bytes)                                                    \
            out[i] = value_at;                                                                     \
    }                                                                                              \
    void name(const struct tensor *t, int64_t row0, int64_t row1, float *out)                      \
    {                                                                                              \
        const uint8_t *p = t->data + bytes * row0 * t->n_cols;                                     \
        int64_t n = (row1 - row0) * t->n_cols, i = 0;                                              \
        for (; i + PIECE <= n; i += PIECE)                                                         \
            name##_piece(p + bytes * i, PIECE, out + i);                                           \
        name##_piece(p + bytes * i, (int)(n - i), out + i);                                        \
    }

DECODER(decode_f32, 4, load_f32(p))
DECODER(decode_f16, 2, f16_to_f32(load_u16(p)))
DECODER(decode_bf16, 2, bf16_to_f32(load_u16(p)))

#define ENCODER(name, bytes, store)                                                                \
    static inline void name##_piece(const float *restrict src, int n, uint8_t *restrict p)         \
    {                                                                                              \
        for (int i = 0; i < n; i++, p += bytes)                                                    \
            store;                                                                                 \
    }                                                                                              \
    void name(const float *src, int64_t n_rows, int64_t n_cols, uint8_t *out)                      \
    {                                                                                              \
        int64_t n = n_rows * n_cols, i = 0;                                                        \
        for (; i + PIECE <= n; i += PIECE)                                                         \
            name##_piece(src + i, PIECE, out + bytes * i);                                         \
        name##_piece(src + i, (int)(n - i), out + bytes * i);                                      \
    }

ENCODER(encode_f32, 4, store_f32(p, src[i]))
ENCODER(encode_f16, 2, store_u16(p, f32_to_f16(src[i])))
ENCODER(encode_bf16, 2, store_u16(p, f32_to_bf16(src[i])))
