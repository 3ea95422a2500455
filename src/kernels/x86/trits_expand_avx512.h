/* Codes of ternary blocks by AVX-512: 64 at a time, straight from the bytes of each format. */
#ifndef TRINE_KERNELS_TRITS_EXPAND_AVX512_H
#define TRINE_KERNELS_TRITS_EXPAND_AVX512_H

#include <immintrin.h>
#include <string.h>

#include "kernels/pack_trits.h"

static inline __m512i lanes_avx512(int a, int b, int c, int d)
{
    return _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_set_m128i(_mm_set1_epi32(b), _mm_set1_epi32(a))),
        _mm256_set_m128i(_mm_set1_epi32(d), _mm_set1_epi32(c)), 1);
}

/* The two lowest bits of each byte after a shift of each dword. */
static inline void put_fields_avx512(uint8_t *codes, __m512i bytes, __m512i shifts)
{
    _mm512_storeu_si512(codes,
                        _mm512_and_si512(_mm512_srlv_epi32(bytes, shifts), _mm512_set1_epi8(3)));
}

/* n times 16 bytes whose fields are 16 codes apart, in the order of the shifts. */
static inline void expand_16_avx512(const uint8_t *p, int64_t n, __m512i shifts, uint8_t *codes)
{
    for (int64_t i = 0; i < n; i++, p += 16, codes += 64)
        put_fields_avx512(codes, _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)p)),
                          shifts);
}

/* n times 32 bytes whose fields are 32 codes apart. */
static inline void expand_32_avx512(const uint8_t *p, int64_t n, __m512i first, __m512i second,
                                    uint8_t *codes)
{
    for (int64_t i = 0; i < n; i++, p += 32, codes += 128) {
        __m512i bytes = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)p));
        put_fields_avx512(codes, bytes, first);
        put_fields_avx512(codes + 64, bytes, second);
    }
}

/* n times 16 bytes of four consecutive codes each, lowest bits first. */
static inline void expand_in_order_avx512(const uint8_t *p, int64_t n, uint8_t *codes)
{
    for (int64_t i = 0; i < n; i++, p += 16, codes += 64) {
        __m512i b = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
        __m512i spread = _mm512_or_si512(_mm512_slli_epi32(b, 6), _mm512_slli_epi32(b, 12));
        spread = _mm512_or_si512(_mm512_or_si512(b, spread), _mm512_slli_epi32(b, 18));
        _mm512_storeu_si512(codes, _mm512_and_si512(spread, _mm512_set1_epi8(3)));
    }
}

/* n blocks of 64 bytes with 64 codes of four rows: dword 4 l + lane holds codes 16 l on. */
static inline void expand_r4_avx512(const uint8_t *p, int64_t n, int lane, uint8_t *codes)
{
    __m512i own = _mm512_add_epi32(lanes_avx512(0, 4, 8, 12), _mm512_set1_epi32(lane));
    __m512i shifts = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 2, 4, 6));
    for (int64_t i = 0; i < n; i++, p += 64, codes += 64)
        put_fields_avx512(codes, _mm512_permutexvar_epi32(own, _mm512_loadu_si512(p)), shifts);
}

/* Each byte times another, modulo 256. */
static inline __m512i times_avx512(__m512i a, __m512i b)
{
    __m512i high = _mm512_set1_epi16((short)0xff00);
    __m512i even = _mm512_mullo_epi16(a, _mm512_andnot_si512(high, b));
    __m512i odd = _mm512_mullo_epi16(_mm512_and_si512(a, high), _mm512_srli_epi16(b, 8));
    return _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, even, odd);
}

/* The first base-3 digit of bytes as fractions of 256, after `powers` moved it to the front. */
static inline __m512i trits_avx512(__m512i bytes, __m512i powers)
{
    __m512i one = _mm512_set1_epi8(1), rest = times_avx512(bytes, powers);
    __mmask64 is_1 = _mm512_cmpge_epu8_mask(rest, _mm512_set1_epi8(86));
    __mmask64 is_2 = _mm512_cmpge_epu8_mask(rest, _mm512_set1_epi8((char)171));
    __m512i digit = _mm512_maskz_mov_epi8(is_1, one);
    return _mm512_mask_add_epi8(digit, is_2, digit, one);
}

static inline __m512i powers_avx512(int a, int b, int c, int d)
{
    return lanes_avx512(a * 0x01010101, b * 0x01010101, c * 0x01010101, d * 0x01010101);
}

static inline void expand_tq1_0_avx512(const uint8_t *p, int64_t n, uint8_t *codes)
{
    __m512i last_powers =
        _mm512_inserti32x4(powers_avx512(81, 81, 81, 0),
                           _mm_setr_epi32(0x01010101, 0x03030303, 0x09090909, 0x1b1b1b1b), 3);
    for (int64_t i = 0; i < n; i++, p += 54, codes += 256) {
        uint32_t four;
        memcpy(&four, p + 48, 4);
        __m256i b32 = _mm256_loadu_si256((const __m256i *)p);
        __m128i b16 = _mm_loadu_si128((const __m128i *)(p + 32));
        __m512i first = _mm512_broadcast_i64x4(b32), middle = _mm512_broadcast_i32x4(b16);
        /* The last digit of the first 32 bytes and of the next 16, then the last 4 bytes. */
        __m512i last =
            _mm512_inserti64x4(first, _mm256_set_m128i(_mm_set1_epi32((int)four), b16), 1);
        last = trits_avx512(last, last_powers);
        _mm512_storeu_si512(codes, trits_avx512(first, powers_avx512(1, 1, 3, 3)));
        _mm512_storeu_si512(codes + 64, trits_avx512(first, powers_avx512(9, 9, 27, 27)));
        _mm256_storeu_si256((__m256i *)(codes + 128), _mm512_castsi512_si256(last));
        _mm512_storeu_si512(codes + 160, trits_avx512(middle, powers_avx512(1, 3, 9, 27)));
        _mm256_storeu_si256((__m256i *)(codes + 224), _mm512_extracti64x4_epi64(last, 1));
    }
}

static inline void expand_ptq1_0_avx512(const uint8_t *p, int64_t n, uint8_t *codes)
{
    /* 16 bytes times 81; 8 bytes times 1, 3, 9, 27, 81; 2 bytes times 1, 3, 9, 27. */
    const int64_t each = 0x0101010101010101;
    __m512i last_powers = _mm512_setr_epi64(81 * each, 81 * each, each, 3 * each, 9 * each,
                                            27 * each, 81 * each, 0x1b1b090903030101);
    for (int64_t i = 0; i < n; i++, p += 28, codes += 128) {
        int64_t eight;
        int16_t two;
        memcpy(&eight, p + 16, 8);
        memcpy(&two, p + 24, 2);
        __m128i b16 = _mm_loadu_si128((const __m128i *)p);
        __m512i last = _mm512_inserti32x4(_mm512_set1_epi64(eight), b16, 0);
        last = _mm512_mask_blend_epi64(0x80, last, _mm512_set1_epi16(two));
        _mm512_storeu_si512(codes,
                            trits_avx512(_mm512_broadcast_i32x4(b16), powers_avx512(1, 3, 9, 27)));
        _mm512_storeu_si512(codes + 64, trits_avx512(last, last_powers));
    }
}

static inline void expand_iq1_bn_avx512(const uint8_t *p, int64_t n, uint8_t *codes)
{
    __m128i bytes = _mm_setr_epi8(0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 12);
    __m128i powers = _mm_setr_epi8(81, 27, 9, 3, 1, 81, 27, 9, 3, 1, 81, 27, 9, 3, 1, 0);
    __m512i own = _mm512_broadcast_i32x4(bytes), digits = _mm512_broadcast_i32x4(powers);
    __mmask64 is_last = 0x8000800080008000;
    own = _mm512_mask_add_epi8(own, ~is_last, own, powers_avx512(0, 3, 6, 9));
    digits = _mm512_mask_mov_epi8(digits, is_last, powers_avx512(81, 27, 9, 3));
    for (int64_t i = 0; i < n; i++, p += 13, codes += 64) {
        __m512i block = _mm512_broadcast_i32x4(_mm_maskz_loadu_epi8(0x1fff, p));
        _mm512_storeu_si512(codes, trits_avx512(_mm512_shuffle_epi8(block, own), digits));
    }
}

/* Blocks of Q2_0 and its relatives: a scale of 2 bytes, then n codes of 2 bits. */
static inline void expand_q2_0_avx512(const uint8_t *p, int64_t n, int block, uint8_t *codes)
{
    for (int64_t i = 0; i < n; i++, p += 2 + block / 4, codes += block)
        expand_in_order_avx512(p + 2, block / 64, codes);
}

static inline void expand_tq2_0_avx512(const uint8_t *p, int64_t n, uint8_t *codes)
{
    for (int64_t i = 0; i < n; i++, p += 66, codes += 256)
        expand_32_avx512(p, 2, lanes_avx512(0, 0, 2, 2), lanes_avx512(4, 4, 6, 6), codes);
}

static inline void expand_4row_avx512(const uint8_t *p, int64_t n, int lane, uint8_t *codes)
{
    __m512i shifts = _mm512_set1_epi32(6 - 2 * lane);
    for (int64_t i = 0; i < 2 * n; i++, p += 64, codes += 64)
        put_fields_avx512(codes, _mm512_loadu_si512(p), shifts);
}

static inline void expand_avx512(const struct tensor *t, int64_t row, int64_t block0, int64_t n,
                                 uint8_t *codes, uint8_t *scratch)
{
    const struct format *f = format_of(t->format);
    const uint8_t *p = pack_trits_blocks(t, row) + block0 * f->block_bytes * f->row_group;
    int lane = (int)(row % f->row_group);
    switch (t->format) {
    case FORMAT_IQ2_BN: expand_16_avx512(p, n, lanes_avx512(0, 2, 4, 6), codes); break;
    case FORMAT_I2_S_ARM: expand_16_avx512(p, 2 * n, lanes_avx512(6, 4, 2, 0), codes); break;
    case FORMAT_I2_S:
        expand_32_avx512(p, n, lanes_avx512(6, 6, 4, 4), lanes_avx512(2, 2, 0, 0), codes);
        break;
    case FORMAT_TQ2_0: expand_tq2_0_avx512(p, n, codes); break;
    case FORMAT_Q2_0:
    case FORMAT_Q2_0_G128:
    case FORMAT_PQ2_0: expand_q2_0_avx512(p, n, f->block, codes); break;
    case FORMAT_IQ2_BN_R4: expand_r4_avx512(p, n, lane, codes); break;
    case FORMAT_I2_S_4ROW: expand_4row_avx512(p, n, lane, codes); break;
    case FORMAT_TQ1_0: expand_tq1_0_avx512(p, n, codes); break;
    case FORMAT_PTQ1_0: expand_ptq1_0_avx512(p, n, codes); break;
    case FORMAT_IQ1_BN: expand_iq1_bn_avx512(p, n, codes); break;
    default: trits_expand_plain(t, row, block0, n, codes, scratch);
    }
}

#endif
