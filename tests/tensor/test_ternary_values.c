/* Ternary values in formats that are not ternary: recognised if all of them are, packed as trits of the
 * same values, with the coarsest scales that hold them. */
#include <math.h>

#include "pack_run.h"

/* Random ternary values, one scale of that many bits per `each` weights, some groups of zeros. */
static float *ternary_floats(int64_t n_rows, int64_t n_cols, int64_t each, int scale_bits)
{
    float *values = malloc((size_t)(n_rows * n_cols) * sizeof *values), scale = 0;
    assert_non_null(values);
    for (int64_t i = 0; i < n_rows * n_cols; i++) {
        if (i % each == 0)
            scale = pick(4) ? (float)((1 << (scale_bits - 1)) + pick(1 << (scale_bits - 1))) : 0;
        values[i] = (float)(pick(3) - 1) * scale * 0x1p-12f;
    }
    return values;
}

/* Bytes of a format whose values are exactly these; Q4_0 and Q2_K by hand, because their encoders do
 * not look for it. */
static void encode_exactly(enum format_id id, const float *values, int64_t n_rows, int64_t n_cols,
                           uint8_t *out)
{
    const struct format *f = format_of(id);
    if (id != FORMAT_Q4_0 && id != FORMAT_Q2_K) {
        f->encode(values, n_rows, n_cols, out);
        return;
    }
    memset(out, 0, (size_t)(n_rows * n_cols / f->block * f->block_bytes));
    for (int64_t i = 0; i < n_rows * n_cols; i += f->block, values += f->block) {
        uint8_t *b = out + i / f->block * f->block_bytes;
        float scale = 0;
        for (int j = 0; j < f->block; j++)
            scale = values[j] != 0 ? (float)fabs((double)values[j]) : scale;
        uint16_t half = f32_to_f16(scale);
        store_u16(b + f->scale_at, half);
        for (int j = 0; j < f->block; j++) {
            int trit = (values[j] > 0) - (values[j] < 0);
            if (id == FORMAT_Q4_0)
                b[2 + j % 16] |= (uint8_t)((8 + trit) << j / 16 * 4);
            else
                b[16 + j / 128 * 32 + j % 32] |= (uint8_t)((1 + trit) << 2 * (j % 128 / 32));
        }
        if (id == FORMAT_Q2_K) { /* value = d * code - dmin */
            memset(b, 0x11, 16);
            store_u16(b + f->min_at, half);
        }
    }
}

static struct tensor tensor_of(enum format_id id, const float *values, int64_t n_rows,
                               int64_t n_cols)
{
    struct tensor t = {id, n_cols, n_rows, NULL, 0};
    assert_int_equal(format_bytes(id, (uint64_t)n_rows, (uint64_t)n_cols, "test", &t.bytes, NULL),
                     STATUS_OK);
    uint8_t *bytes = malloc(t.bytes);
    float *back = malloc((size_t)(n_rows * n_cols) * sizeof *back);
    assert_true(bytes && back);
    encode_exactly(id, values, n_rows, n_cols, bytes);
    t.data = bytes;
    tensor_decode(&t, 0, n_rows, back);
    for (int64_t i = 0; i < n_rows * n_cols && id != FORMAT_Q8_0; i++)
        assert_true(back[i] == values[i]);
    free(back);
    return t;
}

static void check_recognised(enum format_id id, int64_t n_cols, int64_t each, int scale_bits,
                             int group)
{
    enum { N_ROWS = 20 };
    float *values = ternary_floats(N_ROWS, n_cols, each, scale_bits);
    struct tensor t = tensor_of(id, values, N_ROWS, n_cols);
    struct pack_job job = {.source = {&t, NULL}, .n_sources = 1};
    struct packing_choice choice = choose(&t, true);
    if (choice.packing != PACKING_trits5 || choice.group != group || choice.has_code3)
        fail_msg("%s, %d columns, a scale per %d: %s, group %d, not %d", format_of(id)->name,
                 (int)n_cols, (int)each, packing_name(choice.packing), choice.group, group);
    assert_int_equal(choose(&t, false).packing, PACKING_trits4);
    job.w = (struct packed){choice.packing, choice.group, N_ROWS, n_cols, NULL};
    check_trits(&job, PACKING_trits4, choice);
    check_trits(&job, PACKING_trits5, choice);
    int step = group ? group : 64; /* a part of the columns */
    if (n_cols > step && n_cols % step == 0) {
        job.col0 = step;
        job.w.n_cols = n_cols - step;
        job.w.group = group;
        check_job(&job);
    }
    free((void *)t.data);
    free(values);
}

/* Ternary values in formats that are not ternary, with the coarsest scales that hold them. */
static void test_ternary_values_are_recognised(void **state)
{
    (void)state;
    static const enum format_id ids[] = {FORMAT_F16, FORMAT_BF16, FORMAT_Q4_0, FORMAT_Q2_K};
    random_init(&source, 8);
    for (int i = 0; i < 4; i++) {
        int bits = ids[i] == FORMAT_BF16 ? 8 : 11;
        check_recognised(ids[i], 512, 20 * 512, bits, 0);
        check_recognised(ids[i], 512, 512, bits, 0);
        check_recognised(ids[i], 1536, 256, bits, 256);
    }
    for (int i = 0; i < 3; i++) {
        int bits = ids[i] == FORMAT_BF16 ? 8 : 11;
        check_recognised(ids[i], 1536, 128, bits, 128);
        check_recognised(ids[i], 640, 128, bits, 128);
        check_recognised(ids[i], 1536, 64, bits, 64);
        check_recognised(ids[i], 320, 64, bits, 64);
        check_recognised(ids[i], 96, 96, bits, 0);
    }
    check_recognised(FORMAT_F16, 77, 77, 11, 0);
    check_recognised(FORMAT_Q8_0, 512, 512, 7, 0); /* 127 times a scale is f16 no more */
}

static bool is_recognised(enum format_id id, const float *values, int64_t n_rows, int64_t n_cols)
{
    struct tensor t = tensor_of(id, values, n_rows, n_cols);
    bool is_trits = packing_is_trits(choose(&t, false).packing);
    free((void *)t.data);
    return is_trits;
}

static void test_almost_ternary_is_not_recognised(void **state)
{
    (void)state;
    enum { N_ROWS = 5, N_COLS = 256, N = N_ROWS * N_COLS };
    random_init(&source, 9);
    float *values = ternary_floats(N_ROWS, N_COLS, N, 8);
    for (int i = 0; i < N; i++) /* not zero by chance */
        values[i] = (float)(i % 3 - 1);
    struct tensor t = tensor_of(FORMAT_F16, values, N_ROWS, N_COLS);
    uint8_t *last = (uint8_t *)t.data + t.bytes - 2;
    static const uint16_t odd[] = {0x3c01, 0x3bff, 0xbc01, 0x0001, 0x7c00, 0xfc00, 0x7e00};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) { /* one ulp off, denormal, inf, NaN */
        store_u16(last, odd[i]);
        assert_int_equal(choose(&t, true).packing, PACKING_f16);
    }
    store_u16(last, 0x8000); /* -0 is 0 */
    assert_int_equal(choose(&t, true).packing, PACKING_trits5);
    free((void *)t.data);
    assert_true(is_recognised(FORMAT_F16, values, N_ROWS, N_COLS));
    assert_false(is_recognised(FORMAT_F32, values, N_ROWS, N_COLS)); /* rounds nothing */
    assert_true(is_recognised(FORMAT_BF16, values, N_ROWS, N_COLS));
    for (int i = 0; i < N; i++) /* 2^100 is no f16: one scale per row holds it, groups do not */
        values[i] = (float)(i % 3 - 1) * 0x1p100f;
    assert_true(is_recognised(FORMAT_BF16, values, N_ROWS, N_COLS));
    values[N - 2] = 1;
    assert_false(is_recognised(FORMAT_BF16, values, N_ROWS, N_COLS));
    for (int i = 0; i < 64; i++) /* two scales within 64 */
        values[i] = i % 2 ? 1 : 2;
    assert_false(is_recognised(FORMAT_F16, values, 1, 64));
    for (int i = 0; i < 96; i++) /* several scales in a row that no group divides */
        values[i] = i < 64 ? 1 : 2;
    assert_false(is_recognised(FORMAT_F16, values, 1, 96));
    memset(values, 0, 64 * sizeof *values); /* zeros only: the outline of a model */
    assert_false(is_recognised(FORMAT_F16, values, 1, 64));
    for (int i = 0; i < 64; i++) /* nothing to gain */
        values[i] = 1;
    assert_false(is_recognised(FORMAT_F16, values, 1, 63));
    free(values);
}

/* One row as codes and scales, of floats and of halves. */
static void test_rows_are_read(void **state)
{
    (void)state;
    float values[128] = {0}, scales[2], scratch[TERNARY_SCRATCH(128) / 4];
    uint8_t codes[128];
    values[3] = -0.5f;
    values[64] = 0.25f;
    values[65] = -0.0f;
    for (int id = FORMAT_F32; id <= FORMAT_BF16; id++) {
        struct tensor t = tensor_of((enum format_id)id, values, 1, 128);
        assert_false(ternary_read(&t, 0, 128, scratch, codes, scales));
        assert_true(ternary_read(&t, 0, 64, scratch, codes, scales));
        assert_true(scales[0] == 0.5f && scales[1] == 0.25f);
        for (int i = 0; i < 128; i++)
            assert_int_equal(codes[i], i == 3 ? 0 : i == 64 ? 2 : 1);
        free((void *)t.data);
        values[3] = 0;
        t = tensor_of((enum format_id)id, values, 1, 128);
        assert_true(ternary_read(&t, 0, 128, scratch, codes, scales)); /* zeros fit to any scale */
        assert_true(scales[0] == 0.25f);
        free((void *)t.data);
        values[3] = -0.5f;
    }
}

/* A table of f16 scales holds those of f32 rows or does not: two sources of one matrix ask for it. */
static void test_scales_that_are_halves(void **state)
{
    (void)state;
    float values[4 * 128];
    for (int i = 0; i < 4 * 128; i++)
        values[i] = (float)(i % 3 - 1) * 0.5f;
    struct tensor t = tensor_of(FORMAT_IQ2_BN, values, 4, 128);
    assert_true(choose(&t, true).is_half);
    store_f32((uint8_t *)t.data + 3 * 36, 0.1f); /* the scale of the last row */
    assert_false(choose(&t, true).is_half);
    free((void *)t.data);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    isa_cap = cpu_best_isa();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ternary_values_are_recognised),
        cmocka_unit_test(test_almost_ternary_is_not_recognised),
        cmocka_unit_test(test_rows_are_read),
        cmocka_unit_test(test_scales_that_are_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
