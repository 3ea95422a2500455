#include "reference/reference.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/float16.h"
#include "base/memory.h"
#include "model/arch.h"

struct reference {
    const struct model *model; /* borrowed */
    struct reference_options options;
    int position;
    struct arena arena;
    float *keys, *values;   /* (n_layer, n_ctx, n_head_kv * head_dim) */
    float *cosines, *sines; /* (batch, n_rot / 2) */
    float *residual;        /* (batch, n_embd) */
    float *normed;          /* (batch, n_embd) */
    float *q, *attended;    /* (batch, n_head * head_dim) */
    float *k, *v;           /* (batch, n_head_kv * head_dim) */
    float *gate, *up;       /* (batch, n_ff) */
    float *out;             /* (batch, n_embd) */
    float *row;             /* one decoded weight row */
    double *scores;         /* (n_ctx) */
};

static int64_t q_width(const struct model_config *c)
{
    return (int64_t)c->n_head * c->head_dim;
}

static int64_t kv_width(const struct model_config *c)
{
    return (int64_t)c->n_head_kv * c->head_dim;
}

/* out[t][r] = scale * sum_i w[r][i] x[t][i] + bias[r] for n tokens; x: (n, n_cols) */
static void multiply(struct reference *ref, const struct weight *w, const float *x, int n,
                     float *out)
{
    int64_t n_rows = w->tensor.n_rows, n_cols = w->tensor.n_cols;
    for (int64_t r = 0; r < n_rows; r++) {
        tensor_decode(&w->tensor, r, r + 1, ref->row);
        for (int t = 0; t < n; t++) {
            const float *xt = x + t * n_cols;
            double sum = 0;
            for (int64_t i = 0; i < n_cols; i++)
                sum += (double)ref->row[i] * xt[i];
            out[t * n_rows + r] = (float)(sum * w->scale + (w->bias ? w->bias[r] : 0));
        }
    }
}

/* out[i] = x[i] / sqrt(mean(x^2) + epsilon) * gain[i] for each of n rows */
static void rms_norm(const float *x, const float *gain, int n, int64_t width, float epsilon,
                     float *out)
{
    for (int t = 0; t < n; t++, x += width, out += width) {
        double sum = 0;
        for (int64_t i = 0; i < width; i++)
            sum += (double)x[i] * x[i];
        double factor = 1 / sqrt(sum / (double)width + epsilon);
        for (int64_t i = 0; i < width; i++)
            out[i] = (float)(x[i] * factor * gain[i]);
    }
}

/* Each head of n rows of `width` elements normed, in place; without a gain nothing. */
static void norm_heads(const struct model_config *c, const float *gain, int n, int64_t width,
                       float *x)
{
    if (gain)
        rms_norm(x, gain, (int)(n * (width / c->head_dim)), c->head_dim, c->norm_epsilon, x);
}

/* n rows normed in place, where the architecture has a norm there. */
static void sub_norm(const struct model_config *c, const float *gain, int n, int64_t width,
                     float *x)
{
    if (gain)
        rms_norm(x, gain, n, width, c->norm_epsilon, x);
}

/* Turns q and k of one token and appends k and v to the cache. */
static void rotate_and_store(struct reference *ref, int layer, int t)
{
    const struct model_config *c = &ref->model->config;
    int pos = ref->position + t, half = c->rope.n_rot / 2;
    const float *cosines = ref->cosines + (int64_t)t * half;
    const float *sines = ref->sines + (int64_t)t * half;
    float *q = ref->q + t * q_width(c), *k = ref->k + t * kv_width(c);
    for (int h = 0; h < c->n_head; h++)
        rope_turn(&c->rope, cosines, sines, q + (int64_t)h * c->head_dim);
    for (int h = 0; h < c->n_head_kv; h++)
        rope_turn(&c->rope, cosines, sines, k + (int64_t)h * c->head_dim);

    int64_t at = ((int64_t)layer * ref->options.n_ctx + pos) * kv_width(c);
    const float *v = ref->v + t * kv_width(c);
    for (int64_t i = 0; i < kv_width(c); i++) {
        ref->keys[at + i] = ref->options.kv_f16 ? f16_to_f32(f32_to_f16(k[i])) : k[i];
        ref->values[at + i] = ref->options.kv_f16 ? f16_to_f32(f32_to_f16(v[i])) : v[i];
    }
}

/* scores[p] = softmax over p <= pos of q.k[p] / sqrt(head_dim); k: n_pos rows `stride` apart */
static void attention_weights(const float *q, const float *k, int64_t stride, int n_pos,
                              int head_dim, double *scores)
{
    double highest = -INFINITY, sum = 0;
    for (int p = 0; p < n_pos; p++) {
        double dot = 0;
        for (int i = 0; i < head_dim; i++)
            dot += (double)q[i] * k[p * stride + i];
        scores[p] = dot / sqrt(head_dim);
        highest = fmax(highest, scores[p]);
    }
    for (int p = 0; p < n_pos; p++)
        sum += scores[p] = exp(scores[p] - highest);
    for (int p = 0; p < n_pos; p++)
        scores[p] /= sum;
}

/* Attention of token t of the batch over all positions up to its own. */
static void attend(struct reference *ref, int layer, int t)
{
    const struct model_config *c = &ref->model->config;
    int n_pos = ref->position + t + 1, group = c->n_head / c->n_head_kv;
    int64_t stride = kv_width(c), layer_at = (int64_t)layer * ref->options.n_ctx * stride;
    for (int h = 0; h < c->n_head; h++) {
        int64_t head_at = (int64_t)(h / group) * c->head_dim;
        const float *k = ref->keys + layer_at + head_at, *v = ref->values + layer_at + head_at;
        int64_t q_at = t * q_width(c) + (int64_t)h * c->head_dim;
        attention_weights(ref->q + q_at, k, stride, n_pos, c->head_dim, ref->scores);
        for (int i = 0; i < c->head_dim; i++) {
            double sum = 0;
            for (int p = 0; p < n_pos; p++)
                sum += ref->scores[p] * v[p * stride + i];
            ref->attended[q_at + i] = (float)sum;
        }
    }
}

static void add_to_residual(struct reference *ref, int n)
{
    for (int64_t i = 0; i < (int64_t)n * ref->model->config.n_embd; i++)
        ref->residual[i] += ref->out[i];
}

static void attention_block(struct reference *ref, int layer, int n)
{
    const struct model_config *c = &ref->model->config;
    const struct layer_weights *w = &ref->model->weights.layers[layer];
    rms_norm(ref->residual, w->attn_norm, n, c->n_embd, c->norm_epsilon, ref->normed);
    multiply(ref, &w->attn_q, ref->normed, n, ref->q);
    multiply(ref, &w->attn_k, ref->normed, n, ref->k);
    multiply(ref, &w->attn_v, ref->normed, n, ref->v);
    norm_heads(c, w->attn_q_norm, n, q_width(c), ref->q);
    norm_heads(c, w->attn_k_norm, n, kv_width(c), ref->k);
    for (int t = 0; t < n; t++)
        rotate_and_store(ref, layer, t);
    for (int t = 0; t < n; t++)
        attend(ref, layer, t);
    sub_norm(c, w->attn_sub_norm, n, q_width(c), ref->attended);
    multiply(ref, &w->attn_output, ref->attended, n, ref->out);
    add_to_residual(ref, n);
}

static double activated(enum activation activation, double x)
{
    if (activation == ACTIVATION_RELU2)
        return x > 0 ? x * x : 0;
    return x / (1 + exp(-x));
}

static void feed_forward_block(struct reference *ref, int layer, int n)
{
    const struct model_config *c = &ref->model->config;
    const struct layer_weights *w = &ref->model->weights.layers[layer];
    rms_norm(ref->residual, w->ffn_norm, n, c->n_embd, c->norm_epsilon, ref->normed);
    multiply(ref, &w->ffn_gate, ref->normed, n, ref->gate);
    multiply(ref, &w->ffn_up, ref->normed, n, ref->up);
    for (int64_t i = 0; i < (int64_t)n * c->n_ff; i++)
        ref->gate[i] = (float)(activated(c->arch->activation, ref->gate[i]) * ref->up[i]);
    sub_norm(c, w->ffn_sub_norm, n, c->n_ff, ref->gate);
    multiply(ref, &w->ffn_down, ref->gate, n, ref->out);
    add_to_residual(ref, n);
}

void reference_forward(struct reference *ref, const int32_t *tokens, int n, float *logits,
                       int n_logits)
{
    const struct model_config *c = &ref->model->config;
    const struct model_weights *w = &ref->model->weights;
    assert(n <= ref->options.max_batch && n_logits <= n);
    assert(ref->position + n <= ref->options.n_ctx);
    for (int t = 0; t < n; t++) {
        int64_t half = c->rope.n_rot / 2;
        rope_angles(&c->rope, ref->position + t, ref->cosines + t * half, ref->sines + t * half);
        float *row = ref->residual + (int64_t)t * c->n_embd;
        tensor_decode(&w->token_embd.tensor, tokens[t], tokens[t] + 1, row);
        for (int i = 0; i < c->n_embd; i++)
            row[i] *= w->token_embd.scale;
    }
    for (int layer = 0; layer < c->n_layer; layer++) {
        attention_block(ref, layer, n);
        feed_forward_block(ref, layer, n);
    }
    ref->position += n;
    if (n_logits == 0)
        return;
    rms_norm(ref->residual + (int64_t)(n - n_logits) * c->n_embd, w->output_norm, n_logits,
             c->n_embd, c->norm_epsilon, ref->normed);
    multiply(ref, &w->output, ref->normed, n_logits, logits);
}

int reference_position(const struct reference *ref)
{
    return ref->position;
}

void reference_rewind(struct reference *ref, int position)
{
    assert(position >= 0 && position <= ref->position);
    ref->position = position;
}

/* Takes n elements for a buffer, or only counts their bytes when the arena is NULL. */
struct taker {
    struct arena *arena;
    uint64_t bytes;
    bool failed;
};

static void *take(struct taker *taker, int64_t n, size_t size)
{
    taker->bytes += (uint64_t)n * size;
    void *block = taker->arena ? arena_alloc(taker->arena, (size_t)n, size) : NULL;
    taker->failed |= taker->arena && !block;
    return block;
}

static void take_buffers(struct reference *ref, const struct model_config *c, struct taker *taker)
{
    int64_t n_ctx = ref->options.n_ctx, batch = ref->options.max_batch, f = sizeof(float);
    int64_t cache = (int64_t)c->n_layer * n_ctx * kv_width(c);
    ref->keys = take(taker, cache, f);
    ref->values = take(taker, cache, f);
    ref->cosines = take(taker, batch * (c->rope.n_rot / 2), f);
    ref->sines = take(taker, batch * (c->rope.n_rot / 2), f);
    ref->residual = take(taker, batch * c->n_embd, f);
    ref->normed = take(taker, batch * c->n_embd, f);
    ref->q = take(taker, batch * q_width(c), f);
    ref->attended = take(taker, batch * q_width(c), f);
    ref->k = take(taker, batch * kv_width(c), f);
    ref->v = take(taker, batch * kv_width(c), f);
    ref->gate = take(taker, batch * c->n_ff, f);
    ref->up = take(taker, batch * c->n_ff, f);
    ref->out = take(taker, batch * c->n_embd, f);
    ref->row = take(taker, model_longest_row(c), f);
    ref->scores = take(taker, n_ctx, sizeof(double));
}

uint64_t reference_bytes(const struct model_config *c, const struct reference_options *options)
{
    struct reference sizes = {.options = *options};
    struct taker taker = {0};
    take_buffers(&sizes, c, &taker);
    return taker.bytes;
}

enum status reference_open(struct reference **reference, const struct model *model,
                           const struct reference_options *options, struct error *err)
{
    const struct model_config *c = &model->config;
    struct reference *ref = memory_alloc(1, sizeof *ref);
    if (!ref)
        return fail_memory(err, model->path, sizeof *ref);
    *ref = (struct reference){.model = model, .options = *options};
    struct taker taker = {.arena = &ref->arena};
    take_buffers(ref, c, &taker);
    if (taker.failed) {
        reference_close(ref);
        return fail(err, STATUS_MEMORY,
                    "%s: a context of %d tokens needs %.1f MiB, which this machine does not have "
                    "free; try a smaller one with -c",
                    model->path, options->n_ctx, (double)taker.bytes / (1 << 20));
    }
    *reference = ref;
    return STATUS_OK;
}

void reference_close(struct reference *ref)
{
    if (!ref)
        return;
    arena_done(&ref->arena);
    memory_free(ref);
}
