#include "model/model_config.h"

#include <stdio.h>
#include <string.h>

#include "gguf/gguf_metadata.h"
#include "model/arch.h"

/* Sizes far above any published model; they keep products of two within 64 bits. */
#define MAX_LAYERS 4096
#define MAX_WIDTH  (1 << 24)
#define MAX_HEADS  65536
#define MAX_CTX    (1 << 30)

struct key {
    char name[192];
};

/* "llama.block_count" from "block_count". */
static struct key key_of(const struct model_config *config, const char *name)
{
    struct key key;
    snprintf(key.name, sizeof key.name, "%s.%s", config->arch->name, name);
    return key;
}

static const char *file_name(const struct gguf_file *file)
{
    return file->shards[0].path;
}

static enum status required(const struct model_config *config, const struct gguf_file *file,
                            const char *name, int64_t max, int *value, struct error *err)
{
    int64_t wide;
    TRY(gguf_integer(file, key_of(config, name).name, 1, max, &wide, err));
    *value = (int)wide;
    return STATUS_OK;
}

static enum status optional(const struct model_config *config, const struct gguf_file *file,
                            const char *name, int64_t max, int *value, struct error *err)
{
    int64_t wide = *value;
    TRY(gguf_optional_integer(file, key_of(config, name).name, 1, max, &wide, err));
    *value = (int)wide;
    return STATUS_OK;
}

/* A value per layer that must be the same in all: *value. */
static enum status uniform(const struct model_config *config, const struct gguf_file *file,
                           const char *name, bool is_optional, int64_t max, int *value,
                           struct error *err)
{
    int32_t values[MAX_LAYERS];
    struct key key = key_of(config, name);
    for (int i = 0; i < config->n_layer; i++)
        values[i] = *value;
    TRY(gguf_integers_per_layer(file, key.name, is_optional, 1, max, values, config->n_layer, err));
    for (int i = 1; i < config->n_layer; i++)
        if (values[i] != values[0])
            return fail(err, STATUS_UNSUPPORTED,
                        "%s: key '%s': layer 0 has %d and layer %d has %d; only models whose "
                        "layers are alike can be run; use another program for this one",
                        file_name(file), key.name, values[0], i, values[i]);
    *value = values[0];
    return STATUS_OK;
}

static enum status read_heads(struct model_config *c, const struct gguf_file *file,
                              struct error *err)
{
    TRY(uniform(c, file, "attention.head_count", false, MAX_HEADS, &c->n_head, err));
    c->n_head_kv = c->n_head;
    TRY(uniform(c, file, "attention.head_count_kv", true, MAX_HEADS, &c->n_head_kv, err));
    if (c->n_head % c->n_head_kv)
        return fail(err, STATUS_FORMAT,
                    "%s: %d query heads cannot share %d key-value heads: expected a divisor of "
                    "the first in '%s.attention.head_count_kv'; convert the model again",
                    file_name(file), c->n_head, c->n_head_kv, c->arch->name);
    c->head_dim = c->n_embd / c->n_head;
    bool is_given = gguf_find(file, key_of(c, "attention.key_length").name);
    TRY(optional(c, file, "attention.key_length", MAX_HEADS, &c->head_dim, err));
    int value_length = c->head_dim;
    TRY(optional(c, file, "attention.value_length", MAX_HEADS, &value_length, err));
    if (value_length != c->head_dim)
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: heads of %d key and %d value elements; only equal lengths can be run; "
                    "use another program for this model",
                    file_name(file), c->head_dim, value_length);
    if (!is_given && c->n_embd % c->n_head)
        return fail(err, STATUS_FORMAT,
                    "%s: width %d is no multiple of %d heads, and key '%s.attention.key_length' "
                    "is absent; convert the model again",
                    file_name(file), c->n_embd, c->n_head, c->arch->name);
    return STATUS_OK;
}

/* The factor of the context extension: 0 or absent means none, unless the old key has it. */
static enum status read_rope_factor(struct model_config *c, const struct gguf_file *file,
                                    struct error *err)
{
    double factor = 0;
    TRY(gguf_optional_number(file, key_of(c, "rope.scaling.factor").name, &factor, err));
    if (factor == 0)
        TRY(gguf_optional_number(file, key_of(c, "rope.scale_linear").name, &factor, err));
    if (factor == 0)
        factor = 1;
    if (!(factor > 0 && factor < 1e6))
        return fail(err, STATUS_FORMAT,
                    "%s: key '%s.rope.scaling.factor' is %g, expected above 0; "
                    "convert the model again",
                    file_name(file), c->arch->name, factor);
    c->rope.freq_scale = 1 / factor;
    return STATUS_OK;
}

static enum status read_rope(struct model_config *c, const struct gguf_file *file,
                             struct error *err)
{
    struct rope_config *rope = &c->rope;
    *rope = (struct rope_config){.pairs = c->arch->rope_pairs,
                                 .n_rot = c->head_dim,
                                 .freq_base = 10000,
                                 .freq_scale = 1,
                                 .attn_factor = 1,
                                 .original_ctx = c->n_ctx_train,
                                 .beta_fast = 32,
                                 .beta_slow = 1};
    TRY(optional(c, file, "rope.dimension_count", MAX_HEADS, &rope->n_rot, err));
    if (rope->n_rot != c->head_dim || rope->n_rot % 2)
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: key '%s.rope.dimension_count' is %d, expected the even head size %d; "
                    "models that turn a part of a head only cannot be run",
                    file_name(file), c->arch->name, rope->n_rot, c->head_dim);
    TRY(gguf_optional_number(file, key_of(c, "rope.freq_base").name, &rope->freq_base, err));
    if (!(rope->freq_base > 1 && rope->freq_base < 1e30))
        return fail(err, STATUS_FORMAT,
                    "%s: key '%s.rope.freq_base' is %g, expected above 1; "
                    "convert the model again",
                    file_name(file), c->arch->name, rope->freq_base);

    struct text type = text_of("linear");
    TRY(gguf_optional_string(file, key_of(c, "rope.scaling.type").name, &type, err));
    if (!text_is(type, "none"))
        TRY(read_rope_factor(c, file, err));
    if (text_is(type, "yarn"))
        rope->is_yarn = true;
    else if (!text_is(type, "none") && !text_is(type, "linear"))
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: key '%s.rope.scaling.type' is '%.*s'; known: none, linear, yarn; "
                    "use another program for this model",
                    file_name(file), c->arch->name, TEXT(type));
    int original = c->n_ctx_train;
    TRY(optional(c, file, "rope.scaling.original_context_length", MAX_CTX, &original, err));
    rope->original_ctx = original;
    TRY(gguf_optional_number(file, key_of(c, "rope.scaling.attn_factor").name, &rope->attn_factor,
                             err));
    if (!(rope->attn_factor > 0 && rope->attn_factor < 1e6))
        return fail(err, STATUS_FORMAT,
                    "%s: key '%s.rope.scaling.attn_factor' is %g, expected above 0; "
                    "convert the model again",
                    file_name(file), c->arch->name, rope->attn_factor);
    return STATUS_OK;
}

/* As `hidden_act` spells them. */
static const char *const activation_names[] = {
    [ACTIVATION_SILU] = "silu",
    [ACTIVATION_RELU2] = "relu2",
};

/* Parts that would change the arithmetic and are not implemented. */
static enum status refuse_unknown_parts(const struct model_config *c, const struct gguf_file *file,
                                        struct error *err)
{
    int64_t n_expert = 0;
    TRY(gguf_optional_integer(file, key_of(c, "expert_count").name, 0, MAX_WIDTH, &n_expert, err));
    if (n_expert > 0)
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: a mixture of %lld experts ('%s.expert_count'); this version runs "
                    "dense models only; use another program for this one",
                    file_name(file), (long long)n_expert, c->arch->name);
    struct text activation = text_of(activation_names[c->arch->activation]);
    TRY(gguf_optional_string(file, key_of(c, "hidden_act").name, &activation, err));
    if (!text_is(activation, activation_names[c->arch->activation]))
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: key '%s.hidden_act' is '%.*s', expected %s; with another activation the "
                    "model would write nonsense; use the program it was made for",
                    file_name(file), c->arch->name, TEXT(activation),
                    activation_names[c->arch->activation]);
    for (size_t i = 0; i < file->n_pairs; i++)
        if (text_starts(file->pairs[i].key, "prism.hadamard."))
            return fail(err, STATUS_UNSUPPORTED,
                        "%s: key '%.*s': the weights are stored rotated, and this version cannot "
                        "rotate the activations to match; use the model's own program",
                        file_name(file), TEXT(file->pairs[i].key));
    return STATUS_OK;
}

enum status model_config_read(struct model_config *c, const struct gguf_file *file,
                              struct error *err)
{
    *c = (struct model_config){0};
    struct text name;
    TRY(gguf_string(file, "general.architecture", &name, err));
    c->arch = arch_find(name);
    if (!c->arch)
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: key 'general.architecture' is '%.*s'; this version runs: %s; a newer "
                    "one may run more",
                    file_name(file), TEXT(name), arch_names());
    TRY(gguf_optional_string(file, "general.name", &c->name, err));
    TRY(required(c, file, "block_count", MAX_LAYERS, &c->n_layer, err));
    TRY(required(c, file, "context_length", MAX_CTX, &c->n_ctx_train, err));
    TRY(required(c, file, "embedding_length", MAX_WIDTH, &c->n_embd, err));
    TRY(uniform(c, file, "feed_forward_length", false, MAX_WIDTH, &c->n_ff, err));
    TRY(read_heads(c, file, err));
    double epsilon;
    TRY(gguf_number(file, key_of(c, "attention.layer_norm_rms_epsilon").name, &epsilon, err));
    if (!(epsilon >= 0 && epsilon < 1))
        return fail(err, STATUS_FORMAT,
                    "%s: key '%s.attention.layer_norm_rms_epsilon' is %g, expected 0 to 1; "
                    "convert the model again",
                    file_name(file), c->arch->name, epsilon);
    c->norm_epsilon = (float)epsilon;
    TRY(read_rope(c, file, err));
    return refuse_unknown_parts(c, file, err);
}
