/* `trine synth`: a GGUF file of random weights in the exact shape of a published model. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/cli.h"
#include "cli/status_line.h"
#include "cli/synth_header.h"
#include "cli/synth_vocab.h"
#include "model/arch.h"
#include "model/model_shapes.h"
#include "tensor/format_fill.h"

struct synth_options {
    const char *shape, *arch, *type, *embedding_type, *output_type, *out;
    int64_t seed, n_layers;
    bool is_small_vocab, has_biases;
};

#define SYNTH(field) offsetof(struct synth_options, field)
static const struct option options[] = {
    {"--shape", "NAME", NULL,
     "tiny, falcon3-1b, -3b, -7b, -10b, llama3-8b, bitnet-large, -xl, -3b, -2b4t, bonsai-1.7b, "
     "-4b, "
     "-8b, trilm-99m, -190m, -390m, -560m, -830m, -1.1b, -1.5b, -2.4b, -3.9b",
     OPT_TEXT, SYNTH(shape), 0, 0},
    {"--layers", "N", "0", "that many layers only; 0: the shape's", OPT_INT, SYNTH(n_layers), 0,
     4096},
    {"--small-vocab", NULL, NULL, "288 tokens, letters and bytes, instead of the shape's", OPT_FLAG,
     SYNTH(is_small_vocab), 0, 0},
    {"--arch", "NAME", NULL,
     "another architecture than the shape's: llama, bitnet, bitnet-b1.58, bitnet-25, qwen2, qwen3",
     OPT_TEXT, SYNTH(arch), 0, 0},
    {"--biases", NULL, NULL, "biases wherever the architecture may have them (qwen2: always)",
     OPT_FLAG, SYNTH(has_biases), 0, 0},
    {"--type", "T", NULL, "type of the projections: TQ2_0, IQ2_BN, I2_S, Q4_0, Q4_K, F16, ...",
     OPT_TEXT, SYNTH(type), 0, 0},
    {"--embedding-type", "T", NULL,
     "type of the token embedding; if not given Q4_K beside a smaller type (bonsai: as --type; "
     "bitnet: F16)",
     OPT_TEXT, SYNTH(embedding_type), 0, 0},
    {"--output-type", "T", NULL,
     "type of the output matrix; if not given Q6_K beside a smaller type (bonsai: as --type)",
     OPT_TEXT, SYNTH(output_type), 0, 0},
    {"-o, --output", "FILE", NULL, "the file to write", OPT_TEXT, SYNTH(out), 0, 0},
    {"-s, --seed", "N", "1", "of the weights", OPT_INT, SYNTH(seed), 0, 9007199254740992.0},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0}};

/* Bytes filled and written at once. */
#define CHUNK_BYTES ((uint64_t)1 << 20)

/* One tensor to write: a matrix of random numbers, or a vector when rows == 1: gains or biases. */
struct synth_tensor {
    char name[64];
    enum format_id format;
    int rows, cols;
    float deviation;
    float mean; /* of a vector */
};

struct synth {
    const struct synth_options *options;
    const struct model_shape *shape; /* cut */
    struct model_shape cut;          /* the shape, smaller where the user wants */
    const struct arch *arch;
    struct model_config config; /* sizes only */
    bool has_biases, has_sub_norms, is_tied;
    enum format_id type, embedding_type, output_type;
    struct gguf_writer writer;
    struct synth_tensor *tensors; /* owned */
    size_t n_tensors;
    struct random random;
};

static enum status find_type(const char *option, const char *name, enum format_id *format,
                             struct error *err)
{
    *format = format_by_name(name);
    static const enum format_id excluded[] = {
        FORMAT_Q8_K,                        /* for activations */
        FORMAT_PQ2_0, FORMAT_PTQ1_0,        /* for rotated weights */
        FORMAT_I2_S_4ROW, FORMAT_I2_S_ARM}; /* would be read as the published byte order */
    for (size_t i = 0; i < sizeof excluded / sizeof excluded[0]; i++)
        if (*format == excluded[i])
            *format = N_FORMATS;
    if (*format == N_FORMATS)
        return fail(err, STATUS_USAGE, "%s: '%s' is not a weight type that can be written", option,
                    name);
    return STATUS_OK;
}

/* The type of a table beside projections of a smaller type, unless the user chose one. */
static enum format_id table_type(const struct synth *s, enum format_id usual)
{
    double small = format_bits_per_weight(s->type, 256, 256);
    if (s->shape->has_ternary_tables)
        return s->type;
    if (s->shape->has_f16_tables)
        return FORMAT_F16;
    return small < format_bits_per_weight(usual, 256, 256) ? usual : s->type;
}

/* Fewer layers or tokens than the shape has. */
static enum status cut_shape(struct synth *s, struct error *err)
{
    const struct synth_options *o = s->options;
    s->cut = *s->shape;
    s->shape = &s->cut;
    if (o->n_layers > s->cut.n_layer)
        return fail(err, STATUS_USAGE, "--layers %lld: %s has %d", (long long)o->n_layers,
                    s->cut.name, s->cut.n_layer);
    if (o->n_layers)
        s->cut.n_layer = (int)o->n_layers;
    if (o->is_small_vocab) {
        s->cut.n_vocab = 288;
        s->cut.pre_tokenizer = NULL;
        s->cut.n_control = 0;
        s->cut.bos = 1;
        s->cut.eos = 2;
    }
    return STATUS_OK;
}

static enum status read_options(struct synth *s, struct error *err)
{
    const struct synth_options *o = s->options;
    if (!o->shape || !o->type || !o->out)
        return fail(err, STATUS_USAGE, "give --shape, --type and -o");
    s->shape = model_shape_find(o->shape);
    if (!s->shape)
        return fail(err, STATUS_USAGE, "unknown shape '%s'; known: %s", o->shape,
                    model_shape_names());
    TRY(cut_shape(s, err));
    const char *arch = o->arch ? o->arch : s->shape->arch;
    s->arch = arch_find(text_of(arch));
    if (!s->arch)
        return fail(err, STATUS_USAGE, "--arch: unknown architecture '%s'; known: %s", arch,
                    arch_names());
    TRY(find_type("--type", o->type, &s->type, err));
    s->embedding_type = table_type(s, FORMAT_Q4_K);
    s->output_type = table_type(s, FORMAT_Q6_K);
    if (o->embedding_type)
        TRY(find_type("--embedding-type", o->embedding_type, &s->embedding_type, err));
    if (o->output_type)
        TRY(find_type("--output-type", o->output_type, &s->output_type, err));
    random_init(&s->random, (uint64_t)o->seed);
    return STATUS_OK;
}

/* "NAME.weight" or "blk.N.NAME.weight", or another end. */
static void add(struct synth *s, enum format_id format, int64_t rows, int64_t cols,
                double deviation, const char *name, int layer, const char *end)
{
    struct synth_tensor *t = &s->tensors[s->n_tensors++];
    *t = (struct synth_tensor){.format = format, .rows = (int)rows, .cols = (int)cols};
    t->deviation = (float)deviation;
    t->mean = strcmp(end, "bias") ? 1 : 0;
    if (layer < 0)
        snprintf(t->name, sizeof t->name, "%s.%s", name, end);
    else
        snprintf(t->name, sizeof t->name, "blk.%d.%s.%s", layer, name, end);
}

/* Deviations keep every activation near 1: a matrix of n inputs has 1/sqrt(n), the two that feed
 * the residual less, so that it grows by a constant factor over all layers; without a norm before it
 * ffn_down more, because a gated product is small. Attention scores and logits get deviations of 1
 * and 2. */
static double deviation_of(const struct synth *s, const struct tensor_rule *rule, int64_t cols)
{
    double plain = 1 / sqrt((double)cols), damped = plain / sqrt(s->shape->n_layer);
    if (!strcmp(rule->name, "token_embd"))
        return s->is_tied ? 2 * plain : 1;
    if (!strcmp(rule->name, "output"))
        return 2 * plain;
    if (!strcmp(rule->name, "attn_output"))
        return damped;
    if (!strcmp(rule->name, "ffn_down"))
        return s->has_sub_norms ? damped : 2 * damped;
    return plain;
}

static enum format_id format_of_rule(const struct synth *s, const struct tensor_rule *rule)
{
    if (rule->rows == DIM_ONE)
        return FORMAT_F32;
    if (!strcmp(rule->name, "token_embd"))
        return s->embedding_type;
    return strcmp(rule->name, "output") ? s->type : s->output_type;
}

/* What is optional is left out, but for an output matrix of its own and the biases that every published
 * qwen2 has. */
static void add_by_rules(struct synth *s, const struct tensor_rule *rules, int layer)
{
    for (const struct tensor_rule *r = rules; r->name; r++) {
        bool is_output = !strcmp(r->name, "output") && !s->is_tied;
        if (r->presence != REQUIRED && !is_output)
            continue;
        int64_t rows = arch_dim(&s->config, r->rows), cols = arch_dim(&s->config, r->cols);
        add(s, format_of_rule(s, r), rows, cols, deviation_of(s, r, cols), r->name, layer,
            "weight");
        if (s->has_biases && r->may_have_bias)
            add(s, FORMAT_F32, 1, rows, 0, r->name, layer, "bias");
    }
}

static void set_config(struct synth *s)
{
    const struct model_shape *m = s->shape;
    s->config = (struct model_config){.arch = s->arch, .n_embd = m->n_embd, .n_ff = m->n_ff};
    s->config.n_vocab = m->n_vocab;
    s->config.n_head = m->n_head;
    s->config.n_head_kv = m->n_head_kv;
    s->config.head_dim = s->config.rope.n_rot = m->head_dim;
}

static enum status list_tensors(struct synth *s, struct error *err)
{
    enum { MOST_A_LAYER = 24 };
    size_t most = MOST_A_LAYER * (1 + (size_t)s->shape->n_layer);
    s->tensors = memory_alloc(most, sizeof *s->tensors);
    if (!s->tensors)
        return fail_memory(err, s->options->out, most * sizeof *s->tensors);
    set_config(s);
    s->has_biases = s->options->has_biases || strcmp(s->arch->name, "qwen2") == 0;
    for (const struct tensor_rule *r = s->arch->layer_rules; r->name; r++)
        s->has_sub_norms |= !strcmp(r->name, "ffn_sub_norm");
    s->is_tied = true;
    for (const struct tensor_rule *r = s->arch->model_rules; r->name; r++)
        s->is_tied &= strcmp(r->name, "output") || s->shape->is_tied;
    add_by_rules(s, s->arch->model_rules, -1);
    for (int i = 0; i < s->shape->n_layer; i++)
        add_by_rules(s, s->arch->layer_rules, i);
    return STATUS_OK;
}

static enum status put_u32(struct synth *s, const char *name, int value, struct error *err)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", s->arch->name, name);
    return gguf_put_u32(&s->writer, key, (uint32_t)value, err);
}

static enum status put_f32(struct synth *s, const char *name, float value, struct error *err)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", s->arch->name, name);
    return gguf_put_f32(&s->writer, key, value, err);
}

static enum status put_metadata(struct synth *s, struct error *err)
{
    const struct model_shape *m = s->shape;
    struct gguf_writer *w = &s->writer;
    char name[96];
    snprintf(name, sizeof name, "random weights, shape of %s", m->name);
    TRY(gguf_put_string(w, "general.architecture", text_of(s->arch->name), err));
    TRY(gguf_put_string(w, "general.name", text_of(name), err));
    TRY(gguf_put_u32(w, "general.quantization_version", 2, err));
    TRY(put_u32(s, "block_count", m->n_layer, err));
    TRY(put_u32(s, "context_length", m->n_ctx, err));
    TRY(put_u32(s, "embedding_length", m->n_embd, err));
    TRY(put_u32(s, "feed_forward_length", m->n_ff, err));
    TRY(put_u32(s, "attention.head_count", m->n_head, err));
    TRY(put_u32(s, "attention.head_count_kv", m->n_head_kv, err));
    TRY(put_u32(s, "attention.key_length", m->head_dim, err));
    TRY(put_u32(s, "attention.value_length", m->head_dim, err));
    TRY(put_u32(s, "rope.dimension_count", m->head_dim, err));
    TRY(put_u32(s, "vocab_size", m->n_vocab, err));
    TRY(put_f32(s, "rope.freq_base", m->rope_base, err));
    TRY(put_f32(s, "attention.layer_norm_rms_epsilon", m->norm_epsilon, err));
    if (m->yarn_factor == 0)
        return STATUS_OK;
    snprintf(name, sizeof name, "%s.rope.scaling.type", s->arch->name);
    TRY(gguf_put_string(w, name, text_of("yarn"), err));
    TRY(put_f32(s, "rope.scaling.factor", m->yarn_factor, err));
    return put_u32(s, "rope.scaling.original_context_length", m->yarn_original_ctx, err);
}

static enum status declare_tensors(struct synth *s, struct error *err)
{
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct synth_tensor *t = &s->tensors[i];
        char what[160];
        uint64_t bytes;
        snprintf(what, sizeof what, "%s: tensor '%s'", s->options->out, t->name);
        TRY(format_bytes(t->format, (uint64_t)t->rows, (uint64_t)t->cols, what, &bytes, err));
        const uint64_t ne[] = {(uint64_t)t->cols, (uint64_t)t->rows};
        TRY(gguf_put_tensor(&s->writer, text_of(t->name), t->rows == 1 ? 1 : 2, ne,
                            format_of(t->format)->type_id, bytes, err));
    }
    return STATUS_OK;
}

/* Gains of a norm are 0.75 to 1.25 and biases -0.25 to 0.25, so that one left out shows. */
static enum status write_vector(struct synth *s, const struct synth_tensor *t, struct error *err)
{
    for (int i = 0; i < t->cols; i++) {
        float value = (float)(t->mean - 0.25 + 0.5 * random_unit(&s->random));
        TRY(gguf_write_data(&s->writer, &value, sizeof value, err));
    }
    return STATUS_OK;
}

/* Rows of t that are filled and written at once. */
static int64_t chunk_rows(const struct synth_tensor *t)
{
    int group = format_of(t->format)->row_group;
    int64_t rows = (int64_t)(CHUNK_BYTES / format_row_bytes(t->format, (uint64_t)t->cols));
    rows -= rows % group;
    return rows > 0 ? rows : group;
}

static enum status write_matrix(struct synth *s, const struct synth_tensor *t, struct error *err)
{
    uint64_t row_bytes = format_row_bytes(t->format, (uint64_t)t->cols);
    int64_t step = chunk_rows(t);
    uint8_t *chunk = memory_alloc((size_t)step, row_bytes);
    if (!chunk)
        return fail_memory(err, s->options->out, (size_t)step * row_bytes);
    enum status status = STATUS_OK;
    for (int64_t r = 0; status == STATUS_OK && r < t->rows; r += step) {
        int64_t n = t->rows - r < step ? t->rows - r : step;
        format_fill_rows(t->format, n, t->cols, t->deviation, &s->random, chunk);
        status = gguf_write_data(&s->writer, chunk, (size_t)n * row_bytes, err);
    }
    memory_free(chunk);
    uint8_t tail[64];
    format_fill_tail(t->format, t->deviation, tail);
    if (status == STATUS_OK)
        status = gguf_write_data(&s->writer, tail, (size_t)format_of(t->format)->tensor_tail, err);
    return status;
}

static enum status write_tensors(struct synth *s, struct error *err)
{
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct synth_tensor *t = &s->tensors[i];
        TRY(t->rows == 1 ? write_vector(s, t, err) : write_matrix(s, t, err));
        status_line_count("write", i + 1, s->n_tensors);
    }
    return STATUS_OK;
}

static enum status write_header(struct synth *s, struct error *err)
{
    TRY(read_options(s, err));
    TRY(list_tensors(s, err));
    TRY(gguf_writer_open(&s->writer, s->options->out, err));
    TRY(put_metadata(s, err));
    TRY(synth_vocab_put(&s->writer, s->shape, err));
    TRY(declare_tensors(s, err));
    return gguf_write_header(&s->writer, err);
}

static enum status synth(struct synth *s, struct error *err)
{
    TRY(write_header(s, err));
    TRY(write_tensors(s, err));
    return gguf_writer_commit(&s->writer, err);
}

static void synth_done(struct synth *s)
{
    gguf_writer_close(&s->writer);
    memory_free(s->tensors);
}

enum status synth_write_header(const char *shape, const char *type, const char *pipe,
                               uint64_t *n_bytes, struct error *err)
{
    struct synth_options header = {.shape = shape, .type = type, .out = pipe, .seed = 1};
    struct synth s = {.options = &header};
    enum status status = write_header(&s, err);
    if (status == STATUS_OK)
        status = output_file_flush(&s.writer.file, err);
    *n_bytes = s.writer.file.bytes + s.writer.next_offset;
    synth_done(&s);
    return status;
}

static int run_command(const void *values)
{
    struct synth s = {.options = values};
    struct error err;
    enum status status = synth(&s, &err);
    if (status == STATUS_OK) {
        char size[16];
        fprintf(stderr, "%s: random weights, shape of %s, %s (embedding %s, output %s), %s\n",
                s.options->out, s.shape->name, format_of(s.type)->name,
                format_of(s.embedding_type)->name, format_of(s.output_type)->name,
                cli_size(s.writer.file.bytes, size));
    }
    synth_done(&s);
    return status == STATUS_OK ? EXIT_SUCCESS : cli_failed("synth", &err);
}

const struct command command_synth = {
    "synth",
    "write a file of random weights in the shape of a published model",
    "For speed and memory tests without a download. The text such a model writes means nothing, "
    "but "
    "its activations stay in range and its logits spread like those of a real one.",
    options,
    sizeof(struct synth_options),
    run_command};
