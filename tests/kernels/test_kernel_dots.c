/* Dot products that other programs computed from their quantised activations, through our packing
 * and matmul kernels of every instruction set of this machine.
 *
 * Their activations have one scale per block, ours one per group of weights. Where a group spans
 * several scales, its parts become tokens of their own, zero elsewhere, whose results are added:
 * the sum is the same dot product. Q8_1 keeps the scaled sum of a block as f16, which minimums
 * multiply: that rounding is added to ours. */
#include "../support.h"

#include <math.h>
#include <string.h>

#include "base/float16.h"
#include "base/memory.h"
#include "base/reader.h"
#include "kernels/kernel_select.h"
#include "machine/cpu_features.h"
#include "tensor/ternary.h"

#define N_COLS      512
#define MAX_SCALES  16
#define MAX_TOKENS  16
#define MAX_OUTPUTS (MAX_TOKENS * TILE_ROWS)

/* Activations as their program stored them: column c has scale d[part[c]]. */
struct stored {
    int8_t q[N_COLS];
    int part[N_COLS];
    float d[MAX_SCALES];
    double sum_error[MAX_SCALES]; /* Q8_1: the stored sum of a block less the exact one */
};

static int n_checked;

static void read_stored(const char *type, const uint8_t *bytes, struct stored *s)
{
    bool is_k = strcmp(type, "Q8_K") == 0, is_k64 = strcmp(type, "Q8_K64") == 0;
    bool has_sum = strcmp(type, "Q8_1") == 0;
    if (strcmp(type, "Q8_0") == 0 || is_k || has_sum) {
        int block = is_k ? 256 : 32, header = is_k || has_sum ? 4 : 2;
        int block_bytes = is_k ? 292 : header + block;
        for (int c = 0; c < N_COLS; c++) {
            const uint8_t *at = bytes + c / block * block_bytes;
            s->part[c] = c / block;
            s->d[c / block] = is_k ? load_f32(at) : f16_to_f32(load_u16(at));
            s->q[c] = (int8_t)at[header + c % block];
            if (has_sum && c % block == 0)
                s->sum_error[c / block] = f16_to_f32(load_u16(at + 2));
            if (has_sum)
                s->sum_error[c / block] -= (double)s->d[c / block] * s->q[c];
        }
        return;
    }
    assert_true(is_k64 || strcmp(type, "Q8_K16") == 0);
    for (int i = 0; i < 4; i++)
        s->d[i] = load_f32(bytes + 4 * i);
    for (int c = 0; c < N_COLS; c++) {
        s->part[c] = is_k64 ? c % 16 / 4 : c % 64 / 16;
        s->q[c] = (int8_t)bytes[(is_k64 ? 32 : 20) + c];
    }
}

/* The parts of one group of weights, each to a token; returns their number. */
static int split_group(const struct stored *s, int begin, int end, int group,
                       const struct activations *a)
{
    int parts[MAX_TOKENS], n = 0;
    for (int c = begin; c < end; c++) {
        int token = 0;
        while (token < n && parts[token] != s->part[c])
            token++;
        assert_true(token < MAX_TOKENS);
        if (token == n)
            parts[n++] = s->part[c];
        a->q[token * a->stride + c] = s->q[c];
        a->sum[token * a->n_sums + (a->sum_group ? c / a->sum_group : 0)] += s->q[c];
        a->scale[token * a->n_scales + group] = s->d[s->part[c]];
    }
    return n;
}

/* Our activations; returns the number of tokens. */
static int split_stored(const struct stored *s, enum packing packing, int group,
                        struct arena *arena, struct activations *a)
{
    struct packing_needs needs = packing_needs(packing, group);
    *a = (struct activations){.n_cols = N_COLS, .group = needs.act_group};
    int step = packed_step_inputs(packing);
    a->stride = ((N_COLS + step - 1) / step * step + 63) / 64 * 64;
    a->sum_group = needs.sum_group;
    a->n_scales = needs.act_group ? N_COLS / needs.act_group : 1;
    a->n_sums = needs.sum_group ? N_COLS / needs.sum_group : 1;
    a->q = arena_alloc(arena, MAX_TOKENS, (size_t)a->stride);
    a->scale = arena_alloc(arena, MAX_TOKENS * (size_t)a->n_scales, sizeof *a->scale);
    a->sum = arena_alloc(arena, MAX_TOKENS * (size_t)a->n_sums, sizeof *a->sum);
    assert_true(a->q && a->scale && a->sum);
    int width = N_COLS / a->n_scales, n_tokens = 1;
    for (int g = 0; g < a->n_scales; g++) {
        int n = split_group(s, g * width, (g + 1) * width, g, a);
        n_tokens = n > n_tokens ? n : n_tokens;
    }
    return n_tokens;
}

static struct packed pack_tensor(const struct tensor *t, enum packing packing, int group,
                                 enum isa isa, struct arena *arena)
{
    union job job = {0};
    job.pack.w = (struct packed){packing, group, t->n_rows, t->n_cols, NULL};
    job.pack.w.data = arena_alloc(arena, packed_bytes(packing, group, t->n_rows, t->n_cols), 1);
    job.pack.source[0] = t;
    job.pack.n_sources = 1;
    job.pack.scratch = arena_alloc(arena, PACK_SCRATCH(t->n_cols), 1);
    assert_true(job.pack.w.data && job.pack.scratch);
    kernel_select(OP_pack, packing, isa)->run(&job, 0, (int)t->n_rows);
    return job.pack.w;
}

/* Our dot products of all rows, by the kernels of one instruction set. */
static void multiply(const struct tensor *t, const struct stored *s, enum packing packing,
                     int group, enum isa isa, double *results)
{
    struct arena arena = {0};
    union job job = {0};
    float out[MAX_OUTPUTS];
    job.matmul.w = pack_tensor(t, packing, group, isa, &arena);
    job.matmul.n_tokens = split_stored(s, packing, group, &arena, &job.matmul.a);
    job.matmul.scale[0] = job.matmul.scale[1] = 1.0f;
    job.matmul.out = out;
    job.matmul.out_stride = t->n_rows;
    job.matmul.scratch = arena_alloc(&arena, MATMUL_SCRATCH_BYTES, 1);
    assert_non_null(job.matmul.scratch);
    kernel_select(OP_matmul, packing, isa)->run(&job, 0, (int)t->n_rows);
    for (int64_t row = 0; row < t->n_rows; row++) {
        results[row] = 0;
        for (int token = 0; token < job.matmul.n_tokens; token++)
            results[row] += out[token * t->n_rows + row];
    }
    arena_done(&arena);
}

/* What the rounded sums of Q8_1 add to a row whose blocks have an f16 minimum behind their scale. */
static double min_error(const struct tensor *t, int64_t row, const struct stored *s)
{
    const struct format *f = format_of(t->format);
    double error = 0;
    if (t->format != FORMAT_Q4_1 && t->format != FORMAT_Q5_1)
        return 0;
    for (int i = 0; i < N_COLS / f->block; i++) {
        int64_t block = row * N_COLS / f->block + i;
        error += s->sum_error[i] * f16_to_f32(load_u16(t->data + block * f->block_bytes + 2));
    }
    return error;
}

static void compare(json_t *line, const struct tensor *t, const struct stored *s,
                    const double *results, enum packing packing, enum isa isa)
{
    size_t n = 0;
    uint8_t *expected = from_hex(json_string_value(json_object_get(line, "f32")), &n);
    assert_int_equal(n, 4 * t->n_rows);
    for (int64_t row = 0; row < t->n_rows; row++) {
        float w[N_COLS];
        double terms = 0;
        tensor_decode(t, row, row + 1, w);
        for (int c = 0; c < N_COLS; c++)
            terms += fabs((double)w[c] * s->q[c] * s->d[s->part[c]]);
        double want = load_f32(expected + 4 * row) - min_error(t, row, s);
        if (fabs(results[row] - want) > 1e-6 * terms)
            fail_msg("%s %s row %d, %s %s: %.9g, want %.9g", format_of(t->format)->name,
                     json_string_value(json_object_get(line, "case")), (int)row,
                     packing_name(packing), isa_name(isa), results[row], want);
    }
    free(expected);
}

static bool has_code3(const struct tensor *t)
{
    uint8_t codes[4 * N_COLS];
    float scales[4 * N_COLS];
    struct ternary_rows rows = {codes, scales, 0};
    assert_true(t->n_rows <= 4);
    ternary_extract(t, 0, t->n_rows, &rows);
    return memchr(codes, 3, (size_t)(t->n_rows * N_COLS)) != NULL;
}

/* The packings of a format and the weights per scale in them; returns their number. */
static int packings_of(const struct tensor *t, enum packing packings[2], int *group)
{
    const struct format *f = format_of(t->format);
    *group = f->scale_group > 0 ? f->scale_group : 0;
    packings[0] = PACKING_trits4;
    packings[1] = PACKING_trits5;
    if (f->is_ternary)
        return has_code3(t) ? 1 : 2;
    packings[0] = packing_of_format(t->format).packing;
    *group = packing_group(packings[0]);
    return packings[0] != PACKING_none;
}

static void check_line(json_t *line)
{
    const char *type = json_string_value(json_object_get(line, "type"));
    json_t *rows = json_object_get(line, "rows");
    struct tensor t = {format_by_name(type), N_COLS, rows ? json_integer_value(rows) : 1, NULL, 0};
    assert_true(t.format < N_FORMATS);
    assert_int_equal(json_integer_value(json_object_get(line, "n")), N_COLS);
    size_t n_weights = 0, n_act = 0;
    uint8_t *weights = from_hex(json_string_value(json_object_get(line, "w")), &n_weights);
    uint8_t *act = from_hex(json_string_value(json_object_get(line, "a")), &n_act);
    t.data = weights;
    t.bytes = n_weights;
    enum packing packings[2];
    int group, n = packings_of(&t, packings, &group);
    if (n == 0)
        print_message("skipped: %s has no packing of its own (decoded to floats when packed)\n",
                      type);
    else
        n_checked++;
    for (int i = 0; i < n; i++)
        for (enum isa isa = 0; isa < N_ISAS; isa++) {
            if (!cpu_has_isa(isa))
                continue;
            struct stored stored = {0};
            double results[TILE_ROWS];
            read_stored(json_string_value(json_object_get(line, "act")), act, &stored);
            multiply(&t, &stored, packings[i], group, isa, results);
            compare(line, &t, &stored, results, packings[i], isa);
        }
    free(weights);
    free(act);
}

static void check_file(const char *path, int n_lines, int n_expected)
{
    n_checked = 0;
    assert_int_equal(each_json_line(path, check_line), n_lines);
    print_message("%s: %d of %d lines multiplied\n", path, n_checked, n_lines);
    assert_int_equal(n_checked, n_expected);
}

static void test_ggml(void **state)
{
    (void)state;
    check_file("tests/golden/dot_ggml.jsonl", 48, 45);
}

static void test_ik(void **state)
{
    (void)state;
    check_file("tests/golden/dot_ik.jsonl", 12, 12);
}

static void test_trellis(void **state)
{
    (void)state;
    check_file("tests/golden/dot_tq.jsonl", 9, 0);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ggml), cmocka_unit_test(test_ik),
                                       cmocka_unit_test(test_trellis)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
