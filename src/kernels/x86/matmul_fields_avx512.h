/* Packings whose bytes are 4, 2 or 1 fields of 2, 4 or 8 bits, two groups of scales a unit: trits4,
 * and the blocks of 32. */
#ifndef TRINE_KERNELS_X86_MATMUL_FIELDS_AVX512_H
#define TRINE_KERNELS_X86_MATMUL_FIELDS_AVX512_H

#include "kernels/x86/matmul_panel_walk_avx512.h"
#include "tensor/iq4_values.h"

/* A packing; constant in every template. */
struct fields {
    int bits;       /* of a field: 2, 4 or 8 */
    int zero;       /* the code of value 0; is_iq4: what is added to the values */
    int group;      /* inputs per scale; 0: as many as the matrix says */
    bool has_fifth; /* behind the four steps of a group, one of fifth bits */
    bool has_min;   /* behind the scales of a unit, its minimums */
    bool is_iq4;    /* codes stand for the values of a table */
};

/* Few tokens, plain codes: a field is masked in place, so it counts 2^k times; every place has an
 * accumulator of its own, shifted back (exactly) where the group ends. */
INLINE bool is_in_place(const struct fields *f)
{
    return !f->has_fifth && !f->is_iq4;
}

/* What quad k of a group is multiplied with. v: its step; fifths: of its group. */
INLINE __m512i fields_codes(const struct fields *f, __m512i v, const int k, __m512i fifths)
{
    const int place = k % (8 / f->bits) * f->bits;
    if (f->bits == 8)
        return v;
    v = _mm512_and_si512(_mm512_srli_epi16(v, place), _mm512_set1_epi8((char)((1 << f->bits) - 1)));
    if (f->is_iq4) {
        __m128i values = _mm_loadu_si128((const void *)iq4_values);
        __m128i codes = _mm_add_epi8(values, _mm_set1_epi8((char)f->zero));
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(codes), v);
    }
    if (!f->has_fifth)
        return v;
    fifths = k < 4 ? _mm512_slli_epi16(fifths, 4 - k) : _mm512_srli_epi16(fifths, k - 4);
    return _mm512_or_si512(v, _mm512_and_si512(fifths, _mm512_set1_epi8(16)));
}

/* i: which step of a group, where that matters. */
INLINE void fields_step(const struct fields *f, const uint8_t *step, const int i, __m512i fifths,
                        const int8_t *q, int64_t stride, const int n_tokens,
                        __m512i acc[MAX_FEW][4])
{
    const int n = 8 / f->bits;
    __m512i v = _mm512_loadu_si512(step);
    UNROLL
    for (int k = 0; k < n; k++) {
        const int mask = ((1 << f->bits) - 1) << k * f->bits, to = is_in_place(f) ? k : k % 2;
        __m512i codes = is_in_place(f) && f->bits < 8
                            ? _mm512_and_si512(v, _mm512_set1_epi8((char)mask))
                            : fields_codes(f, v, i * n + k, fifths);
        UNROLL
        for (int t = 0; t < n_tokens; t++)
            acc[t][to] = add_quad(acc[t][to], codes, q + t * stride + 4 * k);
    }
}

INLINE void fields_clear(const int n_tokens, __m512i acc[MAX_FEW][4])
{
    UNROLL
    for (int t = 0; t < n_tokens; t++) {
        UNROLL
        for (int f = 0; f < 4; f++)
            acc[t][f] = _mm512_setzero_si512();
    }
}

INLINE void fields_join(const struct fields *f, const int n_tokens, __m512i acc[MAX_FEW][4],
                        __m512i sum[MAX_FEW])
{
    const int n = is_in_place(f) ? 8 / f->bits : 2;
    UNROLL
    for (int t = 0; t < n_tokens; t++) {
        sum[t] = acc[t][n - 1];
        UNROLL
        for (int k = n - 1; k > 0; k--) {
            sum[t] = is_in_place(f) ? _mm512_srai_epi32(sum[t], f->bits) : sum[t];
            sum[t] = _mm512_add_epi32(sum[t], acc[t][k - 1]);
        }
    }
}

/* n_steps steps (a multiple of 4) of a group; returns what follows them. */
INLINE const uint8_t *fields_group(const struct fields *f, const uint8_t *w, int n_steps,
                                   const int8_t *q, int64_t stride, const int n_tokens,
                                   __m512i acc[MAX_FEW][4])
{
    const int steps_at_once = n_tokens <= 2 || f->has_fifth ? 4 : 1;
    __m512i fifths = _mm512_setzero_si512();
    if (f->has_fifth)
        fifths = _mm512_loadu_si512(w + 4 * STEP_BYTES);
    for (int s = 0; s < n_steps; s += steps_at_once) {
        UNROLL
        for (int i = 0; i < steps_at_once; i++, w += STEP_BYTES, q += 32 / f->bits) {
            fetch_ahead(w, n_tokens);
            fields_step(f, w, i, fifths, q, stride, n_tokens, acc);
        }
    }
    return w + f->has_fifth * STEP_BYTES;
}

/* y[t] += minimum * scaled sum of the activations of group g. */
INLINE void add_minimums(const struct activations *a, int token, int64_t g, __m512 min,
                         const int n_tokens, __m512 y[MAX_FEW])
{
    const int32_t *sums = a->sum + (int64_t)token * a->n_sums + g;
    const float *scales = a->scale + (int64_t)token * a->n_scales + g;
    UNROLL
    for (int t = 0; t < n_tokens; t++) {
        float low = scales[t * (int64_t)a->n_scales] * (float)sums[t * (int64_t)a->n_sums];
        y[t] = _mm512_fmadd_ps(min, _mm512_set1_ps(low), y[t]);
    }
}

/* One tile of a matrix with a scale per group. */
INLINE void fields_grouped_tile(const struct matmul_job *job, int64_t tile, int token,
                                const struct fields *f, const int n_tokens)
{
    const uint8_t *w = tile_at(job, tile), *header = w;
    struct fetch fetch = fetch_behind(job, tile, token);
    const int8_t *q = job->a.q + token * job->a.stride;
    const int n_extra = 1 + f->has_min + 2 * f->has_fifth; /* lines of a unit beside steps */
    const int group = f->group ? f->group : job->w.group;
    const int n_steps = group * f->bits / 32;
    __m512 y[MAX_FEW];
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        y[t] = _mm512_setzero_ps();
    for (int64_t g = 0; g < job->w.n_cols / group; g++, q += group) {
        if (g % 2 == 0) {
            header = w;
            w += (1 + f->has_min) * STEP_BYTES;
        }
        const uint8_t *scales = header + g % 2 * 32;
        __m512i acc[MAX_FEW][4], sum[MAX_FEW];
        fields_clear(n_tokens, acc);
        fetch_lines(&fetch, n_steps + (g % 8 < n_extra) * FETCH_STREAMS);
        w = fields_group(f, w, n_steps, q, job->a.stride, n_tokens, acc);
        fields_join(f, n_tokens, acc, sum);
        add_group(&job->a, token, g, halves_at(scales), n_tokens, f->zero, sum, y);
        if (f->has_min)
            add_minimums(&job->a, token, g, halves_at(scales + STEP_BYTES), n_tokens, y);
    }
    UNROLL
    for (int t = 0; t < n_tokens; t++)
        finish_floats(job, tile, token + t, y[t]);
}

/* Codes of n_steps steps to every pitch-th 64 bytes; returns what follows the steps. */
INLINE const uint8_t *unpack_steps(const struct fields *f, const uint8_t *w, int64_t n_steps,
                                   int64_t pitch, uint8_t *codes)
{
    const int steps_at_once = f->has_fifth ? 4 : 1, n = 8 / f->bits;
    __m512i fifths = _mm512_setzero_si512();
    if (f->has_fifth)
        fifths = _mm512_loadu_si512(w + 4 * STEP_BYTES);
    for (int64_t s = 0; s < n_steps; s += steps_at_once) {
        UNROLL
        for (int i = 0; i < steps_at_once; i++, w += STEP_BYTES) {
            prefetch(w);
            __m512i v = _mm512_loadu_si512(w);
            UNROLL
            for (int k = 0; k < n; k++, codes += pitch * STEP_BYTES)
                _mm512_storeu_si512(codes, fields_codes(f, v, i * n + k, fifths));
        }
    }
    return w + f->has_fifth * STEP_BYTES;
}

/* Unpacks n inputs from col0 (at a unit) of a tile: codes to every pitch-th byte of 64, scales and
 * minimums to every pitch-th float of 16. */
INLINE void fields_unpack(const struct panel *p, int64_t tile, const struct fields *f,
                          int64_t pitch, uint8_t *codes, float *scales)
{
    const struct packed *packed = &p->job->w;
    const int step_inputs = 32 / f->bits;
    int64_t group = packed->group, n = p->n;
    const uint8_t *w = tile_at(p->job, tile), *header = w;
    if (!group) {
        w += STEP_BYTES + p->col0 / step_inputs * STEP_BYTES;
        unpack_steps(f, w, (n + step_inputs - 1) / step_inputs, pitch, codes);
        return;
    }
    w += p->col0 / (2 * group) *
         (int64_t)packed_tile_bytes(packed->packing, packed->group, 2 * group);
    for (int64_t g = 0; g < n / group; g++, codes += group / 4 * pitch * STEP_BYTES) {
        if (g % 2 == 0) {
            header = w;
            w += (1 + f->has_min) * STEP_BYTES;
        }
        UNROLL
        for (int k = 0; k < 1 + f->has_min; k++, scales += pitch * TILE_ROWS)
            _mm512_storeu_ps(scales, halves_at(header + k * STEP_BYTES + g % 2 * 32));
        w = unpack_steps(f, w, group / step_inputs, pitch, codes);
    }
}

#endif
