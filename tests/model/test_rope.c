/* Rotary embedding against an independent double-precision calculation, every variant. */
#include <math.h>
#include <string.h>

#include "../support.h"
#include "model/rope.h"

static double number_or(const json_t *object, const char *key, double otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static void check_variant(const json_t *v)
{
    const json_t *x = json_object_get(v, "x"), *y = json_object_get(v, "y");
    const json_t *factors = json_object_get(v, "freq_factors"), *yarn = json_object_get(v, "yarn");
    bool is_yarn = json_is_object(yarn);
    float divisors[128], head[256], cosines[128], sines[128];
    struct rope_config rope = {
        .pairs = strcmp(json_string_value(json_object_get(v, "pairing")), "norm") == 0
                     ? ROPE_ADJACENT
                     : ROPE_HALVES,
        .n_rot = (int)number_or(v, "n_rot", 0),
        .freq_base = number_or(v, "freq_base", 0),
        .freq_scale = number_or(v, "freq_scale", 1),
        .is_yarn = is_yarn && number_or(yarn, "ext_factor", 1) != 0,
        .attn_factor = is_yarn ? number_or(yarn, "attn_factor", 1) : 1,
        .original_ctx = is_yarn ? number_or(yarn, "orig_ctx", 0) : 0,
        .beta_fast = is_yarn ? number_or(yarn, "beta_fast", 32) : 32,
        .beta_slow = is_yarn ? number_or(yarn, "beta_slow", 1) : 1,
    };
    if (json_is_array(factors)) {
        for (size_t j = 0; j < json_array_size(factors); j++)
            divisors[j] = (float)json_number_value(json_array_get(factors, j));
        rope.factors = divisors;
    }
    for (size_t i = 0; i < json_array_size(x); i++)
        head[i] = (float)json_number_value(json_array_get(x, i));
    rope_angles(&rope, (int)number_or(v, "pos", 0), cosines, sines);
    rope_turn(&rope, cosines, sines, head);
    for (size_t i = 0; i < json_array_size(y); i++) {
        double expected = json_number_value(json_array_get(y, i));
        if (!(fabs(head[i] - expected) < 2e-6))
            fail_msg("%s: element %zu is %.9g, expected %.9g",
                     json_string_value(json_object_get(v, "name")), i, head[i], expected);
    }
}

static void test_all_variants(void **state)
{
    (void)state;
    json_t *ops = json_load_file("tests/golden/ops.json", 0, NULL);
    assert_non_null(ops);
    json_t *variants = json_object_get(ops, "rope"), *v;
    size_t i;
    json_array_foreach(variants, i, v) check_variant(v);
    assert_int_equal(json_array_size(variants), 7);
    json_decref(ops);
}

/* Position 0 turns nothing, and a turn keeps the length of a pair. */
static void test_turn_keeps_length(void **state)
{
    (void)state;
    struct rope_config rope = {
        .pairs = ROPE_HALVES, .n_rot = 8, .freq_base = 1e4, .freq_scale = 1, .attn_factor = 1};
    float head[8] = {1, 2, 3, 4, 5, 6, 7, 8}, cosines[4], sines[4];
    rope_angles(&rope, 0, cosines, sines);
    rope_turn(&rope, cosines, sines, head);
    for (int i = 0; i < 8; i++)
        assert_true(head[i] == (float)(i + 1));
    rope_angles(&rope, 100000, cosines, sines);
    rope_turn(&rope, cosines, sines, head);
    for (int j = 0; j < 4; j++) {
        double before = (j + 1) * (j + 1) + (j + 5) * (j + 5);
        double after = head[j] * head[j] + head[j + 4] * head[j + 4];
        assert_true(fabs(after / before - 1) < 1e-6);
    }
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_variants),
        cmocka_unit_test(test_turn_keeps_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
