/* peak, quantize, rms_norm, hadamard and rope. */
#include <math.h>
#include <string.h>

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

static void verify_quantize(struct check *c, const void *context)
{
    (void)context;
    const struct quantize_job *job = &c->job.quantize;
    int n_tokens = (int)(c->blocks[0].bytes / ((size_t)job->x_stride * sizeof(float)));
    double *x = check_memory(c, (size_t)(n_tokens * job->a.n_cols), sizeof *x);
    for (int64_t token = 0; token < n_tokens; token++)
        for (int64_t i = 0; i < job->a.n_cols; i++)
            x[token * job->a.n_cols + i] = job->x[token * job->x_stride + i];
    double *amax = job->n_peaks ? check_memory(c, (size_t)n_tokens, sizeof *amax) : NULL;
    for (int token = 0; amax && token < n_tokens; token++) {
        amax[token] = 0;
        for (int i = 0; i < job->n_peaks; i++)
            amax[token] = fmax(amax[token], job->peaks[i][token]);
    }
    verify_quantized(c, &job->a, x, amax, n_tokens, 0);
}

/* NaN if one is. */
static float largest_of(const float *x, int64_t n)
{
    float largest = 0;
    for (int64_t i = 0; i < n; i++)
        if (isnan(x[i]) || fabsf(x[i]) > largest)
            largest = fabsf(x[i]);
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
                peak[token] = largest_of(job->x + token * job->x_stride, job->a.n_cols);
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
        job->a =
            check_quantized(c, needs[i % n].act_group, needs[i % n].sum_group, n_cols, n_tokens);
        if (check_below(c, 5) == 0)
            job->a.n_sums = 0; /* nobody asks for them */
        bool is_odd = fill == FILL_RANDOM && (i % 7 == 0 || i % 11 == 0);
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
            double x = job->x[token * job->x_stride + i];
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

static void verify_rope(struct check *c, const void *context)
{
    const struct token_case *before = context;
    const struct rope_job *job = &c->job.rope;
    int half = job->n_rot / 2;
    for (int64_t token = 0; token < before->n_tokens; token++)
        for (int head = 0; head < job->n_heads; head++)
            for (int i = 0; i < job->head_dim && !c->failed; i++) {
                int64_t at = token * job->x_stride + head * job->head_dim;
                const float *x = before->x + at;
                if (i >= job->n_rot) {
                    check_near(c, "x", at + i, job->x[at + i], x[i], 0);
                    continue;
                }
                int pair = job->is_adjacent ? i / 2 : i % half;
                bool is_second = job->is_adjacent ? i % 2 : i >= half;
                double a = x[job->is_adjacent ? 2 * pair : pair];
                double b = x[job->is_adjacent ? 2 * pair + 1 : pair + half];
                double cosine = job->cosines[token * half + pair];
                double sine = job->sines[token * half + pair];
                double want = is_second ? a * sine + b * cosine : a * cosine - b * sine;
                check_near(c, "x", at + i, job->x[at + i], want,
                           0x1p-22 * (fabs(a) + fabs(b)) + 1e-44);
            }
}

static void rope_once(struct check *c, int head_dim, int n_rot, enum fill fill)
{
    struct rope_job *job = &c->job.rope;
    int n_tokens = 1 + check_below(c, 4), n_heads = 1 + check_below(c, 5);
    bool is_adjacent = check_below(c, 2);
    check_begin(c, "%d tokens, %d heads of %d, %d turned, %s, fill %s", n_tokens, n_heads, head_dim,
                n_rot, is_adjacent ? "adjacent" : "halves", fill_names[fill]);
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
    float *cosines = check_floats(c, "cosines", n_tokens, n_rot / 2, n_rot / 2, FILL_RANDOM);
    float *sines = check_floats(c, "sines", n_tokens, n_rot / 2, n_rot / 2, FILL_RANDOM);
    for (int i = 0; i < n_tokens * n_rot / 2; i++) {
        float angle = cosines[i] * 3;
        cosines[i] = cosf(angle);
        sines[i] = sinf(angle);
    }
    job->cosines = cosines;
    job->sines = sines;
    size_t bytes = (size_t)(n_tokens * job->x_stride) * sizeof(float);
    float *copy = check_memory(c, bytes, 1);
    memcpy(copy, job->x, bytes);
    check_run(c, n_tokens, verify_rope, &(struct token_case){copy, n_tokens});
}

void check_rope(struct check *c)
{
    static const int dims[] = {2, 8, 16, 30, 32, 48, 64, 80, 96, 128, 256};
    for (int i = 0; i < 11 * N_FILLS * 4 && !c->failed; i++) {
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
    return finish_large(c, large, n_tokens);
}
