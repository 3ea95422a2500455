/* Split models: several files read as one. */
#include "gguf/gguf_split.h"

#include <stdio.h>
#include <unistd.h>

#include "build_bytes.h"
#include "gguf/gguf_metadata.h"
#include "gguf/gguf_write.h"
#include "tensor/formats.h"

static struct error err;

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != STATUS_OK)                                                                   \
            fail_msg("%s", err.text);                                                              \
    } while (0)

/* One file of a split model; what a test does not set follows from no and count. */
struct part {
    int no, count, total; /* the keys; 0 leaves the key total out */
    int tensor;           /* number in the name of its first tensor; it has two */
    bool is_keyless;      /* leaves split.no and split.count out */
};

static void put_part_pairs(struct gguf_writer *w, const struct part *part)
{
    if (part->no == 0)
        OK(gguf_put_string(w, "general.name", text_of("split"), &err));
    /* the first file has its own alignment; tools do not repeat the key in the others */
    if (part->no == 0)
        OK(gguf_put_u32(w, "general.alignment", 64, &err));
    if (!part->is_keyless) {
        OK(gguf_put_u32(w, "split.no", (uint32_t)part->no, &err));
        OK(gguf_put_u32(w, "split.count", (uint32_t)part->count, &err));
    }
    if (part->total)
        OK(gguf_put_u32(w, "split.tensors.count", (uint32_t)part->total, &err));
}

static void write_part(const char *path, const struct part *part)
{
    struct gguf_writer w;
    OK(gguf_writer_open(&w, path, &err));
    put_part_pairs(&w, part);
    float values[5];
    for (int i = 0; i < 2; i++) {
        char name[32];
        snprintf(name, sizeof name, "blk.%d.weight", part->tensor + i);
        OK(gguf_put_tensor(&w, text_of(name), 1, (uint64_t[]){5}, 0, sizeof values, &err));
    }
    OK(gguf_write_header(&w, &err));
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 5; k++)
            values[k] = (float)(part->tensor + i);
        OK(gguf_write_data(&w, values, sizeof values, &err));
    }
    OK(gguf_writer_commit(&w, &err));
    gguf_writer_close(&w);
}

static const char *part_path(const char *prefix, int no, int count)
{
    char name[64];
    snprintf(name, sizeof name, "%s-%05d-of-%05d.gguf", prefix, no + 1, count);
    return scratch_path(name);
}

/* A whole model of `count` files. */
static void write_model(const char *prefix, int count)
{
    for (int i = 0; i < count; i++)
        write_part(part_path(prefix, i, count), &(struct part){i, count, 2 * count, 2 * i, false});
}

static void assert_refused(const char *path, enum status status, const char *one, const char *two)
{
    struct gguf_file file;
    enum status found = gguf_open(&file, path, format_resolve, &err);
    gguf_close(&file);
    if (found != status || !strstr(err.text, one) || !strstr(err.text, two))
        fail_msg("status %d, expected %d with '%s' and '%s': %s", found, status, one, two,
                 err.text);
}

static void check_model(const char *prefix, int count)
{
    struct gguf_file file;
    write_model(prefix, count);
    OK(gguf_open(&file, part_path(prefix, 0, count), format_resolve, &err));
    assert_int_equal(file.n_shards, count);
    assert_int_equal(file.n_tensors, 2 * count);
    assert_int_equal(file.n_pairs, 5);
    for (int i = 0; i < 2 * count; i++) {
        char name[32];
        snprintf(name, sizeof name, "blk.%d.weight", i);
        const struct gguf_tensor *tensor = gguf_find_tensor(&file, name);
        assert_non_null(tensor);
        assert_int_equal(tensor->span.shard, i / 2);
        assert_int_equal(tensor->span.is_last, i % 2);
        assert_true(load_f32(tensor->data + 16) == (float)i);
        assert_int_equal(tensor->span.offset, i % 2 ? (i / 2 ? 32 : 64) : 0);
    }
    gguf_close(&file);
}

static void test_two_files(void **state)
{
    (void)state;
    check_model("two", 2);
}

static void test_three_files(void **state)
{
    (void)state;
    check_model("three", 3);
}

static void test_not_the_first(void **state)
{
    (void)state;
    write_model("second", 3);
    assert_refused(part_path("second", 1, 3), STATUS_UNSUPPORTED, "file 2 of 3 of a split model",
                   "second-00001-of-00003.gguf");
    const char *renamed = scratch_path("renamed.gguf");
    write_part(renamed, &(struct part){2, 3, 6, 4, false});
    assert_refused(renamed, STATUS_UNSUPPORTED, "file 3 of 3", "open 00001-of-00003.gguf");
}

static void test_wrong_name(void **state)
{
    (void)state;
    const char *path = scratch_path("whole.gguf");
    write_part(path, &(struct part){0, 2, 4, 0, false});
    assert_refused(path, STATUS_FORMAT, path, "ends in -00001-of-00002.gguf");
    path = part_path("wrong", 0, 3);
    write_part(path, &(struct part){0, 2, 4, 0, false});
    assert_refused(path, STATUS_FORMAT, path, "ends in -00001-of-00002.gguf");
}

static void test_missing_file(void **state)
{
    (void)state;
    write_model("missing", 3);
    assert_int_equal(unlink(part_path("missing", 2, 3)), 0);
    assert_refused(part_path("missing", 0, 3), STATUS_IO, "missing-00003-of-00003.gguf",
                   "file 3 of the 3");
}

static void test_file_cut_short(void **state)
{
    (void)state;
    write_model("cut", 2);
    const char *second = part_path("cut", 1, 2);
    size_t n;
    char *bytes = read_whole(second, &n);
    write_whole(second, bytes, n - 32); /* 12 bytes of padding and 20 of the last tensor */
    free(bytes);
    assert_refused(part_path("cut", 0, 2), STATUS_FORMAT, "cut-00002-of-00002.gguf",
                   "'blk.3.weight' needs 20 bytes");
}

static void test_wrong_keys(void **state)
{
    (void)state;
    write_model("keys", 2);
    const char *first = part_path("keys", 0, 2), *second = part_path("keys", 1, 2);
    write_part(second, &(struct part){1, 3, 4, 2, false});
    assert_refused(first, STATUS_FORMAT, second, "'split.count' is 3, expected 2");
    write_part(second, &(struct part){0, 2, 4, 2, false});
    assert_refused(first, STATUS_FORMAT, second, "'split.no' is 0, expected 1");
    write_part(second, &(struct part){1, 2, 4, 2, true});
    assert_refused(first, STATUS_FORMAT, second, "'split.no' is absent");
    write_part(second, &(struct part){1, 2, 4, 2, false});
    write_part(first, &(struct part){0, 2, 5, 0, false});
    assert_refused(first, STATUS_FORMAT, "'split.tensors.count' is 5", "hold 4 tensors");
    write_part(first, &(struct part){0, 2, 0, 0, false});
    assert_refused(first, STATUS_FORMAT, "'split.tensors.count'", "absent");
}

static void test_duplicate_over_files(void **state)
{
    (void)state;
    write_model("twice", 2);
    const char *second = part_path("twice", 1, 2);
    write_part(second, &(struct part){1, 2, 4, 1, false});
    assert_refused(part_path("twice", 0, 2), STATUS_FORMAT, "tensor 'blk.1.weight' is also in",
                   second);
}

static void test_one_file_is_whole(void **state)
{
    (void)state;
    struct gguf_file file;
    const char *path = scratch_path("single.gguf");
    write_part(path, &(struct part){0, 1, 2, 0, false});
    OK(gguf_open(&file, path, format_resolve, &err));
    assert_int_equal(file.n_shards, 1);
    gguf_close(&file);
}

static void write_golden(json_t *line)
{
    const char *name = json_string_value(json_object_get(line, "name"));
    if (strncmp(name, "split-", 6) != 0)
        return;
    char file[64];
    snprintf(file, sizeof file, "%s.gguf", name);
    size_t n;
    uint8_t *bytes = from_hex(json_string_value(json_object_get(line, "file")), &n);
    write_whole(scratch_path(file), bytes, n);
    free(bytes);
}

static void test_golden(void **state)
{
    (void)state;
    struct gguf_file file;
    each_json_line("tests/golden/gguf_cases.jsonl", write_golden);
    OK(gguf_open(&file, scratch_path("split-00001-of-00002.gguf"), format_resolve, &err));
    assert_int_equal(file.n_shards, 2);
    assert_int_equal(file.n_tensors, 3);
    gguf_close(&file);
    assert_refused(scratch_path("split-00002-of-00002.gguf"), STATUS_UNSUPPORTED,
                   "file 2 of 2 of a split model", "split-00001-of-00002.gguf");
}

static void test_out_of_memory(void **state)
{
    (void)state;
    write_model("memory", 3);
    const char *path = part_path("memory", 0, 3);
    enum status status = STATUS_MEMORY;
    int n = 0;
    for (; status == STATUS_MEMORY; n++) {
        struct gguf_file file;
        memory_fail_after(n);
        status = gguf_open(&file, path, format_resolve, &err);
        memory_fail_after(-1);
        gguf_close(&file);
    }
    assert_int_equal(status, STATUS_OK);
    assert_true(n > 3);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_files),         cmocka_unit_test(test_three_files),
        cmocka_unit_test(test_not_the_first),     cmocka_unit_test(test_wrong_name),
        cmocka_unit_test(test_missing_file),      cmocka_unit_test(test_file_cut_short),
        cmocka_unit_test(test_wrong_keys),        cmocka_unit_test(test_duplicate_over_files),
        cmocka_unit_test(test_one_file_is_whole), cmocka_unit_test(test_golden),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
