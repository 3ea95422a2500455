/* peak, quantize, rms_norm, squares, norm_factor, hadamard and rope. */
#include <math.h>
#include <string.h>

#include "base/float16.h"
#include "check.h"

/* Pairs of activation and sum groups that packings ask for. */
static int needs_of_packings(struct packing_needs needs[16])
{
    static const struct packing_needs all[] = {
        {false, 0, 0},     {false, 32, 32},   {false, 64, 64},
        {false, 128, 128}, {false, 256, 256}, {false, 256, 16},
    };
    memcpy(needs, all, sizeof all);
    return sizeof all / sizeof all[0];
}

static int edge_cols(struct check *c, const struct packing_needs *needs)
{
    static const int cols[] = {1, 3, 4, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 129, 300, 1000};
    static const int groups[] = {1, 2, 3, 4, 5, 7, 8, 9, 11, 21};
    int whole = groups[check_below(c, 10)] * needs->act_group;
    /* The last group may be cut off. */
    return needs->act_group && check_below(c, 3) ? whole : whole + cols[check_below(c, 16)];
}

/* x times its gain as a float, if there is one. */
static float gained(const float *gain, int64_t i, float x)
{
    return gain ? x * gain[i] : x;
}

static void verify_quantize(struct check *c, const void *context)
{
    (void)context;
    const struct quantize_job *job = &c->job.quantize;
    int n_tokens = (int)(c->blocks[0].bytes / ((size_t)job->x_stride * sizeof(float)));
    double *x = check_memory(c, (size_t)(n_tokens * job->a.n_cols), sizeof *x);
    for (int64_t token = 0; token < n_tokens; token++)
        for (int64_t i = 0; i < job->a.n_cols; i++)
            x[token * job->a.n_cols + i] = gained(job->gain, i, job->x[token * job->x_stride + i]);
    if (!job->a.q) {
        for (int64_t i = 0; i < n_tokens * job->a.n_cols && !c->failed; i++)
            check_near(c, "a.x", i, job->a.x[i / job->a.n_cols * job->a.stride + i % job->a.n_cols],
                       x[i], 0);
        return;
    }
    double *amax = job->n_peaks ? check_memory(c, (size_t)n_tokens, sizeof *amax) : NULL;
    for (int token = 0; amax && token < n_tokens; token++) {
        amax[token] = 0;
        for (int i = 0; i < job->n_peaks; i++)
            amax[token] = fmax(amax[token], job->peaks[i][token]);
    }
    verify_quantized(c, &job->a, x, amax, n_tokens, 0);
}

/* NaN if one is. */
static float largest_of(const float *x, const float *gain, int64_t n)
{
    float largest = 0;
    for (int64_t i = 0; i < n; i++) {
        float magnitude = fabsf(gained(gain, i, x[i]));
        if (isnan(magnitude) || magnitude > largest)
            largest = magnitude;
    }
    return largest;
}

/* Peaks of some slices, that of x among them. is_odd: the others are tiny or not finite. */
static void set_peaks(struct check *c, struct quantize_job *job, int n_tokens, bool is_odd)
{
    static const float odd[] = {NAN, INFINITY, 0, 0x1p-121f, 0x1p-120f, 0x1p-119f};
    job->n_peaks = 1 + check_below(c, 4);
    const float **peaks = check_block(c, "peaks", (size_t)job->n_peaks * sizeof *peaks, ROLE_INPUT);
    int own = check_below(c, job->n_peaks);
    for (int i = 0; i < job->n_peaks; i++) {
        float *peak = check_floats(c, "peak", 1, n_tokens, n_tokens, FILL_RANDOM);
        for (int64_t token = 0; token < n_tokens; token++) {
            peak[token] = fabsf(peak[token]) * (float)(1 << check_below(c, 20));
            if (i == own)
                peak[token] = largest_of(job->x + token * job->x_stride, job->gain, job->a.n_cols);
            else if (is_odd)
                peak[token] = odd[check_below(c, 6)];
        }
        peaks[i] = peak;
    }
    job->peaks = peaks;
}

void check_quantize(struct check *c)
{
    struct packing_needs needs[16];
    int n = needs_of_packings(needs);
    for (int i = 0; i < 60 * n && !c->failed; i++) {
        enum fill fill = i % N_FILLS;
        int n_tokens = 1 + check_below(c, 5), n_cols = edge_cols(c, &needs[i % n]);
        int64_t stride = n_cols + check_below(c, 3) * 7;
        check_begin(c, "%d tokens, %d cols, group %d, sums %d, fill %s", n_tokens, n_cols,
                    needs[i % n].act_group, needs[i % n].sum_group, fill_names[fill]);
        struct quantize_job *job = &c->job.quantize;
        float *x = check_floats(c, "x", n_tokens, n_cols, stride, fill);
        for (int k = 0; fill == FILL_RANDOM && k < n_cols && i % 3 == 0; k++)
            x[k] = (float)(check_below(c, 255) - 127) / 2; /* ties */
        if (fill == FILL_RANDOM && i % 7 == 0)
            for (int k = 0; k < n_cols; k++)
                x[k] *= 0x1p-122f; /* at the threshold to zero */
        if (fill == FILL_RANDOM && i % 11 == 0)
            x[check_below(c, n_cols)] = i % 2 ? INFINITY : NAN;
        job->x = x;
        job->x_stride = stride;
        if (check_below(c, 2))
            job->gain = check_floats(c, "gain", 1, n_cols, n_cols, FILL_RANDOM);
        bool is_odd = fill == FILL_RANDOM && (i % 7 == 0 || i % 11 == 0);
        if (check_below(c, 5) == 0) { /* products as floats */
            job->a = (struct activations){.n_cols = n_cols, .stride = n_cols + 3};
            job->a.x = check_rows(c, "a.x", n_tokens, (size_t)(n_cols + 3) * sizeof(float),
                                  (size_t)n_cols * sizeof(float));
            check_run(c, n_tokens, is_odd ? NULL : verify_quantize, NULL);
            continue;
        }
        job->a =
            check_quantized(c, needs[i % n].act_group, needs[i % n].sum_group, n_cols, n_tokens);
        if (check_below(c, 5) == 0)
            job->a.n_sums = 0; /* nobody asks for them */
        if (!needs[i % n].act_group && check_below(c, 2))
            set_peaks(c, job, n_tokens, is_odd);
        check_run(c, n_tokens, is_odd ? NULL : verify_quantize, NULL);
    }
}

/* What was there before, where an output may be the input. */
struct token_case {
    const float *x;
    int n_tokens;
};

static void verify_peak(struct check *c, const void *context)
{
    const struct token_case *peak = context;
    const struct peak_job *job = &c->job.peak;
    for (int64_t token = 0; token < peak->n_tokens && !c->failed; token++) {
        double want = 0;
        for (int i = 0; i < job->n_cols && !isnan(want); i++) {
            double x = gained(job->gain, i, job->x[token * job->x_stride + i]);
            want = isnan(x) ? x : fmax(want, fabs(x));
        }
        if (isnan(want))
            check_near(c, "is not a number", token, isnan(job->peaks[token]), 1, 0);
        else if (job->peaks[token] != want) /* infinities have no difference */
            check_near(c, "peak", token, job->peaks[token], want, 0);
    }
}

void check_peak(struct check *c)
{
    static const int cols[] = {0, 1, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 1000};
    for (int i = 0; i < 14 * N_FILLS * 4 && !c->failed; i++) {
        enum fill fill = i % N_FILLS;
        int n_tokens = 1 + check_below(c, 5), n_cols = cols[i / N_FILLS % 14];
        int64_t stride = n_cols + check_below(c, 3) * 7;
        check_begin(c, "%d tokens, %d cols, fill %s", n_tokens, n_cols, fill_names[fill]);
        struct peak_job *job = &c->job.peak;
        float *x = check_floats(c, "x", n_tokens, n_cols, stride, fill);
        if (n_cols && i % 3 == 0)
            x[check_below(c, n_cols)] = i % 2 ? -INFINITY : INFINITY;
        if (n_cols && i % 7 == 0)
            x[check_below(c, n_cols)] = NAN;
        *job = (struct peak_job){.x = x, .x_stride = stride, .n_cols = n_cols};
        if (n_cols && check_below(c, 2))
            job->gain = check_floats(c, "gain", 1, n_cols, n_cols, FILL_RANDOM);
        job->peaks = check_block(c, "peaks", (size_t)n_tokens * sizeof(float), ROLE_OUTPUT);
        check_run(c, n_tokens, verify_peak, &(struct token_case){x, n_tokens});
    }
}

/* Tokens of n_cols floats that fill the wanted bytes. */
static int large_tokens(const struct large *large)
{
    int64_t n = large->bytes / (large->n_cols * (int64_t)sizeof(float));
    return n < 1 ? 1 : (int)n;
}

static float *large_floats(struct check *c, const char *name, const struct large *large,
                           int n_tokens, enum role role)
{
    int64_t n = n_tokens * large->n_cols;
    float *x = check_block(c, name, (size_t)n * sizeof *x, role);
    for (int64_t i = 0; i < n; i++)
        x[i] = i < 65536 ? check_float(c, FILL_RANDOM) : x[i - 65536];
    return x;
}

static bool finish_large(struct check *c, const struct large *large, int n_tokens)
{
    int64_t n = n_tokens * large->n_cols;
    c->jobs = &c->job;
    c->n_jobs = 1;
    c->n_units = n_tokens;
    c->work = (struct workload){n * (int64_t)sizeof(float), n, 0};
    return true;
}

bool large_peak(struct check *c, const struct large *large)
{
    check_begin(c, "large");
    int n_tokens = large_tokens(large);
    struct peak_job *job = &c->job.peak;
    job->x = large_floats(c, "x", large, n_tokens, ROLE_INPUT);
    job->x_stride = large->n_cols;
    job->n_cols = (int)large->n_cols;
    job->peaks = check_block(c, "peaks", (size_t)n_tokens * sizeof(float), ROLE_OUTPUT);
    return finish_large(c, large, n_tokens);
}

bool large_quantize(struct check *c, const struct large *large)
{
    check_begin(c, "large");
    int n_tokens = large_tokens(large);
    struct quantize_job *job = &c->job.quantize;
    job->x = large_floats(c, "x", large, n_tokens, ROLE_INPUT);
    job->x_stride = large->n_cols;
    job->a = check_quantized(c, large->group, large->group, large->n_cols, n_tokens);
    return finish_large(c, large, n_tokens);
}

static double double_norm(const float *x, int64_t n, double epsilon)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return 1 / sqrt(sum / (double)n + epsilon);
}

static void verify_rms_norm(struct check *c, const void *context)
{
    const struct token_case *norm = context;
    const struct rms_norm_job *job = &c->job.rms_norm;
    int64_t n = job->n_cols;
    double *want = check_memory(c, (size_t)(norm->n_tokens * n), sizeof *want);
    double relative = ((double)n / 16 + 12) * 0x1p-24;
    for (int64_t token = 0; token < norm->n_tokens && !c->failed; token++) {
        double r = double_norm(norm->x + token * job->x_stride, n, job->epsilon);
        for (int64_t i = 0; i < n; i++) {
            double y = norm->x[token * job->x_stride + i] * r * job->gain[i];
            want[token * n + i] = y;
            if (job->out && !c->failed)
                check_near(c, "out", i, job->out[token * job->out_stride + i], y,
                           relative * fabs(y) + 1e-44);
        }
    }
    if (job->a.q)
        verify_quantized(c, &job->a, want, NULL, norm->n_tokens, relative);
}

/* out: 0 apart, 1 in place, 2 none. */
static void rms_norm_once(struct check *c, const struct packing_needs *needs, enum fill fill,
                          int out, bool is_quantized)
{
    int n_tokens = 1 + check_below(c, 5), n_cols = edge_cols(c, needs);
    static const char *const outs[] = {"apart", "in place", "none"};
    check_begin(c, "%d tokens, %d cols, out %s, %s group %d, sums %d, fill %s", n_tokens, n_cols,
                outs[out], is_quantized ? "int8" : "no int8", needs->act_group, needs->sum_group,
                fill_names[fill]);
    struct rms_norm_job *job = &c->job.rms_norm;
    int64_t stride = n_cols + check_below(c, 3) * 7;
    float *x = check_floats(c, "x", n_tokens, n_cols, stride, fill);
    size_t x_bytes = (size_t)(n_tokens * stride) * sizeof *x;
    float *copy = check_memory(c, x_bytes, 1);
    memcpy(copy, x, x_bytes);
    job->x = x;
    job->x_stride = job->out_stride = stride;
    job->gain = check_floats(c, "gain", 1, n_cols, n_cols, FILL_RANDOM);
    job->n_cols = n_cols;
    job->epsilon = 1e-5f;
    if (out == 0)
        job->out = check_rows(c, "out", n_tokens, (size_t)stride * sizeof(float),
                              (size_t)n_cols * sizeof(float));
    if (out == 1) {
        job->out = check_rows(c, "x and out", n_tokens, (size_t)stride * sizeof(float),
                              (size_t)n_cols * sizeof(float));
        memcpy(job->out, x, x_bytes);
        job->x = job->out;
    }
    if (is_quantized)
        job->a = check_quantized(c, needs->act_group, needs->sum_group, n_cols, n_tokens);
    check_run(c, n_tokens, verify_rms_norm, &(struct token_case){copy, n_tokens});
}

void check_rms_norm(struct check *c)
{
    struct packing_needs needs[16];
    int n = needs_of_packings(needs);
    for (int i = 0; i < 60 * n && !c->failed; i++) {
        int out = check_below(c, 3);
        rms_norm_once(c, &needs[i % n], i % N_FILLS, out, out == 2 || check_below(c, 2));
    }
}

bool large_rms_norm(struct check *c, const struct large *large)
{
    check_begin(c, "large");
    int n_tokens = large_tokens(large);
    struct rms_norm_job *job = &c->job.rms_norm;
    job->x = large_floats(c, "x", large, n_tokens, ROLE_INPUT);
    job->x_stride = large->n_cols;
    job->gain = large_floats(c, "gain", large, 1, ROLE_INPUT);
    job->n_cols = (int)large->n_cols;
    job->epsilon = 1e-5f;
    job->a = check_quantized(c, large->group, large->group, large->n_cols, n_tokens);
    return finish_large(c, large, n_tokens);
}

static void verify_squares(struct check *c, const void *context)
{
    const struct token_case *squares = context;
    const struct squares_job *job = &c->job.squares;
    for (int64_t token = 0; token < squares->n_tokens; token++)
        for (int begin = 0; begin < job->n_cols && !c->failed; begin += SQUARES_BLOCK) {
            double want = 0;
            for (int i = begin; i < begin + SQUARES_BLOCK && i < job->n_cols; i++)
                want +=
                    (double)job->x[token * job->x_stride + i] * job->x[token * job->x_stride + i];
            int64_t k = begin / SQUARES_BLOCK;
            check_near(c, "squares", k, job->squares[token * job->stride + k], want,
                       6 * 0x1p-24 * want + 1e-44);
        }
}

void check_squares(struct check *c)
{
    static const int cols[] = {1, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 1000};
    for (int i = 0; i < 13 * N_FILLS * 3 && !c->failed; i++) {
        enum fill fill = i % N_FILLS;
        int n_tokens = 1 + check_below(c, 5), n_cols = cols[i / N_FILLS % 13];
        check_begin(c, "%d tokens, %d cols, fill %s", n_tokens, n_cols, fill_names[fill]);
        struct squares_job *job = &c->job.squares;
        int64_t x_stride = n_cols + check_below(c, 3) * 7;
        job->x = check_floats(c, "x", n_tokens, n_cols, x_stride, fill);
        job->x_stride = x_stride;
        job->n_cols = n_cols;
        int n_blocks = (n_cols + SQUARES_BLOCK - 1) / SQUARES_BLOCK;
        job->stride = n_blocks + check_below(c, 3) * 5;
        job->squares = check_rows(c, "squares", n_tokens, (size_t)job->stride * sizeof(float),
                                  (size_t)n_blocks * sizeof(float));
        check_run(c, n_tokens, verify_squares, &(struct token_case){job->x, n_tokens});
    }
}

bool large_squares(struct check *c, const struct large *large)
{
    check_begin(c, "large");
    int n_tokens = large_tokens(large);
    struct squares_job *job = &c->job.squares;
    job->x = large_floats(c, "x", large, n_tokens, ROLE_INPUT);
    job->x_stride = large->n_cols;
    job->n_cols = (int)large->n_cols;
    job->stride = (large->n_cols + SQUARES_BLOCK - 1) / SQUARES_BLOCK;
    job->squares =
        check_block(c, "squares", (size_t)(n_tokens * job->stride) * sizeof(float), ROLE_OUTPUT);
    return finish_large(c, large, n_tokens);
}

static void verify_norm_factor(struct check *c, const void *context)
{
    const struct token_case *norm = context;
    const struct norm_factor_job *job = &c->job.norm_factor;
    int n_blocks = (job->n_cols + SQUARES_BLOCK - 1) / SQUARES_BLOCK;
    for (int64_t token = 0; token < norm->n_tokens && !c->failed; token++) {
        double sum = 0;
        for (int k = 0; k < n_blocks; k++)
            sum += job->squares[token * job->stride + k];
        double want = 1 / sqrt(sum / job->n_cols + job->epsilon);
        check_near(c, "factor", token, job->factor[token], want,
                   (n_blocks / 16.0 + 10) * 0x1p-24 * want);
    }
}

void check_norm_factor(struct check *c)
{
    static const int cols[] = {1, 15, 16, 17, 100, 1000, 6912};
    for (int i = 0; i < 7 * N_FILLS && !c->failed; i++) {
        enum fill fill = i % N_FILLS;
        int n_tokens = 1 + check_below(c, 5), n_cols = cols[i / N_FILLS];
        check_begin(c, "%d tokens, %d cols, fill %s", n_tokens, n_cols, fill_names[fill]);
        struct norm_factor_job *job = &c->job.norm_factor;
        int n_blocks = (n_cols + SQUARES_BLOCK - 1) / SQUARES_BLOCK;
        int64_t stride = n_blocks + check_below(c, 3) * 5;
        float *squares = check_floats(c, "squares", n_tokens, n_blocks, stride, fill);
        for (int64_t k = 0; k < n_tokens * stride; k++)
            squares[k] = fabsf(squares[k]);
        *job = (struct norm_factor_job){squares, stride, n_cols, 1e-5f, NULL};
        job->factor = check_block(c, "factor", (size_t)n_tokens * sizeof(float), ROLE_OUTPUT);
        check_run(c, n_tokens, verify_norm_factor, &(struct token_case){squares, n_tokens});
    }
}

bool large_norm_factor(struct check *c, const struct large *large)
{
    check_begin(c, "large");
    int n_tokens = large_tokens(large);
    struct norm_factor_job *job = &c->job.norm_factor;
    job->squares = large_floats(c, "squares", large, n_tokens, ROLE_INPUT);
    job->stride = large->n_cols;
    job->n_cols = (int)large->n_cols * SQUARES_BLOCK;
    job->epsilon = 1e-5f;
    job->factor = check_block(c, "factor", (size_t)n_tokens * sizeof(float), ROLE_OUTPUT);
    return finish_large(c, large, n_tokens);
}

/* Butterflies in double precision. */
static void double_hadamard(double *x, int n)
{
    for (int len = 1; len < n; len *= 2)
        for (int i = 0; i < n; i++)
            if (!(i & len)) {
                double a = x[i], b = x[i + len];
                x[i] = a + b;
                x[i + len] = a - b;
            }
    for (int i = 0; i < n; i++)
        x[i] /= sqrt(n);
}

static void verify_hadamard(struct check *c, const void *context)
{
    const struct token_case *before = context;
    int n_tokens = before->n_tokens;
    const struct hadamard_job *job = &c->job.hadamard;
    int64_t n = job->n_cols;
    double *want = check_memory(c, (size_t)(n_tokens * n), sizeof *want);
    for (int64_t token = 0; token < n_tokens; token++)
        for (int64_t begin = 0; begin < n && !c->failed; begin += job->block) {
            double *y = want + token * n + begin, sum = 0;
            for (int i = 0; i < job->block; i++) {
                y[i] = (double)before->x[token * job->x_stride + begin + i] *
                       (job->signs ? job->signs[begin + i] : 1);
                sum += fabs(y[i]);
            }
            double_hadamard(y, job->block);
            double bound = (log2(job->block) + 3) * 0x1p-24 * sum / sqrt(job->block) + 1e-44;
            for (int i = 0; i < job->block && !c->failed; i++)
                check_near(c, "out", begin + i, job->out[token * job->out_stride + begin + i], y[i],
                           bound);
        }
    if (job->a.q && !job->a.group)
        verify_quantized(c, &job->a, want, NULL, n_tokens, 1e-4);
}

static void hadamard_once(struct check *c, int block, const struct packing_needs *needs,
                          enum fill fill)
{
    int n_tokens = 1 + check_below(c, 3),
        n_cols = block * (1 + check_below(c, block > 512 ? 2 : 4));
    bool is_in_place = check_below(c, 2), is_quantized = check_below(c, 2);
    check_begin(c, "%d tokens, %d cols, block %d, %s, %s group %d, sums %d, fill %s", n_tokens,
                n_cols, block, is_in_place ? "in place" : "apart",
                is_quantized ? "int8" : "no int8", needs->act_group, needs->sum_group,
                fill_names[fill]);
    struct hadamard_job *job = &c->job.hadamard;
    job->x_stride = job->out_stride = n_cols + check_below(c, 3) * 7;
    float *x = check_floats(c, "x", n_tokens, n_cols, job->x_stride, fill);
    if (check_below(c, 4)) {
        int8_t *signs = check_block(c, "signs", (size_t)n_cols, ROLE_INPUT);
        for (int k = 0; k < n_cols; k++)
            signs[k] = check_int8(c, FILL_ONES);
        job->signs = signs;
    }
    job->n_cols = n_cols;
    job->block = block;
    job->out = check_rows(c, "out", n_tokens, (size_t)job->out_stride * sizeof(float),
                          (size_t)n_cols * sizeof(float));
    if (is_in_place)
        memcpy(job->out, x, (size_t)(n_tokens * job->x_stride) * sizeof *x);
    job->x = is_in_place ? job->out : x;
    if (is_quantized)
        job->a = check_quantized(c, needs->act_group, needs->sum_group, n_cols, n_tokens);
    check_run(c, n_tokens, verify_hadamard, &(struct token_case){x, n_tokens});
}

void check_hadamard(struct check *c)
{
    static const int blocks[] = {16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
    struct packing_needs needs[16];
    int n = needs_of_packings(needs);
    for (int i = 0; i < 9 * N_FILLS * 4 && !c->failed; i++)
        hadamard_once(c, blocks[i / N_FILLS % 9], &needs[check_below(c, n)], i % N_FILLS);
}

bool large_hadamard(struct check *c, const struct large *large)
{
    check_begin(c, "large");
    int n_tokens = large_tokens(large);
    struct hadamard_job *job = &c->job.hadamard;
    job->x = large_floats(c, "x", large, n_tokens, ROLE_INPUT);
    job->x_stride = job->out_stride = large->n_cols;
    int8_t *signs = check_block(c, "signs", (size_t)large->n_cols, ROLE_INPUT);
    for (int64_t i = 0; i < large->n_cols; i++)
        signs[i] = check_int8(c, FILL_ONES);
    job->signs = signs;
    job->n_cols = (int)large->n_cols;
    job->block = 128;
    job->out = large_floats(c, "out", large, n_tokens, ROLE_OUTPUT);
    job->a = check_quantized(c, large->group, large->group, large->n_cols, n_tokens);
    return finish_large(c, large, n_tokens);
}

/* What was turned, and where the heads of a cache begin. */
struct rope_case {
    const float *x;
    int n_tokens;
};

/* One head in double precision. bound: of the norm, relative. */
static void turned_head(const struct rope_job *job, const float *x, int64_t token, double *y,
                        double *bound)
{
    int half = job->n_rot / 2;
    double r = job->gain ? double_norm(x, job->head_dim, job->epsilon) : 1;
    double *normed = y + job->head_dim;
    for (int i = 0; i < job->head_dim; i++)
        y[i] = normed[i] = job->gain ? x[i] * r * job->gain[i] : x[i];
    *bound = job->gain ? (job->head_dim / 16.0 + 12) * 0x1p-24 : 0;
    for (int i = 0; i < half; i++) {
        int first = job->is_adjacent ? 2 * i : i, second = job->is_adjacent ? 2 * i + 1 : i + half;
        double a = normed[first], b = normed[second];
        double cosine = job->cosines[token * half + i], sine = job->sines[token * half + i];
        y[first] = a * cosine - b * sine;
        y[second] = a * sine + b * cosine;
        normed[first] = normed[second] = fabs(a) + fabs(b); /* from here on: magnitudes */
    }
}

static void check_rope_half(struct check *c, uint16_t half, double want, double near)
{
    float got = f16_to_f32(half);
    if (fabs(want) > 65000) /* may be infinite */
        check_near(c, "sign of out_f16", 0, got > 0, want > 0, 0);
    else
        check_near(c, "out_f16", 0, got, want, near + fabs(want) * 0x1p-11 + 0x1p-25);
}

static void verify_rope(struct check *c, const void *context)
{
    const struct rope_case *before = context;
    const struct rope_job *job = &c->job.rope;
    double *y = check_memory(c, 2 * (size_t)job->head_dim, sizeof *y), bound;
    for (int64_t token = 0; token < before->n_tokens; token++)
        for (int head = 0; head < job->n_heads; head++) {
            int64_t at = token * job->x_stride + head * job->head_dim;
            turned_head(job, before->x + at, token, y, &bound);
            const double *size = y + job->head_dim;
            for (int i = 0; i < job->head_dim && !c->failed; i++) {
                double near = (bound + 0x1p-22) * fabs(size[i]) + 1e-44;
                if (i >= job->n_rot && !job->gain)
                    near = 0;
                if (job->out_f16)
                    check_rope_half(c, job->out_f16[token][head * job->f16_head_stride + i], y[i],
                                    near);
                else
                    check_near(c, "x", at + i, job->x[at + i], y[i], near);
            }
        }
}

/* A cache of halves: heads a little apart. */
static void set_rope_halves(struct check *c, struct rope_job *job, int n_tokens)
{
    job->f16_head_stride = job->head_dim + 5;
    size_t head_bytes = (size_t)job->f16_head_stride * sizeof(uint16_t);
    uint8_t *cache = check_rows(c, "out_f16", n_tokens * job->n_heads, head_bytes,
                                (size_t)job->head_dim * sizeof(uint16_t));
    uint16_t **places = check_block(c, "places", (size_t)n_tokens * sizeof *places, ROLE_INPUT);
    for (int token = 0; token < n_tokens; token++)
        places[token] = (uint16_t *)(cache + (size_t)(token * job->n_heads) * head_bytes);
    job->out_f16 = places;
}

static void set_rope_angles(struct check *c, struct rope_job *job, int n_tokens)
{
    int half = job->n_rot / 2;
    float *cosines = check_floats(c, "cosines", n_tokens, half, half, FILL_RANDOM);
    float *sines = check_floats(c, "sines", n_tokens, half, half, FILL_RANDOM);
    for (int i = 0; i < n_tokens * half; i++) {
        float angle = cosines[i] * 3;
        cosines[i] = cosf(angle);
        sines[i] = sinf(angle);
    }
    job->cosines = cosines;
    job->sines = sines;
}

static void rope_once(struct check *c, int head_dim, int n_rot, enum fill fill)
{
    struct rope_job *job = &c->job.rope;
    int n_tokens = 1 + check_below(c, 4), n_heads = 1 + check_below(c, 5);
    bool is_adjacent = check_below(c, 2), is_normed = check_below(c, 2), is_f16 = check_below(c, 2);
    check_begin(c, "%d tokens, %d heads of %d, %d turned, %s%s%s, fill %s", n_tokens, n_heads,
                head_dim, n_rot, is_adjacent ? "adjacent" : "halves", is_normed ? ", normed" : "",
                is_f16 ? ", f16" : "", fill_names[fill]);
    int used = n_heads * head_dim;
    job->x_stride = used + check_below(c, 3) * 7;
    job->x = check_rows(c, "x", n_tokens, (size_t)job->x_stride * sizeof(float),
                        (size_t)used * sizeof(float));
    for (int64_t token = 0; token < n_tokens; token++)
        for (int i = 0; i < used; i++)
            job->x[token * job->x_stride + i] = check_float(c, fill);
    job->n_heads = n_heads;
    job->head_dim = head_dim;
    job->n_rot = n_rot;
    job->is_adjacent = is_adjacent;
    set_rope_angles(c, job, n_tokens);
    if (is_normed)
        job->gain = check_floats(c, "gain", 1, head_dim, head_dim, FILL_RANDOM);
    job->epsilon = 1e-5f;
    if (is_f16)
        set_rope_halves(c, job, n_tokens);
    size_t bytes = (size_t)(n_tokens * job->x_stride) * sizeof(float);
    float *copy = check_memory(c, bytes, 1);
    memcpy(copy, job->x, bytes);
    check_run(c, n_tokens * n_heads, verify_rope, &(struct rope_case){copy, n_tokens});
}

void check_rope(struct check *c)
{
    static const int dims[] = {2, 8, 16, 30, 32, 48, 64, 80, 96, 128, 256};
    for (int i = 0; i < 11 * N_FILLS * 8 && !c->failed; i++) {
        int head_dim = dims[i / N_FILLS % 11];
        int n_rot = check_below(c, 2) ? head_dim : 2 * (1 + check_below(c, head_dim / 2));
        rope_once(c, head_dim, n_rot, i % N_FILLS);
    }
}

bool large_rope(struct check *c, const struct large *large)
{
    check_begin(c, "large");
    int n_tokens = large_tokens(large);
    struct rope_job *job = &c->job.rope;
    job->head_dim = job->n_rot = 128;
    job->n_heads = (int)(large->n_cols / job->head_dim);
    if (!job->n_heads)
        return false;
    job->x = large_floats(c, "x", large, n_tokens, ROLE_OUTPUT);
    job->x_stride = large->n_cols;
    struct large angles = *large;
    angles.n_cols = job->n_rot / 2;
    float *cosines = large_floats(c, "cosines", &angles, n_tokens, ROLE_INPUT);
    float *sines = large_floats(c, "sines", &angles, n_tokens, ROLE_INPUT);
    for (int64_t i = 0; i < (int64_t)n_tokens * 64; i++) { /* turns, so that x stays finite */
        cosines[i] = i % 2 ? 0.6f : 0.8f;
        sines[i] = i % 2 ? 0.8f : 0.6f;
    }
    job->cosines = cosines;
    job->sines = sines;
    finish_large(c, large, n_tokens);
    c->n_units = n_tokens * job->n_heads;
    return true;
}
