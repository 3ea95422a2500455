#include "gguf/gguf_write.h"

#include <stdio.h>
#include <unistd.h>

#include "build_bytes.h"
#include "gguf/gguf_metadata.h"
#include "tensor/formats.h"

static struct error err;

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != STATUS_OK)                                                                   \
            fail_msg("%s", err.text);                                                              \
    } while (0)

/* One pair by each function. */
static enum status put_pairs(struct gguf_writer *w)
{
    static const float floats[] = {1.5f, -0.0f, 3e38f};
    static const int32_t integers[] = {0, -1, INT32_MIN};
    const struct text strings[] = {text_of("one"), {"", 0}, {"a\0b", 3}};
    TRY(gguf_put_u32(w, "general.alignment", 64, &err));
    TRY(gguf_put_u32(w, "u32", 4000000000u, &err));
    TRY(gguf_put_f32(w, "f32", 0.1f, &err));
    TRY(gguf_put_bool(w, "bool", true, &err));
    TRY(gguf_put_string(w, "string", text_of("text"), &err));
    TRY(gguf_put_strings(w, "strings", strings, 3, &err));
    TRY(gguf_put_f32s(w, "floats", floats, 3, &err));
    TRY(gguf_put_i32s(w, "integers", integers, 3, &err));
    return gguf_put_strings(w, "empty", NULL, 0, &err);
}

static const uint8_t data[160] = {1, 2, 3, 4, 5};

static enum status put_tensors(struct gguf_writer *w)
{
    TRY(gguf_put_tensor(w, text_of("a"), 2, (uint64_t[]){5, 2}, 0, 40, &err));
    TRY(gguf_put_tensor(w, text_of("b"), 0, NULL, 0, 4, &err));
    TRY(gguf_put_tensor(w, text_of("c"), 4, (uint64_t[]){32, 1, 2, 1}, 8, 68, &err));
    TRY(gguf_write_header(w, &err));
    TRY(gguf_write_data(w, data, 30, &err)); /* part of a */
    TRY(gguf_write_data(w, data, 14, &err)); /* the rest of a, and b */
    TRY(gguf_write_data(w, data, 0, &err));
    return gguf_write_data(w, data, 68, &err);
}

static enum status write_sample(const char *path, struct gguf_writer *w)
{
    TRY(gguf_writer_open(w, path, &err));
    TRY(put_pairs(w));
    TRY(put_tensors(w));
    TRY(gguf_writer_flush(w, &err));
    return gguf_writer_commit(w, &err);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct gguf_writer w;
    struct gguf_file file;
    const char *path = scratch_path("round_trip.gguf");
    OK(write_sample(path, &w));
    gguf_writer_close(&w);
    OK(gguf_open(&file, path, format_resolve, &err));
    assert_int_equal(file.n_pairs, 9);
    assert_int_equal(file.shards[0].version, 3);
    assert_int_equal(file.shards[0].alignment, 64);
    assert_int_equal(file.shards[0].data_offset % 64, 0);
    assert_int_equal(file.shards[0].size % 64, 0);
    int64_t integer;
    double number;
    bool flag = false;
    struct text text;
    OK(gguf_integer(&file, "u32", 0, UINT32_MAX, &integer, &err));
    OK(gguf_number(&file, "f32", &number, &err));
    OK(gguf_optional_bool(&file, "bool", &flag, &err));
    OK(gguf_string(&file, "string", &text, &err));
    assert_true(integer == 4000000000 && number == (double)0.1f && flag && text_is(text, "text"));
    uint64_t at = 0;
    const struct gguf_pair *strings = gguf_find(&file, "strings");
    assert_int_equal(strings->count, 3);
    gguf_next_string(strings, &at);
    gguf_next_string(strings, &at);
    text = gguf_next_string(strings, &at);
    assert_int_equal(text.n, 3);
    assert_memory_equal(text.bytes, "a\0b", 3);
    assert_true(gguf_element_integer(gguf_find(&file, "integers"), 2) == INT32_MIN);
    assert_true(gguf_element_number(gguf_find(&file, "floats"), 2) == (double)3e38f);
    assert_int_equal(gguf_find(&file, "empty")->count, 0);
    gguf_close(&file);
}

static void test_tensors(void **state)
{
    (void)state;
    struct gguf_writer w;
    struct gguf_file file;
    const char *path = scratch_path("tensors.gguf");
    OK(write_sample(path, &w));
    gguf_writer_close(&w);
    OK(gguf_open(&file, path, format_resolve, &err));
    assert_int_equal(file.n_tensors, 3);
    const struct gguf_tensor *a = gguf_find_tensor(&file, "a"), *b = gguf_find_tensor(&file, "b");
    const struct gguf_tensor *c = gguf_find_tensor(&file, "c");
    assert_int_equal(a->span.offset, 0);
    assert_int_equal(b->span.offset, 64);
    assert_int_equal(c->span.offset, 128);
    assert_int_equal(a->span.ne[0], 5);
    assert_int_equal(b->n_dims, 0);
    assert_int_equal(c->span.ne[2], 2);
    assert_int_equal(c->span.format, FORMAT_Q8_0);
    assert_memory_equal(a->data, data, 30);
    assert_memory_equal(a->data + 30, data, 10);
    assert_memory_equal(b->data, data + 10, 4);
    assert_memory_equal(c->data, data, 68);
    for (int i = 40; i < 64; i++)
        assert_int_equal(a->data[i], 0);
    gguf_close(&file);
}

/* Copies all pairs of a golden file; the pairs must come out byte for byte. */
static void copy_pairs(json_t *line)
{
    if (strcmp(json_string_value(json_object_get(line, "name")), "ok_all_kv_types") != 0)
        return;
    size_t n;
    uint8_t *bytes = from_hex(json_string_value(json_object_get(line, "file")), &n);
    struct gguf_file file;
    OK(gguf_open_bytes(&file, bytes, n, "x.gguf", format_resolve, &err));
    assert_int_equal(file.n_pairs, 27);
    const char *path = scratch_path("copy.gguf");
    struct gguf_writer w;
    OK(gguf_writer_open(&w, path, &err));
    for (size_t i = 0; i < file.n_pairs; i++)
        OK(gguf_put_pair(&w, &file.pairs[i], &err));
    OK(gguf_write_header(&w, &err));
    OK(gguf_writer_commit(&w, &err));
    gguf_writer_close(&w);
    gguf_close(&file);
    size_t copy_n;
    char *copy = read_whole(path, &copy_n);
    assert_int_equal(copy_n, n);
    assert_memory_equal(copy, bytes, n);
    free(copy);
    free(bytes);
}

static void test_pairs_are_copied_exactly(void **state)
{
    (void)state;
    each_json_line("tests/golden/gguf_cases.jsonl", copy_pairs);
}

static void test_alignment(void **state)
{
    (void)state;
    struct gguf_writer w;
    OK(gguf_writer_open(&w, scratch_path("alignment.gguf"), &err));
    assert_int_equal(w.alignment, 32);
    assert_int_equal(gguf_put_u32(&w, "general.alignment", 24, &err), STATUS_FORMAT);
    assert_non_null(strstr(err.text, "alignment 24, expected a power of two"));
    assert_int_equal(w.n_pairs, 0);
    uint8_t value[4] = {128};
    struct gguf_pair pair = {text_of("general.alignment"), GGUF_UINT32, GGUF_UINT32, 1, value, 4};
    OK(gguf_put_pair(&w, &pair, &err));
    assert_int_equal(w.alignment, 128);
    gguf_writer_close(&w);
}

static void test_nothing_before_commit(void **state)
{
    (void)state;
    const char *path = scratch_path("uncommitted.gguf");
    struct gguf_writer w;
    struct gguf_file file;
    OK(gguf_writer_open(&w, path, &err));
    OK(put_pairs(&w));
    OK(put_tensors(&w));
    OK(gguf_writer_flush(&w, &err));
    assert_int_equal(access(path, F_OK), -1);
    OK(gguf_open(&file, gguf_writer_name(&w), format_resolve, &err));
    assert_int_equal(file.n_tensors, 3);
    gguf_close(&file);
    gguf_writer_close(&w);
    gguf_writer_close(&w);
    assert_int_equal(access(path, F_OK), -1);
    struct gguf_writer zeroed = {0};
    gguf_writer_close(&zeroed);
}

static void test_tensor_too_large(void **state)
{
    (void)state;
    struct gguf_writer w;
    uint64_t ne[] = {1};
    OK(gguf_writer_open(&w, scratch_path("large.gguf"), &err));
    OK(gguf_put_tensor(&w, text_of("a"), 1, ne, 0, 1ull << 62, &err));
    assert_int_equal(gguf_put_tensor(&w, text_of("b"), 1, ne, 0, 1ull << 62, &err), STATUS_LIMIT);
    assert_int_equal(gguf_put_tensor(&w, text_of("b"), 1, ne, 0, UINT64_MAX, &err), STATUS_LIMIT);
    gguf_writer_close(&w);
}

static void test_full_disk(void **state)
{
    (void)state;
    struct gguf_writer w;
    assert_int_equal(write_sample("/dev/full", &w), STATUS_IO);
    assert_non_null(strstr(err.text, "/dev/full"));
    assert_non_null(strstr(err.text, "No space left"));
    gguf_writer_close(&w);
    assert_int_equal(gguf_writer_open(&w, scratch_path("no/folder.gguf"), &err), STATUS_IO);
    gguf_writer_close(&w);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    const char *path = scratch_path("memory.gguf");
    enum status status = STATUS_MEMORY;
    int n = 0;
    for (; status == STATUS_MEMORY; n++) {
        struct gguf_writer w;
        memory_fail_after(n);
        status = write_sample(path, &w);
        memory_fail_after(-1);
        gguf_writer_close(&w);
        assert_int_equal(access(path, F_OK), status == STATUS_OK ? 0 : -1);
    }
    assert_int_equal(status, STATUS_OK);
    assert_true(n > 4);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_pairs_are_copied_exactly),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_nothing_before_commit),
        cmocka_unit_test(test_tensor_too_large),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
