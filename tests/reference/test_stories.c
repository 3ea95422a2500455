/* A real trained model of 260,000 weights: greedy ids, logits and top-5 lists of an independent
 * double-precision pass. */
#include <math.h>
#include <stdlib.h>

#include "../support.h"
#include "model/model_load.h"
#include "reference/reference.h"

#define N_VOCAB 512

static json_t *golden;

static int greedy(const float *logits)
{
    int best = 0;
    for (int i = 1; i < N_VOCAB; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* The k-th best id, counting from 0, of the logits. */
static int ranked(const float *logits, int k)
{
    for (int i = 0; i < N_VOCAB; i++) {
        int better = 0;
        for (int j = 0; j < N_VOCAB; j++)
            better += logits[j] > logits[i] || (logits[j] == logits[i] && j < i);
        if (better == k)
            return i;
    }
    return -1;
}

/* The goldens are written with 5 decimals. */
static void check_top5(const float *logits, const json_t *expected)
{
    for (int k = 0; k < 5; k++) {
        const json_t *pair = json_array_get(expected, (size_t)k);
        int id = (int)json_integer_value(json_array_get(pair, 0));
        assert_int_equal(ranked(logits, k), id);
        assert_true(fabs(logits[id] - json_number_value(json_array_get(pair, 1))) < 5e-5);
    }
}

static void run_and_check(const struct model *model)
{
    struct reference_options options = {.n_ctx = 256, .max_batch = 1};
    struct reference *ref;
    assert_int_equal(reference_open(&ref, model, &options, NULL), STATUS_OK);
    const json_t *ids = json_object_get(golden, "ids");
    const json_t *positions = json_object_get(golden, "top5_positions");
    const json_t *top5 = json_object_get(golden, "top5_per_position");
    const json_t *first = json_object_get(golden, "logits_after_bos");
    float logits[N_VOCAB];
    size_t n_checked = 0;
    for (size_t pos = 0; pos + 1 < json_array_size(ids); pos++) {
        int32_t token = (int32_t)json_integer_value(json_array_get(ids, pos));
        reference_forward(ref, &token, 1, logits, 1);
        assert_int_equal(greedy(logits), json_integer_value(json_array_get(ids, pos + 1)));
        for (size_t i = 0; pos == 0 && i < json_array_size(first); i++)
            assert_true(fabs(logits[i] - json_number_value(json_array_get(first, i))) < 5e-5);
        if (pos == (size_t)json_integer_value(json_array_get(positions, n_checked)))
            check_top5(logits, json_array_get(top5, n_checked++));
    }
    assert_int_equal(json_array_size(first), N_VOCAB);
    assert_int_equal(n_checked, json_array_size(positions));
    reference_close(ref);
}

static void test_greedy_ids_and_logits(void **state)
{
    (void)state;
    const char *path = asset_path("stories260K.gguf");
    NEED(path, "stories260K.gguf (make test ASSETS=DIR)");
    struct error err;
    struct model model;
    if (model_open(&model, path, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    golden = json_load_file("tests/golden/stories260K.golden.json", 0, NULL);
    assert_non_null(golden);
    run_and_check(&model);
    json_decref(golden);
    model_close(&model);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_greedy_ids_and_logits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
