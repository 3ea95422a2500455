/* The kernels of AMX: on emulated tiles against the scalar ones, the emulation against mistakes, the
 * real object for its instructions. (The real kernels are checked by test_kernel_check.) */
#include "../support.h"

#include <string.h>

#include "check.h"
#include "machine/cpu_features.h"
#include "tiles_emulated.h"

static bool is_amx(const struct kernel_row *row)
{
    return row->op == OP_matmul && row->isa == ISA_amx;
}

/* Every row of amx, which here is the emulated one. */
static void test_emulated(void **state)
{
    (void)state;
    if (!cpu_has_isa(ISA_avx512vbmi)) {
        print_message("skipped: needs avx512vbmi\n");
        skip();
    }
    int n = 0;
    for (int i = 0; i < n_kernel_rows; i++) {
        if (!is_amx(&kernel_rows[i]))
            continue;
        static struct check c;
        int64_t before = tiles_n_products();
        tiles_problem[0] = 0;
        check_kernel(&c, &kernel_rows[i], 1);
        if (c.failed)
            fail_msg("%s; tiles: %s", c.message, tiles_problem);
        if (tiles_n_products() == before)
            fail_msg("%s multiplied no tiles", kernel_rows[i].name);
        if (tiles_are_in_use())
            fail_msg("%s did not release the tiles", kernel_rows[i].name);
        n++;
    }
#if defined(__x86_64__)
    assert_int_equal(n, 14);
#else
    assert_int_equal(n, 0);
#endif
}

static struct tile_config usual(void)
{
    struct tile_config config = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        config.rows[t] = 16;
        config.colsb[t] = 64;
    }
    return config;
}

static uint8_t memory[16 * 64];

static void use_before_configuration(void)
{
    tile_zero(0);
}

static void use_after_release(void)
{
    struct tile_config config = usual();
    tile_configure(&config);
    tile_release();
    tile_store(0, memory, 64);
}

static void use_of_unconfigured(void)
{
    struct tile_config config = usual();
    config.rows[3] = 0;
    config.colsb[3] = 0;
    tile_configure(&config);
    tile_load(3, memory, 64);
}

static void use_of_ninth(void)
{
    struct tile_config config = usual();
    tile_configure(&config);
    tile_zero(8);
}

static void palette_2(void)
{
    struct tile_config config = usual();
    config.palette = 2;
    tile_configure(&config);
}

static void too_many_rows(void)
{
    struct tile_config config = usual();
    config.rows[2] = 17;
    tile_configure(&config);
}

static void rows_too_long(void)
{
    struct tile_config config = usual();
    config.colsb[2] = 68;
    tile_configure(&config);
}

static void rows_of_nothing(void)
{
    struct tile_config config = usual();
    config.colsb[2] = 0;
    tile_configure(&config);
}

static void reserved_byte(void)
{
    struct tile_config config = usual();
    config.reserved[13] = 1;
    tile_configure(&config);
}

static void tile_9(void)
{
    struct tile_config config = usual();
    config.rows[9] = 1;
    config.colsb[9] = 64;
    tile_configure(&config);
}

static void other_inputs(void)
{
    struct tile_config config = usual();
    config.rows[2] = 8; /* 32 inputs, where the left factor has 64 */
    tile_configure(&config);
    tile_add_su(0, 1, 2);
}

static void other_tokens(void)
{
    struct tile_config config = usual();
    config.rows[1] = 15;
    tile_configure(&config);
    tile_add_su(0, 1, 2);
}

static void other_outputs(void)
{
    struct tile_config config = usual();
    config.colsb[0] = 60;
    tile_configure(&config);
    tile_add_ss(0, 1, 2);
}

static void split_quad(void)
{
    struct tile_config config = usual();
    config.colsb[1] = 62;
    tile_configure(&config);
    tile_add_su(0, 1, 2);
}

static void sum_is_factor(void)
{
    struct tile_config config = usual();
    tile_configure(&config);
    tile_add_su(1, 1, 2);
}

/* Leaves its message in tiles_problem. */
static void make_mistake(void (*make)(void))
{
    jmp_buf escape;
    tiles_problem[0] = 0;
    tiles_escape = &escape;
    if (setjmp(escape) == 0)
        make();
    tiles_escape = NULL;
}

static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        void (*make)(void);
        const char *message;
    } mistakes[] = {
        {use_before_configuration, "without a configuration"},
        {use_after_release, "without a configuration"},
        {use_of_unconfigured, "not configured"},
        {use_of_ninth, "tile 8"},
        {palette_2, "palette 2"},
        {too_many_rows, "17 rows"},
        {rows_too_long, "68 bytes"},
        {rows_of_nothing, "16 rows of 0 bytes"},
        {reserved_byte, "reserved byte 13"},
        {tile_9, "tile 9 does not exist"},
        {other_inputs, "64 inputs of the left factor, 32"},
        {other_tokens, "16 rows of sums, 15"},
        {other_outputs, "60 bytes of sums a row, 64"},
        {split_quad, "no multiples of 4"},
        {sum_is_factor, "are not three"},
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        make_mistake(mistakes[i].make);
        if (!strstr(tiles_problem, mistakes[i].message))
            fail_msg("mistake %zu: '%s', not '%s'", i, tiles_problem, mistakes[i].message);
        tile_release();
    }
}

/* A product by its definition: signs of both factors, order of bytes, rows and strides. */
static void test_product(void **state)
{
    (void)state;
    static int8_t a[3][40];
    static uint8_t b[2][64];
    static int32_t sums[3][20];
    struct tile_config config = {.palette = 1, .rows = {3, 3, 2}, .colsb = {64, 8, 64}};
    for (int i = 0; i < 3 * 40; i++)
        a[i / 40][i % 40] = (int8_t)(i * 37 - 128);
    for (int i = 0; i < 2 * 64; i++)
        b[i / 64][i % 64] = (uint8_t)(i * 91 + 200);
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        tile_configure(&config);
        tile_load(1, a, sizeof a[0]);
        tile_load(2, b, sizeof b[0]);
        for (int twice = 0; twice < 2; twice++)
            is_signed ? tile_add_ss(0, 1, 2) : tile_add_su(0, 1, 2);
        tile_store(0, sums, sizeof sums[0]);
        tile_release();
        for (int m = 0; m < 3; m++)
            for (int n = 0; n < 16; n++) {
                int want = 0;
                for (int i = 0; i < 8; i++) {
                    int code = b[i / 4][4 * n + i % 4];
                    want += 2 * a[m][i] * (is_signed && code > 127 ? code - 256 : code);
                }
                assert_int_equal(sums[m][n], want);
            }
    }
}

/* A VEX instruction of the map of 0F 38, W 0, L 0, with these prefix bits and opcode. is_bare: the one
 * without operands, tilerelease, which differs from ldtilecfg in its last byte only. */
static bool holds(const char *bytes, size_t n, int prefix, int opcode, bool is_bare)
{
    for (size_t i = 0; i + 4 < n; i++)
        if ((uint8_t)bytes[i] == 0xc4 && (bytes[i + 1] & 31) == 2 &&
            (bytes[i + 2] & 0x87) == prefix && (uint8_t)bytes[i + 3] == opcode &&
            ((uint8_t)bytes[i + 4] == 0xc0) == is_bare)
            return true;
    return false;
}

/* The real object, which the library has, holds the instructions: by their bytes and, where there is a
 * disassembler, by name. */
static void test_object(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int prefix, opcode;
        bool is_bare;
    } needed[] = {
        {"ldtilecfg", 0, 0x49, false}, {"tilerelease", 0, 0x49, true},
        {"tileloadd", 3, 0x4b, false}, {"tilestored", 2, 0x4b, false},
        {"tdpbsud", 2, 0x5e, false},   {"tdpbssd", 3, 0x5e, false},
        {"tilezero", 3, 0x49, true}, /* of register 0 */
    };
    const char *path = build_path("src/kernels/x86/matmul_amx.o");
    size_t n;
    char *bytes = read_whole(path, &n);
    NEED(bytes, "an object for x86");
    struct outcome o = run_command("objdump -d %s", path);
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        if (!holds(bytes, n, needed[i].prefix, needed[i].opcode, needed[i].is_bare))
            fail_msg("%s has no bytes of %s", path, needed[i].name);
        if (o.status == 0 && !strstr(o.out, needed[i].name))
            fail_msg("%s has no %s", path, needed[i].name);
    }
    outcome_done(&o);
    free(bytes);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_product),
        cmocka_unit_test(test_emulated),
        cmocka_unit_test(test_object),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
