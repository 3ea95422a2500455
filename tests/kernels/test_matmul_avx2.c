/* The scalar matmuls against float64 on decoded weights, the AVX2 ones against the scalar ones to
 * the last bit, epilogues against their formulas, exp against libm. */
#include "../support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/float16.h"
#include "base/random.h"
#include "kernels/float_ops.h"
#include "kernels/kernel_select.h"
#include "machine/cpu_features.h"

enum fill { FILL_RANDOM, FILL_MAX, FILL_MIN, N_FILLS };

/* A matmul with inputs of its own. */
struct trial {
    struct matmul_job job;
    uint8_t *weights, *scratch;
    int8_t *q;
    float *x, *act_scale, *bias, *cosines, *sines;
    int32_t *act_sum;
};

/* What one kernel writes. Pads around and between rows must stay as they were. */
#define PAD 3
struct output {
    float *out;
    int32_t *out_int;
    uint16_t *halves, **out_f16;
    size_t n, n_halves;
};

static struct random dice;

static void *get(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    assert_non_null(p);
    memset(p, 0, bytes);
    return p;
}

static float small_normal(void)
{
    return (float)random_normal(&dice) * 0.02f;
}

static void fill_halves(uint8_t *at, int n, bool is_bf16)
{
    for (int i = 0; i < n; i++) {
        uint16_t half = is_bf16 ? f32_to_bf16(small_normal()) : f32_to_f16(small_normal());
        memcpy(at + 2 * i, &half, sizeof half);
    }
}

static bool has_min(enum packing packing)
{
    return packing == PACKING_q4_k || packing == PACKING_q5_k || packing == PACKING_q2_k;
}

/* One f16 scale, and scales of six bits. */
static bool is_signed_k(enum packing packing)
{
    return packing == PACKING_q3_k || packing == PACKING_iq4_xs;
}

static bool is_k_packing(enum packing packing)
{
    return has_min(packing) || packing == PACKING_q6_k || is_signed_k(packing);
}

/* Scales of one tile, and its bytes where every byte is not a code. */
static void fill_tile(const struct packed *w, uint8_t *tile, uint64_t bytes)
{
    int unit_inputs = packed_unit_inputs(w->packing, w->group);
    int header = packed_unit_header(w->packing, w->group);
    uint64_t unit_bytes =
        (uint64_t)header + (uint64_t)(unit_inputs / packed_step_inputs(w->packing)) *
                               (uint64_t)packed_step_bytes(w->packing);
    bool is_bf16 = w->packing == PACKING_bf16;
    bool is_k = is_k_packing(w->packing); /* other scales are whole bytes */
    bool is_signed = is_signed_k(w->packing);
    if (is_bf16 || w->packing == PACKING_f16) {
        fill_halves(tile, (int)(bytes / 2), is_bf16);
    } else if (w->packing == PACKING_f32 || !unit_inputs) {
        float *floats = (float *)(void *)tile;
        for (int r = 0; r < (int)(unit_inputs || w->packing == PACKING_f32 ? bytes / 4 : 16); r++)
            floats[r] = small_normal();
    } else {
        for (uint64_t at = 0; at < bytes; at += unit_bytes)
            fill_halves(tile + at, is_signed ? 16 : is_k ? 32 : header / 2, false);
    }
}

static void fill_weights(struct trial *trial, enum fill fill)
{
    struct packed *w = &trial->job.w;
    uint64_t bytes = packed_bytes(w->packing, w->group, w->n_rows, w->n_cols);
    uint64_t tile_bytes = packed_tile_bytes(w->packing, w->group, w->n_cols);
    w->data = trial->weights = get(bytes);
    for (uint64_t i = 0; i < bytes; i++) {
        uint8_t byte = (uint8_t)random_bits(&dice);
        if (w->packing == PACKING_trits5 && byte >= 192)
            byte = (uint8_t)(192 + byte % 51);
        w->data[i] = fill == FILL_RANDOM ? byte : fill == FILL_MIN ? 0 : 255;
        if (w->packing == PACKING_trits5 && fill == FILL_MAX)
            w->data[i] = 242; /* 2, 2, 2, 2, 2 */
    }
    for (uint64_t at = 0; at < bytes; at += tile_bytes)
        fill_tile(w, w->data + at, tile_bytes);
    if (w->packing == PACKING_q6_k && fill != FILL_RANDOM) /* int8 scales -128 */
        for (uint64_t at = 0; at < bytes; at += tile_bytes)
            memset(w->data + at + 64, 128, 512);
}

static void fill_activations(struct trial *trial, enum fill fill)
{
    struct activations *a = &trial->job.a;
    struct packing_needs needs = packing_needs(trial->job.w.packing, trial->job.w.group);
    int n_tokens = trial->job.n_tokens, n_cols = (int)trial->job.w.n_cols;
    int step = packed_unit_inputs(trial->job.w.packing, trial->job.w.group);
    step = step ? step : packed_step_inputs(trial->job.w.packing);
    a->n_cols = n_cols;
    a->stride = ((n_cols + step - 1) / step * step + 63) / 64 * 64;
    a->group = needs.act_group;
    a->sum_group = needs.sum_group;
    a->n_scales = a->group ? n_cols / a->group : 1;
    a->n_sums = a->sum_group ? n_cols / a->sum_group : 1;
    a->q = trial->q = get((size_t)(n_tokens * a->stride));
    a->x = trial->x = get((size_t)(n_tokens * a->stride) * sizeof(float));
    a->scale = trial->act_scale = get((size_t)(n_tokens * a->n_scales) * sizeof(float));
    a->sum = trial->act_sum = get((size_t)(n_tokens * a->n_sums) * sizeof(int32_t));
    for (int t = 0; t < n_tokens; t++)
        for (int i = 0; i < n_cols; i++) {
            int q = fill == FILL_RANDOM ? (int)(random_bits(&dice) % 255) - 127 : 127;
            q = fill == FILL_MIN && t % 2 ? -127 : q;
            a->q[t * a->stride + i] = (int8_t)q;
            a->x[t * a->stride + i] = (float)random_normal(&dice);
            a->sum[t * a->n_sums + (a->sum_group ? i / a->sum_group : 0)] += q;
        }
    for (int i = 0; i < n_tokens * a->n_scales; i++)
        a->scale[i] = (float)random_unit(&dice) / 64;
}

static void trial_init(struct trial *trial, struct packed shape, int n_tokens, enum fill fill)
{
    memset(trial, 0, sizeof *trial);
    trial->job.w = shape;
    trial->job.n_tokens = n_tokens;
    trial->job.scale[0] = trial->job.scale[1] = 1;
    trial->job.out_stride = shape.n_rows + PAD;
    trial->job.scratch = trial->scratch = get(MATMUL_SCRATCH_BYTES);
    fill_weights(trial, fill);
    fill_activations(trial, fill);
}

static void trial_done(struct trial *trial)
{
    free(trial->weights);
    free(trial->scratch);
    free(trial->q);
    free(trial->x);
    free(trial->act_scale);
    free(trial->act_sum);
    free(trial->bias);
    free(trial->cosines);
    free(trial->sines);
}

/* Runs a kernel into a fresh output, in two ranges if there are two tiles. */
static void run(const struct kernel_row *row, const struct trial *trial, struct output *o)
{
    union job job = {.matmul = trial->job};
    struct matmul_job *m = &job.matmul;
    int n_rows = (int)m->w.n_rows, n_heads = m->head_dim ? n_rows / m->head_dim : 1;
    m->f16_head_stride = m->head_dim + PAD;
    o->n = (size_t)(m->n_tokens * m->out_stride);
    size_t per_token = (size_t)(n_heads * m->f16_head_stride);
    o->n_halves = (size_t)m->n_tokens * per_token;
    m->out = o->out = get(o->n * sizeof(float));
    m->out_int = o->out_int = get(o->n * sizeof(int32_t));
    o->halves = get(o->n_halves * sizeof(uint16_t));
    o->out_f16 = get((size_t)m->n_tokens * sizeof(uint16_t *));
    for (size_t i = 0; i < o->n; i++)
        o->out[i] = (float)i, o->out_int[i] = (int32_t)i;
    for (size_t i = 0; i < o->n_halves; i++)
        o->halves[i] = (uint16_t)i;
    for (int t = 0; t < m->n_tokens; t++) /* tokens in descending order: no assumption on places */
        o->out_f16[t] = o->halves + (size_t)(m->n_tokens - 1 - t) * per_token;
    m->out_f16 = o->out_f16;
    row->run(&job, 0, n_rows > 16 ? 16 : n_rows);
    if (n_rows > 16)
        row->run(&job, 16, n_rows);
}

static void output_done(struct output *o)
{
    free(o->out);
    free(o->out_int);
    free(o->halves);
    free(o->out_f16);
}

static void assert_same(const struct output *a, const struct output *b, const struct trial *trial,
                        const char *name)
{
    if (memcmp(a->out, b->out, a->n * sizeof *a->out) ||
        memcmp(a->out_int, b->out_int, a->n * sizeof *a->out_int) ||
        memcmp(a->halves, b->halves, a->n_halves * sizeof *a->halves))
        fail_msg("%s: epilogue %d, group %d, %d x %d, %d tokens: differs from scalar", name,
                 (int)trial->job.epilogue, trial->job.w.group, (int)trial->job.w.n_rows,
                 (int)trial->job.w.n_cols, trial->job.n_tokens);
}

/* Whether a weight is a product and a minimum. */
static bool has_two_parts(enum packing packing)
{
    return has_min(packing) || packing == PACKING_q4_1 || packing == PACKING_q5_1;
}

/* The f16 scales (part 0) or minimums (part 1) of all units become 0. */
static void clear_part(const struct packed *w, int part)
{
    uint64_t unit_bytes =
        packed_tile_bytes(w->packing, w->group, packed_unit_inputs(w->packing, w->group));
    uint64_t tile_bytes = packed_tile_bytes(w->packing, w->group, w->n_cols);
    uint64_t bytes = packed_bytes(w->packing, w->group, w->n_rows, w->n_cols);
    size_t part_bytes = has_min(w->packing) ? 32 : 64;
    for (uint64_t tile = 0; tile < bytes; tile += tile_bytes)
        for (uint64_t at = 0; at < tile_bytes; at += unit_bytes)
            memset(w->data + tile + at + part_bytes * (size_t)part, 0, part_bytes);
}

/* Weights as exact floats: where they have minimums, part 0 is the product, part 1 what the minimum
 * adds. */
static float *decode_part(const struct packed *w, int part)
{
    uint64_t bytes = packed_bytes(w->packing, w->group, w->n_rows, w->n_cols);
    float *values = get((size_t)(w->n_rows * w->n_cols) * sizeof *values);
    struct packed copy = *w;
    copy.data = get(bytes);
    memcpy(copy.data, w->data, bytes);
    if (has_two_parts(w->packing))
        clear_part(&copy, 1 - part);
    packed_decode(&copy, 0, w->n_rows, values);
    free(copy.data);
    return values;
}

struct float64 {
    double sum, terms, noise; /* noise: float64 rounds as well */
};

/* Adds the group terms of one row, of inputs with a scale per `group`; x: or these inputs. */
static void add_terms(const struct activations *a, const float *x, const float *row, int token,
                      int group, struct float64 *to)
{
    for (int64_t g = 0; g * group < a->n_cols; g++) {
        double term = 0, scale = x ? 1 : (double)a->scale[token * a->n_scales + g];
        for (int64_t i = g * group; i < (g + 1) * group; i++) {
            int64_t at = token * a->stride + i;
            double input = x ? (double)x[at] : (double)a->q[at] * scale;
            term += (double)row[i] * input;
            to->noise += fabs((double)row[i] * input) * (double)a->n_cols * 0x1p-52;
        }
        to->sum += term;
        to->terms += fabs(term);
    }
}

/* STORE without scale and bias: the sum of group terms in float64. */
static void check_float64(const struct trial *trial, const struct output *o)
{
    const struct matmul_job *m = &trial->job;
    const struct activations *a = &m->a;
    int n_cols = (int)a->n_cols;
    struct packing_needs needs = packing_needs(m->w.packing, m->w.group);
    int group = needs.is_float ? 1 : needs.act_group ? needs.act_group : n_cols;
    int n_parts = has_two_parts(m->w.packing) ? 2 : 1;
    float *parts[2] = {decode_part(&m->w, 0), decode_part(&m->w, n_parts - 1)};
    for (int t = 0; t < m->n_tokens; t++)
        for (int r = 0; r < (int)m->out_stride; r++) {
            float y = o->out[t * m->out_stride + r];
            if (r >= m->w.n_rows) {
                assert_true(y == (float)(t * m->out_stride + r));
                continue;
            }
            struct float64 want = {0, 0, 0};
            for (int part = 0; part < n_parts; part++)
                add_terms(a, needs.is_float ? a->x : NULL, parts[part] + (int64_t)r * n_cols, t,
                          group, &want);
            double bound = (n_parts * n_cols / group + 2) * 0x1p-23 * want.terms + want.noise;
            if (fabs((double)y - want.sum) > bound)
                fail_msg("%s, %d x %d: row %d is %g, not %g", packing_name(m->w.packing),
                         (int)m->w.n_rows, n_cols, r, (double)y, want.sum);
        }
    free(parts[0]);
    free(parts[1]);
}

static bool is_shape(enum packing packing, int group, int n_cols)
{
    if (packing_group(packing) == 32)
        return group == 32 && n_cols % 32 == 0;
    if (is_k_packing(packing))
        return group == 256 && n_cols % 256 == 0;
    if (packing == PACKING_trits4 || packing == PACKING_trits5)
        return group != 32 && (!group || n_cols % group == 0);
    return group == 0;
}

static void check_shape(struct packed shape, int n_tokens, enum fill fill)
{
    const struct kernel_row *scalar = kernel_select(OP_matmul, shape.packing, ISA_scalar);
    const struct kernel_row *simd = kernel_select(OP_matmul, shape.packing, ISA_avx2);
    struct trial trial;
    struct output expected, got;
    trial_init(&trial, shape, n_tokens, fill);
    run(scalar, &trial, &expected);
    check_float64(&trial, &expected);
    if (simd != scalar && cpu_has_isa(ISA_avx2)) {
        run(simd, &trial, &got);
        assert_same(&expected, &got, &trial, simd->name);
        output_done(&got);
    }
    output_done(&expected);
    trial_done(&trial);
}

static void test_sizes(void **state)
{
    static const int rows[] = {1, 15, 16, 17, 40}, tokens[] = {1, 3, 13, 2, 5, 8, 9, 33};
    static const int cols[] = {16, 20, 32, 64, 128, 192, 256, 320, 512, 640, 768, 1280, 1344, 2688};
    static const int groups[] = {0, 32, 64, 128, 256};
    (void)state;
    for (int p = PACKING_none + 1; p < N_PACKINGS; p++)
        for (int c = 0; c < (int)(sizeof cols / sizeof *cols); c++)
            for (int g = 0; g < 5; g++)
                for (int r = 0; is_shape(p, groups[g], cols[c]) && r < 5; r++) {
                    if (IS_SANITISED && cols[c] > 320 && rows[r] != 17)
                        continue; /* slow, and no new edge */
                    bool is_all = !IS_SANITISED && (cols[c] <= 64 || rows[r] == 17);
                    for (int t = 0; t < (is_all ? 8 : 3); t++)
                        check_shape((struct packed){p, groups[g], rows[r], cols[c], NULL},
                                    tokens[t], FILL_RANDOM);
                }
}

/* The largest sums: nothing overflows. */
static void test_extremes(void **state)
{
    static const int groups[] = {0, 32, 64, 128, 256};
    (void)state;
    for (int p = PACKING_none + 1; p < N_PACKINGS; p++)
        for (int g = 0; g < 5; g++)
            for (int fill = FILL_MAX; is_shape(p, groups[g], 1280) && fill < N_FILLS; fill++)
                for (int n_tokens = 1; n_tokens <= 16; n_tokens *= 2)
                    check_shape((struct packed){p, groups[g], 16, 1280, NULL}, n_tokens, fill);
}

static void assert_near(double got, double expected, double size, const char *what)
{
    if (!(fabs(got - expected) <= size * 4e-7 + 1e-30))
        fail_msg("%s: %.9g, not %.9g", what, got, expected);
}

/* Results of an epilogue from y of STORE, in float64. */
static void check_epilogue(const struct trial *trial, const struct output *stored,
                           const struct output *o)
{
    const struct matmul_job *m = &trial->job;
    bool is_gate = m->epilogue == EPILOGUE_SILU_MUL || m->epilogue == EPILOGUE_RELU2_MUL;
    bool is_rope = m->epilogue == EPILOGUE_ROPE || m->epilogue == EPILOGUE_ROPE_F16;
    bool is_f16 = m->epilogue == EPILOGUE_F16 || m->epilogue == EPILOGUE_ROPE_F16;
    for (int t = 0; t < m->n_tokens; t++)
        for (int r = 0; r < (int)m->w.n_rows; r++) {
            const float *y = stored->out + t * m->out_stride;
            double expected = (double)y[r], size = fabs(expected);
            int64_t at = t * m->out_stride + r;
            int dim = m->head_dim, pair = t * (dim / 2) + r % dim / 2;
            if (is_gate) {
                double gate = (double)y[r / 2 * 2], up = (double)y[r / 2 * 2 + 1];
                double act = m->epilogue == EPILOGUE_SILU_MUL ? gate / (1 + exp(-gate))
                                                              : pow(fmax(gate, 0), 2);
                at -= r - r / 2;
                expected = act * up;
                size = fabs(expected);
            } else if (is_rope) {
                double other = (double)y[r ^ 1], c = (double)m->cosines[pair],
                       s = (double)m->sines[pair];
                expected = r % 2 ? other * s + expected * c : expected * c - other * s;
                size += fabs(other);
            }
            if (is_f16) {
                uint16_t half = o->out_f16[t][r / dim * (dim + PAD) + r % dim];
                double far = fabs((double)f16_to_f32(half) - expected);
                assert_true(far <= size * 0x1.01p-11 + 0x1p-24);
            } else if (m->epilogue == EPILOGUE_ADD) {
                assert_near((double)o->out[at], expected + (double)at, size + (double)at, "add");
            } else {
                assert_near((double)o->out[at], expected, size, "epilogue");
            }
        }
}

static void epilogue_trial(enum packing packing, int n_rows, int head_dim, int n_tokens,
                           float scale)
{
    struct trial trial;
    struct output stored, expected, got;
    const struct kernel_row *scalar = kernel_select(OP_matmul, packing, ISA_scalar);
    const struct kernel_row *simd = kernel_select(OP_matmul, packing, ISA_avx2);
    trial_init(&trial, (struct packed){packing, packing == PACKING_q4_0 ? 32 : 0, n_rows, 64, NULL},
               n_tokens, FILL_RANDOM);
    size_t n_angles = (size_t)(n_tokens * head_dim / 2);
    trial.job.scale[0] = trial.job.scale[1] = scale;
    trial.job.head_dim = head_dim;
    trial.job.bias = trial.bias = get((size_t)n_rows * sizeof(float));
    trial.job.cosines = trial.cosines = get(n_angles * sizeof(float));
    trial.job.sines = trial.sines = get(n_angles * sizeof(float));
    for (int r = 0; r < n_rows; r++)
        trial.bias[r] = (float)random_normal(&dice);
    for (size_t i = 0; i < n_angles; i++) {
        double angle = random_unit(&dice) * 7;
        trial.cosines[i] = (float)cos(angle);
        trial.sines[i] = (float)sin(angle);
    }
    run(scalar, &trial, &stored);
    for (int e = EPILOGUE_STORE; e < EPILOGUE_PARTIAL; e++) {
        trial.job.epilogue = e;
        run(scalar, &trial, &expected);
        check_epilogue(&trial, &stored, &expected);
        if (cpu_has_isa(ISA_avx2)) {
            run(simd, &trial, &got);
            assert_same(&expected, &got, &trial, simd->name);
            output_done(&got);
        }
        output_done(&expected);
    }
    output_done(&stored);
    trial_done(&trial);
}

static void test_epilogues(void **state)
{
    static const enum packing packings[] = {PACKING_trits4, PACKING_q4_0, PACKING_f32};
    static const float scales[] = {1.0f, 0.3f, 40.0f};
    (void)state;
    for (int p = 0; p < 3; p++)
        for (int s = 0; s < 3; s++)
            for (int n_tokens = 1; n_tokens <= 11; n_tokens += 2) {
                epilogue_trial(packings[p], 40, 10, n_tokens, scales[s]);
                epilogue_trial(packings[p], 48, 24, n_tokens, scales[s]);
                epilogue_trial(packings[p], 64, 32, n_tokens, scales[s]);
                epilogue_trial(packings[p], 6, 2, n_tokens, scales[s]);
            }
}

/* PARTIAL: integers, for every size of the last tile. */
static void test_partial(void **state)
{
    (void)state;
    for (int n_rows = 1; n_rows <= 33; n_rows += 8)
        for (int n_tokens = 1; n_tokens <= 11; n_tokens++) {
            struct trial trial;
            struct output o[2];
            trial_init(&trial, (struct packed){PACKING_trits4, 0, n_rows, 336, NULL}, n_tokens,
                       FILL_RANDOM);
            trial.job.epilogue = EPILOGUE_PARTIAL;
            run(kernel_select(OP_matmul, PACKING_trits4, ISA_scalar), &trial, &o[0]);
            for (int t = 0; t < n_tokens; t++)
                for (int r = 0; r < n_rows; r++) {
                    const uint8_t *tile = trial.weights + r / 16 * (64 + 21 * 64);
                    int32_t sum = 0;
                    for (int i = 0; i < 336; i++)
                        sum += ((tile[64 + i / 16 * 64 + r % 16 * 4 + i % 4] >> i / 4 % 4 * 2 & 3) -
                                1) *
                               trial.q[t * trial.job.a.stride + i];
                    assert_int_equal(o[0].out_int[t * trial.job.out_stride + r], sum);
                }
            if (cpu_has_isa(ISA_avx2)) {
                run(kernel_select(OP_matmul, PACKING_trits4, ISA_avx2), &trial, &o[1]);
                assert_same(&o[0], &o[1], &trial, "partial");
                output_done(&o[1]);
            }
            output_done(&o[0]);
            trial_done(&trial);
        }
}

static void test_exp(void **state)
{
    (void)state;
    double worst = 0;
    for (int64_t bits = 0; bits < INT64_C(1) << 32; bits += 4099) {
        float x = f32_from_bits((uint32_t)bits), y = trine_exp(x);
        double exact = exp((double)x);
        if (x != x)
            continue;
        if (x > 88.7f)
            assert_true(y == trine_exp(88.7f) && y < 3.4e38f);
        else if (x < -103.0f)
            assert_true(y == 0);
        else if (x < -87.3f)
            assert_true(fabs((double)y - exact) <= 0x1p-149);
        else
            worst = fmax(worst, fabs((double)y - exact) / exact);
        if (fabsf(x) < 80 && fabsf(x) > 1e-30f)
            assert_near((double)silu(x), (double)x / (1 + exp(-(double)x)),
                        fabs((double)x / (1 + exp(-(double)x))), "silu");
    }
    assert_true(worst < 3e-7);
    assert_true(trine_exp(0) == 1 && trine_exp(-0.0f) == 1);
}

static void test_sum16(void **state)
{
    (void)state;
    float lanes[16], tree[16];
    for (int i = 0; i < 16; i++)
        tree[i] = lanes[i] = (float)random_normal(&dice);
    for (int step = 8; step; step /= 2)
        for (int i = 0; i < step; i++)
            tree[i] += tree[i + step];
    float sum = sum16(lanes);
    assert_memory_equal(&sum, tree, sizeof sum);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    random_init(&dice, 7);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),       cmocka_unit_test(test_sum16),
        cmocka_unit_test(test_sizes),     cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_epilogues), cmocka_unit_test(test_partial),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
