#include "kernels/x86/lanes_avx512.h"

/* Signs of the lanes whose signs[i] is negative are turned. */
static struct lanes lanes_turn_signs(struct lanes a, const int8_t *signs)
{
    __m512i wide = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)signs));
    wide = _mm512_and_si512(wide, _mm512_set1_epi32(INT32_MIN));
    return (struct lanes){_mm512_xor_ps(a.v, _mm512_castsi512_ps(wide))};
}

/* Butterflies of length 1, 2, 4, 8 within the lanes: a + c where lane & length is 0, else a - c. */
static struct lanes lanes_butterflies(struct lanes a)
{
    __m512 minus = _mm512_set1_ps(-0.0f), v = a.v;
    v = _mm512_add_ps(_mm512_permute_ps(v, 0xb1), _mm512_mask_xor_ps(v, 0xaaaa, v, minus));
    v = _mm512_add_ps(_mm512_permute_ps(v, 0x4e), _mm512_mask_xor_ps(v, 0xcccc, v, minus));
    v = _mm512_add_ps(_mm512_shuffle_f32x4(v, v, 0xb1), _mm512_mask_xor_ps(v, 0xf0f0, v, minus));
    v = _mm512_add_ps(_mm512_shuffle_f32x4(v, v, 0x4e), _mm512_mask_xor_ps(v, 0xff00, v, minus));
    return (struct lanes){v};
}

#include "kernels/lanes/hadamard_body.h"

void hadamard_avx512(const union job *job, int begin, int end)
{
    hadamard_body(&job->hadamard, begin, end);
}
