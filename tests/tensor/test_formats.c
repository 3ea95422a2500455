/* Decoders and encoders against known answers, and the table of formats. */
#include "../support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/float16.h"
#include "base/reader.h"
#include "tensor/tensor.h"

static int n_checked, n_left_out;

/* Values are compared bit for bit, but the sign of zero is free. */
static void assert_same_floats(const float *got, const uint8_t *want, int64_t n, const char *type,
                               const char *name)
{
    for (int64_t i = 0; i < n; i++) {
        float expected = load_f32(want + 4 * i);
        if (bits_from_f32(got[i]) != bits_from_f32(expected) && (got[i] != 0 || expected != 0))
            fail_msg("%s %s: weight %lld is %a, expected %a", type, name, (long long)i,
                     (double)got[i], (double)expected);
    }
}

static enum format_id format_of_line(json_t *line)
{
    const char *type = json_string_value(json_object_get(line, "type"));
    const char *layout = json_string_value(json_object_get(line, "layout"));
    if (strcmp(type, "Q2_0_G128_legacy") == 0)
        return FORMAT_Q2_0_G128;
    if (layout && strcmp(layout, "x86_4row") == 0)
        return FORMAT_I2_S_4ROW;
    if (layout && strcmp(layout, "arm_blk64") == 0)
        return FORMAT_I2_S_ARM;
    enum format_id id = format_by_name(type);
    assert_true(id < N_FORMATS);
    assert_int_equal(format_of(id)->type_id, json_integer_value(json_object_get(line, "id")));
    return id;
}

static int64_t rows_of_line(json_t *line)
{
    json_t *rows = json_object_get(line, "rows");
    return rows ? json_integer_value(rows) : 1;
}

static uint8_t *bytes_of_line(json_t *line, const char *key, size_t *size)
{
    return from_hex(json_string_value(json_object_get(line, key)), size);
}

static void check_dequant_line(json_t *line)
{
    const char *type = json_string_value(json_object_get(line, "type"));
    const char *name = json_string_value(json_object_get(line, "case"));
    int64_t n_cols = json_integer_value(json_object_get(line, "n")), n_rows = rows_of_line(line);
    size_t raw_size, want_size;
    uint64_t bytes;
    uint8_t *raw = bytes_of_line(line, "raw", &raw_size);
    uint8_t *want = bytes_of_line(line, "f32", &want_size);
    float *got = malloc(want_size);
    struct tensor t = {format_of_line(line), n_cols, n_rows, raw, raw_size};
    assert_int_equal(format_bytes(t.format, n_rows, n_cols, name, &bytes, NULL), STATUS_OK);
    assert_int_equal(bytes, raw_size);
    assert_int_equal(want_size, 4 * n_rows * n_cols);
    tensor_decode(&t, 0, n_rows, got);
    assert_same_floats(got, want, n_rows * n_cols, type, name);
    for (int64_t row = 0; row < n_rows; row++) { /* any row range gives the same */
        tensor_decode(&t, row, row + 1, got);
        assert_same_floats(got, want + 4 * row * n_cols, n_cols, type, name);
    }
    n_checked++;
    free(raw);
    free(want);
    free(got);
}

static void check_quantize_line(json_t *line)
{
    const char *variant = json_string_value(json_object_get(line, "variant"));
    if (strcmp(variant, "x86-avx2") == 0) { /* a rule for activations, not for weights */
        n_left_out++;
        return;
    }
    const char *type = json_string_value(json_object_get(line, "type"));
    const char *name = json_string_value(json_object_get(line, "case"));
    int64_t n_cols = json_integer_value(json_object_get(line, "n")), n_rows = rows_of_line(line);
    enum format_id id = format_of_line(line);
    size_t raw_size, src_size;
    uint64_t bytes;
    uint8_t *raw = bytes_of_line(line, "raw", &raw_size);
    uint8_t *src = bytes_of_line(line, "src", &src_size);
    assert_int_equal(src_size, 4 * n_rows * n_cols);
    assert_int_equal(format_bytes(id, n_rows, n_cols, name, &bytes, NULL), STATUS_OK);
    assert_int_equal(bytes, raw_size);
    float *weights = malloc(src_size);
    uint8_t *got = malloc(raw_size);
    memcpy(weights, src, src_size);
    memset(got, 0xa5, raw_size);
    format_of(id)->encode(weights, n_rows, n_cols, got);
    for (size_t i = 0; i < raw_size; i++)
        if (got[i] != raw[i])
            fail_msg("%s %s %s: byte %zu is %02x, expected %02x", type, variant, name, i, got[i],
                     raw[i]);
    n_checked++;
    free(raw);
    free(src);
    free(weights);
    free(got);
}

static void check_file(const char *name, void (*visit)(json_t *line), int n_lines)
{
    char path[64];
    n_checked = n_left_out = 0;
    snprintf(path, sizeof path, "tests/golden/%s.jsonl", name);
    assert_int_equal(each_json_line(path, visit), n_lines);
    assert_int_equal(n_checked + n_left_out, n_lines);
    print_message("%s: %d of %d lines equal", name, n_checked, n_lines);
    print_message(n_left_out ? ", %d are for the quantizer of activations\n" : "\n", n_left_out);
}

static void test_decoders_give_the_known_values(void **state)
{
    (void)state;
    check_file("dequant_ggml", check_dequant_line, 231);
    check_file("dequant_ik", check_dequant_line, 44);
    check_file("dequant_prism", check_dequant_line, 39);
    check_file("dequant_tq", check_dequant_line, 39);
}

static void test_encoders_give_the_known_bytes(void **state)
{
    (void)state;
    check_file("quantize_ggml", check_quantize_line, 86);
    check_file("quantize_ik", check_quantize_line, 62);
    check_file("quantize_prism", check_quantize_line, 42);
}

static void check_convert_line(json_t *line)
{
    size_t n = (size_t)json_integer_value(json_object_get(line, "n"));
    static const char *const keys[2] = {"f16", "bf16"};
    static const enum format_id ids[2] = {FORMAT_F16, FORMAT_BF16};
    uint8_t *src = bytes_of_line(line, "src", NULL), *got = malloc(2 * n);
    float *values = malloc(4 * n);
    memcpy(values, src, 4 * n);
    for (int i = 0; i < 2; i++) {
        uint8_t *want = bytes_of_line(line, keys[i], NULL);
        format_of(ids[i])->encode(values, 1, (int64_t)n, got);
        assert_memory_equal(got, want, 2 * n);
        free(want);
    }
    n_checked++;
    free(src);
    free(got);
    free(values);
}

static void test_floats_round_as_known(void **state)
{
    (void)state;
    check_file("convert", check_convert_line, 1);
}

/* Formats without known bytes: what they encode must lie within half a step, and encoding what was
 * decoded must give it again. */
static void check_round_trip(enum format_id id, double step)
{
    float src[256], decoded[256], again[256];
    uint8_t bytes[1024], second[1024];
    struct tensor t = {id, 256, 1, bytes, 0};
    for (int i = 0; i < 256; i++)
        src[i] = (float)(sin(i * 1.7) * (1 + i / 32));
    format_of(id)->encode(src, 1, 256, bytes);
    tensor_decode(&t, 0, 1, decoded);
    for (int i = 0; i < 256; i++)
        assert_true(fabs((double)src[i] - (double)decoded[i]) <= step * (1 + i / 32));
    format_of(id)->encode(decoded, 1, 256, second);
    t.data = second;
    tensor_decode(&t, 0, 1, again);
    for (int i = 0; i < 256; i++)
        assert_true(fabsf(decoded[i] - again[i]) <= 1e-3f * (float)(1 + i / 32));
}

static void test_other_encoders_stay_within_a_step(void **state)
{
    (void)state;
    check_round_trip(FORMAT_F32, 0);
    check_round_trip(FORMAT_F16, 0x1p-11);
    check_round_trip(FORMAT_BF16, 0x1p-8);
    check_round_trip(FORMAT_Q4_0, 1.0 / 8 + 1e-3);
    check_round_trip(FORMAT_Q4_1, 2.0 / 15 / 2 + 1e-3);
    check_round_trip(FORMAT_Q5_0, 1.0 / 16 + 1e-3);
    check_round_trip(FORMAT_Q5_1, 2.0 / 31 / 2 + 1e-3);
    check_round_trip(FORMAT_Q8_0, 1.0 / 127 / 2 + 1e-3);
}

static void test_names_are_found_in_any_case(void **state)
{
    (void)state;
    for (int id = 0; id < N_FORMATS; id++) {
        char lower[32];
        const char *name = format_of((enum format_id)id)->name;
        assert_int_equal(format_by_name(name), id);
        for (size_t i = 0; i <= strlen(name); i++)
            lower[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] + 32 : name[i]);
        assert_int_equal(format_by_name(lower), id);
    }
    assert_int_equal(format_by_name("Q3_Z"), N_FORMATS);
    assert_int_equal(format_by_name(""), N_FORMATS);
}

static void test_sizes(void **state)
{
    (void)state;
    uint64_t bytes;
    struct error err;
    assert_int_equal(format_bytes(FORMAT_I2_S, 3, 256, "x", &bytes, &err), STATUS_OK);
    assert_int_equal(bytes, 3 * 256 / 4 + 32);
    assert_int_equal(format_bytes(FORMAT_IQ1_BN, 3, 128, "x", &bytes, &err), STATUS_OK);
    assert_int_equal(bytes, 3 * (2 + 2 * 13));
    assert_int_equal(format_bytes(FORMAT_I2_S, 4, 64, "f: tensor 'x'", &bytes, &err),
                     STATUS_FORMAT);
    assert_string_equal(err.text,
                        "f: tensor 'x': rows of 64 weights; I2_S needs a multiple of 128");
    assert_int_equal(format_bytes(FORMAT_IQ2_BN_R4, 6, 64, "x", &bytes, &err), STATUS_FORMAT);
    assert_int_equal(format_bytes(FORMAT_TQ1_0, 2, 128, "x", &bytes, &err), STATUS_FORMAT);
    assert_int_equal(format_bytes(FORMAT_F32, 1ull << 40, 1ull << 40, "x", &bytes, &err),
                     STATUS_FORMAT);
    assert_int_equal(format_bytes(FORMAT_F32, 1ull << 61, 1, "x", &bytes, &err), STATUS_FORMAT);
    assert_int_equal(format_bytes(FORMAT_F32, 1, 1ull << 62, "x", &bytes, &err), STATUS_FORMAT);
    assert_true(format_bits_per_weight(FORMAT_TQ1_0, 7, 256) == 1.6875);
    assert_true(format_bits_per_weight(FORMAT_I2_S, 1, 128) == 4);
    assert_true(format_bits_per_weight(FORMAT_IQ2_BN, 4, 64) == 2.5);
}

/* Puts an infinite or NaN number at a byte of zeroed rows: the check must find it, and name it. */
static void expect_bad_scale(enum format_id id, int at, bool is_f32, uint32_t bits, const char *row)
{
    uint8_t data[8192] = {0};
    struct error err;
    uint64_t bytes;
    assert_int_equal(format_bytes(id, 4, 256, "x", &bytes, &err), STATUS_OK);
    assert_true(bytes <= sizeof data);
    struct tensor t = {id, 256, 4, data, bytes};
    assert_int_equal(format_check_scales(&t, "x", &err), STATUS_OK);
    if (is_f32)
        store_u32(data + at, bits);
    else
        store_u16(data + at, (uint16_t)bits);
    assert_int_equal(format_check_scales(&t, "x", &err), STATUS_FORMAT);
    assert_non_null(strstr(err.text, row));
}

static void test_scales_that_are_not_finite_are_found(void **state)
{
    (void)state;
    expect_bad_scale(FORMAT_TQ1_0, 54 + 52, false, 0x7c00, "row 1");
    expect_bad_scale(FORMAT_TQ2_0, 3 * 66 + 64, false, 0xfe01, "row 3");
    expect_bad_scale(FORMAT_PTQ1_0, 2 * 28 + 26, false, 0xfc00, "row 1");
    expect_bad_scale(FORMAT_Q2_0, 18, false, 0x7e00, "row 0");
    expect_bad_scale(FORMAT_Q1_0, 18 * 7, false, 0x7e00, "row 3");
    expect_bad_scale(FORMAT_Q4_1, 20 * 8 + 2, false, 0x7e00, "row 1");
    expect_bad_scale(FORMAT_Q4_K, 2, false, 0x7c00, "row 0");
    expect_bad_scale(FORMAT_Q2_K, 80, false, 0x7c00, "row 0");
    expect_bad_scale(FORMAT_Q6_K, 208, false, 0x7c00, "row 0");
    expect_bad_scale(FORMAT_Q8_K, 292, true, 0x7f800000, "row 1");
    expect_bad_scale(FORMAT_I2_S, 256, true, 0x7fc00000, "tensor");
    expect_bad_scale(FORMAT_IQ1_BN, 2 + 4 * 13, false, 0x7c00, "row 1");
    expect_bad_scale(FORMAT_IQ2_BN, 2 * (4 + 64), true, 0xff800000, "row 2");
    expect_bad_scale(FORMAT_IQ2_BN_R4, 12, true, 0x7f800001, "row 3");
    expect_bad_scale(FORMAT_TQK6, 26, false, 0x7c00, "row 0");
}

static double squared_error(enum format_id format, const uint8_t *bytes, const float *src,
                            int64_t n)
{
    struct tensor t = {.format = format, .n_rows = 1, .n_cols = n, .data = bytes};
    float *values = malloc((size_t)n * sizeof *values);
    assert_non_null(values);
    tensor_decode(&t, 0, 1, values);
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += ((double)values[i] - src[i]) * ((double)values[i] - src[i]);
    free(values);
    return sum;
}

/* K quants are searched for in floating point, so that bytes may differ: what another program's bytes
 * lose must not be exceeded, but for 5 %. */
static void check_k_line(json_t *line)
{
    size_t src_size, raw_size;
    uint8_t *src = bytes_of_line(line, "src", &src_size),
            *raw = bytes_of_line(line, "raw", &raw_size);
    uint8_t *own = malloc(raw_size);
    enum format_id format = format_of_line(line);
    int64_t n = (int64_t)(src_size / sizeof(float));
    assert_non_null(own);
    format_of(format)->encode((const float *)src, 1, n, own);
    double theirs = squared_error(format, raw, (const float *)src, n);
    double ours = squared_error(format, own, (const float *)src, n);
    if (!(ours <= theirs * 1.1))
        fail_msg("%s %s: squared error %g, expected at most %g", format_of(format)->name,
                 json_string_value(json_object_get(line, "case")), ours, theirs);
    n_checked++;
    free(own);
    free(raw);
    free(src);
}

/* Weights that are all negative, or alike: nothing that a scale from zero on would fit. */
static void test_k_quants_of_odd_blocks(void **state)
{
    (void)state;
    static const enum format_id formats[] = {FORMAT_Q2_K, FORMAT_Q3_K, FORMAT_Q4_K, FORMAT_Q5_K,
                                             FORMAT_Q6_K};
    static const float first[] = {-1, -1, 1, 1, 1e-38f, -3e37f},
                       step[] = {0, 1e-4f, 0, 1e-4f, 0, 0};
    for (int f = 0; f < 5; f++)
        for (int i = 0; i < 6; i++) {
            float x[256], sum = 0;
            uint8_t bytes[256];
            for (int k = 0; k < 256; k++) {
                x[k] = first[i] + step[i] * (float)k;
                sum += fabsf(x[k]) < 1e10f ? x[k] * x[k] : 0;
            }
            format_of(formats[f])->encode(x, 1, 256, bytes);
            bool is_in_range = fabsf(first[i]) > 1e-6f && fabsf(first[i]) < 1e4f;
            if (is_in_range && squared_error(formats[f], bytes, x, 256) > 0.02 * sum)
                fail_msg("%s: %g + %g k is lost", format_of(formats[f])->name, first[i], step[i]);
        }
}

static void test_k_quants(void **state)
{
    (void)state;
    n_checked = 0;
    assert_int_equal(each_json_line("tests/golden/quantize_k_ggml.jsonl", check_k_line), 20);
    assert_int_equal(n_checked, 20);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decoders_give_the_known_values),
        cmocka_unit_test(test_encoders_give_the_known_bytes),
        cmocka_unit_test(test_floats_round_as_known),
        cmocka_unit_test(test_other_encoders_stay_within_a_step),
        cmocka_unit_test(test_names_are_found_in_any_case),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_k_quants),
        cmocka_unit_test(test_k_quants_of_odd_blocks),
        cmocka_unit_test(test_scales_that_are_not_finite_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
