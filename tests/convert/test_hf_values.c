/* Values of tensors: what is written must be what was examined. */
#include "../support.h"
#include "base/reader.h"
#include "convert/hf_tensors.h"

/* Two rows of 64 weights, 0 or 1/2, of which one changes after they were found to be ternary. */
static void test_changed_rows_are_refused(void **state)
{
    (void)state;
    enum { ROWS = 2, COLS = 64 };
    static uint8_t data[ROWS * COLS * 4], out[4096];
    for (int i = 0; i < ROWS * COLS; i++)
        store_f32(data + 4 * i, i % 3 ? 0.5f : 0);
    const struct safetensor source = {.name = {"w", 1},
                                      .type = SAFETENSOR_F32,
                                      .n_dims = 2,
                                      .shape = {ROWS, COLS},
                                      .data = data,
                                      .bytes = sizeof data};
    struct hf_tensor t = {
        .name = "w", .rows = ROWS, .cols = COLS, .kind = HF_ORDINARY, .source = &source};
    struct error err = {0};
    assert_int_equal(hf_tensor_examine(&t, false, &err), STATUS_OK);
    assert_int_equal(t.kind, HF_TERNARY_FOUND);
    assert_int_equal(hf_tensor_encode(&t, FORMAT_IQ2_BN, "F: tensor 'w'", out, &err), STATUS_OK);
    store_f32(data + 4 * (COLS + 5), 0.25f);
    assert_int_equal(hf_tensor_encode(&t, FORMAT_IQ2_BN, "F: tensor 'w'", out, &err),
                     STATUS_FORMAT);
    assert_non_null(strstr(err.text, "F: tensor 'w': row 1 is not ternary"));
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_changed_rows_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
