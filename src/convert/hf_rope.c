#include "convert/hf_rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

/* As model_config.c bounds factors. What is checked is the float that will be stored. */
#define MAX_FACTOR 1e6

static enum status fail_value(struct json_object o, const char *key, double found,
                              const char *expected, struct error *err)
{
    return fail(err, STATUS_UNSUPPORTED, "%s: '%s' is %g, expected %s", o.name, key, found,
                expected);
}

static enum status need_number(struct json_object o, const char *key, double least, double most,
                               double *value, struct error *err)
{
    *value = NAN;
    TRY(json_take_number(o, key, value, err));
    if (isnan(*value))
        return fail(err, STATUS_FORMAT, "%s: '%s' is absent; the scaling needs it", o.name, key);
    if (!(*value >= least && (float)*value < most))
        return fail(err, STATUS_FORMAT, "%s: '%s' is %g, expected %g to less than %g", o.name, key,
                    *value, least, most);
    return STATUS_OK;
}

/* A member whose only known meaning is its default. */
static enum status only_default(struct json_object o, const char *key, double expected,
                                struct error *err)
{
    double value = expected;
    char text[32];
    TRY(json_take_number(o, key, &value, err));
    snprintf(text, sizeof text, "%g", expected);
    return value == expected ? STATUS_OK : fail_value(o, key, value, text, err);
}

static double yarn_magnitude(double factor, double scale)
{
    return factor <= 1 ? 1 : 0.1 * scale * log(factor) + 1;
}

/* The factor of queries and keys together; without one the extension's own. */
static enum status read_magnitude(struct json_object o, double factor, double *magnitude,
                                  struct error *err)
{
    double attention = NAN, scale = 0, scale_all = 0;
    TRY(json_take_number(o, "attention_factor", &attention, err));
    TRY(json_take_number(o, "mscale", &scale, err));
    TRY(json_take_number(o, "mscale_all_dim", &scale_all, err));
    *magnitude = yarn_magnitude(factor, 1);
    if (!isnan(attention))
        *magnitude = attention;
    else if (scale != 0 && scale_all != 0)
        *magnitude = yarn_magnitude(factor, scale) / yarn_magnitude(factor, scale_all);
    float stored = (float)(*magnitude / yarn_magnitude(factor, 1));
    if (stored > 0 && stored < MAX_FACTOR)
        return STATUS_OK;
    return fail(err, STATUS_FORMAT, "%s: %s is %g, expected above 0 and below %g", o.name,
                isnan(attention) ? "the magnitude by 'mscale' and 'mscale_all_dim'"
                                 : "'attention_factor'",
                *magnitude, MAX_FACTOR);
}

static enum status read_yarn(struct hf_config *c, struct json_object o, struct error *err)
{
    struct rope_config *rope = &c->model.rope;
    double factor, magnitude;
    int64_t original = c->model.n_ctx_train;
    bool truncate = true;
    TRY(need_number(o, "factor", 1, MAX_FACTOR, &factor, err));
    TRY(read_magnitude(o, factor, &magnitude, err));
    TRY(json_take_whole(o, "original_max_position_embeddings", 1, (1 << 30) - 1, &original, err));
    TRY(only_default(o, "beta_fast", rope->beta_fast, err));
    TRY(only_default(o, "beta_slow", rope->beta_slow, err));
    TRY(json_take_bool(o, "truncate", &truncate, err));
    if (!truncate)
        return fail_value(o, "truncate", 0, "true", err);
    rope->is_yarn = true;
    rope->original_ctx = (double)original;
    rope->freq_scale = 1 / factor;
    /* GGUF's factor multiplies the magnitude that the extension itself gives */
    rope->attn_factor = magnitude / yarn_magnitude(factor, 1);
    return STATUS_OK;
}

/* Divisors of the angles: 1 for fast pairs, `factor` for slow ones, between them a blend.
 * source  models.llama3 of transformers: wavelengths against the old context */
static enum status read_llama3(struct hf_config *c, struct json_object o, struct error *err)
{
    double factor, low, high, old;
    struct rope_config *rope = &c->model.rope;
    TRY(need_number(o, "factor", 1, MAX_FACTOR, &factor, err));
    TRY(need_number(o, "low_freq_factor", 1e-6, 1e12, &low, err));
    TRY(need_number(o, "high_freq_factor", 1e-6, 1e12, &high, err));
    TRY(need_number(o, "original_max_position_embeddings", 1, 1e12, &old, err));
    if (high <= low)
        return fail_value(o, "high_freq_factor", high, "more than low_freq_factor", err);
    if (strcmp(c->model.arch->name, "llama") != 0)
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: kind llama3 needs divisors of the angles, which only architecture llama "
                    "stores, not %s",
                    o.name, c->model.arch->name);
    float *factors = memory_alloc((size_t)rope->n_rot / 2, sizeof *factors);
    if (!factors)
        return fail_memory(err, o.name, (size_t)rope->n_rot * 2);
    for (int j = 0; j < rope->n_rot / 2; j++) {
        double length = 2 * M_PI * pow(rope->freq_base, 2.0 * j / rope->n_rot);
        double smooth = (old / length - low) / (high - low);
        double divisor = length < old / high  ? 1
                         : length > old / low ? factor
                                              : 1 / ((1 - smooth) / factor + smooth);
        factors[j] = (float)divisor;
    }
    rope->factors = factors;
    return STATUS_OK;
}

static enum status read_linear(struct hf_config *c, struct json_object o, struct error *err)
{
    double factor;
    TRY(need_number(o, "factor", 1, MAX_FACTOR, &factor, err));
    c->model.rope.freq_scale = 1 / factor;
    return STATUS_OK;
}

/* Without a kind the other members have no meaning; a factor shows that one was meant. */
static enum status read_default(struct hf_config *c, struct json_object o, struct error *err)
{
    (void)c;
    return only_default(o, "factor", 1, err);
}

static const struct {
    const char *name;
    enum status (*read)(struct hf_config *c, struct json_object o, struct error *err);
} kinds[] = {{"default", read_default},
             {"linear", read_linear},
             {"yarn", read_yarn},
             {"llama3", read_llama3}};

static const char *const known[] = {
    "type",
    "rope_type",
    "rope_theta",
    "partial_rotary_factor",
    "factor",
    "attention_factor",
    "mscale",
    "mscale_all_dim",
    "original_max_position_embeddings",
    "beta_fast",
    "beta_slow",
    "truncate",
    "low_freq_factor",
    "high_freq_factor",
};

/* Angles of their own for some layers stand as objects in the object. */
static enum status refuse_unknown(struct json_object o, struct error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)o.json, key, value)
    {
        size_t i = 0;
        while (i < sizeof known / sizeof known[0] && strcmp(key, known[i]) != 0)
            i++;
        if (i == sizeof known / sizeof known[0] && !json_is_null(value))
            return fail(err, STATUS_UNSUPPORTED,
                        "%s: '%s' (%s) is unknown; only one rotation for all layers, without "
                        "further members, can be stored",
                        o.name, key, json_kind(value));
    }
    return STATUS_OK;
}

static enum status read_scaling(struct hf_config *c, struct json_object o, struct error *err)
{
    const char *old = NULL, *kind = NULL;
    TRY(json_take_text(o, "type", &old, err));
    TRY(json_take_text(o, "rope_type", &kind, err));
    if (old && kind && strcmp(old, kind) != 0)
        return fail(err, STATUS_FORMAT, "%s: 'type' is %s, but 'rope_type' is %s", o.name, old,
                    kind);
    kind = kind ? kind : old ? old : "default";
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, kind) == 0) {
            TRY(refuse_unknown(o, err));
            TRY(only_default(o, "partial_rotary_factor", 1, err));
            return kinds[i].read(c, o, err);
        }
    return fail(err, STATUS_UNSUPPORTED,
                "%s: kind '%s' is unknown; known are default, linear, yarn, llama3", o.name, kind);
}

/* The object of either spelling. A folder with two that differ says two things. */
static enum status choose_object(struct json_object root, const char **key, struct error *err)
{
    const json_t *new = json_member(root, "rope_parameters");
    const json_t *old = json_member(root, "rope_scaling");
    *key = new ? "rope_parameters" : "rope_scaling";
    if (!new || !old || json_equal(new, old))
        return STATUS_OK;
    return fail(err, STATUS_UNSUPPORTED,
                "%s: 'rope_parameters' and 'rope_scaling' are both there and differ; keep the one "
                "that the model was trained with",
                root.name);
}

enum status hf_rope_read(struct hf_config *c, struct json_object root, double default_base,
                         struct error *err)
{
    char name[400];
    const char *key;
    TRY(choose_object(root, &key, err));
    struct json_object o = {json_member(root, key), name};
    struct rope_config *rope = &c->model.rope;
    snprintf(name, sizeof name, "%.300s: %s", root.name, key);
    *rope = (struct rope_config){.pairs = c->model.arch->rope_pairs,
                                 .n_rot = c->model.head_dim,
                                 .freq_base = default_base,
                                 .freq_scale = 1,
                                 .attn_factor = 1,
                                 .original_ctx = c->model.n_ctx_train,
                                 .beta_fast = 32,
                                 .beta_slow = 1};
    TRY(json_take_number(root, "rope_theta", &rope->freq_base, err));
    if (o.json && !json_is_object(o.json))
        return fail(err, STATUS_FORMAT, "%s is %s, expected an object", name, json_kind(o.json));
    TRY(json_take_number(o, "rope_theta", &rope->freq_base, err));
    float stored = (float)rope->freq_base;
    if (!(stored > 1 && stored < 1e30))
        return fail_value(root, "rope_theta", rope->freq_base, "above 1", err);
    return o.json ? read_scaling(c, o, err) : STATUS_OK;
}
