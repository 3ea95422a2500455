/* Parts: a kernel, its job, how both follow the batch. */
#include <math.h>

#include "engine/plan_builder.h"

/* A grain is as much as one claim should cost little against, and little enough to share evenly. */
#define GRAIN_BYTES       ((uint64_t)64 << 10)
#define GRAINS_EACH       8 /* of a thread, at least, where rows are few */
#define FLOAT_TILES       4 /* of a grain, where rows are many: chains of floats that run at once */
#define MANY_ROWS         64 /* of a grain with many tokens: panels are unpacked once for all of them */
#define REDUCE_ROWS       256
/* On AMX tiles: as many rows as panels hold of inputs that are usual, so that activations are read once
 * for all of them. */
#define TILES_ROWS        256
#define TILES_GRAINS_EACH 2
#define MOST_BLOCKS       4   /* ranges of tokens, */
#define RANGE_TOKENS      128 /* of about so many */

kernel *builder_kernel(const struct builder *b, enum op op, enum packing packing)
{
    if (op == OP_matmul)
        return b->plan->matmul[packing]->run;
    return kernel_select(op, packing, b->plan->options.isa)->run;
}

static int threads_of(const struct builder *b)
{
    return b->plan->layout->nodes[b->node].n_threads;
}

/* Ranges that tokens are divided in. A thread with R of the rows and N tokens reads N activations of an
 * input and unpacks R weights; B ranges make that N / B and R * B, which is least where both are equal.
 * For machines with so many threads that rows get few; not measured on one. */
static int matmul_token_blocks(const struct builder *b, const struct packed *w)
{
    int64_t rows = w->n_rows / threads_of(b) + 1;
    int n = 1;
    while (b->kind == PROGRAM_MANY && n < MOST_BLOCKS && 4 * n * n * rows <= builder_capacity(b))
        n *= 2;
    return n;
}

static int matmul_grain(const struct builder *b, const struct packed *w)
{
    if (w->n_rows == 0 || w->n_cols == 0)
        return TILE_ROWS;
    uint64_t tile_bytes = packed_tile_bytes(w->packing, w->group, w->n_cols);
    int64_t n_tiles = (w->n_rows + TILE_ROWS - 1) / TILE_ROWS;
    bool has_tiles = b->plan->matmul[w->packing]->isa == ISA_amx;
    int64_t n_each = has_tiles && b->kind == PROGRAM_MANY ? TILES_GRAINS_EACH : GRAINS_EACH;
    int64_t most = n_tiles * matmul_token_blocks(b, w) / ((int64_t)threads_of(b) * n_each);
    int64_t tiles = (int64_t)(GRAIN_BYTES / tile_bytes);
    if (b->kind == PROGRAM_MANY)
        tiles = (has_tiles ? TILES_ROWS : MANY_ROWS) / TILE_ROWS;
    else if (tiles < FLOAT_TILES && packing_needs(w->packing, w->group).is_float)
        tiles = FLOAT_TILES;
    tiles = tiles < most ? tiles : most;
    int64_t least = n_tiles / ((int64_t)threads_of(b) * PLAN_MAX_UNITS) + 1;
    tiles = tiles > least ? tiles : least;
    return (int)tiles * TILE_ROWS;
}

static void fit_matmul(struct part *part, const struct batch_shape *shape)
{
    int n = (shape->n_tokens + RANGE_TOKENS / 2) / RANGE_TOKENS;
    part->job.matmul.n_tokens = shape->n_tokens;
    part->n_blocks = n < 1 ? 1 : n < part->n_token_blocks ? n : part->n_token_blocks;
}

void part_token_range(const struct part *part, int block, int *first, int *end)
{
    int n = part->job.matmul.n_tokens, each = n;
    if (part->n_blocks > 1)
        each = ((n + part->n_blocks - 1) / part->n_blocks + 15) / 16 * 16;
    *first = block * each < n ? block * each : n;
    *end = *first + each < n ? *first + each : n;
}

void matmul_tokens(struct matmul_job *job, int first, int end)
{
    struct activations *a = &job->a;
    int64_t t = first;
    job->n_tokens = end - first;
    a->q = a->q ? a->q + t * a->stride : NULL;
    a->x = a->x ? a->x + t * a->stride : NULL;
    a->scale = a->scale ? a->scale + t * a->n_scales : NULL;
    a->sum = a->sum ? a->sum + t * a->n_sums : NULL;
    job->token_scale = job->token_scale ? job->token_scale + t : NULL;
    job->out = job->out ? job->out + t * job->out_stride : NULL;
    job->out_int = job->out_int ? job->out_int + t * job->out_stride : NULL;
    job->out_f16 = job->out_f16 ? job->out_f16 + t : NULL;
    job->cosines = job->cosines ? job->cosines + t * (job->head_dim / 2) : NULL;
    job->sines = job->sines ? job->sines + t * (job->head_dim / 2) : NULL;
}

struct part part_matmul(struct builder *b, const struct weight_slice *w, struct activations a,
                        enum epilogue epilogue, float *out, int64_t out_stride)
{
    struct matmul_job job = {.w = w->w, .a = a, .epilogue = epilogue};
    job.row_scale = w->group_row_scale;
    job.scale[0] = w->scale[0];
    job.scale[1] = w->scale[1];
    job.bias = w->bias;
    job.out = out;
    job.out_stride = out_stride;
    job.head_dim = b->config->head_dim;
    job.cosines = b->shared->cosines;
    job.sines = b->shared->sines;
    job.scratch = b->matmul_scratch;
    struct part part = {.job = {.matmul = job}, .fit = fit_matmul};
    part.run = builder_kernel(b, OP_matmul, w->w.packing);
    part.per = (int)w->w.n_rows;
    part.grain = matmul_grain(b, &w->w);
    part.n_token_blocks = matmul_token_blocks(b, &w->w);
    part.weights = w->w.data;
    part.weight_bytes = weight_slice_bytes(w);
    return part;
}

struct part part_norm(struct builder *b, const struct rows *x, const float *gain,
                      struct activations a)
{
    struct rms_norm_job job = {.x = x->x, .x_stride = x->stride, .gain = gain};
    job.n_cols = (int)x->n_cols;
    job.epsilon = b->config->norm_epsilon;
    if (a.x) {
        job.out = a.x;
        job.out_stride = a.stride;
    } else {
        job.a = a;
    }
    struct part part = {.job = {.rms_norm = job}, .extent = EXTENT_TOKENS, .per = 1, .grain = 1};
    part.run = builder_kernel(b, OP_rms_norm, PACKING_none);
    return part;
}

struct part part_quantize(struct builder *b, const struct rows *x, struct activations a)
{
    struct quantize_job job = {.x = x->x, .x_stride = x->stride, .a = a};
    struct part part = {.job = {.quantize = job}, .extent = EXTENT_TOKENS, .per = 1, .grain = 1};
    part.run = builder_kernel(b, OP_quantize, PACKING_none);
    return part;
}

static void fit_attention(struct part *part, const struct batch_shape *shape)
{
    struct attention_job *job = &part->job.attention;
    job->n_tokens = shape->n_tokens;
    job->n_chunks = shape->n_chunks;
    job->token_block = shape->token_block;
}

struct part part_attention(struct builder *b, int layer)
{
    const struct model_config *c = b->config;
    const struct engine_options *o = &b->plan->options;
    struct node_buffers *own = &b->buffers[b->node];
    struct kv_range kv = cut_kv_range(&b->plan->slices.cut, b->node, c->n_head, c->n_head_kv);
    bool is_by_position = builder_is_by_position(b);
    struct attention_job job = {.format = o->kv_format, .head_dim = c->head_dim};
    job.group = c->n_head / c->n_head_kv;
    job.n_page_heads = b->plan->n_kv_heads[b->node];
    job.scale = 1 / sqrtf((float)c->head_dim);
    job.position = b->shared->position;
    job.pages = own->pages + (int64_t)layer * o->n_batch;
    job.chunk_step = 1;
    job.partial = own->attention_partial;
    job.out_stride = own->attended.stride;
    job.out = own->attended.x;
    job.q = own->q.x;
    job.q_stride = own->q.stride;
    job.n_heads = (int)(own->q.n_cols / c->head_dim);
    job.n_heads_kv = kv.kv1 - kv.kv0;
    job.head_offset = kv.first;
    struct part part = {.fit = fit_attention, .grain = 1};
    part.extent = builder_by_chunks(b) ? EXTENT_CHUNKS : EXTENT_BLOCKS;
    if (is_by_position && builder_by_chunks(b)) { /* all heads, the chunks of this node */
        job.n_heads_kv = c->n_head_kv;
        job.head_offset = 0;
        job.chunk0 = b->node;
        job.chunk_step = b->plan->slices.cut.n_nodes;
        part.extent = EXTENT_OWN_CHUNKS;
    } else if (is_by_position) { /* own heads, wherever their pages are */
        int64_t head0 = b->plan->slices.cut.heads[b->node];
        job.n_heads = (int)(b->plan->slices.cut.heads[b->node + 1] - head0);
        job.kv_head0 = kv.kv0;
        job.q = rows_from(&own->q, head0 * c->head_dim);
        job.out = rows_from(&own->attended, head0 * c->head_dim);
    } else if (o->dataflow == DATAFLOW_ROW) {
        int64_t head0 = b->plan->slices.cut.heads[b->node];
        job.out = rows_from(&own->attended, head0 * c->head_dim);
    }
    part.job.attention = job;
    part.per = job.n_heads > 0 ? job.n_heads_kv : 0;
    part.run = builder_kernel(b, OP_attention, PACKING_none);
    return part;
}

static void fit_fold(struct part *part, const struct batch_shape *shape)
{
    part->job.attention_fold.n_chunks = shape->n_chunks;
}

struct part part_fold(struct builder *b, const struct rows *out, int64_t out_at, int n_heads)
{
    struct attention_fold_job job = {.n_heads = n_heads, .head_dim = b->config->head_dim};
    job.partial = b->buffers[b->node].attention_partial;
    job.position = b->shared->position;
    job.out = rows_from(out, out_at);
    job.out_stride = out->stride;
    struct part part = {.job = {.attention_fold = job}, .fit = fit_fold, .grain = 1};
    part.extent = EXTENT_TOKENS;
    part.per = n_heads;
    part.run = builder_kernel(b, OP_attention_fold, PACKING_none);
    return part;
}

static void fit_reduce(struct part *part, const struct batch_shape *shape)
{
    part->job.reduce.n_tokens = shape->n_tokens;
}

struct part part_reduce(struct builder *b, const void *const *parts, int n_parts,
                        const struct rows *out)
{
    struct reduce_job job = {.n_parts = n_parts, .parts = parts, .scale = 1};
    job.stride = out->stride;
    job.out = out->x;
    job.out_stride = out->stride;
    struct part part = {.job = {.reduce = job}, .fit = fit_reduce, .grain = REDUCE_ROWS};
    part.per = (int)out->n_cols;
    part.run = builder_kernel(b, OP_reduce, PACKING_none);
    return part;
}

void part_scatter(struct builder *b, struct part *part, size_t rows_at, int64_t at, int divisor)
{
    int n_nodes = b->plan->slices.cut.n_nodes;
    if (b->plan->options.row_scatter != ROW_SCATTER_DIRECT || n_nodes == 1)
        return;
    struct scatter *scatter = builder_take(b, 1, sizeof *scatter);
    float **to = builder_take(b, n_nodes, sizeof *to);
    if (b->is_out_of_memory)
        return;
    const struct rows *own = (const void *)((uint8_t *)&b->buffers[b->node] + rows_at);
    *scatter = (struct scatter){n_nodes, to, rows_from(own, at), own->stride, divisor};
    for (int node = 0; node < n_nodes; node++) {
        const struct rows *other = (const void *)((uint8_t *)&b->buffers[node] + rows_at);
        to[node] = node == b->node ? NULL : rows_from(other, at);
    }
    part->scatter = scatter;
}
