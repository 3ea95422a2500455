/* Packed codes to bytes, on registers of 256 bits: half a step, the quads of 8 rows, at a time. */
#ifndef TRINE_KERNELS_X86_MATMUL_CODES_256_H
#define TRINE_KERNELS_X86_MATMUL_CODES_256_H

#include "kernels/x86/matmul_avx2.h"
#include "tensor/iq4_values.h"

/* Quad k (0 to 7) of 32 inputs: nibbles and, behind their four steps if has_fifth, fifth bits. */
ALWAYS_INLINE __m256i unpack_nibbles(const uint8_t *half, int k, bool has_fifth)
{
    __m256i step = load_256(half + k / 2 * STEP_BYTES);
    __m256i codes = _mm256_and_si256(_mm256_srli_epi16(step, k % 2 * 4), _mm256_set1_epi8(15));
    if (!has_fifth)
        return codes;
    __m256i bits = load_256(half + 4 * STEP_BYTES);
    bits = k < 4 ? _mm256_slli_epi16(bits, 4 - k) : _mm256_srli_epi16(bits, k - 4);
    return _mm256_or_si256(codes, _mm256_and_si256(bits, _mm256_set1_epi8(16)));
}

/* The values of iq4_nl and iq4_xs, and `more`, by their codes. */
ALWAYS_INLINE __m256i iq4_table(int more)
{
    __m128i values = _mm_loadu_si128((const __m128i *)iq4_values);
    return _mm256_broadcastsi128_si256(_mm_add_epi8(values, _mm_set1_epi8((char)more)));
}

/* Quad k of 32 inputs of q3_k, in three steps. */
ALWAYS_INLINE __m256i unpack_3_bits(const uint8_t *half, int k)
{
    if (k < 6) {
        __m256i step = load_256(half + k / 2 * STEP_BYTES);
        return _mm256_and_si256(_mm256_srli_epi16(step, k % 2 * 3), _mm256_set1_epi8(7));
    }
    __m256i low = load_256(half + (k - 6) * STEP_BYTES);
    __m256i high = _mm256_srli_epi16(load_256(half + 2 * STEP_BYTES), k - 2);
    low = _mm256_srli_epi16(_mm256_and_si256(low, _mm256_set1_epi8((char)0xc0)), 6);
    return _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(4)));
}

/* Packings of blocks of 256. */
enum k_kind { Q4_K, Q5_K, Q2_K, Q3_K, IQ4_XS };

/* Quad k of one half of 32 inputs: codes, of iq4_xs values with 128 added. */
ALWAYS_INLINE __m256i unpack_k_quad(enum k_kind kind, const uint8_t *half, int k)
{
    if (kind == Q3_K)
        return unpack_3_bits(half, k);
    if (kind == IQ4_XS)
        return _mm256_shuffle_epi8(iq4_table(128), unpack_nibbles(half, k, false));
    if (kind != Q2_K)
        return unpack_nibbles(half, k, kind == Q5_K);
    __m256i step = load_256(half + k / 4 * STEP_BYTES);
    return _mm256_and_si256(_mm256_srli_epi16(step, k % 4 * 2), _mm256_set1_epi8(3));
}

enum { GROUP = 32, GROUP_STEPS = 4, GROUP_QUADS = 8 };

/* A packing with a scale for each block of 32; constant in every template. */
struct blocks {
    int zero;       /* the code of value 0, or what is added to values of a table */
    bool has_fifth; /* behind the four steps of a group, one of fifth bits */
    bool has_min;   /* behind the scales of a unit, its minimums */
    bool is_iq4;    /* codes stand for the values of a table */
};

/* What quad k of one half of a group is multiplied with. */
ALWAYS_INLINE __m256i unpack_block_quad(const struct blocks *b, const uint8_t *half, int k)
{
    __m256i codes = unpack_nibbles(half, k, b->has_fifth);
    return b->is_iq4 ? _mm256_shuffle_epi8(iq4_table(b->zero), codes) : codes;
}

#endif
