/* safetensors: what the format says, and what hostile files may say. */
#include "convert/safetensors.h"

#include "folder.h"

#define TENSOR(name, dtype, shape, begin, end)                                                     \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end   \
    "]}"

static void test_good(void **state)
{
    (void)state;
    size_t size;
    uint8_t *bytes = safetensors_bytes(
        "{\"__metadata__\":{\"format\":\"pt\"}," TENSOR("b", "BF16", "[2,3]", "4", "16") "," TENSOR(
            "a", "F32", "[]", "0", "4") "," TENSOR("empty", "U8", "[0,5]", "16", "16") "}   ",
        16, &size);
    bytes[size - 12] = 0x80;
    bytes[size - 11] = 0x3f; /* 1 in BF16 */
    struct safetensors s;
    assert_int_equal(safetensors_open_bytes(&s, bytes, size, "x", NULL), STATUS_OK);
    assert_int_equal(s.n_tensors, 3);
    const struct safetensor *b = safetensors_find(&s, "b");
    assert_non_null(b);
    assert_int_equal(b->type, SAFETENSOR_BF16);
    assert_int_equal(b->n_dims, 2);
    assert_int_equal(b->shape[0], 2);
    assert_int_equal(b->shape[1], 3);
    assert_int_equal(b->bytes, 12);
    assert_ptr_equal(b->data, bytes + size - 12);
    assert_int_equal(safetensor_count(b), 6);
    assert_int_equal(safetensor_count(safetensors_find(&s, "a")), 1);
    assert_int_equal(safetensor_count(safetensors_find(&s, "empty")), 0);
    assert_null(safetensors_find(&s, "c"));
    assert_null(safetensors_find(&s, ""));
    safetensors_close(&s);
    free(bytes);
}

static void expect_bytes_refused(const uint8_t *bytes, size_t size, const char *word)
{
    struct safetensors s;
    struct error err = {0};
    enum status status = safetensors_open_bytes(&s, bytes, size, "file.safetensors", &err);
    if (status == STATUS_OK || status != err.status || !strstr(err.text, word) ||
        strchr(err.text, '\n'))
        fail_msg("expected '%s', got: %s", word, err.text);
    assert_non_null(strstr(err.text, "file.safetensors"));
    safetensors_close(&s);
}

static void test_hostile_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header, *word;
        size_t data_bytes;
    } cases[] = {
        {"{" TENSOR("a", "F32", "[2]", "0", "8") "," TENSOR("b", "F32", "[2]", "4", "12") "}",
         "overlap", 12},
        {"{" TENSOR("a", "F32", "[2]", "0", "8") "}", "the last 4 bytes belong to no tensor", 12},
        {"{" TENSOR("a", "F32", "[2]", "4", "12") "}", "4 bytes before tensor 'a'", 12},
        {"{" TENSOR("a", "F32", "[2]", "0", "8") "}", "ends at byte 8 of 7", 7},
        {"{" TENSOR("a", "F32", "[3]", "0", "8") "}", "8 bytes of data, but its shape", 8},
        {"{" TENSOR("a", "F32", "[2]", "8", "0") "}", "expected 0 <= first <= second", 8},
        {"{" TENSOR("a", "F32", "[2]", "-8", "0") "}", "expected 0 <= first <= second", 8},
        {"{" TENSOR("a", "F32", "[-2]", "0", "8") "}", "dimension 0", 8},
        {"{" TENSOR("a", "F32", "[1.5]", "0", "8") "}", "dimension 0", 8},
        {"{" TENSOR("a", "F32", "[4294967296,4294967296]", "0", "8") "}", "64 bits", 8},
        {"{" TENSOR("a", "F32", "[99999999999999999999]", "0", "8") "}", "dimension 0", 8},
        {"{" TENSOR("a", "F32", "[1,1,1,1,1,1,1,1,2]", "0", "8") "}", "at most 8", 8},
        {"{" TENSOR("a", "F32", "2", "0", "8") "}", "'shape'", 8},
        {"{" TENSOR("a", "F31", "[2]", "0", "8") "}", "dtype is F31", 8},
        {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", "dtype is absent", 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", "data_offsets", 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", "data_offsets", 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,\"8\"]}}", "data_offsets", 8},
        {"{\"a\":[1]}", "described by a list", 8},
        {"{" TENSOR("a", "F32", "[1]", "0", "4") "," TENSOR("a", "F32", "[1]", "4", "8") "}",
         "duplicate", 8},
        {"[1]", "expected an object", 0},
        {"{\"a\":", "line 1", 0},
        {"", "line 1", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t size;
        uint8_t *bytes = safetensors_bytes(cases[i].header, cases[i].data_bytes, &size);
        expect_bytes_refused(bytes, size, cases[i].word);
        free(bytes);
    }
}

/* Lengths of the header beyond the file, beyond any file, and every prefix of a good file. */
static void test_lengths(void **state)
{
    (void)state;
    size_t size;
    uint8_t *bytes = safetensors_bytes("{" TENSOR("a", "F16", "[2,2]", "0", "8") "}", 8, &size);
    for (size_t n = 0; n < size; n++) {
        uint8_t *prefix = malloc(n ? n : 1); /* so that a read beyond it is seen */
        memcpy(prefix, bytes, n);
        struct safetensors s;
        assert_int_not_equal(safetensors_open_bytes(&s, prefix, n, "x", NULL), STATUS_OK);
        free(prefix);
    }
    static const uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 7, 100000001, 1000};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        store_u64(bytes, lengths[i]);
        expect_bytes_refused(bytes, size, "a header of");
    }
    expect_bytes_refused(bytes, 7, "7 bytes are no safetensors file");
    free(bytes);
}

static void expect_folder_refused(const char *dir, const char *word)
{
    struct safetensors s;
    struct error err = {0};
    if (safetensors_open(&s, scratch_path(dir), &err) == STATUS_OK || !strstr(err.text, word))
        fail_msg("%s: expected '%s', got: %s", dir, word, err.text);
}

static void write_shard(const char *dir, const char *name, const char *tensor)
{
    static struct tensor_file f;
    float value = 1;
    add_tensor(&f, tensor, "F32", 1, 0, &value, sizeof value);
    write_tensors(&f, in_folder(dir, name));
}

static void test_folders(void **state)
{
    (void)state;
    struct safetensors s;
    const char *index = in_folder("shards", "model.safetensors.index.json");
    expect_folder_refused("shards", "neither model.safetensors");
    write_text(in_folder("shards", "pytorch_model.bin"), "x");
    expect_folder_refused("shards", "pytorch_model.bin");

    write_shard("shards", "one", "a");
    write_shard("shards", "two", "b");
    write_text(index, "{\"weight_map\":{\"a\":\"one\",\"b\":\"two\"}}");
    assert_int_equal(safetensors_open(&s, scratch_path("shards"), NULL), STATUS_OK);
    assert_int_equal(s.n_files, 2);
    assert_non_null(safetensors_find(&s, "a"));
    assert_non_null(safetensors_find(&s, "b"));
    safetensors_close(&s);

    write_text(index, "{\"weight_map\":{\"a\":\"one\",\"b\":\"one\"}}");
    expect_folder_refused("shards", "'b' is listed, but one does not hold it");
    write_text(index, "{\"weight_map\":{\"a\":\"two\",\"b\":\"one\"}}");
    expect_folder_refused("shards", "the index says");
    write_text(index, "{\"weight_map\":{\"a\":\"one\",\"b\":\"three\"}}");
    expect_folder_refused("shards", "three");
    write_text(index, "{\"weight_map\":{\"a\":\"../shards/one\"}}");
    expect_folder_refused("shards", "a file in this folder");
    write_text(index, "{\"weight_map\":{\"a\":\"/etc/passwd\"}}");
    expect_folder_refused("shards", "a file in this folder");
    write_text(index, "{\"weight_map\":{\"a\":5}}");
    expect_folder_refused("shards", "a file in this folder");
    write_text(index, "{\"weight_map\":[]}");
    expect_folder_refused("shards", "'weight_map'");
    write_shard("shards", "two", "a"); /* the same name in both */
    write_text(index, "{\"weight_map\":{\"a\":\"one\",\"b\":\"two\"}}");
    expect_folder_refused("shards", "tensor 'a' is in");
}

/* Memory grows with the tensors, not with their square: 1000 shards of one tensor, 136 bytes each,
 * in lists that double take no more than 300 KB beside their names and the list of files. */
static void test_many_shards(void **state)
{
    (void)state;
    enum { N = 1000 };
    static char index[N * 32];
    size_t n = 0;
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "%04d", i);
        write_shard("many", name, name);
        n += (size_t)snprintf(index + n, sizeof index - n, "%s\"%s\":\"%s\"", i ? "," : "", name,
                              name);
    }
    static char text[sizeof index + 32];
    snprintf(text, sizeof text, "{\"weight_map\":{%s}}", index);
    write_text(in_folder("many", "model.safetensors.index.json"), text);
    struct safetensors s;
    assert_int_equal(safetensors_open(&s, scratch_path("many"), NULL), STATUS_OK);
    assert_int_equal(s.n_files, N);
    assert_int_equal(s.n_tensors, N);
    assert_non_null(safetensors_find(&s, "0999"));
    assert_in_range(s.arena.total, 1, 2000000);
    safetensors_close(&s);
}

/* Every allocation may fail. */
static void test_no_memory(void **state)
{
    (void)state;
    size_t size;
    uint8_t *bytes = safetensors_bytes("{" TENSOR("a", "F16", "[2,2]", "0", "8") "}", 8, &size);
    enum status status = STATUS_MEMORY;
    for (int n = 0; status == STATUS_MEMORY; n++) {
        struct safetensors s;
        memory_fail_after(n);
        status = safetensors_open_bytes(&s, bytes, size, "x", NULL);
        memory_fail_after(-1);
        safetensors_close(&s);
        assert_true(n < 100);
    }
    assert_int_equal(status, STATUS_OK);
    free(bytes);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),        cmocka_unit_test(test_hostile_headers),
        cmocka_unit_test(test_lengths),     cmocka_unit_test(test_folders),
        cmocka_unit_test(test_many_shards), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
