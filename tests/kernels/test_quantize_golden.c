/* The quantiser of activations against known bytes: Q8_0 as programs with AVX compute it, whose rule
 * (round half to even of x * (127 / amax), scale amax / 127) is ours; the scale stored as f16. */
#include <stdlib.h>
#include <string.h>

#include "../support.h"
#include "base/float16.h"
#include "base/reader.h"
#include "kernels/kernel_select.h"
#include "machine/cpu_features.h"

#define MAX_COLS 1024

static enum isa isa;
static int n_lines;

static void check_line(json_t *line)
{
    const json_t *variant = json_object_get(line, "variant");
    if (strcmp(json_string_value(json_object_get(line, "type")), "Q8_0") != 0 ||
        strcmp(json_string_value(variant), "x86-avx2") != 0)
        return;
    size_t src_bytes, raw_bytes;
    uint8_t *src = from_hex(json_string_value(json_object_get(line, "src")), &src_bytes);
    uint8_t *raw = from_hex(json_string_value(json_object_get(line, "raw")), &raw_bytes);
    int n = (int)(src_bytes / sizeof(float));
    assert_true(n <= MAX_COLS && n % 64 == 0);
    static _Alignas(64) float x[MAX_COLS];
    static _Alignas(64) int8_t q[MAX_COLS];
    float scale[MAX_COLS / 32];
    int32_t sum[MAX_COLS / 32];
    memcpy(x, src, src_bytes);
    union job job = {.quantize = {.x = x, .x_stride = n}};
    job.quantize.a = (struct activations){.q = q,
                                          .scale = scale,
                                          .sum = sum,
                                          .n_cols = n,
                                          .stride = n,
                                          .group = 32,
                                          .n_scales = n / 32,
                                          .sum_group = 32,
                                          .n_sums = n / 32};
    kernel_select(OP_quantize, PACKING_none, isa)->run(&job, 0, 1);
    for (int b = 0; b < n / 32; b++) {
        const uint8_t *block = raw + 34 * b;
        if (f32_to_f16(scale[b]) != load_u16(block) || memcmp(q + 32 * b, block + 2, 32) != 0)
            fail_msg("%s, case %s: block %d differs", isa_name(isa),
                     json_string_value(json_object_get(line, "case")), b);
    }
    n_lines++;
    free(src);
    free(raw);
}

static void test_q8_0_lines(void **state)
{
    (void)state;
    for (int i = 0; i < N_ISAS; i++) {
        if (!cpu_has_isa((enum isa)i))
            continue;
        isa = (enum isa)i;
        n_lines = 0;
        each_json_line("tests/golden/quantize_ggml.jsonl", check_line);
        assert_int_equal(n_lines, 15);
    }
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_q8_0_lines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
