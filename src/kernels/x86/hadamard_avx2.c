#include "kernels/x86/lanes_avx2.h"

static __m256 turn_signs(__m256 x, __m128i signs)
{
    __m256 wide = _mm256_castsi256_ps(_mm256_cvtepi8_epi32(signs));
    return _mm256_xor_ps(x, _mm256_and_ps(wide, _mm256_set1_ps(-0.0f)));
}

/* Signs of the lanes whose signs[i] is negative are turned. */
static struct lanes lanes_turn_signs(struct lanes a, const int8_t *signs)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)signs);
    return (struct lanes){turn_signs(a.low, bytes), turn_signs(a.high, _mm_srli_si128(bytes, 8))};
}

/* Those of length 1, 2, 4. */
static __m256 butterflies(__m256 x)
{
    __m256 minus1 = _mm256_setr_ps(0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f);
    __m256 minus2 = _mm256_setr_ps(0.0f, 0.0f, -0.0f, -0.0f, 0.0f, 0.0f, -0.0f, -0.0f);
    __m256 minus4 = _mm256_setr_ps(0.0f, 0.0f, 0.0f, 0.0f, -0.0f, -0.0f, -0.0f, -0.0f);
    x = _mm256_add_ps(_mm256_permute_ps(x, 0xb1), _mm256_xor_ps(x, minus1));
    x = _mm256_add_ps(_mm256_permute_ps(x, 0x4e), _mm256_xor_ps(x, minus2));
    return _mm256_add_ps(_mm256_permute2f128_ps(x, x, 0x01), _mm256_xor_ps(x, minus4));
}

/* Butterflies of length 1, 2, 4, 8 within the lanes: a + c where lane & length is 0, else a - c. */
static struct lanes lanes_butterflies(struct lanes a)
{
    __m256 low = butterflies(a.low), high = butterflies(a.high);
    return (struct lanes){_mm256_add_ps(low, high), _mm256_sub_ps(low, high)};
}

#include "kernels/lanes/hadamard_body.h"

void hadamard_avx2(const union job *job, int begin, int end)
{
    hadamard_body(&job->hadamard, begin, end);
}
