/* trits4 by AVX2: 32 inputs of 8 rows become half of two steps. Codes of 2-bit formats are
 * extracted 32 at a time; base-3 digits by the plain decoder. */
#include <immintrin.h>

#include "kernels/pack_trits.h"

static inline __m256i load_256(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline __m256i broadcast_128(const uint8_t *p)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
}

/* Shifts of the dwords of both halves. */
static inline __m256i halves(int low, int high)
{
    return _mm256_set_m128i(_mm_set1_epi32(high), _mm_set1_epi32(low));
}

/* The two lowest bits of each byte after a shift of each dword. */
static inline void put_fields(uint8_t *codes, __m256i bytes, __m256i shifts)
{
    _mm256_storeu_si256((__m256i *)codes,
                        _mm256_and_si256(_mm256_srlv_epi32(bytes, shifts), _mm256_set1_epi8(3)));
}

/* n times 16 bytes whose fields are 16 codes apart; step 2: lowest bits first, -2: highest. */
static inline void expand_16(const uint8_t *p, int64_t n, int step, uint8_t *codes)
{
    int low = step > 0 ? 0 : 6;
    for (int64_t i = 0; i < n; i++, p += 16, codes += 64) {
        put_fields(codes, broadcast_128(p), halves(low, low + step));
        put_fields(codes + 32, broadcast_128(p), halves(low + 2 * step, low + 3 * step));
    }
}

/* 32 bytes whose fields are 32 codes apart. */
static inline void expand_32(const uint8_t *p, int step, uint8_t *codes)
{
    int shift = step > 0 ? 0 : 6;
    for (int i = 0; i < 4; i++, shift += step)
        put_fields(codes + 32 * i, load_256(p), halves(shift, shift));
}

/* n times 8 bytes of four consecutive codes each, lowest bits first. */
static inline void expand_in_order(const uint8_t *p, int n, uint8_t *codes)
{
    for (int i = 0; i < n; i++, p += 8, codes += 32) {
        __m256i b = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
        __m256i spread = _mm256_or_si256(_mm256_slli_epi32(b, 6), _mm256_slli_epi32(b, 12));
        spread = _mm256_or_si256(_mm256_or_si256(b, spread), _mm256_slli_epi32(b, 18));
        put_fields(codes, spread, _mm256_setzero_si256());
    }
}

/* 64 bytes of four rows: dword 4 l + lane holds codes 16 l on. */
static inline void expand_r4(const uint8_t *p, int lane, uint8_t *codes)
{
    __m256i own = halves(lane, 4 + lane), shifts = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
    for (int i = 0; i < 2; i++)
        put_fields(codes + 32 * i, _mm256_permutevar8x32_epi32(load_256(p + 32 * i), own), shifts);
}

static inline void expand_4row(const uint8_t *p, int lane, uint8_t *codes)
{
    for (int i = 0; i < 128; i += 32)
        put_fields(codes + i, load_256(p + i), halves(6 - 2 * lane, 6 - 2 * lane));
}

static inline void expand_block(enum format_id id, const uint8_t *p, int lane, uint8_t *codes)
{
    switch (id) {
    case FORMAT_IQ2_BN: expand_16(p, 1, 2, codes); break;
    case FORMAT_I2_S_ARM: expand_16(p, 2, -2, codes); break;
    case FORMAT_I2_S: expand_32(p, -2, codes); break;
    case FORMAT_TQ2_0:
        expand_32(p, 2, codes);
        expand_32(p + 32, 2, codes + 128);
        break;
    case FORMAT_Q2_0: expand_in_order(p + 2, 2, codes); break;
    case FORMAT_Q2_0_G128:
    case FORMAT_PQ2_0: expand_in_order(p + 2, 4, codes); break;
    case FORMAT_IQ2_BN_R4: expand_r4(p, lane, codes); break;
    default: expand_4row(p, lane, codes);
    }
}

static void expand(const struct tensor *t, int64_t row, int64_t block0, int64_t n, uint8_t *codes,
                   uint8_t *scratch)
{
    trits_expand_2_bits(t, row, block0, n, codes, scratch, expand_block);
}

/* 8 rows of 8 dwords become columns. */
static inline void transpose_8x8(const uint8_t *rows, int64_t stride, __m256i column[8])
{
    __m256i part[2][4]; /* [rows / 4][k]: lane l holds dword 4 l + k of four rows */
    for (int a = 0; a < 2; a++, rows += 4 * stride) {
        __m256i r0 = load_256(rows), r1 = load_256(rows + stride);
        __m256i r2 = load_256(rows + 2 * stride), r3 = load_256(rows + 3 * stride);
        __m256i low01 = _mm256_unpacklo_epi32(r0, r1), high01 = _mm256_unpackhi_epi32(r0, r1);
        __m256i low23 = _mm256_unpacklo_epi32(r2, r3), high23 = _mm256_unpackhi_epi32(r2, r3);
        part[a][0] = _mm256_unpacklo_epi64(low01, low23);
        part[a][1] = _mm256_unpackhi_epi64(low01, low23);
        part[a][2] = _mm256_unpacklo_epi64(high01, high23);
        part[a][3] = _mm256_unpackhi_epi64(high01, high23);
    }
    for (int k = 0; k < 4; k++) {
        column[k] = _mm256_permute2x128_si256(part[0][k], part[1][k], 0x20);
        column[4 + k] = _mm256_permute2x128_si256(part[0][k], part[1][k], 0x31);
    }
}

static void fold(const uint8_t *codes, int64_t stride, int64_t n_steps, uint8_t *steps)
{
    for (; n_steps > 0; n_steps -= 2, codes += 32, steps += 2 * STEP_BYTES)
        for (int half = 0; half < 2; half++) {
            __m256i quad[8];
            transpose_8x8(codes + 8 * half * stride, stride, quad);
            for (int k = 0; k < 2 && k < n_steps; k++) {
                __m256i low = _mm256_or_si256(quad[4 * k], _mm256_slli_epi32(quad[4 * k + 1], 2));
                __m256i high = _mm256_or_si256(_mm256_slli_epi32(quad[4 * k + 2], 4),
                                               _mm256_slli_epi32(quad[4 * k + 3], 6));
                _mm256_storeu_si256((__m256i *)(steps + k * STEP_BYTES + 32 * half),
                                    _mm256_or_si256(low, high));
            }
        }
}

void pack_trits4_avx2(const union job *job, int begin, int end)
{
    pack_trits(&job->pack, begin, end, expand, fold);
}
