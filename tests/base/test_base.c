/* The ground everything stands on: errors, memory, UTF-8, random numbers, files that appear whole.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support.h"
#include "base/error.h"
#include "base/isa.h"
#include "base/memory.h"
#include "base/output_file.h"
#include "base/random.h"
#include "base/reader.h"
#include "base/text.h"

static void test_fail_is_one_safe_line(void **state)
{
    (void)state;
    struct error err;
    assert_int_equal(fail(&err, STATUS_FORMAT, "a\n%s\x1b[31m", "b"), STATUS_FORMAT);
    assert_int_equal(err.status, STATUS_FORMAT);
    assert_string_equal(err.text, "a?b?[31m");
    assert_int_equal(fail(NULL, STATUS_IO, "nobody listens"), STATUS_IO);
}

static void test_memory_overflow_and_injection(void **state)
{
    (void)state;
    assert_null(memory_alloc(SIZE_MAX / 2, 4));
    assert_null(memory_resize(NULL, SIZE_MAX / 2, 4));
    memory_fail_after(1);
    void *first = memory_alloc(1, 1), *second = memory_alloc(1, 1);
    memory_fail_after(-1);
    assert_non_null(first);
    assert_null(second);
    memory_free(first);
}

static void test_arena_is_aligned_and_zeroed(void **state)
{
    (void)state;
    struct arena arena = {0};
    for (size_t n = 1; n < 300000; n = n * 3 + 1) {
        unsigned char *block = arena_alloc(&arena, n, 1);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % 64, 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(block[i], 0);
        memset(block, 0xff, n);
    }
    assert_null(arena_alloc(&arena, SIZE_MAX / 2, 4));
    assert_null(arena_alloc(&arena, SIZE_MAX, 1));
    arena_done(&arena);
    arena_done(&arena);
}

static void test_reader_is_sticky(void **state)
{
    (void)state;
    const uint8_t bytes[] = {1, 2, 3, 4, 5, 6};
    struct reader r = {.bytes = bytes, .size = sizeof bytes};
    assert_int_equal(read_u32(&r), 0x04030201);
    assert_int_equal(read_u32(&r), 0);
    assert_true(r.failed);
    assert_int_equal(r.at, 4);
    assert_int_equal(read_u8(&r), 0);
    assert_null(reader_take(&r, 0));
}

static void test_reader_length_cannot_wrap(void **state)
{
    (void)state;
    const uint8_t bytes[8] = {0};
    struct reader r = {.bytes = bytes, .size = sizeof bytes};
    read_u16(&r);
    assert_null(reader_take(&r, UINT64_MAX));
    assert_true(r.failed);
}

/* Table 3-7 of the Unicode standard, at its edges. */
static void test_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        int length;
        uint32_t code;
    } cases[] = {
        {"A", 1, 0x41},
        {"\x7f", 1, 0x7f},
        {"\xc2\x80", 2, 0x80},
        {"\xdf\xbf", 2, 0x7ff},
        {"\xe0\xa0\x80", 3, 0x800},
        {"\xed\x9f\xbf", 3, 0xd7ff},
        {"\xef\xbf\xbf", 3, 0xffff},
        {"\xf0\x90\x80\x80", 4, 0x10000},
        {"\xf4\x8f\xbf\xbf", 4, 0x10ffff},
        {"\x80", 0, 0},
        {"\xc0\x80", 0, 0},
        {"\xc1\xbf", 0, 0},
        {"\xe0\x9f\xbf", 0, 0},
        {"\xed\xa0\x80", 0, 0},
        {"\xf0\x8f\xbf\xbf", 0, 0},
        {"\xf4\x90\x80\x80", 0, 0},
        {"\xf5\x80\x80\x80", 0, 0},
        {"\xe2\x82", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t code = 0;
        char again[4];
        int length = utf8_decode(cases[i].bytes, strlen(cases[i].bytes), &code);
        assert_int_equal(length, cases[i].length);
        if (length) {
            assert_int_equal(code, cases[i].code);
            assert_int_equal(utf8_encode(code, again), length);
            assert_memory_equal(again, cases[i].bytes, length);
        }
    }
}

static void test_utf8_incomplete_tail(void **state)
{
    (void)state;
    assert_int_equal(utf8_incomplete_tail("a\xf0\x9f\x98", 4), 3);
    assert_int_equal(utf8_incomplete_tail("a\xf0\x9f", 3), 2);
    assert_int_equal(utf8_incomplete_tail("a\xf0", 2), 1);
    assert_int_equal(utf8_incomplete_tail("\xf0\x9f\x98\x80", 4), 0);
    assert_int_equal(utf8_incomplete_tail("abc", 3), 0);
    assert_int_equal(utf8_incomplete_tail("\x80\x80\x80", 3), 0); /* nothing can complete these */
    assert_int_equal(utf8_incomplete_tail("\xf0\x80", 2), 0);
    assert_int_equal(utf8_incomplete_tail("", 0), 0);
}

/* First outputs of xoshiro256** for the state {1, 2, 3, 4}: from the recurrence by hand
 * (rotl(2 * 5, 7) * 9 = 11520) and from the authors' program. */
static void test_random_sequence(void **state)
{
    (void)state;
    struct random r = {{1, 2, 3, 4}};
    assert_true(random_bits(&r) == 11520);
    assert_true(random_bits(&r) == 0);
    assert_true(random_bits(&r) == 1509978240);
    assert_true(random_bits(&r) == 1215971899390074240u);
}

static void test_random_moments(void **state)
{
    (void)state;
    struct random r;
    random_init(&r, 0);
    double unit = 0, normal = 0, square = 0;
    int n = 200000;
    for (int i = 0; i < n; i++) {
        double u = random_unit(&r), z = random_normal(&r);
        assert_true(u >= 0 && u < 1);
        unit += u;
        normal += z;
        square += z * z;
    }
    assert_true(fabs(unit / n - 0.5) < 0.004);
    assert_true(fabs(normal / n) < 0.012);
    assert_true(fabs(square / n - 1) < 0.02);
}

static void test_output_file_appears_whole(void **state)
{
    (void)state;
    const char *path = scratch_path("out.bin");
    struct output_file file;
    size_t size;
    assert_int_equal(output_file_open(&file, path, NULL), STATUS_OK);
    assert_int_equal(output_file_write(&file, "abc", 3, NULL), STATUS_OK);
    assert_int_equal(output_file_pad(&file, 8, NULL), STATUS_OK);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(output_file_commit(&file, NULL), STATUS_OK);
    output_file_close(&file);
    char *bytes = read_whole(path, &size);
    assert_int_equal(size, 8);
    assert_memory_equal(bytes, "abc\0\0\0\0\0", 8);
    free(bytes);
}

static void test_output_file_leaves_nothing_behind(void **state)
{
    (void)state;
    const char *path = scratch_path("kept.bin");
    char part[1024];
    write_whole(path, "old", 3);
    struct output_file file;
    assert_int_equal(output_file_open(&file, path, NULL), STATUS_OK);
    assert_int_equal(output_file_write(&file, "new", 3, NULL), STATUS_OK);
    snprintf(part, sizeof part, "%s", output_file_name(&file));
    output_file_close(&file);
    assert_int_equal(access(part, F_OK), -1);
    char *bytes = read_whole(path, NULL);
    assert_string_equal(bytes, "old");
    free(bytes);
}

static void test_output_file_errors(void **state)
{
    (void)state;
    struct output_file file;
    struct error err;
    assert_int_equal(output_file_open(&file, scratch_path("no/such/folder"), &err), STATUS_IO);
    assert_non_null(strstr(err.text, "no/such/folder"));
    assert_int_equal(output_file_open(&file, "/", &err), STATUS_IO);
    assert_non_null(strstr(err.text, "directory"));
    assert_int_equal(output_file_open(&file, "/dev/full", &err), STATUS_OK);
    output_file_write(&file, "x", 1, NULL);
    assert_int_equal(output_file_commit(&file, &err), STATUS_IO);
    output_file_close(&file);
}

/* What includes what: an order, in which AVX-512 and VNNI on 256 bits stand side by side. */
static void test_isa_includes(void **state)
{
    (void)state;
    for (enum isa a = 0; a < N_ISAS; a++) {
        assert_true(isa_includes(a, a) && isa_includes(a, ISA_scalar));
        for (enum isa b = 0; b < N_ISAS; b++) {
            assert_false(a < b && isa_includes(a, b));
            for (enum isa c = 0; c < N_ISAS; c++)
                assert_false(isa_includes(a, b) && isa_includes(b, c) && !isa_includes(a, c));
        }
    }
    assert_true(isa_includes(ISA_avxvnni, ISA_avx2) && isa_includes(ISA_avx512, ISA_avx2));
    assert_false(isa_includes(ISA_avx512vbmi, ISA_avxvnni));
    assert_true(isa_includes(ISA_amx, ISA_avx512vbmi) && isa_includes(ISA_amx, ISA_avx512));
    assert_false(isa_includes(ISA_amx, ISA_avxvnni));
    assert_true(isa_includes(ISA_i8mm, ISA_neon));
    assert_false(isa_includes(ISA_neon, ISA_avx2) || isa_includes(ISA_i8mm, ISA_avx512vbmi));
    for (enum isa a = 0; a < N_ISAS; a++) {
        struct error err;
        enum isa parsed;
        assert_int_equal(isa_parse(isa_name(a), &parsed, &err), STATUS_OK);
        assert_int_equal(parsed, a);
    }
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail_is_one_safe_line),
        cmocka_unit_test(test_memory_overflow_and_injection),
        cmocka_unit_test(test_arena_is_aligned_and_zeroed),
        cmocka_unit_test(test_reader_is_sticky),
        cmocka_unit_test(test_reader_length_cannot_wrap),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_utf8_incomplete_tail),
        cmocka_unit_test(test_random_sequence),
        cmocka_unit_test(test_random_moments),
        cmocka_unit_test(test_output_file_appears_whole),
        cmocka_unit_test(test_output_file_leaves_nothing_behind),
        cmocka_unit_test(test_output_file_errors),
        cmocka_unit_test(test_isa_includes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
