/* Random weights have the mean and deviation asked for, and ternary ones convert without loss. */
#include "../support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/format_fill.h"
#include "tensor/ternary.h"

enum { N_COLS = 512, N_ROWS = 512 };

static uint8_t *filled(enum format_id id, float deviation, uint64_t seed, uint64_t *bytes)
{
    struct random random;
    random_init(&random, seed);
    assert_int_equal(format_bytes(id, N_ROWS, N_COLS, "x", bytes, NULL), STATUS_OK);
    uint8_t *out = malloc(*bytes); /* of the exact size: a sanitizer sees a byte too many */
    assert_non_null(out);
    format_fill_random(id, N_ROWS, N_COLS, deviation, &random, out);
    return out;
}

static void check_statistics(enum format_id id, float deviation)
{
    uint64_t bytes;
    uint8_t *data = filled(id, deviation, 7, &bytes);
    float *values = malloc(N_ROWS * N_COLS * sizeof *values);
    struct tensor t = {id, N_COLS, N_ROWS, data, bytes};
    struct error err;
    double sum = 0, squares = 0;
    assert_non_null(values);
    assert_int_equal(format_check_scales(&t, "x", &err), STATUS_OK);
    tensor_decode(&t, 0, N_ROWS, values);
    for (int i = 0; i < N_ROWS * N_COLS; i++) {
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
    }
    double mean = sum / (N_ROWS * N_COLS), rms = sqrt(squares / (N_ROWS * N_COLS));
    if (!(fabs(mean) < 0.05 * (double)deviation && fabs(rms / (double)deviation - 1) < 0.05))
        fail_msg("%s: mean %g, deviation %g; asked for %g", format_of(id)->name, mean, rms,
                 (double)deviation);
    free(values);
    free(data);
}

static void test_mean_and_deviation(void **state)
{
    (void)state;
    for (int id = 0; id < N_FORMATS; id++) {
        check_statistics((enum format_id)id, 0.02f);
        check_statistics((enum format_id)id, 0.001f);
        check_statistics((enum format_id)id, 3);
    }
}

/* A third of each code, one scale, and nothing that an encoder would write differently. */
static void check_ternary(enum format_id id)
{
    uint64_t bytes;
    uint8_t *data = filled(id, 0.02f, 8, &bytes), *again = malloc(bytes);
    uint8_t *codes = malloc(N_ROWS * N_COLS);
    float *scales = malloc(N_ROWS * N_COLS / 64 * sizeof *scales);
    struct ternary_rows rows = {codes, scales, 0};
    struct tensor t = {id, N_COLS, N_ROWS, data, bytes};
    int counts[4] = {0};
    assert_non_null(again && codes && scales ? again : NULL);
    ternary_extract(&t, 0, N_ROWS, &rows);
    for (int i = 0; i < N_ROWS * N_COLS; i++)
        counts[codes[i]]++;
    for (int i = 0; i < 3; i++)
        assert_true(abs(counts[i] - N_ROWS * N_COLS / 3) < N_ROWS * N_COLS / 100);
    assert_int_equal(counts[3], 0);
    for (int i = 0; i < N_ROWS * N_COLS / rows.group; i++)
        assert_true(scales[i] == scales[0]);
    assert_int_equal(ternary_encode(id, &rows, N_ROWS, N_COLS, "x", again, NULL), STATUS_OK);
    assert_memory_equal(data, again, bytes);
    free(data);
    free(again);
    free(codes);
    free(scales);
}

static void test_ternary_bytes_are_canonical(void **state)
{
    (void)state;
    for (int id = 0; id < N_FORMATS; id++)
        if (format_of((enum format_id)id)->is_ternary)
            check_ternary((enum format_id)id);
}

/* Rows in several calls: the same as in one when each call draws whole numbers of 64 bits. */
static void test_rows_come_in_pieces(void **state)
{
    (void)state;
    for (int id = 0; id < N_FORMATS; id++) {
        uint64_t bytes;
        uint8_t *whole = filled((enum format_id)id, 0.02f, 9, &bytes), *pieces = malloc(bytes);
        struct random random;
        size_t row = format_row_bytes((enum format_id)id, N_COLS);
        random_init(&random, 9);
        assert_non_null(pieces);
        for (int i = 0; i < N_ROWS; i += 128)
            format_fill_rows((enum format_id)id, 128, N_COLS, 0.02f, &random, pieces + i * row);
        format_fill_tail((enum format_id)id, 0.02f, pieces + N_ROWS * row);
        assert_memory_equal(whole, pieces, bytes);
        free(whole);
        free(pieces);
    }
}

static void test_seeds_differ(void **state)
{
    (void)state;
    uint64_t bytes;
    uint8_t *a = filled(FORMAT_TQ2_0, 1, 1, &bytes), *b = filled(FORMAT_TQ2_0, 1, 2, &bytes);
    assert_memory_not_equal(a, b, bytes);
    free(a);
    free(b);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mean_and_deviation),
        cmocka_unit_test(test_ternary_bytes_are_canonical),
        cmocka_unit_test(test_rows_come_in_pieces),
        cmocka_unit_test(test_seeds_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
