/* Contents of blocks: numbers of the five kinds, and activations. */
#include "check.h"

#include <math.h>
#include <string.h>

int check_below(struct check *c, int n)
{
    return (int)((random_bits(&c->random) >> 32) * (uint64_t)n >> 32);
}

float check_float(struct check *c, enum fill fill)
{
    uint64_t bits = random_bits(&c->random);
    switch (fill) {
    case FILL_ZERO: return 0.0f;
    case FILL_MIN: return -65504.0f;
    case FILL_MAX: return 65504.0f;
    case FILL_ONES: return bits >> 63 ? 1.0f : -1.0f;
    default: break;
    }
    /* Bell shaped: the sum of four uniform numbers. */
    int sum = (int)(bits & 0xffff) + (int)(bits >> 16 & 0xffff) + (int)(bits >> 32 & 0xffff) +
              (int)(bits >> 48);
    return (float)(sum - 131070) * 0x1p-15f;
}

int8_t check_int8(struct check *c, enum fill fill)
{
    uint64_t bits = random_bits(&c->random);
    switch (fill) {
    case FILL_ZERO: return 0;
    case FILL_MIN: return -127;
    case FILL_MAX: return 127;
    case FILL_ONES: return bits >> 63 ? 1 : -1;
    default: return (int8_t)((int)((bits >> 32) * 255 >> 32) - 127);
    }
}

float *check_floats(struct check *c, const char *name, int64_t n_rows, int64_t n, int64_t stride,
                    enum fill fill)
{
    float *x = check_block(c, name, (size_t)(n_rows * stride) * sizeof *x, ROLE_INPUT);
    for (int64_t row = 0; row < n_rows; row++)
        for (int64_t i = 0; i < stride; i++)
            x[row * stride + i] = i < n ? check_float(c, fill) : NAN;
    return x;
}

/* The sizes of activations without memory. */
static struct activations shape_of(int act_group, int sum_group, int64_t n_cols, int64_t step)
{
    struct activations a = {.n_cols = n_cols, .group = act_group, .sum_group = sum_group};
    a.stride = ((n_cols + step - 1) / step * step + 63) / 64 * 64;
    a.n_scales = act_group ? (int)((n_cols + act_group - 1) / act_group) : 1;
    a.n_sums = sum_group ? (int)((n_cols + sum_group - 1) / sum_group) : 1;
    return a;
}

struct activations check_quantized(struct check *c, int act_group, int sum_group, int64_t n_cols,
                                   int n_tokens)
{
    struct activations a = shape_of(act_group, sum_group, n_cols, 4);
    enum role role = ROLE_OUTPUT;
    a.q = check_block(c, "q", (size_t)n_tokens * (size_t)a.stride, role);
    a.scale = check_block(c, "scale", (size_t)n_tokens * (size_t)a.n_scales * sizeof(float), role);
    a.sum = check_block(c, "sum", (size_t)n_tokens * (size_t)a.n_sums * sizeof(int32_t), role);
    return a;
}

static void fill_token(struct check *c, const struct activations *a, int token, enum fill fill)
{
    int8_t *q = a->q + token * a->stride;
    int32_t *sum = a->sum + token * a->n_sums;
    memset(q, 0, (size_t)a->stride);
    memset(sum, 0, (size_t)a->n_sums * sizeof *sum);
    for (int64_t i = 0; i < a->n_cols; i++) {
        q[i] = check_int8(c, fill);
        sum[a->sum_group ? i / a->sum_group : 0] += q[i];
    }
    for (int g = 0; g < a->n_scales; g++)
        a->scale[token * a->n_scales + g] = 0.01f + fabsf(check_float(c, FILL_RANDOM));
}

struct activations check_activations(struct check *c, enum packing packing, int group,
                                     int64_t n_cols, int n_tokens, enum fill fill)
{
    struct packing_needs needs = packing_needs(packing, group);
    struct activations a =
        shape_of(needs.act_group, needs.sum_group, n_cols, packed_step_inputs(packing));
    size_t n = (size_t)n_tokens;
    if (needs.is_float) {
        a.x = check_block(c, "x", n * (size_t)a.stride * sizeof(float), ROLE_INPUT);
        for (int token = 0; token < n_tokens; token++)
            for (int64_t i = 0; i < a.stride; i++)
                a.x[token * a.stride + i] = i < n_cols ? check_float(c, fill) : 0;
        return a;
    }
    a.q = check_block(c, "q", n * (size_t)a.stride, ROLE_INPUT);
    a.scale = check_block(c, "scale", n * (size_t)a.n_scales * sizeof(float), ROLE_INPUT);
    a.sum = check_block(c, "sum", n * (size_t)a.n_sums * sizeof(int32_t), ROLE_INPUT);
    for (int token = 0; token < n_tokens; token++)
        fill_token(c, &a, token, fill);
    return a;
}

/* least: amax where no x is larger. */
static void verify_group(struct check *c, const int8_t *q, const double *x, int64_t n, float scale,
                         double least, double bound)
{
    double largest = least;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(x[i]));
    check_near(c, "act scale", 0, scale, largest / 127, (bound + 0x1p-22) * largest / 127);
    for (int64_t i = 0; i < n && !c->failed; i++) {
        double want = largest > 0 ? x[i] * 127 / largest : 0;
        check_near(c, "q", i, q[i], want, 0.5 + 127 * (2 * bound + 0x1p-21));
    }
}

void verify_quantized(struct check *c, const struct activations *a, const double *x,
                      const double *amax, int n_tokens, double bound)
{
    for (int64_t token = 0; token < n_tokens && !c->failed; token++) {
        const int8_t *q = a->q + token * a->stride;
        int64_t group = a->group ? a->group : a->n_cols;
        for (int64_t i = 0; i < a->n_cols; i += group)
            verify_group(c, q + i, x + token * a->n_cols + i,
                         i + group < a->n_cols ? group : a->n_cols - i,
                         a->scale[token * a->n_scales + i / group], amax ? amax[token] : 0, bound);
        for (int64_t i = a->n_cols; i < a->stride; i++)
            check_near(c, "q beyond n_cols", i, q[i], 0, 0);
        for (int k = 0; k < a->n_sums; k++) {
            int64_t size = a->sum_group ? a->sum_group : a->n_cols, sum = 0;
            for (int64_t i = k * size; i < (k + 1) * size && i < a->n_cols; i++)
                sum += q[i];
            check_near(c, "sum", k, a->sum[token * a->n_sums + k], (double)sum, 0);
        }
    }
}
