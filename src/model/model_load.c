#include "model/model_load.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/arch.h"
#include "tensor/formats.h"

/* State of binding one file. */
struct binding {
    struct model *model;
    bool *is_used; /* per tensor of the file */
    struct error *err;
};

struct tensor model_tensor(const struct gguf_tensor *t)
{
    const struct tensor_span *span = &t->span;
    return (struct tensor){.format = (enum format_id)span->format,
                           .n_cols = (int64_t)span->ne[0],
                           .n_rows = (int64_t)(span->ne[1] * span->ne[2] * span->ne[3]),
                           .data = t->data,
                           .bytes = span->bytes};
}

/* Finds a tensor and marks it as used; NULL when absent. */
static const struct gguf_tensor *take(struct binding *b, const char *name)
{
    const struct gguf_tensor *t = gguf_find_tensor(&b->model->file, name);
    if (t)
        b->is_used[t - b->model->file.tensors] = true;
    return t;
}

static enum status check_shape(struct binding *b, const struct gguf_tensor *t, int64_t rows,
                               int64_t cols)
{
    const uint64_t *ne = t->span.ne;
    if (ne[0] == (uint64_t)cols && ne[1] == (uint64_t)rows && ne[2] == 1 && ne[3] == 1)
        return STATUS_OK;
    return fail(b->err, STATUS_FORMAT,
                "%s: tensor '%.*s' is %llu x %llu x %llu x %llu, expected %lld x %lld by the "
                "metadata; the file is damaged or was converted wrongly",
                b->model->path, TEXT(t->span.name), (unsigned long long)ne[0],
                (unsigned long long)ne[1], (unsigned long long)ne[2], (unsigned long long)ne[3],
                (long long)cols, (long long)rows);
}

/* Copies a vector as floats into the model's arena. */
static enum status bind_vector(struct binding *b, const struct gguf_tensor *t, int64_t n,
                               const float **vector)
{
    TRY(check_shape(b, t, 1, n));
    float *values = arena_alloc(&b->model->arena, (size_t)n, sizeof *values);
    if (!values)
        return fail_memory(b->err, b->model->path, (size_t)n * sizeof *values);
    struct tensor tensor = model_tensor(t);
    tensor_decode(&tensor, 0, 1, values);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(values[i]))
            return fail(b->err, STATUS_FORMAT,
                        "%s: tensor '%.*s': element %lld is %f; the file is damaged",
                        b->model->path, TEXT(t->span.name), (long long)i, values[i]);
    *vector = values;
    return STATUS_OK;
}

/* Types whose values need more than decoding before they can be multiplied. */
static enum status check_format(struct binding *b, const struct gguf_tensor *t)
{
    enum format_id format = (enum format_id)t->span.format;
    if (format == FORMAT_PQ2_0 || format == FORMAT_PTQ1_0)
        return fail(b->err, STATUS_UNSUPPORTED,
                    "%s: tensor '%.*s': type %u (%s) needs activation rotation, and key "
                    "'prism.hadamard.version' is absent; without it the model would write "
                    "nonsense. Get the file of the model that carries prism.hadamard keys",
                    b->model->path, TEXT(t->span.name), t->span.type_id, format_of(format)->name);
    if (format == FORMAT_Q8_K)
        return fail(b->err, STATUS_UNSUPPORTED,
                    "%s: tensor '%.*s': type Q8_K is for activations, not for weights; convert the "
                    "model again",
                    b->model->path, TEXT(t->span.name));
    return STATUS_OK;
}

/* The scale and bias that may stand beside a matrix "base.weight". */
static enum status bind_extras(struct binding *b, const char *base, bool may_have_bias,
                               struct weight *w)
{
    char name[160];
    const float *scale = NULL;
    snprintf(name, sizeof name, "%s.scale", base);
    const struct gguf_tensor *t = take(b, name);
    if (t)
        TRY(bind_vector(b, t, 1, &scale));
    w->scale = scale ? *scale : 1;
    if (!may_have_bias)
        return STATUS_OK;
    snprintf(name, sizeof name, "%s.bias", base);
    t = take(b, name);
    return t ? bind_vector(b, t, w->tensor.n_rows, &w->bias) : STATUS_OK;
}

static enum status bind_tensor(struct binding *b, const char *prefix,
                               const struct tensor_rule *rule, void *weights)
{
    const struct model_config *c = &b->model->config;
    char base[128], name[160];
    snprintf(base, sizeof base, "%s%s", prefix, rule->name);
    snprintf(name, sizeof name, "%s.weight", base);
    const struct gguf_tensor *t = take(b, name);
    if (rule->presence == LEFTOVER)
        take(b, base); /* some of these have no ".weight" */
    if (rule->presence == LEFTOVER || (!t && rule->presence == OPTIONAL))
        return STATUS_OK;
    if (!t)
        return fail(b->err, STATUS_FORMAT,
                    "%s: tensor '%s', required by architecture %s, is absent; the file is "
                    "incomplete, convert or download it again",
                    b->model->path, name, c->arch->name);
    TRY(check_format(b, t));
    int64_t rows = arch_dim(c, rule->rows), cols = arch_dim(c, rule->cols);
    if (rule->rows == DIM_ONE)
        return bind_vector(b, t, cols, (const float **)((char *)weights + rule->offset));
    TRY(check_shape(b, t, rows, cols));
    struct weight *w = (struct weight *)((char *)weights + rule->offset);
    w->tensor = model_tensor(t);
    return bind_extras(b, base, rule->may_have_bias, w);
}

/* Every tensor must have been taken: what is left would silently change nothing. */
static enum status refuse_unused(struct binding *b)
{
    const struct gguf_file *file = &b->model->file;
    for (size_t i = 0; i < file->n_tensors; i++)
        if (!b->is_used[i])
            return fail(b->err, STATUS_UNSUPPORTED,
                        "%s: tensor '%.*s' is not part of architecture %s; running without it "
                        "would give wrong text; a newer version of Trine may know it",
                        b->model->path, TEXT(file->tensors[i].span.name),
                        b->model->config.arch->name);
    return STATUS_OK;
}

/* The embedding's rows are the vocabulary; a token list, if present, may be shorter, not longer. */
static enum status read_n_vocab(struct model *model, struct error *err)
{
    const struct gguf_tensor *t = gguf_find_tensor(&model->file, "token_embd.weight");
    if (!t)
        return fail(err, STATUS_FORMAT,
                    "%s: tensor 'token_embd.weight', required by architecture %s, is absent; the "
                    "file holds a vocabulary or a part of a model only",
                    model->path, model->config.arch->name);
    const struct gguf_pair *tokens = gguf_find(&model->file, "tokenizer.ggml.tokens");
    uint64_t rows = t->span.ne[1];
    if (rows > INT32_MAX || (tokens && tokens->count > rows))
        return fail(err, STATUS_FORMAT,
                    "%s: tensor 'token_embd.weight' has %llu rows, but the vocabulary has %llu "
                    "tokens; the file is damaged or was converted wrongly",
                    model->path, (unsigned long long)rows,
                    (unsigned long long)(tokens ? tokens->count : 0));
    model->config.n_vocab = (int)rows;
    return STATUS_OK;
}

static enum status bind_all(struct binding *b)
{
    struct model *model = b->model;
    const struct arch *arch = model->config.arch;
    for (const struct tensor_rule *r = arch->model_rules; r->name; r++)
        TRY(bind_tensor(b, "", r, &model->weights));
    for (int i = 0; i < model->config.n_layer; i++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "blk.%d.", i);
        for (const struct tensor_rule *r = arch->layer_rules; r->name; r++)
            TRY(bind_tensor(b, prefix, r, &model->weights.layers[i]));
    }
    if (!model->weights.output.tensor.data)
        model->weights.output = model->weights.token_embd;
    model->config.rope.factors = model->weights.rope_freqs;
    for (int j = 0; model->weights.rope_freqs && j < model->config.rope.n_rot / 2; j++)
        if (!(model->weights.rope_freqs[j] > 0))
            return fail(b->err, STATUS_FORMAT,
                        "%s: tensor 'rope_freqs.weight': element %d is %g, expected above 0; "
                        "the file is damaged",
                        model->path, j, model->weights.rope_freqs[j]);
    return refuse_unused(b);
}

static enum status bind_model(struct model *model, struct error *err)
{
    TRY(model_config_read(&model->config, &model->file, err));
    TRY(read_n_vocab(model, err));
    /* Layers are stored one by one, so a count beyond the tensors is wrong before it sizes
     * anything. */
    if ((size_t)model->config.n_layer > model->file.n_tensors)
        return fail(err, STATUS_FORMAT,
                    "%s: key '%s.block_count' is %d, but there are %zu tensors; the file is "
                    "damaged, download it again",
                    model->path, model->config.arch->name, model->config.n_layer,
                    model->file.n_tensors);
    struct binding b = {.model = model, .err = err};
    b.is_used = arena_alloc(&model->arena, model->file.n_tensors, sizeof *b.is_used);
    model->weights.layers =
        arena_alloc(&model->arena, (size_t)model->config.n_layer, sizeof *model->weights.layers);
    if (!b.is_used || !model->weights.layers)
        return fail_memory(err, model->path, model->file.n_tensors);
    return bind_all(&b);
}

enum status model_bind(struct model *model, const char *path, struct gguf_file *file,
                       struct error *err)
{
    *model = (struct model){.path = path, .file = *file};
    *file = (struct gguf_file){0};
    enum status status = bind_model(model, err);
    if (status != STATUS_OK)
        model_close(model);
    return status;
}

enum status model_open(struct model *model, const char *path, struct error *err)
{
    return model_open_by(model, path, format_resolve, err);
}

enum status model_open_by(struct model *model, const char *path, span_rule *rule, struct error *err)
{
    *model = (struct model){0};
    struct gguf_file file;
    TRY(gguf_open(&file, path, rule, err));
    return model_bind(model, path, &file, err);
}

enum status model_check_scales(const struct model *model, struct error *err)
{
    for (size_t i = 0; i < model->file.n_tensors; i++) {
        const struct gguf_tensor *t = &model->file.tensors[i];
        struct tensor tensor = model_tensor(t);
        char what[400];
        snprintf(what, sizeof what, "%s: tensor '%.*s'", model->path, TEXT(t->span.name));
        TRY(format_check_scales(&tensor, what, err));
    }
    return STATUS_OK;
}

void model_close(struct model *model)
{
    gguf_close(&model->file);
    arena_done(&model->arena);
    *model = (struct model){0};
}
