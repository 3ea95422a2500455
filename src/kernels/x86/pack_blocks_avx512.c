/* Q4_0 to Q8_0, IQ4_NL, Q2_K to Q6_K and IQ4_XS: codes of 64 inputs of 16 rows, a byte each, are transposed to quads, which
 * then join to steps. */
#include <string.h>

#include "kernels/pack_rows.h"
#include "kernels/x86/transpose_avx512.h"

/* A format of blocks of 32: d, a minimum, 4 bytes of fifth bits, codes. */
struct block_32 {
    int bits; /* 4, 5 or 8 */
    bool has_min;
    uint8_t zero[34]; /* a block of zeros */
};

/* Low nibbles of 16 bytes, then the high ones. */
static inline __m256i nibbles_at(const uint8_t *at)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)at);
    __m256i both = _mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
}

static inline __m256i codes_of_32(const struct block_32 *f, const uint8_t *block)
{
    const uint8_t *codes = block + 2 + 2 * f->has_min + 4 * (f->bits == 5);
    if (f->bits == 8)
        return _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)codes),
                                _mm256_set1_epi8((char)128));
    __m256i both = nibbles_at(codes);
    if (f->bits == 4)
        return both;
    uint32_t fifths;
    memcpy(&fifths, codes - 4, sizeof fifths);
    return _mm256_mask_add_epi8(both, fifths, both, _mm256_set1_epi8(16));
}

/* The next n (1 or 2) blocks of all rows: scales to the header, codes to quads. */
static inline void take_blocks(struct block_rows *rows, int n, const struct block_32 *f,
                               uint8_t *header, __m512i quad[16])
{
    uint8_t codes[TILE_ROWS * 64] __attribute__((aligned(64)));
    for (int r = 0; r < TILE_ROWS; r++)
        for (int k = 0; k < n; k++) {
            const uint8_t *block = rows->block[r];
            memcpy(header + 2 * (k * TILE_ROWS + r), block, 2);
            if (f->has_min)
                memcpy(header + 64 + 2 * (k * TILE_ROWS + r), block + 2, 2);
            _mm256_store_si256((__m256i *)(codes + 64 * r + 32 * k), codes_of_32(f, block));
            rows->block[r] += rows->bytes[r];
        }
    if (n == 1)
        for (int r = 0; r < TILE_ROWS; r++)
            _mm256_store_si256((__m256i *)(codes + 64 * r + 32), _mm256_setzero_si256());
    transpose_16x16(codes, 64, quad);
}

static inline __m512i masked(__m512i a, int mask)
{
    return _mm512_and_si512(a, _mm512_set1_epi8((char)mask));
}

/* 32 inputs: four steps of nibbles, and one of fifth bits if there are any. */
static inline uint8_t *put_small_codes(const __m512i quad[8], bool has_fifth, uint8_t *to)
{
    for (int k = 0; k < 4; k++, to += STEP_BYTES)
        _mm512_storeu_si512(to, _mm512_or_si512(masked(quad[2 * k], 15),
                                                _mm512_slli_epi16(masked(quad[2 * k + 1], 15), 4)));
    if (!has_fifth)
        return to;
    __m512i bits = _mm512_setzero_si512();
    for (int k = 0; k < 8; k++)
        bits =
            _mm512_or_si512(bits, _mm512_slli_epi16(_mm512_srli_epi16(masked(quad[k], 16), 4), k));
    _mm512_storeu_si512(to, bits);
    return to + STEP_BYTES;
}

static uint8_t *put_bytes(const __m512i quad[8], uint8_t *to)
{
    for (int k = 0; k < 8; k++, to += STEP_BYTES)
        _mm512_storeu_si512(to, quad[k]);
    return to;
}

static inline void pack_32(const struct pack_job *job, int begin, int end, const struct block_32 *f)
{
    const int header_bytes = 64 + 64 * f->has_min;
    for (int64_t row = begin; row < end; row += TILE_ROWS) {
        struct block_rows rows = begin_rows(job, row, f->zero);
        uint8_t *to = pack_tile(job, row);
        for (int64_t col = 0; col < job->w.n_cols; col += 64) {
            __m512i quad[16];
            int n = col + 32 < job->w.n_cols ? 2 : 1;
            memset(to, 0, (size_t)header_bytes);
            take_blocks(&rows, n, f, to, quad);
            to += header_bytes;
            for (int k = 0; k < n; k++)
                to = f->bits == 8 ? put_bytes(quad + 8 * k, to)
                                  : put_small_codes(quad + 8 * k, f->bits == 5, to);
        }
    }
}

#define PACK_32(name, ...)                                                                         \
    void pack_##name##_avx512(const union job *job, int begin, int end)                            \
    {                                                                                              \
        static const struct block_32 format = {__VA_ARGS__};                                       \
        pack_32(&job->pack, begin, end, &format);                                                  \
    }

PACK_32(q4_0, .bits = 4, .zero = {[2 ... 17] = 0x88})
PACK_32(q4_1, .bits = 4, .has_min = true)
PACK_32(q5_0, .bits = 5, .zero = {[2 ... 5] = 0xff})
PACK_32(q5_1, .bits = 5, .has_min = true)
PACK_32(q8_0, .bits = 8)

/* The 6 bits of 256 weights. */
static inline void q6_k_codes(const uint8_t *block, uint8_t *codes)
{
    const __m512i low_4 = _mm512_set1_epi8(15), low_2 = _mm512_set1_epi8(3);
    const __m512i fields_01 = _mm512_setr_epi64(0, 0, 0, 0, 2, 2, 2, 2);
    const __m512i fields_23 = _mm512_setr_epi64(4, 4, 4, 4, 6, 6, 6, 6);
    for (int half = 0; half < 2; half++, codes += 128) {
        __m512i low = _mm512_loadu_si512(block + 64 * half);
        __m512i high =
            _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(block + 128 + 32 * half)));
        __m512i high_01 = _mm512_and_si512(_mm512_srlv_epi64(high, fields_01), low_2);
        __m512i high_23 = _mm512_and_si512(_mm512_srlv_epi64(high, fields_23), low_2);
        _mm512_store_si512(
            codes, _mm512_or_si512(_mm512_and_si512(low, low_4), _mm512_slli_epi16(high_01, 4)));
        low = _mm512_and_si512(_mm512_srli_epi16(low, 4), low_4);
        _mm512_store_si512(codes + 64, _mm512_or_si512(low, _mm512_slli_epi16(high_23, 4)));
    }
}

/* Three steps of 16 inputs. */
static inline void put_q6_k(const __m512i quad[4], uint8_t *to)
{
    for (int k = 0; k < 2; k++, to += STEP_BYTES)
        _mm512_storeu_si512(to, _mm512_or_si512(masked(quad[2 * k], 15),
                                                _mm512_slli_epi16(masked(quad[2 * k + 1], 15), 4)));
    __m512i low = _mm512_or_si512(masked(_mm512_srli_epi16(quad[0], 4), 0x03),
                                  masked(_mm512_srli_epi16(quad[1], 2), 0x0c));
    __m512i high =
        _mm512_or_si512(masked(quad[2], 0x30), masked(_mm512_slli_epi16(quad[3], 2), 0xc0));
    _mm512_storeu_si512(to, _mm512_or_si512(low, high));
}

/* The next block of all rows: scales to the header, codes to steps. k: which block of the unit. */
static void take_q6_k(struct block_rows *rows, int k, uint8_t *header, uint8_t *steps)
{
    uint8_t codes[TILE_ROWS * 256] __attribute__((aligned(64)));
    for (int r = 0; r < TILE_ROWS; r++) {
        const uint8_t *block = rows->block[r];
        uint8_t *scales = header + 64 + k * 16 * TILE_ROWS + r;
        memcpy(header + 2 * (k * TILE_ROWS + r), block + 208, 2);
        for (int i = 0; i < 16; i++)
            scales[i * TILE_ROWS] = block[192 + i];
        q6_k_codes(block, codes + 256 * r);
        rows->block[r] += rows->bytes[r];
    }
    for (int i = 0; i < 4; i++) {
        __m512i quad[16];
        transpose_16x16(codes + 64 * i, 256, quad);
        for (int j = 0; j < 4; j++, steps += 3 * STEP_BYTES)
            put_q6_k(quad + 4 * j, steps);
    }
}

void pack_q6_k_avx512(const union job *job, int begin, int end)
{
    enum { HEADER = 64 + 2 * 16 * TILE_ROWS, BLOCK = 16 * 3 * STEP_BYTES };
    uint8_t zero[210] = {0};
    memset(zero + 128, 0xaa, 64); /* code 32 */
    for (int64_t row = begin; row < end; row += TILE_ROWS) {
        struct block_rows rows = begin_rows(&job->pack, row, zero);
        uint8_t *to = pack_tile(&job->pack, row);
        for (int64_t col = 0; col < job->pack.w.n_cols; col += 512) {
            uint8_t *header = to;
            memset(header, 0, HEADER);
            to += HEADER;
            for (int k = 0; k < 2 && col + 256 * k < job->pack.w.n_cols; k++, to += BLOCK)
                take_q6_k(&rows, k, header, to);
        }
    }
}

/* The 4 or 5 bits of 256 weights. high: the fifth bits, or NULL. */
static inline void q45_k_codes(const uint8_t *low, const uint8_t *high, uint8_t *codes)
{
    const __m256i low_4 = _mm256_set1_epi8(15), fifth = _mm256_set1_epi8(16);
    __m256i bits = _mm256_setzero_si256();
    if (high)
        bits = _mm256_loadu_si256((const __m256i *)high);
    for (int group = 0; group < 8; group++) {
        __m256i both = _mm256_loadu_si256((const __m256i *)(low + group / 2 * 32));
        __m256i code = _mm256_and_si256(_mm256_srli_epi16(both, group % 2 * 4), low_4);
        __m256i bit =
            group < 4 ? _mm256_slli_epi16(bits, 4 - group) : _mm256_srli_epi16(bits, group - 4);
        code = _mm256_or_si256(code, _mm256_and_si256(bit, fifth));
        _mm256_store_si256((__m256i *)(codes + 32 * group), code);
    }
}

/* The next block of all rows; returns the end of its unit. */
static uint8_t *take_q45_k(struct block_rows *rows, bool has_fifth, uint8_t *unit)
{
    uint8_t codes[TILE_ROWS * 256] __attribute__((aligned(64)));
    uint8_t *to = unit + PACKED_K_LINES_AT + 12 * TILE_ROWS;
    for (int r = 0; r < TILE_ROWS; r++) {
        const uint8_t *block = rows->block[r];
        memcpy(unit + 2 * r, block, 2);
        memcpy(unit + 2 * (TILE_ROWS + r), block + 2, 2);
        for (int i = 0; i < 3; i++)
            memcpy(unit + PACKED_K_LINES_AT + i * STEP_BYTES + 4 * r, block + 4 + 4 * i, 4);
        if (has_fifth)
            q45_k_codes(block + 48, block + 16, codes + 256 * r);
        else
            q45_k_codes(block + 16, NULL, codes + 256 * r);
        rows->block[r] += rows->bytes[r];
    }
    for (int i = 0; i < 4; i++) {
        __m512i quad[16];
        transpose_16x16(codes + 64 * i, 256, quad);
        to = put_small_codes(quad, has_fifth, to);
        to = put_small_codes(quad + 8, has_fifth, to);
    }
    return to;
}

static void pack_q45_k(const struct pack_job *job, int begin, int end, bool has_fifth)
{
    static const uint8_t zero[176];
    for (int64_t row = begin; row < end; row += TILE_ROWS) {
        struct block_rows rows = begin_rows(job, row, zero);
        uint8_t *to = pack_tile(job, row);
        for (int64_t col = 0; col < job->w.n_cols; col += 256)
            to = take_q45_k(&rows, has_fifth, to);
    }
}

void pack_q4_k_avx512(const union job *job, int begin, int end)
{
    pack_q45_k(&job->pack, begin, end, false);
}

void pack_q5_k_avx512(const union job *job, int begin, int end)
{
    pack_q45_k(&job->pack, begin, end, true);
}

/* The 2 bits of 256 weights. */
static inline void q2_k_codes(const uint8_t *bytes, uint8_t *codes)
{
    const __m256i low_2 = _mm256_set1_epi8(3);
    for (int i = 0; i < 8; i++) {
        __m256i four = _mm256_loadu_si256((const __m256i *)(bytes + i / 4 * 32));
        _mm256_store_si256((__m256i *)(codes + 32 * i),
                           _mm256_and_si256(_mm256_srli_epi16(four, i % 4 * 2), low_2));
    }
}

/* The next block of all rows. */
static void take_q2_k(struct block_rows *rows, uint8_t *unit)
{
    uint8_t codes[TILE_ROWS * 256] __attribute__((aligned(64)));
    uint8_t *to = unit + 64 + 16 * TILE_ROWS;
    for (int r = 0; r < TILE_ROWS; r++) {
        const uint8_t *block = rows->block[r];
        memcpy(unit + 2 * r, block + 80, 2);
        memcpy(unit + 2 * (TILE_ROWS + r), block + 82, 2);
        for (int i = 0; i < 4; i++)
            memcpy(unit + 64 + i * STEP_BYTES + 4 * r, block + 4 * i, 4);
        q2_k_codes(block + 16, codes + 256 * r);
        rows->block[r] += rows->bytes[r];
    }
    for (int i = 0; i < 4; i++) {
        __m512i quad[16];
        transpose_16x16(codes + 64 * i, 256, quad);
        for (int k = 0; k < 16; k += 4, to += STEP_BYTES) {
            __m512i low = _mm512_or_si512(quad[k], _mm512_slli_epi16(quad[k + 1], 2));
            __m512i high = _mm512_or_si512(_mm512_slli_epi16(quad[k + 2], 4),
                                           _mm512_slli_epi16(quad[k + 3], 6));
            _mm512_storeu_si512(to, _mm512_or_si512(low, high));
        }
    }
}

void pack_q2_k_avx512(const union job *job, int begin, int end)
{
    static const uint8_t zero[84];
    for (int64_t row = begin; row < end; row += TILE_ROWS) {
        struct block_rows rows = begin_rows(&job->pack, row, zero);
        uint8_t *to = pack_tile(&job->pack, row);
        for (int64_t col = 0; col < job->pack.w.n_cols; col += 256) {
            take_q2_k(&rows, to);
            to += packed_tile_bytes(PACKING_q2_k, 256, 256);
        }
    }
}

/* The 3 bits of 256 weights. */
static inline void q3_k_codes(const uint8_t *block, uint8_t *codes)
{
    const __m256i low_2 = _mm256_set1_epi8(3), third = _mm256_set1_epi8(4);
    __m256i bits = _mm256_loadu_si256((const __m256i *)block);
    for (int i = 0; i < 8; i++) {
        __m256i four = _mm256_loadu_si256((const __m256i *)(block + 32 + i / 4 * 32));
        __m256i code = _mm256_and_si256(_mm256_srli_epi16(four, i % 4 * 2), low_2);
        __m256i bit = i < 2 ? _mm256_slli_epi16(bits, 2 - i) : _mm256_srli_epi16(bits, i - 2);
        code = _mm256_or_si256(code, _mm256_and_si256(bit, third));
        _mm256_store_si256((__m256i *)(codes + 32 * i), code);
    }
}

/* Three steps of 32 inputs. */
static inline uint8_t *put_q3_k(const __m512i quad[8], uint8_t *to)
{
    const __m512i top[3] = {masked(_mm512_slli_epi16(quad[6], 6), 0xc0),
                            masked(_mm512_slli_epi16(quad[7], 6), 0xc0),
                            _mm512_or_si512(masked(_mm512_slli_epi16(quad[6], 4), 0x40),
                                            masked(_mm512_slli_epi16(quad[7], 5), 0x80))};
    for (int i = 0; i < 3; i++, to += STEP_BYTES) {
        __m512i low = _mm512_or_si512(quad[2 * i], _mm512_slli_epi16(quad[2 * i + 1], 3));
        _mm512_storeu_si512(to, _mm512_or_si512(low, top[i]));
    }
    return to;
}

/* The next block of all rows; returns the end of its unit. */
static uint8_t *take_q3_k(struct block_rows *rows, uint8_t *unit)
{
    uint8_t codes[TILE_ROWS * 256] __attribute__((aligned(64)));
    uint8_t *to = unit + PACKED_K_LINES_AT + 12 * TILE_ROWS;
    memset(unit + 2 * TILE_ROWS, 0, PACKED_K_LINES_AT - 2 * TILE_ROWS);
    for (int r = 0; r < TILE_ROWS; r++) {
        const uint8_t *block = rows->block[r];
        memcpy(unit + 2 * r, block + 108, 2);
        for (int i = 0; i < 3; i++)
            memcpy(unit + PACKED_K_LINES_AT + i * STEP_BYTES + 4 * r, block + 96 + 4 * i, 4);
        q3_k_codes(block, codes + 256 * r);
        rows->block[r] += rows->bytes[r];
    }
    for (int i = 0; i < 4; i++) {
        __m512i quad[16];
        transpose_16x16(codes + 64 * i, 256, quad);
        to = put_q3_k(quad, to);
        to = put_q3_k(quad + 8, to);
    }
    return to;
}

void pack_q3_k_avx512(const union job *job, int begin, int end)
{
    uint8_t zero[110] = {0};
    memset(zero, 0xff, 32); /* code 4 */
    for (int64_t row = begin; row < end; row += TILE_ROWS) {
        struct block_rows rows = begin_rows(&job->pack, row, zero);
        uint8_t *to = pack_tile(&job->pack, row);
        for (int64_t col = 0; col < job->pack.w.n_cols; col += 256)
            to = take_q3_k(&rows, to);
    }
}

/* Bits under `mask` change places with those `shift` above. */
static inline __m512i swapped(__m512i v, int32_t mask, unsigned shift)
{
    __m512i differ = _mm512_xor_si512(v, _mm512_srli_epi32(v, shift));
    differ = _mm512_and_si512(differ, _mm512_set1_epi32(mask));
    v = _mm512_xor_si512(v, differ);
    return _mm512_xor_si512(v, _mm512_slli_epi32(differ, shift));
}

/* Scale bits of groups 0 to 7 in ascending order to the order 0, 4, 1, 5, 2, 6, 3, 7. */
static inline void pair_iq4_xs_scales(uint8_t *unit)
{
    __m512i upper = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(unit + 32)));
    upper = swapped(swapped(upper, 0x00f000f0, 4), 0x0c0c0c0c, 2);
    _mm256_storeu_si256((__m256i *)(unit + 32), _mm512_castsi512_si256(upper));
    __m512i lower = _mm512_loadu_si512(unit + 64);
    _mm512_storeu_si512(unit + 64, swapped(swapped(lower, 0x0000ff00, 8), 0x00f000f0, 4));
}

/* The next block of all rows; returns the end of its unit. */
static uint8_t *take_iq4_xs(struct block_rows *rows, uint8_t *unit)
{
    uint8_t codes[TILE_ROWS * 256] __attribute__((aligned(64)));
    uint8_t *to = unit + 64 + 4 * TILE_ROWS;
    for (int r = 0; r < TILE_ROWS; r++) {
        const uint8_t *block = rows->block[r];
        memcpy(unit + 2 * r, block, 2);
        memcpy(unit + 2 * (TILE_ROWS + r), block + 2, 2);
        memcpy(unit + 64 + 4 * r, block + 4, 4);
        for (int i = 0; i < 8; i++)
            _mm256_store_si256((__m256i *)(codes + 256 * r + 32 * i),
                               nibbles_at(block + 8 + 16 * i));
        rows->block[r] += rows->bytes[r];
    }
    pair_iq4_xs_scales(unit);
    for (int i = 0; i < 4; i++) {
        __m512i quad[16];
        transpose_16x16(codes + 64 * i, 256, quad);
        to = put_small_codes(quad, false, to);
        to = put_small_codes(quad + 8, false, to);
    }
    return to;
}

void pack_iq4_xs_avx512(const union job *job, int begin, int end)
{
    uint8_t zero[136] = {0};
    memset(zero + 8, 0x88, 128);
    for (int64_t row = begin; row < end; row += TILE_ROWS) {
        struct block_rows rows = begin_rows(&job->pack, row, zero);
        uint8_t *to = pack_tile(&job->pack, row);
        for (int64_t col = 0; col < job->pack.w.n_cols; col += 256)
            to = take_iq4_xs(&rows, to);
    }
}
