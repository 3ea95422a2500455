#include "convert/hf_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "convert/hf_rope.h"

/* As model_config.c bounds them. */
#define MAX_LAYERS 4096
#define MAX_WIDTH  (1 << 24)
#define MAX_HEADS  65536
#define MAX_CTX    (1 << 30)

/* A model class of transformers as an architecture of GGUF. */
struct hf_class {
    const char *class_name, *model_type, *arch;
    double rope_base;       /* transformers' own default */
    bool needs_head_dim;    /* its default is not n_embd / n_head */
    bool has_qkv_bias;      /* always */
    bool takes_biases;      /* where attention_bias and mlp_bias say so */
    bool is_rounded_at_run; /* the class rounds its weights whenever it runs */
};

static const struct hf_class classes[] = {
    {"LlamaForCausalLM", "llama", "llama", 10000, .takes_biases = true},
    {"Qwen2ForCausalLM", "qwen2", "qwen2", 10000, .has_qkv_bias = true},
    {"Qwen3ForCausalLM", "qwen3", "qwen3", 10000, .needs_head_dim = true},
    {"BitNetForCausalLM", "bitnet", "bitnet-b1.58", 500000, .takes_biases = true},
    /* 1bitLLM's class, under the type of Llama */
    {"BitnetForCausalLM", "llama", "bitnet", 10000, .is_rounded_at_run = true},
};
#define N_CLASSES (sizeof classes / sizeof classes[0])

/* Members that are read below or that change no logits. */
static const char *const known[] = {
    "architectures",
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "rms_norm_eps",
    "max_position_embeddings",
    "hidden_act",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "tie_word_embeddings",
    "attention_bias",
    "mlp_bias",
    "quantization_config",
    "use_sliding_window",
    "sliding_window",
    "layer_types",
    "partial_rotary_factor",
    /* of training, loading and generation */
    "_name_or_path",
    "attention_dropout",
    "auto_map",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "initializer_range",
    "input_bits",
    "max_window_layers",
    "pad_token_id",
    "pretraining_tp",
    "torch_dtype",
    "transformers_version",
    "unsloth_version",
    "use_cache",
    "weight_bits",
};

/* Members of other models that would change the arithmetic. */
static const char *const foreign[] = {
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "logit_scale",
    "logits_scaling",
    "embedding_multiplier",
    "attention_multiplier",
    "residual_multiplier",
    "num_experts",
    "num_local_experts",
    "query_pre_attn_scalar",
    "clip_qkv",
    "no_rope_layers",
    "alibi",
    "use_qk_norm",
    "parallel_attn",
    "attention_chunk_size",
};

static bool is_in(const char *word, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(word, list[i]) == 0)
            return true;
    return false;
}

static enum status find_class(const struct hf_class **found, struct json_object o,
                              struct error *err)
{
    const char *type = NULL;
    const json_t *names = NULL;
    TRY(json_take_list(o, "architectures", &names, err));
    const char *name = json_string_value(json_array_get(names, 0));
    TRY(json_take_text(o, "model_type", &type, err));
    for (size_t i = 0; i < N_CLASSES; i++)
        if (name && type && strcmp(classes[i].class_name, name) == 0 &&
            strcmp(classes[i].model_type, type) == 0) {
            *found = &classes[i];
            return STATUS_OK;
        }
    return fail(err, STATUS_UNSUPPORTED,
                "%s: class %s of type %s is unknown; known are LlamaForCausalLM, Qwen2ForCausalLM, "
                "Qwen3ForCausalLM, BitNetForCausalLM (bitnet) and BitnetForCausalLM (llama)",
                o.name, name ? name : "(absent)", type ? type : "(absent)");
}

static enum status take_int(struct json_object o, const char *key, int64_t max, int *value,
                            struct error *err)
{
    int64_t wide = *value;
    TRY(json_need_whole(o, key, 1, max, &wide, err));
    *value = (int)wide;
    return STATUS_OK;
}

static enum status read_heads(struct model_config *m, const struct hf_class *class,
                              struct json_object o, struct error *err)
{
    TRY(take_int(o, "num_attention_heads", MAX_HEADS, &m->n_head, err));
    m->n_head_kv = m->n_head;
    if (json_member(o, "num_key_value_heads"))
        TRY(take_int(o, "num_key_value_heads", MAX_HEADS, &m->n_head_kv, err));
    else if (strcmp(class->model_type, "llama") != 0 &&
             !json_object_get(o.json, "num_key_value_heads"))
        return fail(err, STATUS_FORMAT, "%s: 'num_key_value_heads' is absent", o.name);
    if (m->n_head % m->n_head_kv)
        return fail(err, STATUS_FORMAT, "%s: %d query heads cannot share %d key-value heads",
                    o.name, m->n_head, m->n_head_kv);
    if (class->needs_head_dim || json_member(o, "head_dim"))
        return take_int(o, "head_dim", MAX_HEADS, &m->head_dim, err);
    if (m->n_embd % m->n_head)
        return fail(err, STATUS_FORMAT, "%s: 'hidden_size' %d is no multiple of %d heads", o.name,
                    m->n_embd, m->n_head);
    m->head_dim = m->n_embd / m->n_head;
    if (m->head_dim > MAX_HEADS)
        return fail(err, STATUS_FORMAT,
                    "%s: 'hidden_size' %d in %d heads gives heads of %d elements, expected at most "
                    "%d",
                    o.name, m->n_embd, m->n_head, m->head_dim, MAX_HEADS);
    return STATUS_OK;
}

static enum status read_sizes(struct model_config *m, const struct hf_class *class,
                              struct json_object o, struct error *err)
{
    double epsilon = NAN;
    TRY(take_int(o, "num_hidden_layers", MAX_LAYERS, &m->n_layer, err));
    TRY(take_int(o, "hidden_size", MAX_WIDTH, &m->n_embd, err));
    TRY(take_int(o, "intermediate_size", MAX_WIDTH, &m->n_ff, err));
    TRY(take_int(o, "vocab_size", INT32_MAX, &m->n_vocab, err));
    TRY(take_int(o, "max_position_embeddings", MAX_CTX, &m->n_ctx_train, err));
    TRY(read_heads(m, class, o, err));
    if (m->head_dim % 2)
        return fail(err, STATUS_UNSUPPORTED, "%s: heads of %d elements cannot be turned in pairs",
                    o.name, m->head_dim);
    TRY(json_take_number(o, "rms_norm_eps", &epsilon, err));
    m->norm_epsilon = (float)epsilon;
    if (!(m->norm_epsilon >= 0 && m->norm_epsilon < 1))
        return fail(err, STATUS_FORMAT, "%s: 'rms_norm_eps' is absent or %g, expected 0 to 1",
                    o.name, epsilon);
    return STATUS_OK;
}

/* Attention over a window would give other logits behind it. */
static enum status refuse_windows(struct json_object o, struct error *err)
{
    bool is_used = json_member(o, "sliding_window") != NULL;
    const json_t *layers = NULL;
    TRY(json_take_list(o, "layer_types", &layers, err));
    TRY(json_take_bool(o, "use_sliding_window", &is_used, err));
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const char *kind = json_string_value(json_array_get(layers, i));
        if (!kind || strcmp(kind, "full_attention") != 0)
            return fail(err, STATUS_UNSUPPORTED,
                        "%s: 'layer_types' has %s for layer %zu; only full_attention is known",
                        o.name, kind ? kind : "no text", i);
    }
    if (is_used && json_member(o, "sliding_window"))
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: 'sliding_window' is in use; attention over a part of the text cannot be "
                    "stored for these architectures",
                    o.name);
    return STATUS_OK;
}

static enum status read_biases(struct hf_config *c, const struct hf_class *class,
                               struct json_object o, struct error *err)
{
    bool attention = false, feed_forward = false;
    TRY(json_take_bool(o, "attention_bias", &attention, err));
    TRY(json_take_bool(o, "mlp_bias", &feed_forward, err));
    if ((attention || feed_forward) && !class->takes_biases)
        return fail(err, STATUS_UNSUPPORTED, "%s: '%s' is true, but architecture %s has none",
                    o.name, attention ? "attention_bias" : "mlp_bias", class->arch);
    c->has_qkv_bias = class->has_qkv_bias || attention;
    c->has_output_bias = attention;
    c->has_ffn_bias = feed_forward;
    return STATUS_OK;
}

static enum status read_parts(struct hf_config *c, const struct hf_class *class,
                              struct json_object o, struct error *err)
{
    const char *expected = c->model.arch->activation == ACTIVATION_RELU2 ? "relu2" : "silu";
    const char *activation = expected;
    double rotary = 1;
    TRY(json_take_text(o, "hidden_act", &activation, err));
    if (strcmp(activation, expected) != 0)
        return fail(err, STATUS_UNSUPPORTED, "%s: 'hidden_act' is %s, but architecture %s has %s",
                    o.name, activation, class->arch, expected);
    TRY(json_take_number(o, "partial_rotary_factor", &rotary, err));
    if (rotary != 1)
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: 'partial_rotary_factor' is %g; only whole heads can be turned", o.name,
                    rotary);
    TRY(json_take_bool(o, "tie_word_embeddings", &c->is_tied, err));
    TRY(refuse_windows(o, err));
    return read_biases(c, class, o, err);
}

/* Which layers stay out of the quantisation: only the output matrix may. */
static enum status check_exceptions(struct json_object o, struct error *err)
{
    const json_t *list = NULL;
    TRY(json_take_list(o, "modules_to_not_convert", &list, err));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name || (strcmp(name, "lm_head") != 0 && strcmp(name, "model.embed_tokens") != 0))
            return fail(err, STATUS_UNSUPPORTED,
                        "%s: 'modules_to_not_convert' names %s; only lm_head is known", o.name,
                        name ? name : "no text");
    }
    return STATUS_OK;
}

static enum status read_quantization(struct hf_config *c, struct json_object o, struct error *err)
{
    const char *method = "(absent)", *class = "bitlinear", *mode = "offline";
    bool has_norm = false;
    TRY(json_take_text(o, "quant_method", &method, err));
    TRY(json_take_text(o, "linear_class", &class, err));
    TRY(json_take_text(o, "quantization_mode", &mode, err));
    TRY(json_take_bool(o, "use_rms_norm", &has_norm, err));
    if (strcmp(method, "bitnet") != 0)
        return fail(err, STATUS_UNSUPPORTED, "%s: 'quant_method' is %s; only bitnet is known",
                    o.name, method);
    if (has_norm)
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: 'use_rms_norm' adds a norm before each projection, which the "
                    "architectures known here do not have",
                    o.name);
    TRY(check_exceptions(o, err));
    bool is_auto = strcmp(class, "autobitlinear") == 0, is_online = strcmp(mode, "online") == 0;
    if ((!is_auto && strcmp(class, "bitlinear") != 0) ||
        (!is_online && strcmp(mode, "offline") != 0))
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: linear_class %s with quantization_mode %s is unknown; known are bitlinear "
                    "and autobitlinear, offline and online",
                    o.name, class, mode);
    c->weights = !is_auto ? HF_PACKED_DIVIDE : is_online ? HF_ROUNDED_AT_RUN : HF_PACKED_MULTIPLY;
    c->reason = !is_auto    ? json_member(o, "linear_class")
                                  ? "linear_class is bitlinear, which divides by weight_scale"
                                  : "linear_class is absent, so bitlinear, which divides by "
                                    "weight_scale"
                : is_online ? "quantization_mode is online: the model's own program rounds these "
                              "weights when it runs"
                            : "linear_class is autobitlinear, which multiplies by weight_scale";
    return STATUS_OK;
}

static enum status read_weights(struct hf_config *c, const struct hf_class *class,
                                struct json_object root, struct error *err)
{
    char name[400];
    const json_t *json = json_member(root, "quantization_config");
    snprintf(name, sizeof name, "%.300s: quantization_config", root.name);
    c->reason = "there is no quantization_config";
    if (class->is_rounded_at_run) {
        c->weights = HF_ROUNDED_AT_RUN;
        c->reason = "class BitnetForCausalLM rounds these weights when it runs";
    }
    if (!json)
        return STATUS_OK;
    if (!json_is_object(json) || class->is_rounded_at_run)
        return fail(err, STATUS_UNSUPPORTED, "%s is %s; not known for class %s", name,
                    json_kind(json), class->class_name);
    return read_quantization(c, (struct json_object){json, name}, err);
}

/* Refuses what would change the arithmetic, keeps the names of the rest. */
static enum status look_at_rest(struct hf_config *c, struct json_object o, struct error *err)
{
    const char *key;
    json_t *value;
    size_t n = 0;
    json_object_foreach((json_t *)(uintptr_t)o.json, key, value)
    {
        if (is_in(key, known, sizeof known / sizeof known[0]) || json_is_null(value))
            continue;
        if (is_in(key, foreign, sizeof foreign / sizeof foreign[0]) && !json_is_false(value))
            return fail(err, STATUS_UNSUPPORTED,
                        "%s: '%s' would change the arithmetic, and %s does not have it", o.name,
                        key, c->model.arch->name);
        int length = snprintf(c->unused + n, sizeof c->unused - n, "%s%s", n ? ", " : "", key);
        n = length < 0 || n + (size_t)length >= sizeof c->unused ? sizeof c->unused - 1
                                                                 : n + (size_t)length;
    }
    return STATUS_OK;
}

enum status hf_config_read(struct hf_config *c, const json_t *root, const char *path,
                           struct error *err)
{
    const struct hf_class *class = NULL;
    struct json_object o = {root, path};
    *c = (struct hf_config){0};
    TRY(find_class(&class, o, err));
    c->model.arch = arch_find(text_of(class->arch));
    TRY(read_sizes(&c->model, class, o, err));
    TRY(read_parts(c, class, o, err));
    TRY(read_weights(c, class, o, err));
    TRY(look_at_rest(c, o, err));
    return hf_rope_read(c, o, class->rope_base, err);
}

void hf_config_done(struct hf_config *c)
{
    memory_free((void *)(uintptr_t)c->model.rope.factors);
    *c = (struct hf_config){0};
}

/* Writes pairs under the prefix of the architecture; the first failure stays. */
struct pair_writer {
    const char *arch;
    struct gguf_writer *writer;
    enum status status;
    struct error *err;
};

static const char *key_of(const struct pair_writer *p, const char *name, char key[96])
{
    snprintf(key, 96, "%s.%s", p->arch, name);
    return key;
}

static void put_u32(struct pair_writer *p, const char *name, int value)
{
    char key[96];
    if (p->status == STATUS_OK)
        p->status = gguf_put_u32(p->writer, key_of(p, name, key), (uint32_t)value, p->err);
}

static void put_f32(struct pair_writer *p, const char *name, double value)
{
    char key[96];
    if (p->status == STATUS_OK)
        p->status = gguf_put_f32(p->writer, key_of(p, name, key), (float)value, p->err);
}

static void put_text(struct pair_writer *p, const char *name, const char *value)
{
    char key[96];
    if (p->status == STATUS_OK)
        p->status = gguf_put_string(p->writer, key_of(p, name, key), text_of(value), p->err);
}

static void put_rope(struct pair_writer *p, const struct rope_config *rope)
{
    put_u32(p, "rope.dimension_count", rope->n_rot);
    put_f32(p, "rope.freq_base", rope->freq_base);
    if (rope->freq_scale == 1 && !rope->is_yarn)
        return;
    put_text(p, "rope.scaling.type", rope->is_yarn ? "yarn" : "linear");
    put_f32(p, "rope.scaling.factor", 1 / rope->freq_scale);
    if (!rope->is_yarn)
        return;
    put_u32(p, "rope.scaling.original_context_length", (int)rope->original_ctx);
    if (rope->attn_factor != 1)
        put_f32(p, "rope.scaling.attn_factor", rope->attn_factor);
}

enum status hf_config_put(const struct hf_config *c, const char *name, struct gguf_writer *writer,
                          struct error *err)
{
    const struct model_config *m = &c->model;
    struct pair_writer p = {m->arch->name, writer, STATUS_OK, err};
    TRY(gguf_put_string(writer, "general.architecture", text_of(m->arch->name), err));
    TRY(gguf_put_string(writer, "general.name", text_of(name), err));
    TRY(gguf_put_u32(writer, "general.quantization_version", 2, err));
    put_u32(&p, "block_count", m->n_layer);
    put_u32(&p, "context_length", m->n_ctx_train);
    put_u32(&p, "embedding_length", m->n_embd);
    put_u32(&p, "feed_forward_length", m->n_ff);
    put_u32(&p, "attention.head_count", m->n_head);
    put_u32(&p, "attention.head_count_kv", m->n_head_kv);
    put_u32(&p, "attention.key_length", m->head_dim);
    put_u32(&p, "attention.value_length", m->head_dim);
    put_f32(&p, "attention.layer_norm_rms_epsilon", m->norm_epsilon);
    put_u32(&p, "vocab_size", m->n_vocab);
    put_rope(&p, &m->rope);
    return p.status;
}
