/* From each ternary format to each other one without loss, and the refusals where there would be
 * one. */
#include "../support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/reader.h"
#include "tensor/format_fill.h"
#include "tensor/ternary.h"

enum { MAX_COLS = 1280, MAX_ROWS = 8, MAX_BYTES = MAX_COLS * MAX_ROWS + 64 };

/* Room for a matrix as codes and scales. */
struct matrix {
    uint8_t codes[MAX_ROWS * MAX_COLS];
    float scales[MAX_ROWS * MAX_COLS / 64];
    struct ternary_rows rows;
};

static struct random source;

static void init_matrix(struct matrix *m, int group)
{
    m->rows = (struct ternary_rows){m->codes, m->scales, group};
}

static bool holds(enum format_id id, int64_t n_rows, int64_t n_cols)
{
    uint64_t bytes;
    return format_of(id)->is_ternary &&
           format_bytes(id, (uint64_t)n_rows, (uint64_t)n_cols, "", &bytes, NULL) == STATUS_OK;
}

static void extract(enum format_id id, const uint8_t *bytes, int64_t n_rows, int64_t n_cols,
                    struct matrix *m)
{
    struct tensor t = {id, n_cols, n_rows, bytes, 0};
    init_matrix(m, 1);
    ternary_extract(&t, 0, n_rows, &m->rows);
}

static enum status encode(enum format_id id, const struct matrix *m, int64_t n_rows, int64_t n_cols,
                          uint8_t *bytes, struct error *err)
{
    return ternary_encode(id, &m->rows, n_rows, n_cols, "x", bytes, err);
}

static void must_encode(enum format_id id, const struct matrix *m, int64_t n_rows, int64_t n_cols,
                        uint8_t *bytes)
{
    struct error err;
    if (encode(id, m, n_rows, n_cols, bytes, &err) != STATUS_OK)
        fail_msg("%s: %s", format_of(id)->name, err.text);
}

/* Random codes; column block 1 and row 2 are all zero. One scale, but an odd one where all is zero.
 */
static void make_random(struct matrix *m, int64_t n_rows, int64_t n_cols, int group, float scale)
{
    init_matrix(m, group);
    for (int64_t i = 0; i < n_rows * n_cols; i++) {
        bool is_zero = i / n_cols == 2 || i % n_cols / group == 1;
        m->codes[i] = is_zero ? 1 : (uint8_t)(random_bits(&source) % 3);
    }
    for (int64_t i = 0; i < n_rows * n_cols / group; i++) {
        int64_t row = i / (n_cols / group), col = i % (n_cols / group);
        m->scales[i] = row == 2 || col == 1 ? 0.375f : scale;
    }
}

/* The scales that matter, weight by weight, and all codes. */
static void assert_same_matrix(const struct matrix *a, const struct matrix *b, int64_t n_rows,
                               int64_t n_cols)
{
    assert_memory_equal(a->codes, b->codes, n_rows * n_cols);
    for (int64_t i = 0; i < n_rows * n_cols; i++)
        if (a->codes[i] != 1)
            assert_true(a->scales[i / a->rows.group] == b->scales[i / b->rows.group]);
}

static void check_pair(enum format_id from, enum format_id to, int64_t n_rows, int64_t n_cols,
                       float scale)
{
    static struct matrix first, second, third;
    static uint8_t bytes[MAX_BYTES], other[MAX_BYTES], back[MAX_BYTES];
    static float a[MAX_ROWS * MAX_COLS], b[MAX_ROWS * MAX_COLS];
    uint64_t size;
    make_random(&first, n_rows, n_cols, 64, scale);
    must_encode(from, &first, n_rows, n_cols, bytes);
    extract(from, bytes, n_rows, n_cols, &second);
    assert_same_matrix(&first, &second, n_rows, n_cols);
    must_encode(to, &second, n_rows, n_cols, other);
    extract(to, other, n_rows, n_cols, &third);
    assert_same_matrix(&first, &third, n_rows, n_cols);
    must_encode(from, &third, n_rows, n_cols, back);
    extract(from, back, n_rows, n_cols, &third);
    assert_same_matrix(&second, &third, n_rows, n_cols);
    assert_int_equal(format_bytes(from, n_rows, n_cols, "", &size, NULL), STATUS_OK);
    struct tensor t = {from, n_cols, n_rows, bytes, size}, u = {to, n_cols, n_rows, other, 0};
    tensor_decode(&t, 0, n_rows, a);
    tensor_decode(&u, 0, n_rows, b);
    for (int64_t i = 0; i < n_rows * n_cols; i++)
        assert_true(a[i] == b[i]);
}

static void test_every_pair_of_formats_round_trips(void **state)
{
    (void)state;
    static const int widths[] = {64, 128, 192, 256, 384, 512, 768, 1280};
    static const float scales[] = {1, 0.0078125f, 0x1p-24f, 0x1.8p-16f, 65504, -0.5f};
    int n_pairs = 0;
    random_init(&source, 1);
    for (int from = 0; from < N_FORMATS; from++)
        for (int to = 0; to < N_FORMATS; to++)
            for (int i = 0; i < 8; i++)
                for (int64_t n_rows = 1; n_rows <= 8; n_rows *= 2) {
                    if (!holds((enum format_id)from, n_rows, widths[i]) ||
                        !holds((enum format_id)to, n_rows, widths[i]))
                        continue;
                    check_pair((enum format_id)from, (enum format_id)to, n_rows, widths[i],
                               scales[n_pairs % 6]);
                    n_pairs++;
                }
    print_message("%d conversions and back\n", n_pairs);
    assert_true(n_pairs > 2000);
}

static void test_scales_per_group_survive_in_smaller_groups(void **state)
{
    (void)state;
    static struct matrix first, second;
    static uint8_t bytes[MAX_BYTES];
    static const enum format_id formats[] = {FORMAT_TQ1_0, FORMAT_TQ2_0,     FORMAT_PTQ1_0,
                                             FORMAT_PQ2_0, FORMAT_Q2_0_G128, FORMAT_Q2_0};
    random_init(&source, 2);
    make_random(&first, 4, 512, 256, 1);
    for (int i = 0; i < 8; i++)
        first.scales[i] = (float)(i + 1) * 0.125f;
    for (int i = 0; i < 6; i++) {
        must_encode(formats[i], &first, 4, 512, bytes);
        extract(formats[i], bytes, 4, 512, &second);
        assert_int_equal(second.rows.group, format_of(formats[i])->scale_group);
        for (int j = 0; j < 4 * 512 / second.rows.group; j++)
            assert_true(second.scales[j] == first.scales[j * second.rows.group / 256]);
        must_encode(FORMAT_TQ1_0, &second, 4, 512, bytes);
        extract(FORMAT_TQ1_0, bytes, 4, 512, &second);
        assert_memory_equal(second.scales, first.scales, 8 * sizeof(float));
    }
}

/* One nonzero weight per given column, then a conversion that must be refused with this text. */
static void expect_refusal(enum format_id to, const struct matrix *m, int64_t n_rows,
                           int64_t n_cols, const char *text)
{
    static uint8_t bytes[MAX_BYTES];
    struct error err = {STATUS_OK, ""};
    assert_int_equal(encode(to, m, n_rows, n_cols, bytes, &err), STATUS_UNSUPPORTED);
    if (!strstr(err.text, text))
        fail_msg("'%s' is not in: %s", text, err.text);
}

static void make_plain(struct matrix *m, int64_t n_rows, int64_t n_cols, int group)
{
    init_matrix(m, group);
    memset(m->codes, 2, (size_t)(n_rows * n_cols));
    for (int64_t i = 0; i < n_rows * n_cols / group; i++)
        m->scales[i] = 1;
}

static void test_different_scales_in_one_group_are_refused(void **state)
{
    (void)state;
    static struct matrix m;
    static uint8_t bytes[MAX_BYTES];
    make_plain(&m, 4, 512, 64);
    m.scales[8 + 5] = 0.5f; /* row 1, group 5 */
    expect_refusal(FORMAT_TQ1_0, &m, 4, 512, "x: row 1, group 5 of 64 weights");
    expect_refusal(FORMAT_PQ2_0, &m, 4, 512, "row 1, group 5");
    expect_refusal(FORMAT_IQ2_BN, &m, 4, 512, "row 1, group 5");
    expect_refusal(FORMAT_IQ2_BN_R4, &m, 4, 512, "row 1, group 5");
    expect_refusal(FORMAT_I2_S, &m, 4, 512, "row 1, group 5");
    must_encode(FORMAT_Q2_0, &m, 4, 512, bytes);
    memset(m.codes + 512 + 5 * 64, 1, 64); /* zeros adapt */
    must_encode(FORMAT_I2_S, &m, 4, 512, bytes);
    make_plain(&m, 4, 512, 512);
    m.scales[3] = 2;
    expect_refusal(FORMAT_I2_S_4ROW, &m, 4, 512, "row 3, group 0 of 512 weights");
    must_encode(FORMAT_IQ1_BN, &m, 4, 512, bytes);
}

static void test_scales_that_f16_cannot_hold_are_refused(void **state)
{
    (void)state;
    static const float inexact[] = {0x1p-25f, 65520, 1.0001f, 0x1.8p-24f, INFINITY, NAN};
    static struct matrix m;
    static uint8_t bytes[MAX_BYTES];
    for (int i = 0; i < 6; i++) {
        make_plain(&m, 4, 256, 256);
        m.scales[2] = inexact[i];
        expect_refusal(FORMAT_TQ2_0, &m, 4, 256, "row 2, group 0 of 256 weights");
        expect_refusal(FORMAT_IQ1_BN, &m, 4, 256, "cannot hold the scale");
        if (isfinite(inexact[i]))
            must_encode(FORMAT_IQ2_BN, &m, 4, 256, bytes);
        else
            expect_refusal(FORMAT_IQ2_BN, &m, 4, 256, "cannot hold the scale");
    }
}

static void test_code_3_stays_among_2_bit_types(void **state)
{
    (void)state;
    static const enum format_id two_bits[] = {FORMAT_TQ2_0, FORMAT_Q2_0,   FORMAT_Q2_0_G128,
                                              FORMAT_PQ2_0, FORMAT_IQ2_BN, FORMAT_IQ2_BN_R4};
    static struct matrix m, again;
    static uint8_t bytes[MAX_BYTES];
    make_plain(&m, 4, 256, 128);
    m.codes[3 * 256 + 200] = 3;
    expect_refusal(FORMAT_TQ1_0, &m, 4, 256, "row 3, group 1 of 128 weights: holds +2");
    expect_refusal(FORMAT_PTQ1_0, &m, 4, 256, "row 3, group 1");
    expect_refusal(FORMAT_IQ1_BN, &m, 4, 256, "row 3, group 1");
    expect_refusal(FORMAT_I2_S, &m, 4, 256, "row 3, group 1");
    for (int i = 0; i < 6; i++) {
        must_encode(two_bits[i], &m, 4, 256, bytes);
        extract(two_bits[i], bytes, 4, 256, &again);
        assert_memory_equal(again.codes, m.codes, 4 * 256);
    }
}

static void test_codes_under_scale_0_are_zeros(void **state)
{
    (void)state;
    static struct matrix m, again;
    static uint8_t bytes[MAX_BYTES];
    make_plain(&m, 4, 256, 256);
    m.scales[1] = 0;
    m.codes[256] = 3;
    must_encode(FORMAT_I2_S, &m, 4, 256, bytes);
    extract(FORMAT_I2_S, bytes, 4, 256, &again);
    for (int i = 0; i < 4 * 256; i++)
        assert_int_equal(again.codes[i], i / 256 == 1 ? 1 : 2);
    must_encode(FORMAT_IQ2_BN, &m, 4, 256, bytes);
    extract(FORMAT_IQ2_BN, bytes, 4, 256, &again);
    assert_memory_equal(again.codes, m.codes, 4 * 256);
    assert_true(again.scales[1] == 0);
}

static void test_odd_bytes_become_canonical(void **state)
{
    (void)state;
    static struct matrix m, again;
    uint8_t block[54], first[54], second[54];
    for (int base = 0; base < 256; base += 48) {
        for (int i = 0; i < 52; i++)
            block[i] = (uint8_t)(base + i);
        store_u16(block + 52, 0x3c00);
        extract(FORMAT_TQ1_0, block, 1, 256, &m);
        must_encode(FORMAT_TQ1_0, &m, 1, 256, first);
        extract(FORMAT_TQ1_0, first, 1, 256, &again);
        assert_memory_equal(again.codes, m.codes, 256);
        must_encode(FORMAT_TQ1_0, &again, 1, 256, second);
        assert_memory_equal(first, second, 54);
    }
}

static void test_float_rows_are_recognized(void **state)
{
    (void)state;
    float row[128] = {0}, scales[2];
    uint8_t codes[128];
    assert_true(ternary_find(row, 128, 128, codes, scales));
    assert_true(scales[0] == 0 && codes[0] == 1 && codes[127] == 1);
    row[3] = -0.1f;
    row[64] = 0.3f;
    row[65] = -0.0f;
    assert_false(ternary_find(row, 128, 128, codes, scales));
    assert_true(ternary_find(row, 128, 64, codes, scales));
    assert_true(scales[0] == 0.1f && scales[1] == 0.3f);
    assert_int_equal(codes[3], 0);
    assert_int_equal(codes[64], 2);
    assert_int_equal(codes[65], 1);
    row[70] = nextafterf(0.3f, 1);
    assert_false(ternary_find(row, 128, 64, codes, scales));
    row[70] = NAN;
    assert_false(ternary_find(row, 128, 64, codes, scales));
    row[70] = row[64] = INFINITY;
    assert_false(ternary_find(row, 128, 64, codes, scales));
}

static void test_wrong_shapes_are_refused(void **state)
{
    (void)state;
    static struct matrix m;
    static uint8_t bytes[MAX_BYTES];
    struct error err;
    make_plain(&m, 3, 320, 64);
    assert_int_equal(encode(FORMAT_TQ1_0, &m, 3, 320, bytes, &err), STATUS_FORMAT);
    assert_int_equal(encode(FORMAT_IQ2_BN_R4, &m, 3, 320, bytes, &err), STATUS_FORMAT);
    assert_int_equal(encode(FORMAT_I2_S, &m, 3, 320, bytes, &err), STATUS_FORMAT);
    assert_int_equal(encode(FORMAT_IQ2_BN, &m, 3, 320, bytes, &err), STATUS_OK);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pair_of_formats_round_trips),
        cmocka_unit_test(test_scales_per_group_survive_in_smaller_groups),
        cmocka_unit_test(test_different_scales_in_one_group_are_refused),
        cmocka_unit_test(test_scales_that_f16_cannot_hold_are_refused),
        cmocka_unit_test(test_code_3_stays_among_2_bit_types),
        cmocka_unit_test(test_codes_under_scale_0_are_zeros),
        cmocka_unit_test(test_odd_bytes_become_canonical),
        cmocka_unit_test(test_float_rows_are_recognized),
        cmocka_unit_test(test_wrong_shapes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
