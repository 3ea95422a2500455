/* A matmul cut by columns with one scale per token: the slices exchange the peaks of their inputs,
 * multiply to integer sums, and these are reduced. Bit for bit the whole matmul. */
#include "op_fixture.h"

#include <math.h>

/* A ternary matrix of one scale per row, and the tokens it multiplies. */
enum { N_ROWS = 40, N_COLS = 640, N_TOKENS = 3 };

struct sliced {
    struct tensor tensor; /* IQ2_BN: owned */
    float *x, *row_scale, *bias, *before;
    float scale;
};

static struct sliced new_sliced(float scale, bool has_bias)
{
    struct sliced s = {.scale = scale, .row_scale = floats(N_ROWS)};
    float *values = floats(N_ROWS * N_COLS);
    for (int64_t i = 0; i < N_ROWS * N_COLS; i++)
        values[i] = (float)(below(3) - 1) * fabsf(s.row_scale[i / N_COLS]);
    s.tensor = (struct tensor){.format = FORMAT_IQ2_BN, .n_cols = N_COLS, .n_rows = N_ROWS};
    s.tensor.bytes = N_ROWS * format_row_bytes(FORMAT_IQ2_BN, N_COLS);
    uint8_t *data = bytes_of(s.tensor.bytes, 0);
    format_of(FORMAT_IQ2_BN)->encode(values, N_ROWS, N_COLS, data);
    s.tensor.data = data;
    free(values);
    for (int r = 0; r < N_ROWS; r++)
        s.row_scale[r] = fabsf(s.row_scale[r]);
    s.x = floats(N_TOKENS * N_COLS);
    s.before = floats(N_TOKENS * N_ROWS);
    s.bias = has_bias ? floats(N_ROWS) : NULL;
    return s;
}

static void free_sliced(struct sliced *s)
{
    free((void *)(uintptr_t)s->tensor.data);
    free(s->x);
    free(s->row_scale);
    free(s->bias);
    free(s->before);
}

static kernel *best_of(enum op op, enum packing packing, enum isa cap)
{
    const struct kernel_row *row = kernel_select(op, packing, cap);
    assert_non_null(row);
    return row->run;
}

/* The product of columns [col0, col0 + n_cols) with activations by the peaks of all slices. */
static void multiply_slice(const struct sliced *s, enum isa isa, int col0, int n_cols,
                           const float *const *peaks, int n_peaks, struct matmul_job j)
{
    enum packing packing = PACKING_trits4;
    struct activations a = {.n_cols = n_cols, .stride = n_cols, .n_scales = 1, .n_sums = 1};
    a.q = bytes_of((size_t)(N_TOKENS * n_cols), 0x55);
    a.scale = bytes_of(N_TOKENS * sizeof *a.scale, 0x55);
    a.sum = bytes_of(N_TOKENS * sizeof *a.sum, 0x55);
    j.w = (struct packed){packing, 0, N_ROWS, n_cols, NULL};
    j.w.data = aligned_alloc(64, (packed_bytes(packing, 0, N_ROWS, n_cols) + 63) / 64 * 64);
    assert_non_null(j.w.data);
    struct pack_job pack = {.w = j.w, .source = {&s->tensor}, .n_sources = 1, .col0 = col0};
    pack.scratch = bytes_of(PACK_SCRATCH(N_COLS), 0);
    best_of(OP_pack, packing, isa)(&(union job){.pack = pack}, 0, N_ROWS);
    j.a = a;
    struct quantize_job quantize = {s->x + col0, N_COLS, NULL, j.a, n_peaks, peaks};
    best_of(OP_quantize, PACKING_none, isa)(&(union job){.quantize = quantize}, 0, N_TOKENS);
    j.n_tokens = N_TOKENS;
    j.out_stride = N_ROWS;
    j.scratch = aligned_alloc(64, MATMUL_SCRATCH_BYTES);
    best_of(OP_matmul, packing, isa)(&(union job){.matmul = j}, 0, N_ROWS);
    free(j.scratch);
    free(pack.scratch);
    free(j.w.data);
    free(a.q);
    free(a.scale);
    free(a.sum);
}

/* The same product from integer sums of slices: columns [cuts[k], cuts[k + 1]) are slice k. */
static void multiply_in_slices(const struct sliced *s, enum isa isa, const int *cuts, int n_slices,
                               bool is_add, float *out)
{
    float peak_of[4][N_TOKENS], act_scale[N_TOKENS];
    int32_t sums[4][N_TOKENS * N_ROWS];
    const float *peaks[4];
    const void *parts[4];
    for (int k = 0; k < n_slices; k++) {
        struct peak_job peak = {s->x + cuts[k], N_COLS, NULL, cuts[k + 1] - cuts[k], peak_of[k]};
        best_of(OP_peak, PACKING_none, isa)(&(union job){.peak = peak}, 0, N_TOKENS);
        peaks[k] = peak_of[k];
        parts[k] = sums[k];
    }
    for (int k = 0; k < n_slices; k++)
        multiply_slice(
            s, isa, cuts[k], cuts[k + 1] - cuts[k], peaks, n_slices,
            (struct matmul_job){.epilogue = EPILOGUE_PARTIAL, .scale = {1, 1}, .out_int = sums[k]});
    for (int t = 0; t < N_TOKENS; t++) {
        float amax = 0;
        for (int i = 0; i < N_COLS; i++)
            amax = fmaxf(amax, fabsf(s->x[t * N_COLS + i]));
        act_scale[t] = amax / 127;
    }
    struct reduce_job reduce = {n_slices,  parts,    true, is_add,  N_TOKENS, N_ROWS, s->row_scale,
                                act_scale, s->scale, NULL, s->bias, out,      N_ROWS};
    best_of(OP_reduce, PACKING_none, isa)(&(union job){.reduce = reduce}, 0, N_ROWS);
}

static void test_column_slices(void **state)
{
    (void)state;
    static const int cuts[][5] = {{0, 320, 640}, {0, 64, 640}, {0, 128, 192, 512, 640}};
    static const int n_slices[] = {2, 2, 4};
    enum { N_OUT = N_TOKENS * N_ROWS };
    for (int kind = 0; kind < 8; kind++) {
        bool is_add = kind & 1;
        struct sliced s = new_sliced(kind & 2 ? 0.37f : 1, kind & 4);
        for (enum isa isa = ISA_scalar; isa < N_ISAS; isa++)
            for (int c = 0; c < 3 && cpu_has_isa(isa); c++) {
                float whole[N_OUT], out[N_OUT];
                memcpy(whole, s.before, sizeof whole);
                memcpy(out, s.before, sizeof out);
                multiply_slice(
                    &s, isa, 0, N_COLS, NULL, 0,
                    (struct matmul_job){.epilogue = is_add ? EPILOGUE_ADD : EPILOGUE_STORE,
                                        .scale = {s.scale, s.scale},
                                        .bias = s.bias,
                                        .out = whole});
                multiply_in_slices(&s, isa, cuts[c], n_slices[c], is_add, out);
                CHECK(!memcmp(out, whole, sizeof whole), "%s: kind %d, cuts %d", isa_name(isa),
                      kind, c);
                assert_memory_not_equal(out, s.before, sizeof out);
            }
        free_sliced(&s);
    }
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    random_init(&source, 21);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_column_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
