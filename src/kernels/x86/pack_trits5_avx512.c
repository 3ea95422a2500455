/* trits5: 320 inputs of 16 rows become 16 steps. */
#include "kernels/x86/transpose_avx512.h"
#include "kernels/x86/trits_expand_avx512.h"

enum { STEPS = 16, QUADS = 5 * STEPS };

static inline __m512i times_3(__m512i a)
{
    return _mm512_add_epi8(_mm512_add_epi8(a, a), a);
}

/* As trits5_code, for 64 bytes at once. */
static inline __m512i join(const __m512i quad[5])
{
    __m512i v = _mm512_add_epi8(times_3(quad[3]), quad[2]);
    v = _mm512_add_epi8(times_3(v), quad[1]);
    v = _mm512_add_epi8(times_3(v), quad[0]);
    __m512i times_16 = _mm512_slli_epi32(quad[4], 4), times_64 = _mm512_slli_epi32(quad[4], 6);
    __mmask64 is_beyond = _mm512_cmpge_epu8_mask(v, _mm512_set1_epi8(64));
    __m512i beyond = _mm512_add_epi8(_mm512_add_epi8(times_16, quad[4]),
                                     _mm512_add_epi8(v, _mm512_set1_epi8((char)(192 - 64))));
    return _mm512_mask_mov_epi8(_mm512_or_si512(times_64, v), is_beyond, beyond);
}

static void fold(const uint8_t *codes, int64_t stride, int64_t n_steps, uint8_t *steps)
{
    __m512i quad[QUADS];
    for (; n_steps > 0; n_steps -= STEPS, codes += 4 * QUADS) {
        int n = n_steps < STEPS ? (int)n_steps : STEPS;
        for (int i = 0; i < 5 * n; i += 16)
            transpose_16x16(codes + 4 * i, stride, quad + i);
        for (int k = 0; k < n; k++, steps += STEP_BYTES)
            _mm512_storeu_si512(steps, join(quad + 5 * k));
    }
}

void pack_trits5_avx512(const union job *job, int begin, int end)
{
    pack_trits(&job->pack, begin, end, expand_avx512, fold);
}
