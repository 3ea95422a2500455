/* 16 rows of 16 dwords become 16 columns. */
#ifndef TRINE_KERNELS_TRANSPOSE_AVX512_H
#define TRINE_KERNELS_TRANSPOSE_AVX512_H

#include <immintrin.h>
#include <stdint.h>

/* Rows of 64 bytes, `stride` bytes apart; column[c] holds dword c of row r in its dword r. */
static inline void transpose_16x16(const uint8_t *rows, int64_t stride, __m512i column[16])
{
    __m512i part[4][4]; /* [rows / 4][k]: lane l holds dword 4 l + k of four rows */
    for (int a = 0; a < 4; a++, rows += 4 * stride) {
        __m512i r0 = _mm512_loadu_si512(rows), r1 = _mm512_loadu_si512(rows + stride);
        __m512i r2 = _mm512_loadu_si512(rows + 2 * stride);
        __m512i r3 = _mm512_loadu_si512(rows + 3 * stride);
        __m512i low01 = _mm512_unpacklo_epi32(r0, r1), high01 = _mm512_unpackhi_epi32(r0, r1);
        __m512i low23 = _mm512_unpacklo_epi32(r2, r3), high23 = _mm512_unpackhi_epi32(r2, r3);
        part[a][0] = _mm512_unpacklo_epi64(low01, low23);
        part[a][1] = _mm512_unpackhi_epi64(low01, low23);
        part[a][2] = _mm512_unpacklo_epi64(high01, high23);
        part[a][3] = _mm512_unpackhi_epi64(high01, high23);
    }
    for (int k = 0; k < 4; k++) {
        __m512i low01 = _mm512_shuffle_i32x4(part[0][k], part[1][k], 0x44);
        __m512i low23 = _mm512_shuffle_i32x4(part[2][k], part[3][k], 0x44);
        __m512i high01 = _mm512_shuffle_i32x4(part[0][k], part[1][k], 0xee);
        __m512i high23 = _mm512_shuffle_i32x4(part[2][k], part[3][k], 0xee);
        column[k] = _mm512_shuffle_i32x4(low01, low23, 0x88);
        column[4 + k] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
        column[8 + k] = _mm512_shuffle_i32x4(high01, high23, 0x88);
        column[12 + k] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
    }
}

#endif
