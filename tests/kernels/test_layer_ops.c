/* All ops but matmul, pack and those of the KV cache: the scalar kernels against double precision
 * and known answers, and the kernels of every instruction set against the scalar ones, to the last
 * bit. Buffers have exactly their size, so that a sanitiser build sees every step too far. */
#include "op_fixture.h"

#include <math.h>

#include "model/rope.h"

static json_t *golden(const char *name)
{
    static json_t *ops;
    if (!ops)
        ops = json_load_file("tests/golden/ops.json", 0, NULL);
    assert_non_null(ops);
    return json_object_get(ops, name);
}

/* The numbers of an array; *n gets how many. */
static double *numbers(const json_t *array, int *n)
{
    *n = (int)json_array_size(array);
    double *x = bytes_of((size_t)*n * sizeof *x, 0);
    for (int i = 0; i < *n; i++)
        x[i] = json_number_value(json_array_get(array, (size_t)i));
    return x;
}

static float *float_numbers(const json_t *array, int *n)
{
    double *wide = numbers(array, n);
    float *x = bytes_of((size_t)*n * sizeof *x, 0);
    for (int i = 0; i < *n; i++)
        x[i] = (float)wide[i];
    free(wide);
    return x;
}

/* ---- quantize ---- */

struct int8_shape {
    int n_cols, group, sum_group, n_tokens;
};

/* Activations for a shape, filled with rubbish. */
static struct activations new_activations(const struct int8_shape *s)
{
    struct activations a = {.n_cols = s->n_cols, .group = s->group, .sum_group = s->sum_group};
    a.stride = (s->n_cols + 63) / 64 * 64 + 64;
    a.n_scales = s->group ? (s->n_cols + s->group - 1) / s->group : 1;
    a.n_sums = s->sum_group ? (int)((a.stride + s->sum_group - 1) / s->sum_group) : 1;
    a.q = bytes_of((size_t)(a.stride * s->n_tokens), 0x55);
    a.scale = bytes_of((size_t)(a.n_scales * s->n_tokens) * sizeof *a.scale, 0x55);
    a.sum = bytes_of((size_t)(a.n_sums * s->n_tokens) * sizeof *a.sum, 0x55);
    return a;
}

static void free_activations(struct activations *a)
{
    free(a->q);
    free(a->scale);
    free(a->sum);
}

static void same_activations(const struct activations *a, const struct activations *b, int n_tokens,
                             const char *what)
{
    CHECK(!memcmp(a->q, b->q, (size_t)(a->stride * n_tokens)), "%s: q, n_cols %d group %d", what,
          (int)a->n_cols, a->group);
    CHECK(!memcmp(a->scale, b->scale, (size_t)(a->n_scales * n_tokens) * sizeof *a->scale),
          "%s: scales, n_cols %d group %d", what, (int)a->n_cols, a->group);
    CHECK(!memcmp(a->sum, b->sum, (size_t)(a->n_sums * n_tokens) * sizeof *a->sum),
          "%s: sums, n_cols %d sum_group %d", what, (int)a->n_cols, a->sum_group);
}

/* Half a step is the most that rounding loses; a little more by x * (127 / amax). */
static void check_quantized(const float *x, const struct activations *a, int t)
{
    const int8_t *q = a->q + t * a->stride;
    for (int64_t i = 0; i < a->n_cols; i++) {
        double d = a->scale[t * a->n_scales + (a->group ? i / a->group : 0)];
        CHECK(fabs(x[i] - q[i] * d) <= d * 0.50002 + 0x1p-120, "x[%d] = %g, q %d, d %g", (int)i,
              x[i], q[i], d);
    }
    for (int64_t i = a->n_cols; i < a->stride; i++)
        assert_int_equal(q[i], 0);
    for (int k = 0; k < a->n_sums; k++) {
        int64_t n = a->sum_group ? a->sum_group : a->stride;
        int32_t sum = 0;
        for (int64_t i = k * n; i < (k + 1) * n && i < a->stride; i++)
            sum += q[i];
        assert_int_equal(a->sum[t * a->n_sums + k], sum);
    }
}

/* Some groups of zeros, of tiny, huge, infinite and undefined numbers. */
static void make_odd_groups(float *x, int n)
{
    static const float odd[] = {0, 0x1p-121f, 0x1p-120f, 3e38f, 1e-30f};
    for (int at = 0, k = 0; at + 64 <= n; at += 192, k++)
        for (int i = at; i < at + 64; i++)
            x[i] = odd[k % 5] * (i % 2 ? 1 : -1);
}

static const struct int8_shape int8_shapes[] = {
    {1, 0, 0, 2},       {15, 0, 0, 3},     {64, 0, 0, 1},      {100, 0, 32, 2},
    {2560, 0, 0, 2},    {6912, 0, 0, 1},   {32, 32, 32, 2},    {40, 32, 32, 3},
    {2048, 32, 32, 2},  {640, 64, 0, 2},   {704, 64, 64, 1},   {100, 64, 64, 2},
    {1280, 128, 64, 2}, {1300, 128, 0, 2}, {2560, 256, 16, 2}, {768, 256, 32, 1},
    {300, 256, 256, 2}, {33, 256, 16, 2},
};

static void test_quantize(void **state)
{
    (void)state;
    EACH(s, int8_shapes)
    {
        struct quantize_job j = {.x_stride = s->n_cols + 3};
        float *x = floats((s->n_tokens - 1) * j.x_stride + s->n_cols);
        make_odd_groups(x, s->n_cols);
        j.x = x;
        struct activations expected = new_activations(s);
        int n = 0;
        for (const struct kernel_row *row; (row = next_row(OP_quantize, &n));) {
            j.a = row->isa == ISA_scalar ? expected : new_activations(s);
            row->run(&(union job){.quantize = j}, 0, s->n_tokens);
            same_activations(&expected, &j.a, s->n_tokens, row->name);
            if (row->isa != ISA_scalar)
                free_activations(&j.a);
        }
        for (int t = 0; t < s->n_tokens; t++)
            check_quantized(x + t * j.x_stride, &expected, t);
        free_activations(&expected);
        free(x);
    }
}

/* Numbers that are none end in the scale, so that they show in the results. */
static void test_quantize_not_finite(void **state)
{
    (void)state;
    struct int8_shape s = {64, 0, 32, 1};
    static const float odd[] = {INFINITY, -INFINITY, NAN};
    for (int k = 0; k < 3; k++) {
        float *x = floats(64);
        x[37] = odd[k];
        int n = 0;
        for (const struct kernel_row *row; (row = next_row(OP_quantize, &n));) {
            struct activations a = new_activations(&s);
            row->run(&(union job){.quantize = {.x = x, .x_stride = 64, .a = a}}, 0, 1);
            assert_false(isfinite(a.scale[0]));
            for (int i = 0; i < a.stride; i++)
                assert_int_equal(a.q[i], 0);
            free_activations(&a);
        }
        free(x);
    }
}

static void test_quantize_golden(void **state)
{
    (void)state;
    json_t *g = golden("act_int8");
    int n;
    float *x = float_numbers(json_object_get(g, "x"), &n);
    struct int8_shape s = {n, 0, 0, 1};
    struct activations a = new_activations(&s);
    scalar_of(OP_quantize)(&(union job){.quantize = {.x = x, .x_stride = n, .a = a}}, 0, 1);
    for (int i = 0; i < n; i++)
        assert_int_equal(a.q[i],
                         json_integer_value(json_array_get(json_object_get(g, "q"), (size_t)i)));
    assert_true(fabs(1 / a.scale[0] / json_number_value(json_object_get(g, "s")) - 1) < 1e-6);
    free_activations(&a);
    free(x);
}

/* By hand: 4 and 8 are the highest of the peaks, so that 31.75 and 15.875 steps make 1. */
static void test_quantize_to_peaks(void **state)
{
    (void)state;
    struct int8_shape s = {5, 0, 0, 2};
    static const float x[2][5] = {{1, -0.5f, 2, -3.5f, 0.047f}, {0, -2, 1, 2, 0.01f}};
    static const int8_t q[2][5] = {{32, -16, 64, -111, 1}, {0, -32, 16, 32, 0}};
    static const float peaks[3][2] = {{4, 2}, {-3, -8}, {0, -0.0f}};
    const float *const of_slices[] = {peaks[1], peaks[0], peaks[2]};
    int n = 0;
    for (const struct kernel_row *row; (row = next_row(OP_quantize, &n));) {
        struct quantize_job j = {.x = x[0], .x_stride = 5, .n_peaks = 3, .peaks = of_slices};
        j.a = new_activations(&s);
        row->run(&(union job){.quantize = j}, 0, 2);
        for (int t = 0; t < 2; t++) {
            CHECK(!memcmp(j.a.q + t * j.a.stride, q[t], 5), "%s: token %d", row->name, t);
            for (int i = 5; i < j.a.stride; i++)
                assert_int_equal(j.a.q[t * j.a.stride + i], 0);
        }
        assert_true(j.a.scale[0] == 4.0f / 127 && j.a.scale[1] == 8.0f / 127);
        assert_true(j.a.sum[0] == -30 && j.a.sum[1] == 16);
        free_activations(&j.a);
    }
}

/* A peak that is tiny or no number is that of every slice; so it is in a slice without inputs. */
static void test_quantize_to_odd_peaks(void **state)
{
    (void)state;
    struct int8_shape s = {20, 0, 0, 4}, none = {0, 0, 0, 4};
    float x[80];
    for (int i = 0; i < 80; i++)
        x[i] = 0x1p-122f;
    static const float one[4] = {1, NAN, 0x1p-121f, 1}, two[4] = {NAN, INFINITY, 0, -INFINITY};
    const float *const peaks[] = {one, two};
    int n = 0;
    for (const struct kernel_row *row; (row = next_row(OP_quantize, &n));) {
        for (int k = 0; k < 2; k++) {
            struct quantize_job j = {.x = x, .x_stride = 20, .n_peaks = 2, .peaks = peaks};
            j.a = new_activations(k ? &none : &s);
            row->run(&(union job){.quantize = j}, 0, 4);
            assert_true(isnan(j.a.scale[0]) && isnan(j.a.scale[1]));
            assert_true(j.a.scale[2] == 0 && j.a.scale[3] == INFINITY);
            for (int i = 0; i < 4 * j.a.stride; i++)
                assert_int_equal(j.a.q[i], 0);
            free_activations(&j.a);
        }
    }
}

static void test_peak(void **state)
{
    (void)state;
    static const float cases[][4] = {
        {1, -3, 2, 3},
        {-0.0f, -0.0f, 0, 0},
        {3e38f, -INFINITY, 1, INFINITY},
        {-INFINITY, NAN, 1, NAN},
        {NAN, 7, INFINITY, NAN},
        {1e-45f, -1e-44f, 0, 1e-44f},
    };
    int n = 0;
    for (const struct kernel_row *row; (row = next_row(OP_peak, &n));)
        EACH(odd, cases)
    for (int at = 0; at + 3 <= 50; at++) { /* in every lane and tail */
        float x[50] = {0}, peak[2] = {5, 5};
        memcpy(x + at, *odd, 3 * sizeof *x);
        row->run(&(union job){.peak = {x, 50, NULL, 50, peak}}, 0, 1);
        CHECK(memcmp(peak, *odd + 3, sizeof *peak) == 0 && peak[1] == 5, "%s: %g of case %d at %d",
              row->name, peak[0], (int)(odd - cases), at);
        row->run(&(union job){.peak = {x, 50, NULL, 0, peak}}, 0, 1);
        assert_true(peak[0] == 0);
    }
}

/* ---- embed, copy_rows ---- */

static void test_embed(void **state)
{
    (void)state;
    static const uint16_t halves[3][2] = {{0x3c00, 0xc000}, {0x3800, 0}, {0x4200, 0x7bff}};
    static const float values[3][2] = {{1, -2}, {0.5f, 0}, {3, 65504}};
    struct tensor table = {FORMAT_F16, 2, 3, (const uint8_t *)halves, sizeof halves};
    static const int32_t tokens[] = {2, 0, 2, 1};
    float out[12];
    for (int i = 0; i < 12; i++)
        out[i] = 9;
    scalar_of(OP_embed)(&(union job){.embed = {&table, 3, tokens, 2, out, 3}}, 1, 4);
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < 3; i++)
            assert_true(out[3 * t + i] == (t < 1 || i > 1 ? 9 : 3 * values[tokens[t]][i]));
}

static void test_copy_rows(void **state)
{
    (void)state;
    static const float x[][3] = {{1, 2, 9}, {3, 4, 9}, {5, 6, 9}};
    static const int32_t rows[] = {2, 2, 0};
    static const float expected[] = {0, 0, 5, 6, 1, 2, 0};
    float out[7] = {0};
    scalar_of(OP_copy_rows)(&(union job){.copy_rows = {x[0], 3, rows, 2, out, 2}}, 1, 3);
    assert_memory_equal(out, expected, sizeof expected);
}

/* ---- rms_norm ---- */

static void norm_as_double(const struct rms_norm_job *j, const float *x, const float *out)
{
    double sum = 0;
    for (int i = 0; i < j->n_cols; i++)
        sum += (double)x[i] * x[i];
    double factor = 1 / sqrt(sum / j->n_cols + j->epsilon);
    for (int i = 0; i < j->n_cols; i++) {
        double y = x[i] * factor * j->gain[i];
        CHECK(fabs(out[i] - y) <= 2e-6 * fabs(y), "out[%d] = %g, not %g", i, out[i], y);
    }
}

/* Norms with and without out, and the int8 of both. */
static void check_norm(const struct kernel_row *row, const struct int8_shape *s,
                       struct rms_norm_job j, const float *out, const struct activations *a)
{
    int64_t n = (s->n_tokens - 1) * j.out_stride + s->n_cols;
    size_t bytes = (size_t)n * sizeof(float);
    j.out = bytes_of(bytes, 0x55);
    j.a = new_activations(s);
    row->run(&(union job){.rms_norm = j}, 0, s->n_tokens);
    CHECK(!memcmp(j.out, out, bytes), "%s: n_cols %d", row->name, s->n_cols);
    same_activations(a, &j.a, s->n_tokens, row->name);
    free(j.out);
    free_activations(&j.a);

    j.out = NULL;
    j.a = new_activations(s);
    row->run(&(union job){.rms_norm = j}, 0, s->n_tokens);
    same_activations(a, &j.a, s->n_tokens, row->name);
    free_activations(&j.a);
}

static void test_rms_norm(void **state)
{
    (void)state;
    EACH(s, int8_shapes)
    {
        struct rms_norm_job j = {.x_stride = s->n_cols + 5,
                                 .n_cols = s->n_cols,
                                 .epsilon = 1e-5f,
                                 .out_stride = s->n_cols + 1};
        float *x = floats((s->n_tokens - 1) * j.x_stride + s->n_cols), *gain = floats(s->n_cols);
        size_t bytes = (size_t)((s->n_tokens - 1) * j.out_stride + s->n_cols) * sizeof(float);
        float *out = bytes_of(bytes, 0x55);
        struct activations a = new_activations(s);
        j.x = x;
        j.gain = gain;
        j.out = out;
        scalar_of(OP_rms_norm)(&(union job){.rms_norm = j}, 0, s->n_tokens);
        for (int t = 0; t < s->n_tokens; t++)
            norm_as_double(&j, x + t * j.x_stride, out + t * j.out_stride);
        scalar_of(OP_quantize)(
            &(union job){.quantize = {.x = out, .x_stride = j.out_stride, .a = a}}, 0, s->n_tokens);
        int n = 0;
        for (const struct kernel_row *row; (row = next_row(OP_rms_norm, &n));)
            check_norm(row, s, j, out, &a);
        free_activations(&a);
        free(out);
        free(gain);
        free(x);
    }
}

static void test_rms_norm_golden(void **state)
{
    (void)state;
    json_t *g = golden("rms_norm");
    int n, row_at = 0;
    float *x = float_numbers(json_object_get(g, "x"), &n);
    float *gain = float_numbers(json_object_get(g, "w"), &n);
    double *y = numbers(json_object_get(g, "y"), &n);
    float *out = floats(n);
    struct rms_norm_job j = {.x = x,
                             .gain = gain,
                             .n_cols = n,
                             .epsilon = (float)json_number_value(json_object_get(g, "eps")),
                             .out = out};
    for (const struct kernel_row *row; (row = next_row(OP_rms_norm, &row_at));) {
        row->run(&(union job){.rms_norm = j}, 0, 1);
        for (int i = 0; i < n; i++)
            assert_true(fabs(out[i] - y[i]) <= 1e-6 * fabs(y[i]));
    }
    free(out);
    free(y);
    free(gain);
    free(x);
}

/* ---- hadamard ---- */

static int n_hadamard_lines;

static void check_hadamard_line(json_t *line)
{
    size_t bytes, n;
    uint8_t *x = from_hex(json_string_value(json_object_get(line, "src")), &bytes);
    uint8_t *signs = from_hex(json_string_value(json_object_get(line, "signs_i8")), &n);
    uint8_t *expected = from_hex(json_string_value(json_object_get(line, "f32")), &bytes);
    float *out = bytes_of(bytes, 0);
    struct hadamard_job j = {.x = (const float *)x,
                             .signs = (const int8_t *)signs,
                             .n_cols = (int)n,
                             .block = (int)json_integer_value(json_object_get(line, "block")),
                             .out = out};
    int at = 0;
    for (const struct kernel_row *row; (row = next_row(OP_hadamard, &at));) {
        row->run(&(union job){.hadamard = j}, 0, 1);
        CHECK(!memcmp(out, expected, bytes), "%s: line %d", row->name, n_hadamard_lines);
    }
    n_hadamard_lines++;
    free(out);
    free(expected);
    free(signs);
    free(x);
}

static void test_hadamard_bits(void **state)
{
    (void)state;
    assert_int_equal(each_json_line("tests/golden/hadamard.jsonl", check_hadamard_line), 5);
}

static void test_hadamard_golden(void **state)
{
    (void)state;
    json_t *cases = golden("hadamard"), *c;
    size_t k;
    int n_checked = 0;
    json_array_foreach(cases, k, c)
    {
        int n, block = (int)json_integer_value(json_object_get(c, "block"));
        if (block < 16)
            continue;
        float *x = float_numbers(json_object_get(c, "x"), &n);
        double *y = numbers(json_object_get(c, "y"), &n);
        double *sign = numbers(json_object_get(c, "sign"), &n);
        int8_t *signs = bytes_of((size_t)n, 0);
        for (int i = 0; i < n; i++)
            signs[i] = (int8_t)sign[i];
        struct hadamard_job j = {.x = x, .signs = signs, .n_cols = n, .block = block, .out = x};
        scalar_of(OP_hadamard)(&(union job){.hadamard = j}, 0, 1);
        for (int i = 0; i < n; i++)
            assert_true(fabs(x[i] - y[i]) <= 1e-6);
        free(signs);
        free(sign);
        free(y);
        free(x);
        n_checked++;
    }
    assert_true(n_checked > 0);
}

static void check_hadamard(int block, int n_blocks, bool has_signs)
{
    struct int8_shape s = {block * n_blocks, n_blocks > 2 ? 0 : 16, 16, 2};
    int n_cols = s.n_cols, total = 2 * n_cols + 7, at = 0;
    float *x = floats(total);
    int8_t *signs = bytes_of((size_t)n_cols, 1);
    for (int i = 0; i < n_cols; i++)
        signs[i] = below(2) ? 1 : -1;
    struct hadamard_job j = {x,      n_cols + 7, has_signs ? signs : NULL, n_cols, block, NULL,
                             n_cols, {0}};
    float *expected = NULL;
    struct activations a = {0};
    for (const struct kernel_row *row; (row = next_row(OP_hadamard, &at));) {
        j.out = bytes_of((size_t)(2 * n_cols) * sizeof(float), 0);
        j.a = new_activations(&s);
        row->run(&(union job){.hadamard = j}, 0, 2);
        if (!expected) {
            expected = j.out;
            a = j.a;
            continue;
        }
        CHECK(!memcmp(j.out, expected, (size_t)(2 * n_cols) * sizeof(float)), "%s: block %d",
              row->name, block);
        same_activations(&a, &j.a, 2, row->name);
        free(j.out);
        free_activations(&j.a);
    }
    free_activations(&a);
    free(expected);
    free(signs);
    free(x);
}

static void test_hadamard_isas(void **state)
{
    (void)state;
    for (int block = 16; block <= 4096; block *= 2)
        for (int n_blocks = 1; n_blocks <= 3; n_blocks++)
            check_hadamard(block, n_blocks, n_blocks != 2);
}

/* ---- rope ---- */

static struct rope_config golden_rope(const json_t *v, float *divisors)
{
    const json_t *yarn = json_object_get(v, "yarn"), *factors = json_object_get(v, "freq_factors");
    bool is_adjacent = !strcmp(json_string_value(json_object_get(v, "pairing")), "norm");
    struct rope_config rope = {
        .pairs = is_adjacent ? ROPE_ADJACENT : ROPE_HALVES,
        .n_rot = (int)json_integer_value(json_object_get(v, "n_rot")),
        .freq_base = json_number_value(json_object_get(v, "freq_base")),
        .freq_scale = json_number_value(json_object_get(v, "freq_scale")),
        .is_yarn = json_is_object(yarn),
        .attn_factor = 1,
        .original_ctx = json_number_value(json_object_get(yarn, "orig_ctx")),
        .beta_fast = json_number_value(json_object_get(yarn, "beta_fast")),
        .beta_slow = json_number_value(json_object_get(yarn, "beta_slow")),
    };
    for (size_t k = 0; k < json_array_size(factors); k++)
        divisors[k] = (float)json_number_value(json_array_get(factors, k));
    rope.factors = json_is_array(factors) ? divisors : NULL;
    return rope;
}

static void test_rope_golden(void **state)
{
    (void)state;
    json_t *variants = golden("rope"), *v;
    size_t k;
    json_array_foreach(variants, k, v)
    {
        float divisors[64], cosines[64], sines[64];
        struct rope_config rope = golden_rope(v, divisors);
        rope_angles(&rope, (int)json_integer_value(json_object_get(v, "pos")), cosines, sines);
        int n, at = 0;
        double *y = numbers(json_object_get(v, "y"), &n);
        for (const struct kernel_row *row; (row = next_row(OP_rope, &at));) {
            float *x = float_numbers(json_object_get(v, "x"), &n);
            struct rope_job j = {.x = x, .x_stride = n, .n_heads = 1, .head_dim = n};
            j.n_rot = rope.n_rot;
            j.is_adjacent = rope.pairs == ROPE_ADJACENT;
            j.cosines = cosines;
            j.sines = sines;
            row->run(&(union job){.rope = j}, 0, 1);
            for (int i = 0; i < n; i++)
                CHECK(fabs(x[i] - y[i]) < 2e-6, "%s: variant %d, element %d", row->name, (int)k, i);
            free(x);
        }
        free(y);
    }
    assert_int_equal(json_array_size(variants), 7);
}

static void test_rope_isas(void **state)
{
    (void)state;
    static const int dims[][2] = {{8, 8},    {40, 40},   {64, 64}, {80, 32},
                                  {100, 50}, {128, 128}, {6, 2}};
    EACH(dim, dims)
    for (int is_adjacent = 0; is_adjacent < 2; is_adjacent++) {
        int head_dim = (*dim)[0], n_rot = (*dim)[1], at = 0;
        int64_t stride = 3 * head_dim + 5, total = stride + 3 * head_dim;
        float *x = floats(total), *cosines = floats(n_rot), *sines = floats(n_rot);
        float *expected = NULL;
        for (const struct kernel_row *row; (row = next_row(OP_rope, &at));) {
            float *turned = bytes_of((size_t)total * sizeof *x, 0);
            memcpy(turned, x, (size_t)total * sizeof *x);
            struct rope_job j = {.x = turned, .x_stride = stride, .n_heads = 3};
            j.head_dim = head_dim;
            j.n_rot = n_rot;
            j.is_adjacent = is_adjacent;
            j.cosines = cosines;
            j.sines = sines;
            row->run(&(union job){.rope = j}, 0, 2 * 3);
            if (!expected) {
                expected = turned;
                continue;
            }
            CHECK(!memcmp(turned, expected, (size_t)total * sizeof *x), "%s: %d of %d", row->name,
                  n_rot, head_dim);
            free(turned);
        }
        free(expected);
        free(sines);
        free(cosines);
        free(x);
    }
}

/* ---- reduce, top_k ---- */

static void check_reduce(int n_rows, int n_parts, bool is_int, bool is_add)
{
    enum { TOKENS = 3 };
    int64_t stride = n_rows + 2, total = (TOKENS - 1) * stride + n_rows;
    float *row_scale = floats(n_rows), *act_scale = floats(TOKENS), *before = floats(total);
    float *bias = n_parts % 2 ? floats(n_rows) : NULL;
    void *parts[4];
    for (int k = 0; k < n_parts; k++) {
        parts[k] = floats(total);
        for (int64_t i = 0; is_int && i < total; i++)
            ((int32_t *)parts[k])[i] = below(1 << 28) - (1 << 27);
    }
    float *expected = NULL;
    int at = 0;
    for (const struct kernel_row *row; (row = next_row(OP_reduce, &at));) {
        float *out = bytes_of((size_t)total * sizeof *out, 0);
        memcpy(out, before, (size_t)total * sizeof *out);
        struct reduce_job j = {.n_parts = n_parts, .is_int = is_int, .is_add = is_add};
        j.parts = (const void *const *)parts;
        j.n_tokens = TOKENS;
        j.stride = j.out_stride = stride;
        j.row_scale = row_scale;
        j.act_scale = act_scale;
        j.scale = 0.37f;
        j.bias = bias;
        j.out = out;
        row->run(&(union job){.reduce = j}, 0, n_rows / 32 * 16);
        row->run(&(union job){.reduce = j}, n_rows / 32 * 16, n_rows);
        if (!expected)
            expected = out;
        CHECK(!memcmp(out, expected, (size_t)total * sizeof *out), "%s: %d rows", row->name,
              n_rows);
        if (out != expected)
            free(out);
    }
    double sum = 0;
    for (int k = 0; k < n_parts; k++)
        sum += is_int ? ((int32_t *)parts[k])[n_rows - 1] : (double)((float *)parts[k])[n_rows - 1];
    sum *= is_int ? (double)row_scale[n_rows - 1] * act_scale[0] : 1;
    sum = sum * 0.37f + (bias ? (double)bias[n_rows - 1] : 0);
    sum += is_add ? (double)before[n_rows - 1] : 0;
    assert_true(fabs(expected[n_rows - 1] - sum) <= 1e-6 * (fabs(sum) + 10));
    for (int k = 0; k < n_parts; k++)
        free(parts[k]);
    free(expected);
    free(bias);
    free(before);
    free(act_scale);
    free(row_scale);
}

static void test_reduce(void **state)
{
    (void)state;
    for (int n_rows = 1; n_rows < 100; n_rows += 13)
        for (int n_parts = 1; n_parts <= 4; n_parts++)
            for (int kind = 0; kind < 4; kind++)
                check_reduce(n_rows, n_parts, kind & 1, kind & 2);
}

/* Selection by counting: entry i of the answer is beaten by exactly i others. */
static void check_top_k(const float *x, int n, int k, const char *what, const int32_t *ids,
                        const float *values)
{
    for (int e = 0; e < k; e++) {
        int better = 0, id = ids[e];
        CHECK(id >= 0 && id < n && !memcmp(&x[id], &values[e], sizeof *x), "%s: entry %d", what, e);
        for (int i = 0; i < n; i++)
            better += x[i] > x[id] || (isnan(x[id]) && !isnan(x[i])) ||
                      (i < id && (x[i] == x[id] || (isnan(x[i]) && isnan(x[id]))));
        CHECK(better == e, "%s: n %d k %d: entry %d is number %d", what, n, k, e, better);
    }
}

static void test_top_k(void **state)
{
    (void)state;
    static const int shapes[][2] = {{1, 1},     {5, 5},     {31, 3},  {32, 1},
                                    {100, 100}, {1000, 40}, {4099, 8}};
    EACH(shape, shapes)
    for (int kind = 0; kind < 4; kind++) {
        int n = (*shape)[0], k = (*shape)[1], at = 0;
        float *x = floats(2 * n);
        for (int i = 0; i < 2 * n; i++)
            x[i] = kind == 1               ? (float)below(4)
                   : kind == 2 && below(3) ? (below(2) ? NAN : -INFINITY)
                   : kind == 3             ? (float)i
                                           : x[i];
        int32_t *ids = bytes_of((size_t)(2 * k) * sizeof *ids, 0x55);
        float *values = bytes_of((size_t)(2 * k) * sizeof *values, 0x55);
        for (const struct kernel_row *row; (row = next_row(OP_top_k, &at));) {
            row->run(&(union job){.top_k = {x, n, n, k, ids, values}}, 0, 2);
            check_top_k(x, n, k, row->name, ids, values);
            check_top_k(x + n, n, k, row->name, ids + k, values + k);
        }
        free(values);
        free(ids);
        free(x);
    }
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    random_init(&source, 20);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantize),
        cmocka_unit_test(test_quantize_not_finite),
        cmocka_unit_test(test_quantize_golden),
        cmocka_unit_test(test_rms_norm),
        cmocka_unit_test(test_rms_norm_golden),
        cmocka_unit_test(test_hadamard_bits),
        cmocka_unit_test(test_hadamard_golden),
        cmocka_unit_test(test_hadamard_isas),
        cmocka_unit_test(test_rope_golden),
        cmocka_unit_test(test_rope_isas),
        cmocka_unit_test(test_quantize_to_peaks),
        cmocka_unit_test(test_quantize_to_odd_peaks),
        cmocka_unit_test(test_peak),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_copy_rows),

        cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_top_k),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
