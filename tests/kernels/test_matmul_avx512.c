/* The AVX-512 and AVX-VNNI matmul kernels against the scalar ones, bit for bit: edges of rows, inputs, tokens
 * and groups, extreme codes, with pages that must not be touched after weights and activations. */
#include "../support.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/float16.h"
#include "base/random.h"
#include "kernels/kernel_select.h"
#include "machine/cpu_features.h"

enum { MAX_ROWS = 80, MAX_TOKENS = 64, OUT_STRIDE = MAX_ROWS + 3 };
enum fill { FILL_RANDOM, FILL_MOST, FILL_LEAST, N_FILLS };

static struct random rng;

/* Bytes that end where an unreadable page begins. */
struct guarded {
    uint8_t *map, *bytes;
    size_t map_bytes;
};

static struct guarded guarded_new(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (bytes + page - 1) / page * page;
    struct guarded g = {.map_bytes = size + page};
    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    assert_int_equal(mprotect(g.map + size, page, PROT_NONE), 0);
    g.bytes = g.map + size - bytes;
    return g;
}

static void guarded_done(struct guarded *g)
{
    munmap(g->map, g->map_bytes);
}

static int below(int n)
{
    return (int)(random_bits(&rng) % (uint64_t)n);
}

static float random_float(void)
{
    return (float)(random_unit(&rng) * 2 - 1);
}

/* A finite half of either sign, at times a denormal or zero. */
static uint16_t random_half(void)
{
    return (uint16_t)(random_bits(&rng) % 0x7c00 | (random_bits(&rng) & 0x8000));
}

static void fill_halves(uint8_t *out, int n)
{
    for (int i = 0; i < n; i++) {
        uint16_t half = random_half();
        memcpy(out + 2 * i, &half, sizeof half);
    }
}

static void fill_floats(uint8_t *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float value = random_float();
        memcpy(out + 4 * i, &value, sizeof value);
    }
}

static uint8_t random_code(enum packing packing, enum fill fill)
{
    if (packing == PACKING_trits5) {
        uint8_t t[5];
        for (int i = 0; i < 5; i++)
            t[i] = (uint8_t)(fill == FILL_RANDOM ? below(3) : fill == FILL_MOST ? 2 : 0);
        return trits5_code(t);
    }
    return (uint8_t)(fill == FILL_RANDOM ? below(256) : fill == FILL_MOST ? 255 : 0);
}

static void fill_steps(const struct packed *w, uint8_t *steps, int64_t bytes, enum fill fill)
{
    if (w->packing == PACKING_f32) {
        fill_floats(steps, bytes / 4);
    } else if (w->packing == PACKING_f16) {
        fill_halves(steps, (int)bytes / 2);
    } else if (w->packing == PACKING_bf16) {
        for (int64_t i = 0; i < bytes / 2; i++) {
            uint16_t half = f32_to_bf16(random_float());
            memcpy(steps + 2 * i, &half, sizeof half);
        }
    } else {
        for (int64_t i = 0; i < bytes; i++)
            steps[i] = random_code(w->packing, fill);
    }
}

/* Fills a matrix unit after unit. */
static void fill_matrix(const struct packed *w, enum fill fill)
{
    int64_t unit = packed_unit_inputs(w->packing, w->group);
    int64_t header = packed_unit_header(w->packing, w->group);
    int64_t step = packed_step_inputs(w->packing);
    bool is_k_min =
        w->packing == PACKING_q4_k || w->packing == PACKING_q5_k || w->packing == PACKING_q2_k;
    bool is_signed = w->packing == PACKING_q3_k || w->packing == PACKING_iq4_xs;
    int64_t step_bytes = packed_step_bytes(w->packing);
    uint8_t *at = w->data;
    for (int64_t tile = 0; tile < w->n_rows; tile += TILE_ROWS)
        for (int64_t i = 0; i < w->n_cols; i += unit ? unit : w->n_cols) {
            int64_t n = unit && w->n_cols - i > unit ? unit : w->n_cols - i;
            int64_t bytes = (n + step - 1) / step * step_bytes;
            if (w->packing == PACKING_q6_k || is_k_min || is_signed) {
                fill_halves(at, is_signed ? 16 : 32);
                for (int64_t k = is_signed ? 32 : 64; k < header; k++)
                    at[k] = (uint8_t)(fill == FILL_RANDOM ? below(256)
                                      : is_k_min          ? 255
                                      : is_signed         ? 0
                                                          : 128);
            } else if (unit) {
                fill_halves(at, (int)header / 2);
            } else {
                fill_floats(at, header / 4);
            }
            fill_steps(w, at + header, bytes, fill);
            at += header + bytes;
        }
    assert_int_equal(at - w->data, packed_bytes(w->packing, w->group, w->n_rows, w->n_cols));
}

/* All that a call reads. */
struct inputs {
    struct guarded weights, q, scratch;
    struct matmul_job job;
    float bias[MAX_ROWS];
};

static void fill_activations(struct inputs *in, struct packing_needs needs, enum fill fill)
{
    struct activations *a = &in->job.a;
    int64_t group = needs.act_group ? needs.act_group : a->n_cols;
    int64_t sum_group = needs.sum_group ? needs.sum_group : a->n_cols;
    int64_t step = packed_step_inputs(in->job.w.packing);
    a->stride = ((a->n_cols + step - 1) / step * step + 63) / 64 * 64;
    a->n_scales = (int)((a->n_cols + group - 1) / group);
    a->n_sums = (int)((a->n_cols + sum_group - 1) / sum_group);
    a->group = needs.act_group;
    a->sum_group = needs.sum_group;
    in->q = guarded_new((size_t)(MAX_TOKENS * a->stride) * (needs.is_float ? 4 : 1));
    if (needs.is_float) {
        a->x = (float *)in->q.bytes;
        for (int64_t i = 0; i < MAX_TOKENS * a->stride; i++)
            a->x[i] = i % a->stride < a->n_cols ? random_float() : 0;
        return;
    }
    a->q = (int8_t *)in->q.bytes;
    a->scale = calloc((size_t)(MAX_TOKENS * a->n_scales), sizeof *a->scale);
    a->sum = calloc((size_t)(MAX_TOKENS * a->n_sums), sizeof *a->sum);
    int most = below(2) ? 127 : 80; /* q6_k tells large from usual ones */
    for (int64_t t = 0; t < MAX_TOKENS; t++)
        for (int64_t i = 0; i < a->n_cols; i++) {
            int q = fill == FILL_RANDOM ? below(2 * most + 1) - most : t % 2 ? 127 : -127;
            a->q[t * a->stride + i] = (int8_t)q;
            a->sum[t * a->n_sums + i / sum_group] += q;
            if (i % group == 0)
                a->scale[t * a->n_scales + i / group] = random_float();
        }
}

static struct inputs inputs_new(enum packing packing, int group, int64_t n_cols, enum fill fill)
{
    struct inputs in = {.job = {.w = {packing, group, MAX_ROWS, n_cols, NULL},
                                .a = {.n_cols = n_cols},
                                .scale = {1, 1},
                                .out_stride = OUT_STRIDE}};
    in.weights = guarded_new(packed_bytes(packing, group, MAX_ROWS, n_cols));
    in.job.w.data = in.weights.bytes;
    fill_matrix(&in.job.w, fill);
    fill_activations(&in, packing_needs(packing, group), fill);
    in.scratch = guarded_new(MATMUL_SCRATCH_BYTES);
    in.job.scratch = in.scratch.bytes;
    fill_floats((uint8_t *)in.bias, MAX_ROWS);
    return in;
}

static void inputs_done(struct inputs *in)
{
    guarded_done(&in->weights);
    guarded_done(&in->q);
    guarded_done(&in->scratch);
    free(in->job.a.scale);
    free(in->job.a.sum);
}

/* Results are floats or integers: compared as bits. */
static uint32_t start[MAX_TOKENS * OUT_STRIDE], want[MAX_TOKENS * OUT_STRIDE],
    got[MAX_TOKENS * OUT_STRIDE];

static void run(const struct kernel_row *row, const struct inputs *in, int n_rows, int n_tokens,
                uint32_t *out)
{
    union job job = {.matmul = in->job};
    job.matmul.w.n_rows = n_rows;
    job.matmul.n_tokens = n_tokens;
    job.matmul.out = (float *)out;
    job.matmul.out_int = (int32_t *)out;
    memcpy(out, start, sizeof start);
    int middle = n_rows / 3 / TILE_ROWS * TILE_ROWS; /* two ranges */
    row->run(&job, 0, middle);
    row->run(&job, middle, n_rows);
}

static void compare(const struct kernel_row *row, const struct inputs *in, int n_rows, int n_tokens)
{
    run(row, in, n_rows, n_tokens, got);
    for (int t = 0; t < MAX_TOKENS; t++)
        for (int r = 0; r < OUT_STRIDE; r++) {
            int at = t * OUT_STRIDE + r;
            uint32_t expected = t < n_tokens && r < n_rows ? want[at] : start[at];
            if (got[at] != expected)
                fail_msg("%s, group %d, %d rows, %d inputs, %d tokens, epilogue %d: row %d of "
                         "token %d is %08x, not %08x",
                         row->name, in->job.w.group, n_rows, (int)in->job.w.n_cols, n_tokens,
                         in->job.epilogue, r, t, got[at], expected);
        }
}

static void check_shape(const struct kernel_row *row, const struct kernel_row *scalar, int group,
                        int n_cols, enum fill fill)
{
    static const int rows[] = {1, 15, 16, 17, 33, 48, 80};
    static const int tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 17, 25, 64};
    struct inputs in = inputs_new(row->packing, group, n_cols, fill);
    bool is_row = group == 0 && !packing_needs(row->packing, group).is_float;
    int choice = below(is_row ? 4 : 3);
    in.job.epilogue = choice == 3 ? EPILOGUE_PARTIAL : choice ? EPILOGUE_ADD : EPILOGUE_STORE;
    in.job.bias = choice == 2 ? in.bias : NULL;
    in.job.scale[0] = in.job.scale[1] = choice == 2 ? 0.3f : 1;
    fill_floats((uint8_t *)start, MAX_TOKENS * OUT_STRIDE);
    int n_counts = sizeof tokens / sizeof *tokens - (below(4) ? 1 : 0); /* 64 tokens take long */
    run(scalar, &in, MAX_ROWS, tokens[n_counts - 1], want);
    for (int t = 0; t < n_counts; t++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            compare(row, &in, rows[r], tokens[t]);
    inputs_done(&in);
}

static void check_packing(const struct kernel_row *row, int group)
{
    static const int cols[] = {16,  20,  32,  48,   64,   96,   128,  192,  256,  320,
                               512, 640, 768, 1280, 1344, 1536, 2560, 2816, 3200, 4160};
    const struct kernel_row *scalar = kernel_select(OP_matmul, row->packing, ISA_scalar);
    bool is_float = packing_needs(row->packing, group).is_float;
    for (size_t c = 0; c < sizeof cols / sizeof *cols; c++) {
        if ((group && cols[c] % group) || (is_float && cols[c] > 128))
            continue;
        for (enum fill fill = 0; fill < (is_float || cols[c] > 1280 ? 1 : N_FILLS); fill++)
            check_shape(row, scalar, group, cols[c], fill);
    }
    if (is_float)
        check_shape(row, scalar, group, 33, FILL_RANDOM);
}

static void test_matmul_avx512(void **state)
{
    (void)state;
    static const int groups[] = {0, 64, 128, 256};
    int n = 0;
    for (int i = 0; i < n_kernel_rows; i++) {
        const struct kernel_row *row = &kernel_rows[i];
        bool is_meant = isa_includes(row->isa, ISA_avx512) || row->isa == ISA_avxvnni;
        if (row->op != OP_matmul || !is_meant || !cpu_has_isa(row->isa))
            continue;
        n++;
        bool is_trits = row->packing == PACKING_trits4 || row->packing == PACKING_trits5;
        for (int g = 0; is_trits && g < 4; g++)
            check_packing(row, groups[g]);
        if (!is_trits)
            check_packing(row, packing_group(row->packing));
    }
    if (n == 0)
        skip();
}

/* More inputs than sums kept shifted may take. */
static void test_long_rows(void **state)
{
    (void)state;
    static const struct {
        enum packing packing;
        int group;
    } cases[] = {{PACKING_trits4, 0}, {PACKING_trits5, 0}, {PACKING_trits5, 64}};
    for (int i = 0; i < 3; i++) {
        const struct kernel_row *row = kernel_select(OP_matmul, cases[i].packing, cpu_best_isa());
        if (!isa_includes(row->isa, ISA_avx512))
            skip();
        struct inputs in = inputs_new(cases[i].packing, cases[i].group, 140032, FILL_MOST);
        const struct kernel_row *scalar = kernel_select(OP_matmul, row->packing, ISA_scalar);
        run(scalar, &in, 16, 9, want);
        for (int n = 1; n <= 9; n += n < 4 ? 1 : 5)
            compare(row, &in, 16, n);
        inputs_done(&in);
    }
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    random_init(&rng, 20240229);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul_avx512),
        cmocka_unit_test(test_long_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
