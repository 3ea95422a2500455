#include "kernels/x86/lanes_avx2.h"

#include "kernels/lanes/rms_norm_body.h"

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

static void turn_head(float *head, int half, bool is_adjacent, const float *cosines,
                      const float *sines)
{
    int i = 0, step = is_adjacent ? 2 : 1, distance = is_adjacent ? 1 : half;
    for (; i + 8 <= half; i += 8)
        if (is_adjacent)
            turn_8_adjacent(head + 2 * i, cosines + i, sines + i);
        else
            turn_8_apart(head + i, head + half + i, cosines + i, sines + i);
    for (; i < half; i++) {
        float *a = head + i * step, turned[2];
        turn_pair(a[0], a[distance], cosines[i], sines[i], turned);
        a[0] = turned[0];
        a[distance] = turned[1];
    }
}

static void norm_head(const struct rope_job *j, float *head)
{
    struct token_source normed = {head, j->gain, norm_factor(head, j->head_dim, j->epsilon)};
    for (int i = 0; i < j->head_dim; i += 16)
        lanes_store_n(head + i, source_lanes(&normed, i, j->head_dim), j->head_dim - i);
}

static void store_head(const float *head, int head_dim, uint16_t *out)
{
    int i = 0;
    for (; i + 16 <= head_dim; i += 16)
        f16_from_f32_16(head + i, out + i);
    for (; i < head_dim; i++)
        out[i] = f32_to_f16(head[i]);
}

void rope_avx2(const union job *job, int begin, int end)
{
    const struct rope_job *j = &job->rope;
    int half = j->n_rot / 2;
    for (int u = begin; u < end; u++) {
        int t = u / j->n_heads, h = u % j->n_heads;
        float *head = j->x + t * j->x_stride + (int64_t)h * j->head_dim;
        if (j->gain)
            norm_head(j, head);
        turn_head(head, half, j->is_adjacent, j->cosines + (int64_t)t * half,
                  j->sines + (int64_t)t * half);
        if (j->out_f16)
            store_head(head, j->head_dim, j->out_f16[t] + h * j->f16_head_stride);
    }
}
