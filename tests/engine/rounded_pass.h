/* The plain forward pass with the two roundings that the engine is meant to do, and no other: the
 * inputs of a product are rounded to int8 as its packing asks, keys and values to f16. All sums are
 * in double. It shares the plan's choice of packings with the engine, but no kernel. */
#ifndef TRINE_TESTS_ROUNDED_PASS_H
#define TRINE_TESTS_ROUNDED_PASS_H

#include "base/float16.h"
#include "engine/plan.h"
#include "engine_run.h"
#include "model/arch.h"

struct rounded_pass {
    const struct model *model;
    const struct plan *plan; /* of one node */
    int n;                   /* tokens */
    int n_each;              /* the first n_each tokens are a sequence, and so on */
    float *residual, *normed, *q, *k, *v, *gate, *up, *out; /* owned: (n, widest) */
    int widest;
};

/* Rounds x (n_cols) as the packing's activations are: a scale per group of inputs, or one. */
static inline void round_inputs(const struct packed *w, float *x, int n_cols)
{
    struct packing_needs needs = packing_needs(w->packing, w->group);
    int group = needs.act_group ? needs.act_group : n_cols;
    for (int begin = 0; begin < n_cols && !needs.is_float; begin += group) {
        int end = begin + group < n_cols ? begin + group : n_cols;
        float highest = 0;
        for (int i = begin; i < end; i++)
            highest = fmaxf(highest, fabsf(x[i]));
        for (int i = begin; i < end && highest > 0; i++)
            x[i] = rintf(x[i] * (127 / highest)) * (highest / 127);
    }
}

/* out (n, n_rows), rows `widest` apart, = w x + bias */
static inline void rounded_multiply(struct rounded_pass *p, const struct weight *w,
                                    const struct packed *packed, const float *x, float *out)
{
    int n_cols = (int)w->tensor.n_cols, widest = p->widest;
    float *rounded = test_alloc((size_t)p->n * (size_t)n_cols, sizeof *rounded);
    float *row = test_alloc((size_t)n_cols, sizeof *row);
    for (int t = 0; t < p->n; t++) {
        memcpy(rounded + (int64_t)t * n_cols, x + (int64_t)t * widest, (size_t)n_cols * sizeof *x);
        round_inputs(packed, rounded + (int64_t)t * n_cols, n_cols);
    }
    for (int64_t r = 0; r < w->tensor.n_rows; r++) {
        format_of(w->tensor.format)->decode(&w->tensor, r, r + 1, row);
        for (int t = 0; t < p->n; t++) {
            double sum = 0;
            for (int i = 0; i < n_cols; i++)
                sum += (double)row[i] * rounded[(int64_t)t * n_cols + i];
            out[(int64_t)t * widest + r] = (float)(sum * w->scale + (w->bias ? w->bias[r] : 0));
        }
    }
    free(rounded);
    free(row);
}

/* n rows of `width` elements, `stride` apart in both; out may be x. Without a gain nothing. */
static inline void rounded_norm_rows(const struct rounded_pass *p, const float *x,
                                     const float *gain, int n, int width, int stride, float *out)
{
    for (int row = 0; gain && row < n; row++, x += stride, out += stride) {
        double sum = 0;
        for (int i = 0; i < width; i++)
            sum += (double)x[i] * x[i];
        double factor = 1 / sqrt(sum / width + p->model->config.norm_epsilon);
        for (int i = 0; i < width; i++)
            out[i] = (float)(x[i] * factor * gain[i]);
    }
}

static inline void rounded_norm(struct rounded_pass *p, const float *gain)
{
    rounded_norm_rows(p, p->residual, gain, p->n, p->model->config.n_embd, p->widest, p->normed);
}

static inline void rounded_norm_heads(struct rounded_pass *p, const float *gain, int n_heads,
                                      float *x)
{
    int head_dim = p->model->config.head_dim;
    for (int t = 0; t < p->n; t++, x += p->widest)
        rounded_norm_rows(p, x, gain, n_heads, head_dim, head_dim, x);
}

static inline double rounded_activation(const struct rounded_pass *p, double x)
{
    if (p->model->config.arch->activation == ACTIVATION_RELU2)
        return x > 0 ? x * x : 0;
    return x / (1 + exp(-x));
}

static inline void rounded_rope(struct rounded_pass *p)
{
    const struct model_config *c = &p->model->config;
    float cosines[ATTENTION_MAX_HEAD_DIM], sines[ATTENTION_MAX_HEAD_DIM];
    for (int t = 0; t < p->n; t++) {
        rope_angles(&c->rope, t % p->n_each, cosines, sines);
        for (int h = 0; h < c->n_head; h++)
            rope_turn(&c->rope, cosines, sines, p->q + (int64_t)t * p->widest + h * c->head_dim);
        float *k = p->k + (int64_t)t * p->widest, *v = p->v + (int64_t)t * p->widest;
        for (int h = 0; h < c->n_head_kv; h++)
            rope_turn(&c->rope, cosines, sines, k + h * c->head_dim);
        for (int i = 0; i < c->n_head_kv * c->head_dim; i++) {
            k[i] = f16_to_f32(f32_to_f16(k[i]));
            v[i] = f16_to_f32(f32_to_f16(v[i]));
        }
    }
}

/* One head of one token, into normed. */
static inline void rounded_attend(struct rounded_pass *p, int t, int head)
{
    const struct model_config *c = &p->model->config;
    int first = t - t % p->n_each, dim = c->head_dim;
    int64_t kv_at = (int64_t)(head / (c->n_head / c->n_head_kv)) * dim;
    const float *q = p->q + (int64_t)t * p->widest + head * dim;
    double *scores = test_alloc((size_t)t + 1, sizeof *scores), highest = -INFINITY, sum = 0;
    for (int s = first; s <= t; s++) {
        for (int i = 0; i < dim; i++)
            scores[s] += (double)q[i] * p->k[(int64_t)s * p->widest + kv_at + i];
        scores[s] /= sqrt(dim);
        highest = fmax(highest, scores[s]);
    }
    for (int s = first; s <= t; s++)
        sum += scores[s] = exp(scores[s] - highest);
    for (int i = 0; i < dim; i++) {
        double mean = 0;
        for (int s = first; s <= t; s++)
            mean += scores[s] / sum * p->v[(int64_t)s * p->widest + kv_at + i];
        p->normed[(int64_t)t * p->widest + head * dim + i] = (float)mean;
    }
    free(scores);
}

static inline void rounded_add(struct rounded_pass *p)
{
    for (int64_t i = 0; i < (int64_t)p->n * p->widest; i++)
        p->residual[i] += p->out[i];
}

static inline void rounded_layer(struct rounded_pass *p, int layer)
{
    const struct model_config *c = &p->model->config;
    const struct layer_weights *w = &p->model->weights.layers[layer];
    const struct layer_slices *s = &p->plan->slices.nodes[0].layers[layer];
    rounded_norm(p, w->attn_norm);
    rounded_multiply(p, &w->attn_q, &s->q.w, p->normed, p->q);
    rounded_multiply(p, &w->attn_k, &s->k.w, p->normed, p->k);
    rounded_multiply(p, &w->attn_v, &s->v.w, p->normed, p->v);
    rounded_norm_heads(p, w->attn_q_norm, c->n_head, p->q);
    rounded_norm_heads(p, w->attn_k_norm, c->n_head_kv, p->k);
    rounded_rope(p);
    for (int i = 0; i < p->n * c->n_head; i++)
        rounded_attend(p, i / c->n_head, i % c->n_head);
    rounded_norm_rows(p, p->normed, w->attn_sub_norm, p->n, c->n_head * c->head_dim, p->widest,
                      p->normed);
    rounded_multiply(p, &w->attn_output, &s->o.w, p->normed, p->out);
    rounded_add(p);
    rounded_norm(p, w->ffn_norm);
    rounded_multiply(p, &w->ffn_gate, &s->gate_up.w, p->normed, p->gate);
    rounded_multiply(p, &w->ffn_up, &s->gate_up.w, p->normed, p->up);
    for (int64_t i = 0; i < (int64_t)p->n * p->widest; i++)
        p->gate[i] = (float)(rounded_activation(p, p->gate[i]) * p->up[i]);
    rounded_norm_rows(p, p->gate, w->ffn_sub_norm, p->n, c->n_ff, p->widest, p->gate);
    rounded_multiply(p, &w->ffn_down, &s->down.w, p->gate, p->out);
    rounded_add(p);
}

/* Logits of n tokens, (n, n_vocab), to be freed, of sequences of n_each tokens. options: of the engine
 * that it is to be compared with. */
static inline float *run_rounded(const struct model *model, struct engine_options options,
                                 const int32_t *tokens, int n, int n_each)
{
    const struct model_config *c = &model->config;
    struct engine *planned;
    options.n_nodes = options.n_threads = 1;
    assert_int_equal(engine_plan(&planned, model, &options, NULL), STATUS_OK);
    struct rounded_pass p = {
        .model = model, .plan = engine_plan_of(planned), .n = n, .n_each = n_each};
    int q_width = c->n_head * c->head_dim, widest = c->n_vocab > c->n_ff ? c->n_vocab : c->n_ff;
    p.widest = widest > q_width ? widest : q_width; /* n_embd < n_ff */
    float **all[] = {&p.residual, &p.normed, &p.q, &p.k, &p.v, &p.gate, &p.up, &p.out};
    for (int i = 0; i < 8; i++)
        *all[i] = test_alloc((size_t)n * (size_t)p.widest, sizeof(float));
    const struct weight *table = &model->weights.token_embd;
    for (int t = 0; t < n; t++)
        format_of(table->tensor.format)
            ->decode(&table->tensor, tokens[t], tokens[t] + 1, p.residual + (int64_t)t * p.widest);
    for (int layer = 0; layer < c->n_layer; layer++)
        rounded_layer(&p, layer);
    rounded_norm(&p, model->weights.output_norm);
    rounded_multiply(&p, &model->weights.output, &p.plan->slices.nodes[0].output.w, p.normed,
                     p.out);
    float *logits = test_alloc((size_t)n * (size_t)c->n_vocab, sizeof *logits);
    for (int t = 0; t < n; t++)
        memcpy(logits + (int64_t)t * c->n_vocab, p.out + (int64_t)t * p.widest,
               (size_t)c->n_vocab * sizeof *logits);
    for (int i = 0; i < 8; i++)
        free(*all[i]);
    engine_close(planned);
    return logits;
}

#endif
