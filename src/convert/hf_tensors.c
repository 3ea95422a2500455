#include "convert/hf_tensors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/float16.h"
#include "base/reader.h"

/* GGUF's name and transformers' names of the same tensor; those of a layer stand behind
 * "model.layers.N.". */
struct name_pair {
    const char *gguf, *hf, *other;
};

static const struct name_pair model_names[] = {
    {"token_embd", "model.embed_tokens", NULL},
    {"output_norm", "model.norm", NULL},
    {"output", "lm_head", NULL},
    {.gguf = NULL},
};

static const struct name_pair layer_names[] = {
    {"attn_norm", "input_layernorm", NULL},
    {"attn_q", "self_attn.q_proj", NULL},
    {"attn_k", "self_attn.k_proj", NULL},
    {"attn_v", "self_attn.v_proj", NULL},
    {"attn_q_norm", "self_attn.q_norm", NULL},
    {"attn_k_norm", "self_attn.k_norm", NULL},
    {"attn_sub_norm", "self_attn.attn_sub_norm", "self_attn.inner_attn_ln"},
    {"attn_output", "self_attn.o_proj", NULL},
    {"ffn_norm", "post_attention_layernorm", NULL},
    {"ffn_gate", "mlp.gate_proj", NULL},
    {"ffn_up", "mlp.up_proj", NULL},
    {"ffn_sub_norm", "mlp.ffn_sub_norm", "mlp.ffn_layernorm"},
    {"ffn_down", "mlp.down_proj", NULL},
    {.gguf = NULL},
};

/* A list under way. */
struct listing {
    struct hf_tensors *tensors;
    const struct hf_config *config;
    const struct safetensors *folder;
    bool *is_used; /* per tensor of the folder */
    struct error *err;
};

static const struct name_pair *find_names(const struct name_pair *names, const char *gguf)
{
    while (names->gguf && strcmp(names->gguf, gguf) != 0)
        names++;
    return names->gguf ? names : NULL;
}

static const char *path_of(const struct listing *l, const struct safetensor *t)
{
    return l->folder->files[t->file].path;
}

/* Finds "BASE.END" and marks it as used; NULL when absent. */
static const struct safetensor *take(struct listing *l, const char *base, const char *end)
{
    char name[192];
    snprintf(name, sizeof name, "%s%s", base, end);
    const struct safetensor *t = safetensors_find(l->folder, name);
    if (t)
        l->is_used[t - l->folder->tensors] = true;
    return t;
}

static enum status fail_shape(struct listing *l, const struct safetensor *t, int64_t rows,
                              int64_t cols)
{
    char shape[128] = "";
    for (int i = 0, n = 0; i < t->n_dims && n < 100; i++)
        n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%llu", i ? " x " : "",
                      (unsigned long long)t->shape[i]);
    return fail(l->err, STATUS_FORMAT,
                "%s: tensor '%.*s' is %s of %s, expected %lld x %lld by config.json", path_of(l, t),
                TEXT(t->name), shape[0] ? shape : "a single number", t->type_name, (long long)rows,
                (long long)cols);
}

static bool is_float(const struct safetensor *t)
{
    return t->type == SAFETENSOR_F32 || t->type == SAFETENSOR_F16 || t->type == SAFETENSOR_BF16;
}

static float load_element(const struct safetensor *t, uint64_t i)
{
    switch (t->type) {
    case SAFETENSOR_F32: return load_f32(t->data + 4 * i);
    case SAFETENSOR_F16: return f16_to_f32(load_u16(t->data + 2 * i));
    case SAFETENSOR_BF16: return bf16_to_f32(load_u16(t->data + 2 * i));
    default: return t->data[i];
    }
}

static enum status check_type(struct listing *l, const struct safetensor *t)
{
    if (is_float(t))
        return STATUS_OK;
    return fail(l->err, STATUS_UNSUPPORTED,
                "%s: tensor '%.*s' is %s; only F32, F16 and BF16 can be converted, and U8 as "
                "packed weights of a projection",
                path_of(l, t), TEXT(t->name), t->type_name);
}

static struct hf_tensor *append(struct listing *l, const char *name, const char *end)
{
    struct hf_tensor *t = &l->tensors->list[l->tensors->n++];
    snprintf(t->name, sizeof t->name, "%s.%s", name, end);
    return t;
}

/* The number a packed matrix is multiplied with or divided by. */
static enum status read_scale(struct listing *l, const char *base, const struct safetensor *packed,
                              float *scale)
{
    const struct safetensor *t = take(l, base, ".weight_scale");
    if (!t)
        return fail(l->err, STATUS_FORMAT,
                    "%s: tensor '%.*s' is packed (U8), but '%s.weight_scale' is absent; its "
                    "scale cannot be guessed",
                    path_of(l, packed), TEXT(packed->name), base);
    TRY(check_type(l, t));
    if (safetensor_count(t) != 1)
        return fail(l->err, STATUS_UNSUPPORTED,
                    "%s: tensor '%.*s' has %llu numbers, expected one scale of the whole matrix",
                    path_of(l, t), TEXT(t->name), (unsigned long long)safetensor_count(t));
    float value = load_element(t, 0);
    *scale = l->config->weights == HF_PACKED_DIVIDE ? 1 / value : value;
    if (!(value > 0) || !isfinite(value) || !(*scale > 0) || !isfinite(*scale))
        return fail(l->err, STATUS_FORMAT,
                    "%s: tensor '%.*s' is %g, expected a scale above 0; the file is damaged",
                    path_of(l, t), TEXT(t->name), (double)value);
    return STATUS_OK;
}

static bool is_packed_class(const struct hf_config *c)
{
    return c->weights == HF_PACKED_DIVIDE || c->weights == HF_PACKED_MULTIPLY;
}

static enum status add_packed(struct listing *l, const char *base, const struct safetensor *source,
                              struct hf_tensor *t)
{
    if (!t->is_projection || !is_packed_class(l->config))
        return fail(l->err, STATUS_UNSUPPORTED,
                    "%s: tensor '%.*s' is packed (U8), but %s; whether its scale multiplies or "
                    "divides is not known",
                    path_of(l, source), TEXT(source->name),
                    t->is_projection ? l->config->reason : "it is no projection");
    if (t->rows % 4 || source->n_dims != 2 || source->shape[0] != (uint64_t)t->rows / 4 ||
        source->shape[1] != (uint64_t)t->cols)
        return fail_shape(l, source, t->rows / 4, t->cols);
    t->kind = HF_TERNARY_PACKED;
    t->has_one_scale = true;
    TRY(read_scale(l, base, source, &t->scale));
    t->is_scale_f16 = f16_to_f32(f32_to_f16(t->scale)) == t->scale;
    return STATUS_OK;
}

/* A matrix "base.weight" of transformers under GGUF's name. */
static enum status add_matrix(struct listing *l, const char *name, const char *base,
                              const struct safetensor *source, int64_t rows, int64_t cols,
                              bool is_projection, int turned_head)
{
    struct hf_tensor *t = append(l, name, "weight");
    t->rows = rows;
    t->cols = cols;
    t->kind = HF_ORDINARY;
    t->source = source;
    t->is_projection = is_projection;
    t->turned_head = turned_head;
    if (source->type == SAFETENSOR_U8)
        return add_packed(l, base, source, t);
    TRY(check_type(l, source));
    if (is_projection && is_packed_class(l->config))
        return fail(l->err, STATUS_UNSUPPORTED,
                    "%s: tensor '%.*s' is %s, expected packed codes (U8): %s", path_of(l, source),
                    TEXT(source->name), source->type_name, l->config->reason);
    if (source->n_dims != 2 || source->shape[0] != (uint64_t)rows ||
        source->shape[1] != (uint64_t)cols)
        return fail_shape(l, source, rows, cols);
    return STATUS_OK;
}

static enum status add_vector(struct listing *l, const char *name, const char *end,
                              const struct safetensor *source, int64_t n, int turned_head)
{
    struct hf_tensor *t = append(l, name, end);
    t->rows = 1;
    t->cols = n;
    t->kind = HF_VECTOR;
    t->source = source;
    t->turned_head = turned_head;
    TRY(check_type(l, source));
    if (source->n_dims != 1 || source->shape[0] != (uint64_t)n)
        return fail_shape(l, source, 1, n);
    return STATUS_OK;
}

static bool has_bias(const struct hf_config *c, const char *rule)
{
    if (strcmp(rule, "attn_output") == 0)
        return c->has_output_bias;
    return strncmp(rule, "attn_", 5) == 0 ? c->has_qkv_bias : c->has_ffn_bias;
}

static enum status need(struct listing *l, const char *base, const char *end,
                        const struct safetensor **t)
{
    *t = *t ? *t : take(l, base, end);
    if (*t)
        return STATUS_OK;
    return fail(l->err, STATUS_FORMAT, "%s: tensor '%s%s' is absent; the folder is incomplete",
                l->folder->files[0].path, base, end);
}

static bool has_output_rule(const struct arch *arch)
{
    const struct tensor_rule *rule = arch->model_rules;
    while (rule->name && strcmp(rule->name, "output") != 0)
        rule++;
    return rule->name != NULL;
}

/* The output matrix is one of its own, or the embedding; a copy of the embedding is left out. */
static enum status check_output(struct listing *l)
{
    const struct safetensor *own = safetensors_find(l->folder, "lm_head.weight");
    const struct safetensor *table = safetensors_find(l->folder, "model.embed_tokens.weight");
    const struct arch *arch = l->config->model.arch;
    if (!l->config->is_tied && !has_output_rule(arch))
        return fail(l->err, STATUS_UNSUPPORTED,
                    "config.json: 'tie_word_embeddings' is not true, but architecture %s has no "
                    "output matrix of its own",
                    arch->name);
    if (!l->config->is_tied || !own || !table)
        return STATUS_OK;
    if (own->bytes != table->bytes || memcmp(own->data, table->data, own->bytes) != 0)
        return fail(l->err, STATUS_UNSUPPORTED,
                    "%s: config.json says that the embedding is the output matrix "
                    "(tie_word_embeddings), but 'lm_head.weight' is another one",
                    path_of(l, own));
    take(l, "lm_head", ".weight");
    return STATUS_OK;
}

/* "NAME", or "PREFIX.LAYER.NAME" of a layer. */
static void put_name(char *out, size_t size, const char *prefix, int layer, const char *name)
{
    if (layer < 0)
        snprintf(out, size, "%s", name);
    else
        snprintf(out, size, "%s.%d.%s", prefix, layer, name);
}

static enum status add_rule(struct listing *l, const struct tensor_rule *rule,
                            const struct name_pair *names, int layer)
{
    const struct model_config *m = &l->config->model;
    const struct name_pair *pair = find_names(names, rule->name);
    char base[128], other[128], name[64];
    if (!pair || (l->config->is_tied && strcmp(rule->name, "output") == 0))
        return STATUS_OK;
    put_name(name, sizeof name, "blk", layer, rule->name);
    put_name(base, sizeof base, "model.layers", layer, pair->hf);
    const struct safetensor *source = NULL, *bias = NULL;
    if (pair->other && !safetensors_find(l->folder, base)) {
        put_name(other, sizeof other, "model.layers", layer, pair->other);
        source = take(l, other, ".weight");
    }
    TRY(need(l, base, ".weight", &source));
    int64_t rows = arch_dim(m, rule->rows), cols = arch_dim(m, rule->cols);
    if (rule->rows == DIM_ONE)
        return add_vector(l, name, "weight", source, cols, 0);
    bool is_turned = m->arch->rope_pairs == ROPE_ADJACENT &&
                     (strcmp(rule->name, "attn_q") == 0 || strcmp(rule->name, "attn_k") == 0);
    int turned_head = is_turned ? m->head_dim : 0;
    TRY(add_matrix(l, name, base, source, rows, cols, layer >= 0, turned_head));
    if (layer < 0 || !has_bias(l->config, rule->name))
        return STATUS_OK;
    TRY(need(l, base, ".bias", &bias));
    return add_vector(l, name, "bias", bias, rows, turned_head);
}

/* Tables of angles that old files carry and every program computes. */
static bool is_leftover(struct text name)
{
    return text_ends(name, ".rotary_emb.inv_freq");
}

static enum status refuse_unused(struct listing *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->folder->n_tensors; i++) {
        const struct safetensor *t = &l->folder->tensors[i];
        if (l->is_used[i])
            continue;
        if (!is_leftover(t->name))
            return fail(l->err, STATUS_UNSUPPORTED,
                        "%s: tensor '%.*s' is no part of architecture %s as config.json describes "
                        "it; without it the model would be another one",
                        path_of(l, t), TEXT(t->name), l->config->model.arch->name);
        int length = snprintf(l->tensors->ignored + n, sizeof l->tensors->ignored - n, "%s%.*s",
                              n ? ", " : "", TEXT(t->name));
        n += (size_t)length;
        if (n >= sizeof l->tensors->ignored)
            n = sizeof l->tensors->ignored - 1;
    }
    return STATUS_OK;
}

static enum status list_all(struct listing *l)
{
    const struct arch *arch = l->config->model.arch;
    TRY(check_output(l));
    for (const struct tensor_rule *r = arch->model_rules; r->name; r++)
        TRY(add_rule(l, r, model_names, -1));
    if (l->config->model.rope.factors) {
        struct hf_tensor *t = append(l, "rope_freqs", "weight");
        t->values = l->config->model.rope.factors;
        t->rows = 1;
        t->cols = l->config->model.rope.n_rot / 2;
        t->kind = HF_VECTOR;
    }
    for (int i = 0; i < l->config->model.n_layer; i++)
        for (const struct tensor_rule *r = arch->layer_rules; r->name; r++)
            TRY(add_rule(l, r, layer_names, i));
    return refuse_unused(l);
}

static size_t count_rules(const struct tensor_rule *rules)
{
    size_t n = 0;
    while (rules[n].name)
        n++;
    return n;
}

/* Every rule gives a tensor at most, in a layer also a bias; rope_freqs has none. */
static size_t most_tensors(const struct model_config *m)
{
    return count_rules(m->arch->model_rules) + 1 +
           2 * count_rules(m->arch->layer_rules) * (size_t)m->n_layer;
}

enum status hf_tensors_list(struct hf_tensors *tensors, const struct hf_config *config,
                            const struct safetensors *folder, struct error *err)
{
    struct listing l = {tensors, config, folder, NULL, err};
    size_t most = most_tensors(&config->model);
    *tensors = (struct hf_tensors){0};
    tensors->list = memory_alloc(most, sizeof *tensors->list);
    l.is_used = memory_alloc(folder->n_tensors, sizeof *l.is_used);
    enum status status = tensors->list && l.is_used
                             ? list_all(&l)
                             : fail_memory(err, "tensors", most * sizeof *tensors->list);
    memory_free(l.is_used);
    if (status != STATUS_OK)
        hf_tensors_done(tensors);
    return status;
}

void hf_tensors_done(struct hf_tensors *tensors)
{
    memory_free(tensors->list);
    *tensors = (struct hf_tensors){0};
}
