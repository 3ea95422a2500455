#include "kernels/x86/lanes_avx2.h"

/* 8 pairs (a[i], b[i]). */
static void turn_8_apart(float *a, float *b, const float *cosines, const float *sines)
{
    __m256 x = _mm256_loadu_ps(a), y = _mm256_loadu_ps(b);
    __m256 c = _mm256_loadu_ps(cosines), s = _mm256_loadu_ps(sines);
    _mm256_storeu_ps(a, _mm256_fmsub_ps(x, c, _mm256_mul_ps(y, s)));
    _mm256_storeu_ps(b, _mm256_fmadd_ps(x, s, _mm256_mul_ps(y, c)));
}

/* 4 pairs side by side; cs: cosine, sine of each. */
static __m256 turn_4_adjacent(__m256 pairs, __m256 cs)
{
    __m256 a = _mm256_moveldup_ps(pairs), b = _mm256_movehdup_ps(pairs);
    /* Even lanes a c - b s, odd lanes a s + b c. */
    return _mm256_fmaddsub_ps(a, cs, _mm256_mul_ps(b, _mm256_permute_ps(cs, 0xb1)));
}

static void turn_8_adjacent(float *x, const float *cosines, const float *sines)
{
    __m256 c = _mm256_loadu_ps(cosines), s = _mm256_loadu_ps(sines);
    __m256 low = _mm256_unpacklo_ps(c, s), high = _mm256_unpackhi_ps(c, s);
    __m256 first = _mm256_permute2f128_ps(low, high, 0x20);
    __m256 second = _mm256_permute2f128_ps(low, high, 0x31);
    _mm256_storeu_ps(x, turn_4_adjacent(_mm256_loadu_ps(x), first));
    _mm256_storeu_ps(x + 8, turn_4_adjacent(_mm256_loadu_ps(x + 8), second));
}

#include "kernels/lanes/rope_body.h"

void rope_avx2(const union job *job, int begin, int end)
{
    rope_body(&job->rope, begin, end);
}
