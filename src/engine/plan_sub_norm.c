/* Norms between attention and O, and between the gated product and down. W (x o gain / rms) is
 * (W (x o gain)) / rms: the factor 1 / rms of a token is not needed before the product, and nodes that
 * have a part of x each need to meet only once, at the barrier that the partial sums need anyway. The
 * same order of operations is used where one node has all of x, so that results are the same bits. */
#include "engine/plan_builder.h"

struct part part_squares(struct builder *b, const struct rows *x, const struct rows *squares,
                         int64_t block0)
{
    struct squares_job job = {.x = x->x, .x_stride = x->stride, .n_cols = (int)x->n_cols};
    job.squares = rows_from(squares, block0);
    job.stride = squares->stride;
    struct part part = {.job = {.squares = job}, .extent = EXTENT_TOKENS, .grain = 1};
    part.per = x->n_cols > 0;
    part.run = builder_kernel(b, OP_squares, PACKING_none);
    return part;
}

const float *build_norm_factor(struct builder *b, int layer, const struct rows *squares,
                               int64_t n_cols)
{
    struct norm_factor_job job = {.squares = squares->x, .stride = squares->stride};
    job.n_cols = (int)n_cols;
    job.epsilon = b->config->norm_epsilon;
    job.factor = builder_factors(b);
    struct part part = {.job = {.norm_factor = job}, .extent = EXTENT_TOKENS, .per = 1, .grain = 1};
    part.run = builder_kernel(b, OP_norm_factor, PACKING_none);
    builder_prepare(b, STEP_NORM, layer, &part, 1);
    return job.factor;
}

const float *build_own_norm_factor(struct builder *b, int layer, const struct rows *x)
{
    struct rows squares = builder_squares(b, x->n_cols);
    struct part part = part_squares(b, x, &squares, 0);
    builder_prepare(b, STEP_NORM, layer, &part, 1);
    return build_norm_factor(b, layer, &squares, x->n_cols);
}
