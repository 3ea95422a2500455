/* reduce and top_k. */
#include <math.h>
#include <string.h>

#include "check.h"

struct reduce_case {
    const float *before; /* what out held */
    int64_t n_rows;
};

static void verify_reduce(struct check *c, const void *context)
{
    const struct reduce_case *r = context;
    const struct reduce_job *job = &c->job.reduce;
    for (int token = 0; token < job->n_tokens; token++)
        for (int64_t row = 0; row < r->n_rows && !c->failed; row++) {
            double sum = 0, terms = 0;
            for (int part = 0; part < job->n_parts; part++) {
                int64_t at = token * job->stride + row;
                double value = job->is_int ? (double)((const int32_t *)job->parts[part])[at]
                                           : (double)((const float *)job->parts[part])[at];
                sum += value;
                terms += fabs(value);
            }
            if (job->is_int) {
                double scale = (double)job->row_scale[row] * job->act_scale[token];
                sum *= scale;
                terms = fabs(sum);
            }
            sum *= job->scale;
            terms *= fabs(job->scale);
            if (job->token_scale) {
                sum *= job->token_scale[token];
                terms *= fabs(job->token_scale[token]);
            }
            if (job->bias) {
                sum += job->bias[row];
                terms += fabs(sum);
            }
            if (job->is_add) {
                sum += r->before[token * job->out_stride + row];
                terms += fabs(sum);
            }
            check_near(c, "out", row, job->out[token * job->out_stride + row], sum,
                       terms * (job->n_parts + 6) * 0x1p-24 + 1e-44);
        }
}

static const void **make_parts(struct check *c, int n_parts, int64_t n, bool is_int, enum fill fill)
{
    const void **parts = check_block(c, "parts", (size_t)n_parts * sizeof *parts, ROLE_INPUT);
    for (int part = 0; part < n_parts; part++) {
        float *x = check_floats(c, "part", 1, n, n, fill);
        for (int64_t i = 0; is_int && i < n; i++)
            ((int32_t *)x)[i] = check_int8(c, fill) * (int32_t)(1 + check_below(c, 60000));
        parts[part] = x;
    }
    return parts;
}

void check_reduce(struct check *c)
{
    static const int rows[] = {1, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 257, 1000};
    for (int i = 0; i < 17 * N_FILLS * 3 && !c->failed; i++) {
        struct reduce_job *job = &c->job.reduce;
        enum fill fill = i % N_FILLS;
        int64_t n_rows = rows[i / N_FILLS % 17];
        int n_parts = 1 + check_below(c, 8), n_tokens = 1 + check_below(c, 4);
        bool is_int = check_below(c, 2), is_add = check_below(c, 2);
        bool has_scale = check_below(c, 2), has_bias = check_below(c, 2);
        check_begin(c, "%d parts, %s%s%s%s, %d tokens, %lld rows, fill %s", n_parts,
                    is_int ? "integers" : "floats", has_scale ? ", scaled" : "",
                    has_bias ? ", bias" : "", is_add ? ", added" : "", n_tokens, (long long)n_rows,
                    fill_names[fill]);
        job->n_parts = n_parts;
        job->is_int = is_int;
        job->is_add = is_add;
        job->n_tokens = n_tokens;
        job->stride = n_rows + check_below(c, 3) * 7;
        job->parts = make_parts(c, n_parts, n_tokens * job->stride, is_int, fill);
        job->row_scale = check_floats(c, "row_scale", 1, n_rows, n_rows, FILL_RANDOM);
        job->act_scale = check_floats(c, "act_scale", 1, n_tokens, n_tokens, FILL_RANDOM);
        job->scale = has_scale ? 0.37f : 1.0f;
        if (check_below(c, 2))
            job->token_scale = check_floats(c, "token_scale", 1, n_tokens, n_tokens, FILL_RANDOM);
        if (has_bias)
            job->bias = check_floats(c, "bias", 1, n_rows, n_rows, FILL_RANDOM);
        job->out_stride = n_rows + check_below(c, 3) * 5;
        job->out = check_rows(c, "out", n_tokens, (size_t)job->out_stride * sizeof(float),
                              (size_t)n_rows * sizeof(float));
        size_t n = (size_t)(n_tokens * job->out_stride);
        float *before = check_memory(c, n, sizeof *before);
        for (size_t k = 0; k < n; k++)
            before[k] = job->out[k] = check_float(c, fill);
        check_run(c, (int)n_rows, verify_reduce, &(struct reduce_case){before, n_rows});
    }
}

bool large_reduce(struct check *c, const struct large *large)
{
    check_begin(c, "large");
    enum { N_PARTS = 4 };
    int64_t n_rows = large->bytes / N_PARTS / (int64_t)sizeof(float) / 64 * 64 + 64;
    struct reduce_job *job = &c->job.reduce;
    *job = (struct reduce_job){.n_parts = N_PARTS, .n_tokens = 1, .stride = n_rows, .scale = 1};
    job->parts = make_parts(c, N_PARTS, n_rows, false, FILL_ONES);
    job->out_stride = n_rows;
    job->out = check_block(c, "out", (size_t)n_rows * sizeof(float), ROLE_OUTPUT);
    c->jobs = &c->job;
    c->n_jobs = 1;
    c->n_units = (int)n_rows;
    c->work = (struct workload){N_PARTS * n_rows * (int64_t)sizeof(float), N_PARTS * n_rows, 0};
    return true;
}

struct top_k_case {
    int n_rows;
};

static void verify_top_k(struct check *c, const void *context)
{
    const struct top_k_case *t = context;
    const struct top_k_job *job = &c->job.top_k;
    uint8_t *is_taken = check_memory(c, (size_t)job->n, 1);
    for (int row = 0; row < t->n_rows; row++) {
        const float *x = job->x + row * job->x_stride;
        memset(is_taken, 0, (size_t)job->n);
        for (int k = 0; k < job->k && !c->failed; k++) {
            int best = -1;
            for (int i = 0; i < job->n; i++)
                if (!is_taken[i] && (best < 0 || x[i] > x[best]))
                    best = i;
            is_taken[best] = 1;
            check_near(c, "id", k, job->ids[row * job->k + k], best, 0);
            check_near(c, "value", k, job->values[row * job->k + k], x[best], 0);
        }
    }
}

static void top_k_once(struct check *c, int n, int k, enum fill fill, bool has_ties)
{
    struct top_k_job *job = &c->job.top_k;
    struct top_k_case t = {1 + check_below(c, 4)};
    check_begin(c, "%d rows, %d of %d, fill %s%s", t.n_rows, k, n, fill_names[fill],
                has_ties ? ", ties" : "");
    job->x_stride = n + check_below(c, 3) * 7;
    float *x = check_floats(c, "x", t.n_rows, n, job->x_stride, fill);
    for (int i = 0; has_ties && i < n; i++)
        x[i] = (float)check_below(c, 5);
    job->x = x;
    job->n = n;
    job->k = k;
    job->ids = check_block(c, "ids", (size_t)(t.n_rows * k) * sizeof *job->ids, ROLE_OUTPUT);
    job->values =
        check_block(c, "values", (size_t)(t.n_rows * k) * sizeof *job->values, ROLE_OUTPUT);
    check_run(c, t.n_rows, verify_top_k, &t);
}

void check_top_k(struct check *c)
{
    static const int sizes[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 100, 1000, 4099};
    for (int i = 0; i < 15 * N_FILLS * 3 && !c->failed; i++) {
        int n = sizes[i / N_FILLS % 15], most = n < 100 ? n : 100;
        int k = i % 2 ? 1 : 1 + check_below(c, most);
        top_k_once(c, n, k, i % N_FILLS, check_below(c, 2));
    }
}

bool large_top_k(struct check *c, const struct large *large)
{
    check_begin(c, "large");
    struct top_k_job *job = &c->job.top_k;
    job->n = 1 << 17;
    job->k = 40;
    int n_rows = (int)(large->bytes / (job->n * (int64_t)sizeof(float))) + 1;
    job->x_stride = job->n;
    job->x = check_floats(c, "x", n_rows, job->n, job->n, FILL_RANDOM);
    size_t n_out = (size_t)(n_rows * job->k);
    job->ids = check_block(c, "ids", n_out * sizeof *job->ids, ROLE_OUTPUT);
    job->values = check_block(c, "values", n_out * sizeof *job->values, ROLE_OUTPUT);
    c->jobs = &c->job;
    c->n_jobs = 1;
    c->n_units = n_rows;
    int64_t n = (int64_t)n_rows * job->n;
    c->work = (struct workload){n * (int64_t)sizeof(float), n, 0};
    return true;
}
