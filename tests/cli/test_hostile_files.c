/* Damaged, hostile and foreign files, given to every command that opens a model: one clear line on
 * standard error, exit status 1, nothing on standard output, quickly and with little memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../fixture.h"
#include "../support.h"
#include "base/reader.h"

static const char *trine;
static long usual_kib; /* resident size of `inspect` on a small valid model */

/* A command line's count of lines. */
static int n_lines(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* Every verb refuses the file, naming each of the words (NULL ends them). */
static void expect_refused(const char *path, const char *const *words)
{
    const char *out = scratch_path("hostile.out");
    char lines[4][1400];
    snprintf(lines[0], sizeof lines[0], "%s run '%s' -p hi -n 1 -q", trine, path);
    snprintf(lines[1], sizeof lines[1], "%s logits '%s' --tokens 1 -o '%s'", trine, path, out);
    snprintf(lines[2], sizeof lines[2], "%s inspect '%s'", trine, path);
    snprintf(lines[3], sizeof lines[3], "%s quantize '%s' '%s' TQ2_0", trine, path, out);
    for (int i = 0; i < 4; i++) {
        struct outcome o = run_command("%s", lines[i]);
        bool is_complete = true;
        for (int k = 0; words[k]; k++)
            is_complete = is_complete && strstr(o.err, words[k]);
        if (o.status != 1 || o.out_bytes || n_lines(o.err) != 1 || !is_complete)
            fail_msg("%s: status %d, %zu bytes of output, message: %s", lines[i], o.status,
                     o.out_bytes, o.err);
        assert_true(access(out, F_OK) != 0);
        if (!IS_SANITISED && (o.seconds > 2 || o.peak_kib > usual_kib + 65536))
            fail_msg("%s: %.1f s, %ld KiB", lines[i], o.seconds, o.peak_kib);
        outcome_done(&o);
    }
}

#define WORDS(...)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static void expect_bytes_refused(const void *bytes, size_t size, const char *const *words)
{
    const char *path = scratch_path("hostile.gguf");
    write_whole(path, bytes, size);
    expect_refused(path, words);
}

/* S01: a download that broke off. */
static void test_truncated(void **state)
{
    (void)state;
    size_t size;
    char *bytes = fixture_bytes(&(struct fixture){0}, &size);
    const size_t cuts[] = {0, 3, 4, 23, 24, 40, 700, 6000, 9000};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++)
        expect_bytes_refused(bytes, cuts[i], WORDS("hostile.gguf"));
    expect_bytes_refused(bytes, size - 1, WORDS("tensor 'blk.1.ffn_down.weight'", "download"));
    expect_bytes_refused(bytes, size / 2, WORDS("tensor '", "download"));
    free(bytes);
}

/* A GGUF header with one pair and no tensor. */
static size_t header_with_array(uint8_t *out, uint32_t element, uint64_t n)
{
    static const uint8_t start[] = {'G', 'G', 'U', 'F', 3, 0, 0,   0, 0, 0, 0, 0, 0,
                                    0,   0,   0,   1,   0, 0, 0,   0, 0, 0, 0, 1, 0,
                                    0,   0,   0,   0,   0, 0, 'a', 9, 0, 0, 0};
    memcpy(out, start, sizeof start);
    size_t at = sizeof start;
    for (int i = 0; i < 4; i++)
        out[at++] = (uint8_t)(element >> 8 * i);
    for (int i = 0; i < 8; i++)
        out[at++] = (uint8_t)(n >> 8 * i);
    return at;
}

/* S02: 49 bytes that claim more than any memory. */
static void test_huge_arrays(void **state)
{
    (void)state;
    uint8_t bytes[64];
    const struct {
        uint32_t element;
        uint64_t n;
    } claims[] = {{0, (uint64_t)1 << 63},
                  {8, (uint64_t)1 << 61},
                  {0, (uint64_t)1 << 32},
                  {12, (uint64_t)1 << 61},
                  {4, UINT64_MAX}};
    for (size_t i = 0; i < sizeof claims / sizeof claims[0]; i++) {
        size_t n = header_with_array(bytes, claims[i].element, claims[i].n);
        expect_bytes_refused(bytes, n, WORDS("'a'"));
    }
}

/* S03 */
static void test_duplicate_tensor(void **state)
{
    (void)state;
    size_t size;
    char *bytes = fixture_bytes(&(struct fixture){.twice = "blk.0.attn_q.weight"}, &size);
    expect_bytes_refused(bytes, size, WORDS("blk.0.attn_q.weight"));
    free(bytes);
}

/* S04: shapes that would divide by zero or walk off an array. The bytes are a header with one
 * tensor record of n_dims dimensions, all of them `size`. */
static void test_impossible_shapes(void **state)
{
    (void)state;
    static const struct {
        uint32_t n_dims;
        uint64_t size;
    } shapes[] = {{2, 0}, {1, 0}, {5, 1}, {UINT32_MAX, 1}, {2, (uint64_t)1 << 63}, {4, 1 << 30}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        uint8_t bytes[256] = {'G', 'G', 'U', 'F', 3, 0, 0, 0, 1};
        size_t at = 24;
        bytes[at] = 17;
        memcpy(bytes + at + 8, "token_embd.weight", 17);
        at += 8 + 17;
        store_u32(bytes + at, shapes[i].n_dims);
        at += 4;
        for (uint32_t d = 0; d < shapes[i].n_dims && d < 5; d++, at += 8)
            store_u64(bytes + at, shapes[i].size);
        store_u32(bytes + at, 1); /* F16 */
        expect_bytes_refused(bytes, sizeof bytes, WORDS("token_embd.weight"));
    }
}

/* S05: a part that the architecture needs. `inspect` shows such a file, and says that it won't run.
 */
static void test_missing_tensor(void **state)
{
    (void)state;
    const char *path = scratch_path("missing.gguf");
    fixture_write(path, &(struct fixture){.omit = "blk.1.ffn_down.weight"});
    struct outcome o = run_command("%s run %s -p hi -n 1", trine, path);
    assert_int_equal(o.status, 1);
    assert_int_equal(o.out_bytes, 0);
    assert_non_null(strstr(o.err, "tensor 'blk.1.ffn_down.weight', required by architecture llama, "
                                  "is absent"));
    assert_null(strstr(o.err, "truncated"));
    outcome_done(&o);
    o = run_command("%s inspect --brief %s", trine, path);
    assert_int_equal(o.status, 0);
    assert_non_null(strstr(o.out, "runs       no: "));
    outcome_done(&o);
}

/* S05, second half: the header counts one tensor more than there is. */
static void test_count_too_high(void **state)
{
    (void)state;
    size_t size;
    char *bytes = fixture_bytes(&(struct fixture){0}, &size);
    bytes[8]++;
    expect_bytes_refused(bytes, size, WORDS("22"));
    free(bytes);
}

/* S06: what people save under a model's name. */
static void test_not_a_gguf(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *word;
    } files[] = {
        {"<!DOCTYPE html>\n<html><head><title>Model</title>", "HTML"},
        {"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03 gzip", "gzip"},
        {"PK\x03\x04 a checkpoint of PyTorch, say", "zip"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1\n", "LFS"},
        {"tjgg\x03\x00\x00\x00 an old model", "old ggml"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        expect_bytes_refused(files[i].bytes, strlen(files[i].bytes) + 1, WORDS(files[i].word));
    static const char safetensors[] = "\x40\0\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\"}}";
    expect_bytes_refused(safetensors, sizeof safetensors, WORDS("safetensors"));
    expect_bytes_refused("", 0, WORDS("empty"));
}

static void test_not_a_file(void **state)
{
    (void)state;
    const char *fifo = scratch_path("fifo.gguf"), *folder = scratch_path("folder.gguf");
    assert_int_equal(mkfifo(fifo, 0666), 0);
    assert_int_equal(mkdir(folder, 0777), 0);
    expect_refused(fifo, WORDS("fifo.gguf", "pipe"));
    expect_refused(folder, WORDS("folder.gguf", "directory"));
    expect_refused(scratch_path("absent.gguf"), WORDS("absent.gguf", "No such file"));
}

/* A tiny model of an architecture with one text changed to another of its length, run. */
static struct outcome run_renamed(const char *arch, const char *from, const char *to)
{
    const char *path = scratch_path("renamed.gguf");
    struct outcome o =
        run_command("%s synth --shape tiny --arch %s --type TQ2_0 -o %s", trine, arch, path);
    assert_int_equal(o.status, 0);
    outcome_done(&o);
    size_t size, n = strlen(from);
    char *bytes = read_whole(path, &size);
    assert_int_equal(strlen(to), n);
    for (char *at = bytes; (at = memmem(at, size - (size_t)(at - bytes), from, n)); at += n)
        memcpy(at, to, n);
    write_whole(path, bytes, size);
    free(bytes);
    return run_command("%s run %s -p a -n 1", trine, path);
}

/* S10: names of one architecture load alike; another is refused with the names that are known; a name
 * without its keys with the key that is missing. */
static void test_other_names_of_an_architecture(void **state)
{
    (void)state;
    static const char *const names[] = {"bitnet", "bitnet-25", "bitnet-b1.58"};
    for (int i = 0; i < 3; i++) {
        struct outcome o = run_renamed(names[i], names[i], names[i]);
        assert_int_equal(o.status, 0);
        outcome_done(&o);
    }
    struct outcome o = run_renamed("bitnet-25", "bitnet-25", "bitnet-zz");
    assert_int_equal(o.status, 1);
    assert_non_null(strstr(o.err, "bitnet-zz"));
    for (int i = 0; i < 3; i++)
        assert_non_null(strstr(o.err, names[i]));
    outcome_done(&o);
    o = run_renamed("bitnet-25", "bitnet-25.block", "bitnet-zz.block");
    assert_int_equal(o.status, 1);
    assert_non_null(strstr(o.err, "'bitnet-25.block_count'"));
    outcome_done(&o);
}

/* S08: ternary codes that mean nothing without a rotation of the activations. */
static void test_rotated_types(void **state)
{
    (void)state;
    const char *path = scratch_path("rotated.gguf");
    fixture_write(path, &(struct fixture){.format = FORMAT_PQ2_0});
    struct outcome o = run_command("%s run %s -p hi -n 1", trine, path);
    assert_int_equal(o.status, 1);
    assert_int_equal(o.out_bytes, 0);
    assert_non_null(strstr(o.err, "type 142"));
    assert_non_null(strstr(o.err, "needs activation rotation"));
    assert_non_null(strstr(o.err, "prism.hadamard.version"));
    outcome_done(&o);
}

/* A scale that is no number would turn every logit into NaN. */
static void test_infinite_scale(void **state)
{
    (void)state;
    size_t size;
    char *bytes = fixture_bytes(&(struct fixture){.format = FORMAT_TQ2_0}, &size);
    bytes[size - 2] = 0;
    bytes[size - 1] = 0x7c; /* the f16 scale of the last block: +inf */
    const char *path = scratch_path("infinite.gguf");
    write_whole(path, bytes, size);
    struct outcome o = run_command("%s run %s -p hi -n 1", trine, path);
    assert_int_equal(o.status, 1);
    assert_non_null(strstr(o.err, "blk.1.ffn_down.weight"));
    outcome_done(&o);
    free(bytes);
}

static int find_usual_size(void **state)
{
    (void)state;
    trine = build_path("trine");
    const char *path = scratch_path("usual.gguf");
    fixture_write(path, &(struct fixture){0});
    struct outcome o = run_command("%s inspect %s", trine, path);
    usual_kib = o.peak_kib;
    int status = o.status;
    outcome_done(&o);
    return status;
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_huge_arrays),
        cmocka_unit_test(test_duplicate_tensor),
        cmocka_unit_test(test_missing_tensor),
        cmocka_unit_test(test_impossible_shapes),
        cmocka_unit_test(test_count_too_high),
        cmocka_unit_test(test_not_a_gguf),
        cmocka_unit_test(test_not_a_file),
        cmocka_unit_test(test_other_names_of_an_architecture),
        cmocka_unit_test(test_rotated_types),
        cmocka_unit_test(test_infinite_scale),
    };
    return cmocka_run_group_tests(tests, find_usual_size, NULL);
}
