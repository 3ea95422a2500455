/* trits4: 64 inputs of 16 rows become four steps. */
#include "kernels/x86/transpose_avx512.h"
#include "kernels/x86/trits_expand_avx512.h"

static void fold(const uint8_t *codes, int64_t stride, int64_t n_steps, uint8_t *steps)
{
    for (; n_steps > 0; n_steps -= 4, codes += 64) {
        __m512i quad[16];
        transpose_16x16(codes, stride, quad);
        for (int k = 0; k < 4 && k < n_steps; k++, steps += STEP_BYTES) {
            __m512i low = _mm512_or_si512(quad[4 * k], _mm512_slli_epi32(quad[4 * k + 1], 2));
            __m512i high = _mm512_or_si512(_mm512_slli_epi32(quad[4 * k + 2], 4),
                                           _mm512_slli_epi32(quad[4 * k + 3], 6));
            _mm512_storeu_si512(steps, _mm512_or_si512(low, high));
        }
    }
}

void pack_trits4_avx512(const union job *job, int begin, int end)
{
    pack_trits(&job->pack, begin, end, expand_avx512, fold);
}
