/* `trine inspect` on files whose names and numbers are hostile: valid JSON, a quiet terminal. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../fixture.h"
#include "../support.h"
#include "gguf/gguf_write.h"

static const char *trine;

static const char *write_hostile(void)
{
    const char *path = scratch_path("hostile.gguf");
    struct gguf_writer w;
    const uint64_t ne[] = {1};
    const float numbers[] = {1, NAN, 2}, one = 1;
    assert_int_equal(gguf_writer_open(&w, path, NULL), STATUS_OK);
    gguf_put_string(&w, "general.architecture",
                    (struct text){"ll\xff"
                                  "ama",
                                  6},
                    NULL);
    gguf_put_string(&w, "general.name",
                    text_of("\x1b[31mred\n\xe2\x80\xae"
                            "backwards"),
                    NULL);
    gguf_put_f32s(&w, "numbers", numbers, 3, NULL);
    gguf_put_f32(&w, "infinite", INFINITY, NULL);
    gguf_put_string(&w, "k\xfe", text_of("first"), NULL);
    gguf_put_string(&w, "k\xff", text_of("second"), NULL);
    gguf_put_tensor(&w, (struct text){"\xff\xfe\x1b[2J", 6}, 1, ne, 0, 4, NULL);
    gguf_write_header(&w, NULL);
    gguf_write_data(&w, &one, 4, NULL);
    assert_int_equal(gguf_writer_commit(&w, NULL), STATUS_OK);
    gguf_writer_close(&w);
    return path;
}

static void test_json_of_hostile_names(void **state)
{
    (void)state;
    struct outcome o = run_command("%s inspect --json %s", trine, write_hostile());
    assert_int_equal(o.status, 0);
    json_error_t problem;
    json_t *report = json_loads(o.out, 0, &problem);
    if (!report)
        fail_msg("line %d: %s", problem.line, problem.text);
    json_t *metadata = json_object_get(report, "metadata");
    assert_int_equal(json_array_size(metadata), 6);
    json_t *numbers = json_object_get(json_array_get(metadata, 2), "value");
    assert_int_equal(json_array_size(numbers), 3);
    assert_true(json_is_null(json_array_get(numbers, 1)));
    assert_true(json_real_value(json_array_get(numbers, 2)) == 2);
    assert_true(json_is_null(json_object_get(json_array_get(metadata, 3), "value")));
    assert_string_equal(json_string_value(json_object_get(json_array_get(metadata, 5), "value")),
                        "second");
    assert_non_null(strstr(json_string_value(json_object_get(report, "model_problem")), "ll?ama"));
    assert_false(json_is_true(json_object_get(report, "runs")));
    json_decref(report);
    outcome_done(&o);
}

static void test_terminal_stays_quiet(void **state)
{
    (void)state;
    struct outcome o = run_command("%s inspect %s", trine, write_hostile());
    assert_int_equal(o.status, 0);
    assert_null(strchr(o.out, '\x1b'));
    assert_null(strstr(o.out, "\xe2\x80\xae"));
    assert_null(strchr(o.out, '\xff'));
    outcome_done(&o);
}

static void test_lost_output_is_a_failure(void **state)
{
    (void)state;
    const char *path = scratch_path("model.gguf");
    fixture_write(path, &(struct fixture){0});
    static const char *const ends[] = {"> /dev/full", "--json > /dev/full", ">&-"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        struct outcome o = run_command("%s inspect %s %s", trine, path, ends[i]);
        assert_int_equal(o.status, 1);
        assert_non_null(strstr(o.err, "cannot write"));
        outcome_done(&o);
    }
    struct outcome o = run_command("%s inspect %s | head -n 1", trine, path);
    assert_string_equal(o.err, "");
    outcome_done(&o);
}

/* A weight that is no number is found before anything runs, by every command. */
static void test_nan_weight(void **state)
{
    (void)state;
    size_t size;
    char *bytes = fixture_bytes(&(struct fixture){0}, &size);
    bytes[size - 1] = 0x7e; /* the last f16 weight of blk.1.ffn_down */
    const char *path = scratch_path("nan.gguf");
    write_whole(path, bytes, size);
    free(bytes);
    struct outcome o = run_command("%s inspect --brief %s", trine, path);
    assert_non_null(strstr(o.out, "runs       no: "));
    assert_non_null(strstr(o.out, "blk.1.ffn_down.weight"));
    outcome_done(&o);
    o = run_command("%s logits %s --tokens 1 -o %s.out", trine, path, path);
    assert_int_equal(o.status, 1);
    assert_non_null(strstr(o.err, "row 255, column 511"));
    outcome_done(&o);
}

/* A long path must not push the problem out of the message. */
static void test_long_path(void **state)
{
    (void)state;
    char path[3000] = "";
    while (strlen(path) < 2900)
        strcat(path, "./");
    struct outcome o = run_command("%s inspect %sabsent.gguf", trine, path);
    assert_int_equal(o.status, 1);
    assert_non_null(strstr(o.err, "No such file"));
    outcome_done(&o);
}

static int find_trine(void **state)
{
    (void)state;
    trine = build_path("trine");
    return 0;
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_of_hostile_names),
        cmocka_unit_test(test_terminal_stays_quiet),
        cmocka_unit_test(test_lost_output_is_a_failure),
        cmocka_unit_test(test_nan_weight),
        cmocka_unit_test(test_long_path),
    };
    return cmocka_run_group_tests(tests, find_trine, NULL);
}
