#include "gguf/gguf_read.h"

#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "build_bytes.h"
#include "gguf/gguf_metadata.h"
#include "tensor/formats.h"

static struct error err;

/* Opens exactly n bytes, so that the sanitiser sees any read beyond them. */
static enum status open_n(struct gguf_file *file, const uint8_t *bytes, size_t n)
{
    err.text[0] = 0;
    return gguf_open_bytes(file, bytes, n, "x.gguf", format_resolve, &err);
}

static void assert_one_line(void)
{
    assert_int_equal(strncmp(err.text, "x.gguf: ", 8), 0);
    for (const char *c = err.text; *c; c++)
        assert_true((unsigned char)*c >= 0x20 && *c != 0x7f);
}

static enum status try_bytes(const uint8_t *bytes, size_t n)
{
    uint8_t *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    if (n)
        memcpy(copy, bytes, n);
    struct gguf_file file;
    enum status status = open_n(&file, copy, n);
    if (status != STATUS_OK) {
        assert_int_equal(err.status, status);
        assert_one_line();
    }
    gguf_close(&file);
    free(copy);
    return status;
}

/* Expects a refusal whose text holds the given pieces; frees b. */
static void assert_refused(struct bytes *b, enum status status, const char *one, const char *two)
{
    assert_int_equal(try_bytes(b->data, b->n), status);
    if (!strstr(err.text, one) || !strstr(err.text, two))
        fail_msg("text lacks '%s' or '%s': %s", one, two, err.text);
    drop(b);
}

static void assert_accepted(struct bytes *b)
{
    if (try_bytes(b->data, b->n) != STATUS_OK)
        fail_msg("refused: %s", err.text);
    drop(b);
}

/* Two pairs, two tensors: F32 {8, 2} at 0 and F16 {4} at 64; the last byte is the last of data. */
static struct bytes small_file(void)
{
    struct bytes b = {0};
    put_head(&b, 3, 2, 2);
    put_key(&b, "general.name", GGUF_STRING);
    put_text(&b, "small", 5);
    put_array(&b, "numbers", GGUF_INT32, 3);
    for (uint32_t i = 0; i < 3; i++)
        put_u32(&b, i);
    put_info(&b, "first.weight", 2, (uint64_t[]){8, 2}, 0, 0);
    put_info(&b, "second.weight", 1, (uint64_t[]){4}, 1, 64);
    put_padding(&b, 32);
    memset(put_room(&b, 72), 0x3c, 72);
    return b;
}

/* How the cases that leave a choice are decided, and why. Those that are not listed follow the
 * file. */
static const struct choice {
    const char *name;
    bool is_accepted;
    const char *reason;
} choices[] = {
    {"edge_name64", true, "the written specification allows 64 bytes"},
    {"edge_zero_elements", false, "no engine can use it and some crash on it"},
    {"edge_bool2", false, "invalid by the written specification"},
    {"edge_nested_array", false, "no model has one, and readers cannot hold one"},
    {"edge_type_prism142", true, "PQ2_0 is among our formats"},
    {"edge_offset_gap", true, "a gap harms nobody"},
    {"edge_offset_order", true, "the order of records says nothing about the data"},
    {"edge_last_unpadded", true, "the padding after the last tensor carries nothing"},
    {"edge_q2_0_g128_legacy", true, "the sizes decide for groups of 128"},
    {"edge_q2_0_ambiguous", true, "read with the current meaning, groups of 64"},
    /* whole files on their own terms, but parts of a model: tested from disk in test_gguf_split */
    {"split-00001-of-00002", false, "bytes in memory have no file beside them"},
    {"split-00002-of-00002", false, "not the first file"},
};

static bool is_expected(const char *name, const char *expect)
{
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++)
        if (strcmp(choices[i].name, name) == 0)
            return choices[i].is_accepted;
    if (strcmp(expect, "accept") != 0 && strcmp(expect, "reject") != 0)
        fail_msg("%s: no decision about '%s'", name, expect);
    return strcmp(expect, "accept") == 0;
}

static void check_golden(json_t *line)
{
    const char *name = json_string_value(json_object_get(line, "name"));
    const char *expect = json_string_value(json_object_get(line, "expect"));
    size_t n;
    uint8_t *bytes = from_hex(json_string_value(json_object_get(line, "file")), &n);
    bool is_accepted = is_expected(name, expect);
    if ((try_bytes(bytes, n) == STATUS_OK) != is_accepted)
        fail_msg("%s: expected to be %s; %s", name, is_accepted ? "accepted" : "refused", err.text);
    struct gguf_file file;
    if (is_accepted && json_object_get(line, "n_kv")) {
        assert_int_equal(open_n(&file, bytes, n), STATUS_OK);
#define NUMBER(key) json_integer_value(json_object_get(line, key))
        assert_int_equal(file.n_pairs, NUMBER("n_kv"));
        assert_int_equal(file.n_tensors, NUMBER("n_tensors"));
        assert_int_equal(file.shards[0].version, NUMBER("version"));
        assert_int_equal(file.shards[0].alignment, NUMBER("alignment"));
        assert_int_equal(file.shards[0].data_offset, NUMBER("data_offset"));
#undef NUMBER
        gguf_close(&file);
    }
    free(bytes);
}

static void test_golden(void **state)
{
    (void)state;
    assert_int_equal(each_json_line("tests/golden/gguf_cases.jsonl", check_golden), 58);
}

static void test_contents(void **state)
{
    (void)state;
    struct bytes b = small_file();
    struct gguf_file file;
    assert_int_equal(open_n(&file, b.data, b.n), STATUS_OK);
    assert_int_equal(file.n_shards, 1);
    assert_string_equal(file.shards[0].path, "x.gguf");
    const struct gguf_pair *pair = gguf_find(&file, "numbers");
    assert_non_null(pair);
    assert_int_equal(pair->type, GGUF_ARRAY);
    assert_int_equal(pair->element, GGUF_INT32);
    assert_int_equal(pair->count, 3);
    assert_int_equal(pair->data_bytes, 12);
    assert_null(gguf_find(&file, "number"));
    const struct gguf_tensor *tensor = gguf_find_tensor(&file, "second.weight");
    assert_non_null(tensor);
    assert_ptr_equal(tensor, &file.tensors[1]);
    assert_int_equal(tensor->n_dims, 1);
    assert_int_equal(tensor->span.ne[0], 4);
    assert_int_equal(tensor->span.ne[3], 1);
    assert_int_equal(tensor->span.format, FORMAT_F16);
    assert_int_equal(tensor->span.bytes, 8);
    assert_int_equal(tensor->span.room, 8);
    assert_true(tensor->span.is_last);
    assert_ptr_equal(tensor->data, b.data + b.n - 8);
    assert_int_equal(file.tensors[0].span.room, 64);
    assert_null(gguf_find_tensor(&file, "second"));
    gguf_close(&file);
    gguf_close(&file);
    assert_null(gguf_find(&file, "numbers"));
    drop(&b);
}

static void test_every_prefix_is_refused(void **state)
{
    (void)state;
    struct bytes b = small_file();
    size_t data = b.n - 72;
    for (size_t n = 0; n < b.n; n++) {
        assert_int_equal(try_bytes(b.data, n), STATUS_FORMAT);
        char end[32];
        snprintf(end, sizeof end, "byte %zu", n);
        if (n > 0 && !strstr(err.text, end))
            fail_msg("cut at %zu: no position: %s", n, err.text);
        if (!strstr(err.text, "download it again"))
            fail_msg("cut at %zu: no advice: %s", n, err.text);
        if (n > data && !strstr(err.text, n < data + 64 ? "'first.weight'" : "'second.weight'"))
            fail_msg("cut at %zu: not the first tensor cut: %s", n, err.text);
    }
    assert_int_equal(try_bytes(b.data, data + 10), STATUS_FORMAT);
    assert_non_null(strstr(err.text, "needs 64 bytes"));
    assert_non_null(strstr(err.text, " 10 are there"));
    assert_accepted(&b);
}

static void test_every_byte_may_be_wrong(void **state)
{
    (void)state;
    static const uint8_t values[] = {0, 1, 9, 13, 0x7f, 0x80, 0xff};
    struct bytes b = small_file();
    for (size_t i = 0; i < b.n; i++)
        for (size_t k = 0; k < sizeof values; k++) {
            uint8_t before = b.data[i];
            b.data[i] = values[k];
            try_bytes(b.data, b.n);
            b.data[i] = before;
        }
    assert_accepted(&b);
}

static long peak_kib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

static void test_false_array_counts(void **state)
{
    (void)state;
    static const struct {
        uint32_t element;
        uint64_t count;
    } cases[] = {{GGUF_UINT8, 1ull << 63},   {GGUF_STRING, 1ull << 61},
                 {GGUF_UINT8, 1ull << 32},   {GGUF_STRING, 1ull << 32},
                 {GGUF_INT64, 1ull << 61},   {GGUF_BOOL, UINT64_MAX},
                 {GGUF_FLOAT64, UINT64_MAX}, {GGUF_UINT8, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes b = {0};
        put_head(&b, 3, 0, 1);
        put_array(&b, "a", cases[i].element, cases[i].count);
        assert_int_equal(b.n, 49);
        long peak = peak_kib();
        int64_t begin = cpu_ns();
        assert_int_equal(try_bytes(b.data, b.n), STATUS_FORMAT);
        assert_true(cpu_ns() - begin < 50000000);
        assert_true(peak_kib() - peak < 4096);
        char count[32];
        snprintf(count, sizeof count, "%llu", (unsigned long long)cases[i].count);
        assert_refused(&b, STATUS_FORMAT, "key 'a'", count);
    }
}

static void test_false_record_counts(void **state)
{
    (void)state;
    long peak = peak_kib();
    int64_t begin = cpu_ns();
    struct bytes b = {0};
    put_head(&b, 3, 0, UINT64_MAX);
    assert_refused(&b, STATUS_FORMAT, "metadata pair 1 of 18446744073709551615", "byte 24");
    put_head(&b, 3, UINT64_MAX, 0);
    assert_refused(&b, STATUS_FORMAT, "tensor record 1 of the 18446744073709551615", "byte 24");
    put_head(&b, 3, 1ull << 40, 1ull << 40);
    put_key(&b, "a", GGUF_UINT8);
    put_room(&b, 1 << 20);
    assert_refused(&b, STATUS_FORMAT, "metadata pair 2 of 1099511627776", "key of 0 bytes");
    assert_true(cpu_ns() - begin < 50000000);
    assert_true(peak_kib() - peak < 8192);
}

/* A header that counts one tensor more than it has must name the count, whatever stands there. */
static void test_one_tensor_too_many(void **state)
{
    (void)state;
    for (size_t extra = 0; extra < 32; extra++)
        for (int fill = 0; fill < 256; fill += 51) {
            struct bytes b = {0};
            char name[64];
            put_head(&b, 3, 2, 0);
            snprintf(name, sizeof name, "name%.*s", (int)extra,
                     "abcdefghijklmnopqrstuvwxyzabcdefghi");
            put_info(&b, name, 1, (uint64_t[]){64}, 0, 0);
            put_padding(&b, 32);
            memset(put_room(&b, 256), fill, 256);
            assert_refused(&b, STATUS_FORMAT, "count", " 2 ");
        }
    struct bytes b = small_file();
    store_u64(b.data + 8, 3);
    assert_refused(&b, STATUS_FORMAT, "header's count of 3 tensors", "tensor record 3 of 3");
    b = small_file();
    store_u64(b.data + 16, 3);
    assert_refused(&b, STATUS_FORMAT, "metadata pairs", "wrong");
}

static void test_duplicate_tensor(void **state)
{
    (void)state;
    for (uint64_t offset = 0; offset <= 32; offset += 32) {
        struct bytes b = {0};
        put_head(&b, 3, 2, 0);
        put_info(&b, "blk.0.attn_q.weight", 1, (uint64_t[]){8}, 0, 0);
        put_info(&b, "blk.0.attn_q.weight", 1, (uint64_t[]){8}, 0, offset);
        put_padding(&b, 32);
        put_room(&b, 64);
        assert_refused(&b, STATUS_FORMAT, "tensor 'blk.0.attn_q.weight'", "twice");
    }
}

static void test_duplicate_key(void **state)
{
    (void)state;
    struct bytes b = {0};
    put_head(&b, 3, 0, 3);
    for (int i = 0; i < 3; i++) {
        put_key(&b, i == 1 ? "other" : "general.name", GGUF_UINT32);
        put_u32(&b, 1);
    }
    assert_refused(&b, STATUS_FORMAT, "key 'general.name' occurs twice", "pair 3");
}

static void test_dimensions(void **state)
{
    (void)state;
    static const struct {
        uint32_t n_dims;
        uint64_t ne[5];
        const char *text;
    } cases[] = {{2, {256, 0}, "dimension 1 is 0"},
                 {1, {0}, "dimension 0 is 0"},
                 {5, {1, 1, 1, 1, 1}, "5 dimensions"},
                 {UINT32_MAX, {1}, "4294967295 dimensions"},
                 {1, {1ull << 63}, "dimension 0 is 9223372036854775808"},
                 {2, {1ull << 40, 1ull << 40}, "multiply"},
                 {4, {1ull << 16, 1ull << 16, 1ull << 16, 1ull << 16}, "multiply"},
                 {2, {1ull << 32, 1ull << 31}, "multiply"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes b = {0};
        put_head(&b, 3, 1, 0);
        put_info(&b, "token_embd.weight", cases[i].n_dims, cases[i].ne, 1, 0);
        put_padding(&b, 32);
        put_room(&b, 1024);
        assert_refused(&b, STATUS_FORMAT, "tensor 'token_embd.weight'", cases[i].text);
    }
}

static struct bytes one_tensor(const char *name, uint64_t offset, uint64_t n)
{
    struct bytes b = {0};
    put_head(&b, 3, 1, 0);
    put_info(&b, name, 1, (uint64_t[]){n}, 0, offset);
    put_padding(&b, 32);
    put_room(&b, 256);
    return b;
}

static void test_offsets(void **state)
{
    (void)state;
    struct bytes b = one_tensor("t", 192, 16);
    assert_accepted(&b);
    b = one_tensor("t", 16, 16);
    assert_refused(&b, STATUS_FORMAT, "tensor 't': offset 16", "alignment 32");
    b = one_tensor("t", 224, 16);
    assert_refused(&b, STATUS_FORMAT, "tensor 't' needs 64 bytes", " 32 are there");
    b = one_tensor("t", UINT64_MAX - 31, 16);
    assert_refused(&b, STATUS_FORMAT, "tensor 't'", "beyond any file");
    b = one_tensor("t", 1ull << 63, (1ull << 61) - 1);
    assert_refused(&b, STATUS_FORMAT, "tensor 't' needs", " 0 are there");
    put_head(&b, 3, 2, 0);
    put_info(&b, "b", 1, (uint64_t[]){16}, 0, 32);
    put_info(&b, "a", 1, (uint64_t[]){16}, 0, 0);
    put_padding(&b, 32);
    put_room(&b, 256);
    assert_refused(&b, STATUS_FORMAT, "'a' and 'b' overlap", "32 bytes after");
}

static void test_unknown_type(void **state)
{
    (void)state;
    struct bytes b = {0};
    put_head(&b, 3, 1, 0);
    put_info(&b, "t", 1, (uint64_t[]){256}, 4711, 0);
    put_padding(&b, 32);
    put_room(&b, 256);
    assert_refused(&b, STATUS_UNSUPPORTED, "'t'", "4711");
    b = (struct bytes){0};
    put_head(&b, 3, 1, 0);
    put_info(&b, "t", 1, (uint64_t[]){256}, 38, 0); /* TL1, in one fork only */
    put_padding(&b, 32);
    put_room(&b, 256);
    assert_refused(&b, STATUS_UNSUPPORTED, "'t'", "38");
}

static void test_name_lengths(void **state)
{
    (void)state;
    char name[66] = {0};
    memset(name, 'n', 64);
    struct bytes b = one_tensor(name, 0, 8);
    assert_accepted(&b);
    name[64] = 'n';
    b = one_tensor(name, 0, 8);
    assert_refused(&b, STATUS_FORMAT, "tensor record 1 of 1", "name of 65 bytes, expected 1 to 64");
    b = one_tensor("", 0, 8);
    assert_refused(&b, STATUS_FORMAT, "tensor record 1 of 1", "name of 0 bytes");

    char *key = calloc(1, 65537);
    assert_non_null(key);
    memset(key, 'k', 65535);
    put_head(&b, 3, 0, 1);
    put_key(&b, key, GGUF_UINT8);
    put_room(&b, 1);
    assert_accepted(&b);
    key[65535] = 'k';
    put_head(&b, 3, 0, 1);
    put_key(&b, key, GGUF_UINT8);
    put_room(&b, 1);
    assert_refused(&b, STATUS_FORMAT, "metadata pair 1 of 1", "key of 65536 bytes");
    free(key);
}

static void test_alignment(void **state)
{
    (void)state;
    static const struct {
        uint32_t alignment;
        bool is_accepted;
    } cases[] = {{0, 0},  {1, 0},  {4, 0},     {8, 1},      {16, 1},         {24, 0},
                 {32, 1}, {64, 1}, {65536, 1}, {131072, 0}, {0x80000000, 0}, {UINT32_MAX, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes b = {0};
        put_head(&b, 3, 0, 1);
        put_key(&b, "general.alignment", GGUF_UINT32);
        put_u32(&b, cases[i].alignment);
        if (cases[i].is_accepted)
            assert_accepted(&b);
        else
            assert_refused(&b, STATUS_FORMAT, "'general.alignment'", "power of two");
    }
    struct bytes b = {0};
    put_head(&b, 3, 0, 1);
    put_key(&b, "general.alignment", GGUF_UINT64);
    put_u64(&b, 32);
    assert_refused(&b, STATUS_FORMAT, "has type uint64", "expected uint32");
}

/* The offset is checked against the alignment of the file, which also places the data section. */
static void test_alignment_of_offsets(void **state)
{
    (void)state;
    for (uint32_t alignment = 8; alignment <= 128; alignment *= 2) {
        struct bytes b = {0};
        put_head(&b, 3, 1, 1);
        put_key(&b, "general.alignment", GGUF_UINT32);
        put_u32(&b, alignment);
        put_info(&b, "t", 1, (uint64_t[]){1}, 0, 64);
        put_padding(&b, alignment);
        put_room(&b, 68);
        if (alignment <= 64)
            assert_accepted(&b);
        else
            assert_refused(&b, STATUS_FORMAT, "tensor 't': offset 64", "alignment 128");
    }
    struct bytes b = {0};
    put_head(&b, 3, 1, 1);
    put_key(&b, "general.alignment", GGUF_UINT32);
    put_u32(&b, 8);
    put_info(&b, "t", 1, (uint64_t[]){1}, 0, 8);
    put_padding(&b, 8);
    put_room(&b, 12);
    assert_accepted(&b);
}

static void test_split_in_memory(void **state)
{
    (void)state;
    struct bytes b = {0};
    put_head(&b, 3, 0, 3);
    put_key(&b, "split.count", GGUF_UINT16);
    memcpy(put_room(&b, 2), "\2\0", 2);
    put_key(&b, "split.no", GGUF_UINT16);
    put_room(&b, 2);
    put_key(&b, "split.tensors.count", GGUF_INT32);
    put_u32(&b, 0);
    assert_refused(&b, STATUS_UNSUPPORTED, "one of 2 files of a split model", "by its path");
}

static void test_versions(void **state)
{
    (void)state;
    static const struct {
        uint32_t version;
        enum status status;
        const char *text;
    } cases[] = {{0, STATUS_FORMAT, "GGUF version 0"},
                 {1, STATUS_UNSUPPORTED, "GGUF version 1"},
                 {4, STATUS_UNSUPPORTED, "GGUF version 4"},
                 {0x03000000, STATUS_UNSUPPORTED, "big-endian"},
                 {0x00010000, STATUS_UNSUPPORTED, "big-endian"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes b = {0};
        put_head(&b, cases[i].version, 0, 0);
        assert_refused(&b, cases[i].status, cases[i].text, "expected");
    }
}

static void test_value_types(void **state)
{
    (void)state;
    struct bytes b = {0};
    put_head(&b, 3, 0, 1);
    put_key(&b, "k", 13);
    put_u64(&b, 0);
    assert_refused(&b, STATUS_FORMAT, "key 'k': value type 13", "expected 0 to 12");
    put_head(&b, 3, 0, 1);
    put_array(&b, "k", 77, 1);
    put_u64(&b, 0);
    assert_refused(&b, STATUS_FORMAT, "key 'k': array element type 77", "expected 0 to 12");
    put_head(&b, 3, 0, 1);
    put_array(&b, "k", GGUF_ARRAY, 1);
    put_u64(&b, 0);
    assert_refused(&b, STATUS_UNSUPPORTED, "key 'k': array of arrays", "expected");
    put_head(&b, 3, 0, 1);
    put_array(&b, "k", GGUF_BOOL, 3);
    memcpy(put_room(&b, 3), "\0\1\2", 3);
    assert_refused(&b, STATUS_FORMAT, "key 'k': bool 2 is 2", "expected 0 or 1");
}

static void test_messages_are_safe_for_terminals(void **state)
{
    (void)state;
    struct bytes b = {0};
    put_head(&b, 3, 0, 1);
    put_key(&b, "\33[2J\n\x7f", 13);
    assert_refused(&b, STATUS_FORMAT,
                   "key '?[2J?"
                   "?'",
                   "13"); /* assert_one_line did the rest */
}

/* Names that share all but a few bytes, as many as a hostile header can hold: linear time. */
static void test_many_records(void **state)
{
    (void)state;
    enum { N = 100000 };
    struct bytes b = {0};
    b.data = malloc(8 << 20);
    assert_non_null(b.data);
    uint8_t *p = b.data;
    memcpy(p, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0", 16);
    store_u64(p + 16, N);
    p += 24;
    for (int i = 0; i < N; i++) {
        char key[32];
        int n = snprintf(key, sizeof key, "tokenizer.ggml.%08d", i);
        store_u64(p, (uint64_t)n);
        memcpy(p + 8, key, (size_t)n);
        store_u32(p + 8 + n, GGUF_UINT8);
        p[12 + n] = 0;
        p += 13 + n;
    }
    b.n = (size_t)(p - b.data);
    struct gguf_file file;
    int64_t begin = cpu_ns();
    assert_int_equal(open_n(&file, b.data, b.n), STATUS_OK);
    assert_true(cpu_ns() - begin < 2000000000);
    assert_ptr_equal(gguf_find(&file, "tokenizer.ggml.00099999"), &file.pairs[N - 1]);
    gguf_close(&file);
    drop(&b);
}

static void assert_foreign(const void *bytes, size_t n, const char *kind)
{
    struct bytes b = {0};
    memcpy(put_room(&b, n), bytes, n);
    assert_refused(&b, STATUS_FORMAT, "not a GGUF file", kind);
}

static void test_foreign_files(void **state)
{
    (void)state;
#define FOREIGN(bytes, kind) assert_foreign(bytes, sizeof(bytes) - 1, kind)
    FOREIGN("\n <!DOCTYPE html><html>", "an HTML page; download the file itself, not the page");
    FOREIGN("<html lang=\"en\">", "an HTML page");
    FOREIGN("<!DOCTYPE html><html><head><title>caf\xe9</title>", "an HTML page");
    FOREIGN("<?xml version=\"1.0\"?><Error>", "an XML document");
    FOREIGN("\x1f\x8b\x08\0\0\0\0\0\0\3", "a gzip archive");
    FOREIGN("PK\3\4\0\0\x08\x08", "a zip archive, as PyTorch checkpoints are");
    FOREIGN("\x80\2}q\1.", "a Python pickle");
    FOREIGN("\x40\0\0\0\0\0\0\0{\"__metadata__\":{}}", "a safetensors file; convert it");
    FOREIGN("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 9\n",
            "a Git LFS pointer");
    FOREIGN("tjgg\3\0\0\0", "an old ggml file");
    FOREIGN("ggjt\3\0\0\0", "an old ggml file");
    FOREIGN("lmgg\0\0\0\0", "an old ggml file");
    FOREIGN("algg\1\0\0\0", "an old ggml adapter");
    FOREIGN("{\"error\": \"Repository not found\"}", "a JSON text");
    FOREIGN("Entry not found", "a plain text");
    FOREIGN("\xef\xbb\xbf<html>", "an HTML page");
    FOREIGN("thirty-one bytes and then an e \xc3\xa9", "a plain text");
    FOREIGN("\0\0\0\0\0\0\0\0", "only zero bytes");
    FOREIGN("\x12\x34\x56\x78\x9a", "12 34 56 78, expected 47 47 55 46");
#undef FOREIGN
}

static void assert_open_fails(const char *path, enum status status, const char *text)
{
    struct gguf_file file;
    int64_t begin = clock_ns();
    assert_int_equal(gguf_open(&file, path, format_resolve, &err), status);
    assert_true(clock_ns() - begin < 1000000000);
    if (!strstr(err.text, path) || !strstr(err.text, text))
        fail_msg("text lacks '%s': %s", text, err.text);
}

static void test_paths(void **state)
{
    (void)state;
    const char *fifo = scratch_path("fifo"), *empty = scratch_path("empty.gguf");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    write_whole(empty, "", 0);
    assert_open_fails(fifo, STATUS_IO, "is a named pipe (FIFO)");
    assert_open_fails("tests", STATUS_IO, "is a directory");
    assert_open_fails("/dev/null", STATUS_IO, "is a device");
    assert_open_fails("/dev/zero", STATUS_IO, "is a device");
    assert_open_fails(scratch_path("absent.gguf"), STATUS_IO, "No such file");
    assert_open_fails(empty, STATUS_FORMAT, "is empty");
}

static void test_file_on_disk(void **state)
{
    (void)state;
    struct bytes b = small_file();
    const char *path = scratch_path("small.gguf");
    write_whole(path, b.data, b.n);
    struct gguf_file file;
    assert_int_equal(gguf_open(&file, path, format_resolve, &err), STATUS_OK);
    assert_int_equal(file.tensors[1].data[7], 0x3c);
    gguf_close(&file);
    write_whole(path, b.data, b.n - 1);
    assert_open_fails(path, STATUS_FORMAT, "'second.weight'");
    drop(&b);
}

/* A cut must not be taken for a type that cannot be told. */
static void test_cut_of_ambiguous_type(void **state)
{
    (void)state;
    struct bytes b = {0};
    put_head(&b, 3, 2, 0);
    put_info(&b, "first", 2, (uint64_t[]){128, 64}, 42, 0);
    put_info(&b, "second", 2, (uint64_t[]){128, 64}, 42, 2304);
    put_padding(&b, 32);
    put_room(&b, 1000);
    assert_refused(&b, STATUS_FORMAT, "tensor 'first' needs 2304 bytes", " 1000 are there");
}

static void test_out_of_memory(void **state)
{
    (void)state;
    struct bytes b = small_file();
    enum status status = STATUS_MEMORY;
    int n = 0;
    for (; status == STATUS_MEMORY; n++) {
        struct gguf_file file;
        memory_fail_after(n);
        status = open_n(&file, b.data, b.n);
        memory_fail_after(-1);
        gguf_close(&file);
    }
    assert_int_equal(status, STATUS_OK);
    assert_true(n > 3);
    drop(&b);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_contents),
        cmocka_unit_test(test_every_prefix_is_refused),
        cmocka_unit_test(test_every_byte_may_be_wrong),
        cmocka_unit_test(test_false_array_counts),
        cmocka_unit_test(test_false_record_counts),
        cmocka_unit_test(test_one_tensor_too_many),
        cmocka_unit_test(test_duplicate_tensor),
        cmocka_unit_test(test_duplicate_key),
        cmocka_unit_test(test_dimensions),
        cmocka_unit_test(test_offsets),
        cmocka_unit_test(test_unknown_type),
        cmocka_unit_test(test_name_lengths),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_alignment_of_offsets),
        cmocka_unit_test(test_split_in_memory),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_value_types),
        cmocka_unit_test(test_messages_are_safe_for_terminals),
        cmocka_unit_test(test_many_records),
        cmocka_unit_test(test_foreign_files),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_file_on_disk),
        cmocka_unit_test(test_cut_of_ambiguous_type),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
