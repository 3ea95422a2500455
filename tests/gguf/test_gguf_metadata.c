#include "gguf/gguf_metadata.h"

#include <math.h>

#include "build_bytes.h"

static struct error err;

/* No tensors here, so the rule has nothing to decide. */
static enum status no_tensors(struct tensor_span *spans, size_t n, const char *file,
                              struct error *error)
{
    (void)spans, (void)n, (void)file, (void)error;
    return STATUS_OK;
}

static struct bytes header;
static struct gguf_file file;

static void put_integer(const char *key, uint32_t type, uint64_t value, size_t n)
{
    uint8_t bytes[8];
    store_u64(bytes, value);
    put_key(&header, key, type);
    memcpy(put_room(&header, n), bytes, n);
}

static void put_f64(const char *key, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_integer(key, GGUF_FLOAT64, bits, 8);
}

static void put_f32(const char *key, float value)
{
    put_key(&header, key, GGUF_FLOAT32);
    store_f32(put_room(&header, 4), value);
}

static void put_string_value(const char *key, const char *text, size_t n)
{
    put_key(&header, key, GGUF_STRING);
    put_text(&header, text, n);
}

static void put_numbers(void)
{
    put_integer("u8", GGUF_UINT8, 200, 1);
    put_integer("i8", GGUF_INT8, (uint64_t)-3, 1);
    put_integer("u16", GGUF_UINT16, 60000, 2);
    put_integer("i16", GGUF_INT16, (uint64_t)-300, 2);
    put_integer("u32", GGUF_UINT32, 4000000000, 4);
    put_integer("i32", GGUF_INT32, (uint64_t)-70000, 4);
    put_integer("u64", GGUF_UINT64, 1ull << 40, 8);
    put_integer("u64max", GGUF_UINT64, UINT64_MAX, 8);
    put_integer("i64", GGUF_INT64, (uint64_t)INT64_MIN, 8);
    put_integer("no", GGUF_BOOL, 0, 1);
    put_integer("yes", GGUF_BOOL, 1, 1);
    put_integer("one", GGUF_INT32, 1, 4);
    put_f32("f32", 0.1f);
    put_f64("f64", 1e300);
    put_f32("infinite", INFINITY);
    put_f64("nan", NAN);
}

static void put_arrays(void)
{
    put_array(&header, "layers", GGUF_UINT32, 3);
    for (uint32_t i = 0; i < 3; i++)
        put_u32(&header, 4 + i);
    put_array(&header, "flags", GGUF_BOOL, 3);
    memcpy(put_room(&header, 3), "\1\0\1", 3);
    put_array(&header, "bytes", GGUF_INT8, 12);
    memset(put_room(&header, 12), 0xff, 12);
    put_array(&header, "floats", GGUF_FLOAT32, 2);
    store_f32(put_room(&header, 4), 0.5f);
    store_f32(put_room(&header, 4), -2.75f);
    put_array(&header, "words", GGUF_STRING, 3);
    put_text(&header, "one", 3);
    put_text(&header, "", 0);
    put_text(&header, "th\0ree", 6);
    put_array(&header, "nothing", GGUF_FLOAT64, 0);
    put_array(&header, "no words", GGUF_STRING, 0);
}

static int open_header(void **state)
{
    (void)state;
    put_head(&header, 3, 0, 0);
    put_numbers();
    put_arrays();
    put_string_value("name", "caf\xc3\xa9", 5);
    put_string_value("hostile", "a\33[2J\"\\\n\xff\xe2\x80\xae\xc2\x9b!", 15);
    put_string_value("long", "", 0);
    header.n -= 8;
    char text[300];
    memset(text, 'x', sizeof text);
    put_text(&header, text, sizeof text);
    store_u64(header.data + 16, 16 + 7 + 3);
    return gguf_open_bytes(&file, header.data, header.n, "x.gguf", no_tensors, &err);
}

static int close_header(void **state)
{
    (void)state;
    gguf_close(&file);
    drop(&header);
    return 0;
}

static int64_t integer(const char *key)
{
    int64_t value = 0;
    if (gguf_integer(&file, key, INT64_MIN, INT64_MAX, &value, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return value;
}

static void assert_text(const char *one, const char *two)
{
    assert_int_equal(strncmp(err.text, "x.gguf: key '", 13), 0);
    if (!strstr(err.text, one) || !strstr(err.text, two))
        fail_msg("text lacks '%s' or '%s': %s", one, two, err.text);
}

static void test_integers_of_any_width(void **state)
{
    (void)state;
    assert_int_equal(integer("u8"), 200);
    assert_int_equal(integer("i8"), -3);
    assert_int_equal(integer("u16"), 60000);
    assert_int_equal(integer("i16"), -300);
    assert_int_equal(integer("u32"), 4000000000);
    assert_int_equal(integer("i32"), -70000);
    assert_int_equal(integer("u64"), 1ll << 40);
    assert_true(integer("i64") == INT64_MIN);
}

static void test_integers_refused(void **state)
{
    (void)state;
    int64_t value = 7;
    assert_int_equal(gguf_integer(&file, "u8", 1, 199, &value, &err), STATUS_FORMAT);
    assert_text("'u8' is uint8 200", "an integer from 1 to 199");
    assert_int_equal(gguf_integer(&file, "i8", 0, 10, &value, &err), STATUS_FORMAT);
    assert_text("'i8' is int8 -3", "0 to 10");
    assert_int_equal(gguf_integer(&file, "u64max", 0, INT64_MAX, &value, &err), STATUS_FORMAT);
    assert_text("uint64 18446744073709551615", "expected");
    assert_int_equal(gguf_integer(&file, "u64max", INT64_MIN, -1, &value, &err), STATUS_FORMAT);
    assert_int_equal(gguf_integer(&file, "f32", 0, 10, &value, &err), STATUS_FORMAT);
    assert_text("float32 0.1", "an integer");
    assert_int_equal(gguf_integer(&file, "yes", 0, 10, &value, &err), STATUS_FORMAT);
    assert_text("bool true", "an integer");
    assert_int_equal(gguf_integer(&file, "name", 0, 10, &value, &err), STATUS_FORMAT);
    assert_text("string \"caf\xc3\xa9\"", "an integer");
    assert_int_equal(gguf_integer(&file, "layers", 0, 10, &value, &err), STATUS_FORMAT);
    assert_text("an array [uint32, 3] 4, 5, 6", "an integer");
    assert_int_equal(gguf_integer(&file, "missing", 0, 10, &value, &err), STATUS_FORMAT);
    assert_text("'missing' is absent", "an integer from 0 to 10");
    assert_int_equal(gguf_optional_integer(&file, "i8", 0, 10, &value, &err), STATUS_FORMAT);
    assert_int_equal(value, 7);
}

static void test_optional(void **state)
{
    (void)state;
    int64_t integer_value = 5;
    double number = 2.5;
    bool flag = true;
    struct text text = text_of("kept");
    assert_int_equal(gguf_optional_integer(&file, "missing", 0, 1, &integer_value, &err), 0);
    assert_int_equal(gguf_optional_number(&file, "missing", &number, &err), 0);
    assert_int_equal(gguf_optional_bool(&file, "missing", &flag, &err), 0);
    assert_int_equal(gguf_optional_string(&file, "missing", &text, &err), 0);
    assert_int_equal(integer_value, 5);
    assert_true(number == 2.5 && flag && text_is(text, "kept"));
    assert_int_equal(gguf_optional_integer(&file, "one", 0, 1, &integer_value, &err), 0);
    assert_int_equal(gguf_optional_number(&file, "f64", &number, &err), 0);
    assert_int_equal(gguf_optional_bool(&file, "no", &flag, &err), 0);
    assert_int_equal(gguf_optional_string(&file, "name", &text, &err), 0);
    assert_int_equal(integer_value, 1);
    assert_true(number == 1e300 && !flag && text_is(text, "caf\xc3\xa9"));
}

static void test_numbers(void **state)
{
    (void)state;
    double value = 3;
    assert_int_equal(gguf_number(&file, "f32", &value, &err), STATUS_OK);
    assert_true(value == (double)0.1f);
    assert_int_equal(gguf_number(&file, "f64", &value, &err), STATUS_OK);
    assert_true(value == 1e300);
    /* some tools write 1e6 as an integer */
    assert_int_equal(gguf_number(&file, "u8", &value, &err), STATUS_OK);
    value = 1e300;
    static const char *const refused[] = {"infinite", "nan", "yes", "name", "floats", "missing"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_int_equal(gguf_number(&file, refused[i], &value, &err), STATUS_FORMAT);
        assert_text(refused[i], "expected a finite number");
    }
    assert_int_equal(gguf_optional_number(&file, "nan", &value, &err), STATUS_FORMAT);
    assert_true(value == 1e300);
}

static void test_bools(void **state)
{
    (void)state;
    bool value = false;
    assert_int_equal(gguf_optional_bool(&file, "yes", &value, &err), STATUS_OK);
    assert_true(value);
    assert_int_equal(gguf_optional_bool(&file, "no", &value, &err), STATUS_OK);
    assert_false(value);
    assert_int_equal(gguf_optional_bool(&file, "one", &value, &err), STATUS_OK);
    assert_true(value);
    static const char *const refused[] = {"u8", "i8", "u64max", "f32", "name", "flags"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_int_equal(gguf_optional_bool(&file, refused[i], &value, &err), STATUS_FORMAT);
        assert_text(refused[i], "expected a bool");
    }
}

static void test_strings(void **state)
{
    (void)state;
    struct text value;
    assert_int_equal(gguf_string(&file, "name", &value, &err), STATUS_OK);
    assert_true(text_is(value, "caf\xc3\xa9"));
    assert_int_equal(gguf_string(&file, "u8", &value, &err), STATUS_FORMAT);
    assert_text("'u8' is uint8 200", "a string");
    assert_int_equal(gguf_string(&file, "words", &value, &err), STATUS_FORMAT);
    assert_int_equal(gguf_string(&file, "missing", &value, &err), STATUS_FORMAT);
    assert_int_equal(gguf_optional_string(&file, "one", &value, &err), STATUS_FORMAT);
}

static void test_per_layer(void **state)
{
    (void)state;
    int32_t v[4] = {9, 9, 9, 9};
    assert_int_equal(gguf_integers_per_layer(&file, "missing", true, 0, 9, v, 3, &err), 0);
    assert_int_equal(v[0], 9);
    assert_int_equal(gguf_integers_per_layer(&file, "layers", false, 0, 9, v, 3, &err), 0);
    assert_true(v[0] == 4 && v[1] == 5 && v[2] == 6 && v[3] == 9);
    assert_int_equal(gguf_integers_per_layer(&file, "one", false, 0, 9, v, 3, &err), 0);
    assert_true(v[0] == 1 && v[1] == 1 && v[2] == 1 && v[3] == 9);
    assert_int_equal(gguf_integers_per_layer(&file, "flags", false, 0, 1, v, 3, &err), 0);
    assert_true(v[0] == 1 && v[1] == 0 && v[2] == 1);
    assert_int_equal(gguf_integers_per_layer(&file, "missing", false, 0, 9, v, 3, &err),
                     STATUS_FORMAT);
    assert_text("absent", "0 to 9, or an array of 3 of them");
    assert_int_equal(gguf_integers_per_layer(&file, "layers", true, 0, 9, v, 4, &err),
                     STATUS_FORMAT);
    assert_text("[uint32, 3]", "an array of 4");
    assert_int_equal(gguf_integers_per_layer(&file, "layers", true, 0, 5, v, 3, &err),
                     STATUS_FORMAT);
    assert_int_equal(gguf_integers_per_layer(&file, "floats", true, 0, 5, v, 2, &err),
                     STATUS_FORMAT);
    assert_int_equal(gguf_integers_per_layer(&file, "words", true, 0, 5, v, 3, &err),
                     STATUS_FORMAT);
    assert_int_equal(gguf_integers_per_layer(&file, "name", true, 0, 5, v, 3, &err), STATUS_FORMAT);
    assert_true(v[0] == 1 && v[1] == 0 && v[2] == 1);
}

static void test_elements(void **state)
{
    (void)state;
    assert_int_equal(gguf_element_integer(gguf_find(&file, "layers"), 2), 6);
    assert_int_equal(gguf_element_integer(gguf_find(&file, "bytes"), 11), -1);
    assert_int_equal(gguf_element_integer(gguf_find(&file, "flags"), 0), 1);
    assert_int_equal(gguf_element_integer(gguf_find(&file, "floats"), 1), -2);
    assert_true(gguf_element_integer(gguf_find(&file, "infinite"), 0) == INT64_MAX);
    assert_int_equal(gguf_element_integer(gguf_find(&file, "nan"), 0), 0);
    assert_true(gguf_element_number(gguf_find(&file, "floats"), 1) == -2.75);
    assert_true(gguf_element_number(gguf_find(&file, "u64max"), 0) == 0x1p64);
    assert_true(gguf_element_number(gguf_find(&file, "i16"), 0) == -300);
    static const enum gguf_type integers[] = {GGUF_UINT8,  GGUF_INT8,  GGUF_UINT16, GGUF_INT16,
                                              GGUF_UINT32, GGUF_INT32, GGUF_UINT64, GGUF_INT64};
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++)
        assert_true(gguf_is_integer_type(integers[i]));
    assert_false(gguf_is_integer_type(GGUF_BOOL));
    assert_false(gguf_is_integer_type(GGUF_FLOAT32));
    assert_false(gguf_is_integer_type(GGUF_STRING));
}

static void test_next_string(void **state)
{
    (void)state;
    uint64_t at = 0;
    const struct gguf_pair *words = gguf_find(&file, "words");
    assert_true(text_is(gguf_next_string(words, &at), "one"));
    assert_int_equal(gguf_next_string(words, &at).n, 0);
    struct text last = gguf_next_string(words, &at);
    assert_int_equal(last.n, 6);
    assert_memory_equal(last.bytes, "th\0ree", 6);
    assert_int_equal(at, words->data_bytes);
}

static void assert_described(const char *key, const char *expected)
{
    char text[256];
    int n = gguf_describe(gguf_find(&file, key), text, sizeof text);
    assert_string_equal(text, expected);
    assert_int_equal(n, strlen(expected));
}

static void test_describe(void **state)
{
    (void)state;
    assert_described("u8", "200");
    assert_described("i64", "-9223372036854775808");
    assert_described("u64max", "18446744073709551615");
    assert_described("yes", "true");
    assert_described("f32", "0.1");
    assert_described("f64", "1e+300");
    assert_described("name", "\"caf\xc3\xa9\"");
    assert_described("layers", "[uint32, 3] 4, 5, 6");
    assert_described("flags", "[bool, 3] true, false, true");
    assert_described("bytes", "[int8, 12] -1, -1, -1, -1, -1, -1, -1, -1, ...");
    assert_described("words", "[string, 3] \"one\", \"\", \"th?ree\"");
    assert_described("nothing", "[float64, 0]");
    assert_described("no words", "[string, 0]");
    assert_described("hostile", "\"a?[2J\\\"\\\\\\n?"
                                "?"
                                "?!\"");
    assert_string_equal(gguf_type_name(GGUF_FLOAT64), "float64");
    assert_string_equal(gguf_type_name((enum gguf_type)77), "unknown");
    assert_int_equal(gguf_type_bytes(GGUF_STRING), 0);
    assert_int_equal(gguf_type_bytes(GGUF_INT64), 8);
}

static void test_describe_cuts(void **state)
{
    (void)state;
    char text[256];
    gguf_describe(gguf_find(&file, "long"), text, sizeof text);
    assert_int_equal(strlen(text), 120 + 5);
    assert_string_equal(text + 118, "xxx...\"");
    for (size_t i = 0; i < file.n_pairs; i++)
        for (size_t size = 0; size < sizeof text; size++) {
            memset(text, '#', sizeof text);
            int n = gguf_describe(&file.pairs[i], text, size);
            if (size > 0)
                assert_int_equal(strlen(text), n);
            assert_true(size == 0 || (size_t)n < size);
            for (size_t k = size; k < sizeof text; k++)
                assert_int_equal(text[k], '#');
        }
    gguf_describe(gguf_find(&file, "name"), text, 6); /* no half characters */
    assert_string_equal(text, "\"caf");
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers_of_any_width),
        cmocka_unit_test(test_integers_refused),
        cmocka_unit_test(test_optional),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_bools),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_per_layer),
        cmocka_unit_test(test_elements),
        cmocka_unit_test(test_next_string),
        cmocka_unit_test(test_describe),
        cmocka_unit_test(test_describe_cuts),
    };
    return cmocka_run_group_tests(tests, open_header, close_header);
}
