/* embed and copy_rows. */
#include <math.h>
#include <string.h>

#include "check.h"
#include "tensor/formats.h"

struct embed_case {
    const float *values; /* the table's, (n_rows, n_cols) */
    int n_out;
};

static void verify_embed(struct check *c, const void *context)
{
    const struct embed_case *e = context;
    const struct embed_job *job = &c->job.embed;
    for (int64_t t = 0; t < e->n_out; t++)
        for (int64_t i = 0; i < job->n_cols && !c->failed; i++) {
            double value = e->values[job->tokens[t] * job->n_cols + i];
            check_near(c, "out", i, job->out[t * job->out_stride + i], value * job->scale,
                       fabs(value * job->scale) * 0x1p-24);
        }
}

/* Values -0.5, 0 and +0.5: every format of the check holds them exactly. */
static float *table_values(struct check *c, size_t n)
{
    float *values = check_memory(c, n, sizeof *values);
    for (size_t i = 0; i < n; i++)
        values[i] = (float)(check_below(c, 3) - 1) / 2;
    for (size_t i = 0; i < n; i += 16) /* no block without a scale */
        values[i] = 0.5f;
    return values;
}

static const struct tensor *new_table(struct check *c, enum format_id id, int64_t n_rows,
                                      int64_t n_cols, const float *values)
{
    struct tensor *table = check_memory(c, 1, sizeof *table);
    *table = (struct tensor){.format = id, .n_cols = n_cols, .n_rows = n_rows};
    struct error err;
    if (format_bytes(id, (uint64_t)n_rows, (uint64_t)n_cols, "table", &table->bytes, &err) !=
        STATUS_OK)
        check_failed(c, "%s", err.text);
    uint8_t *data = check_block(c, "table", (size_t)table->bytes, ROLE_INPUT);
    format_of(id)->encode(values, n_rows, n_cols, data);
    table->data = data;
    return table;
}

static int32_t *chosen_rows(struct check *c, int n, int64_t n_rows)
{
    int32_t *rows = check_block(c, "rows", (size_t)n * sizeof *rows, ROLE_INPUT);
    for (int i = 0; i < n; i++)
        rows[i] = check_below(c, (int)n_rows);
    return rows;
}

void check_embed(struct check *c)
{
    static const enum format_id formats[] = {FORMAT_F32,   FORMAT_F16,  FORMAT_BF16, FORMAT_TQ1_0,
                                             FORMAT_TQ2_0, FORMAT_I2_S, FORMAT_Q2_0, FORMAT_IQ2_BN};
    for (int i = 0; i < 8 * 24 && !c->failed; i++) {
        enum format_id id = formats[i % 8];
        int n_cols = format_of(id)->block * (1 + check_below(c, 3));
        int64_t n_rows = 1 + check_below(c, 20);
        struct embed_case e = {.n_out = 1 + check_below(c, 6)};
        check_begin(c, "%d tokens, %lld rows, %d cols, %s", e.n_out, (long long)n_rows, n_cols,
                    format_of(id)->name);
        e.values = table_values(c, (size_t)(n_rows * n_cols));
        struct embed_job *job = &c->job.embed;
        job->table = new_table(c, id, n_rows, n_cols, e.values);
        job->scale = check_below(c, 2) ? 1.0f : 45.254834f;
        job->tokens = chosen_rows(c, e.n_out, n_rows);
        job->n_cols = n_cols;
        job->out_stride = n_cols + check_below(c, 3) * 7;
        job->out = check_rows(c, "out", e.n_out, (size_t)job->out_stride * sizeof(float),
                              (size_t)n_cols * sizeof(float));
        check_run(c, e.n_out, verify_embed, &e);
    }
}

/* One pass over a table of halves, its rows in an order that no prefetcher foresees. */
bool large_embed(struct check *c, const struct large *large)
{
    check_begin(c, "large");
    int64_t n_cols = large->n_cols, n_rows = large->bytes / (n_cols * 2) + 1;
    struct tensor *table = check_memory(c, 1, sizeof *table);
    *table = (struct tensor){.format = FORMAT_F16, .n_cols = n_cols, .n_rows = n_rows};
    table->bytes = (uint64_t)(n_rows * n_cols) * 2;
    table->data = memset(check_block(c, "table", table->bytes, ROLE_INPUT), 0x3c, table->bytes);
    int32_t *tokens = check_block(c, "tokens", (size_t)n_rows * sizeof *tokens, ROLE_INPUT);
    for (int i = 0; i < (int)n_rows; i++) {
        int other = check_below(c, i + 1);
        tokens[i] = tokens[other];
        tokens[other] = i;
    }
    size_t out_bytes = (size_t)(n_rows * n_cols) * sizeof(float);
    float *out = memset(check_block(c, "out", out_bytes, ROLE_OUTPUT), 0, out_bytes);
    c->job.embed = (struct embed_job){table, 1.0f, tokens, (int)n_cols, out, n_cols};
    c->jobs = &c->job;
    c->n_jobs = 1;
    c->n_units = (int)n_rows;
    c->work = (struct workload){(int64_t)table->bytes, n_rows * n_cols, 0};
    return true;
}

static void verify_copy_rows(struct check *c, const void *context)
{
    const int *n_out = context;
    const struct copy_rows_job *job = &c->job.copy_rows;
    for (int64_t t = 0; t < *n_out; t++)
        for (int64_t i = 0; i < job->n_cols && !c->failed; i++)
            check_near(c, "out", i, job->out[t * job->out_stride + i],
                       job->x[job->rows[t] * job->x_stride + i], 0);
}

void check_copy_rows(struct check *c)
{
    static const int cols[] = {1, 3, 16, 17, 64, 100, 1000};
    for (int i = 0; i < 7 * N_FILLS * 4 && !c->failed; i++) {
        enum fill fill = i % N_FILLS;
        int n_out = 1 + check_below(c, 6), n_rows = 1 + check_below(c, 9);
        int n_cols = cols[i / N_FILLS % 7];
        check_begin(c, "%d of %d rows, %d cols, fill %s", n_out, n_rows, n_cols, fill_names[fill]);
        struct copy_rows_job *job = &c->job.copy_rows;
        job->x_stride = n_cols + check_below(c, 3) * 7;
        job->x = check_floats(c, "x", n_rows, n_cols, job->x_stride, fill);
        job->rows = chosen_rows(c, n_out, n_rows);
        job->n_cols = n_cols;
        job->out_stride = n_cols + check_below(c, 3) * 5;
        job->out = check_rows(c, "out", n_out, (size_t)job->out_stride * sizeof(float),
                              (size_t)n_cols * sizeof(float));
        check_run(c, n_out, verify_copy_rows, &n_out);
    }
}

bool large_copy_rows(struct check *c, const struct large *large)
{
    check_begin(c, "large");
    int64_t n_cols = large->n_cols;
    int n_rows = (int)(large->bytes / (n_cols * (int64_t)sizeof(float))) + 1;
    size_t bytes = (size_t)(n_rows * n_cols) * sizeof(float);
    float *x = memset(check_block(c, "x", bytes, ROLE_INPUT), 0x3c, bytes);
    float *out = memset(check_block(c, "out", bytes, ROLE_OUTPUT), 0, bytes);
    int32_t *rows = check_block(c, "rows", (size_t)n_rows * sizeof *rows, ROLE_INPUT);
    for (int i = 0; i < n_rows; i++)
        rows[i] = n_rows - 1 - i;
    c->job.copy_rows = (struct copy_rows_job){x, n_cols, rows, (int)n_cols, out, n_cols};
    c->jobs = &c->job;
    c->n_jobs = 1;
    c->n_units = n_rows;
    c->work = (struct workload){(int64_t)bytes, n_rows * n_cols, 0};
    return true;
}
