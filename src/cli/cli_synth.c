/* `trine synth`: a GGUF file of random weights in the exact shape of a published model. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/cli.h"
#include "cli/synth_header.h"
#include "cli/synth_vocab.h"
#include "tensor/format_fill.h"

struct synth_options {
    const char *shape, *type, *embedding_type, *output_type, *out;
    int64_t seed;
};

#define SYNTH(field) offsetof(struct synth_options, field)
static const struct option options[] = {
    {"--shape", "NAME", NULL, "tiny, falcon3-1b, falcon3-10b, llama3-8b, bonsai-8b", OPT_TEXT,
     SYNTH(shape), 0, 0},
    {"--type", "T", NULL, "type of the projections: TQ2_0, IQ2_BN, I2_S, Q4_0, Q4_K, F16, ...",
     OPT_TEXT, SYNTH(type), 0, 0},
    {"--embedding-type", "T", NULL,
     "type of the token embedding; if not given Q4_K beside a smaller type (bonsai: as --type)",
     OPT_TEXT, SYNTH(embedding_type), 0, 0},
    {"--output-type", "T", NULL,
     "type of the output matrix; if not given Q6_K beside a smaller type (bonsai: as --type)",
     OPT_TEXT, SYNTH(output_type), 0, 0},
    {"-o, --output", "FILE", NULL, "the file to write", OPT_TEXT, SYNTH(out), 0, 0},
    {"-s, --seed", "N", "1", "of the weights", OPT_INT, SYNTH(seed), 0, 9007199254740992.0},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0}};

/* Bytes filled and written at once. */
#define CHUNK_BYTES ((uint64_t)1 << 20)

/* One tensor to write: random numbers, or a norm's gains when rows == 1. */
struct synth_tensor {
    char name[64];
    enum format_id format;
    int rows, cols;
    float deviation;
};

struct synth {
    const struct synth_options *options;
    const struct model_shape *shape;
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
    return small < format_bits_per_weight(usual, 256, 256) ? usual : s->type;
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

static void add(struct synth *s, enum format_id format, int rows, int cols, double deviation,
                const char *name, int layer)
{
    struct synth_tensor *t = &s->tensors[s->n_tensors++];
    *t = (struct synth_tensor){
        .format = format, .rows = rows, .cols = cols, .deviation = (float)deviation};
    if (layer < 0)
        snprintf(t->name, sizeof t->name, "%s.weight", name);
    else
        snprintf(t->name, sizeof t->name, "blk.%d.%s.weight", layer, name);
}

/* Deviations keep every activation near 1: a matrix of n inputs has 1/sqrt(n), the two that feed
 * the residual less, so that it grows by a constant factor over all layers. Attention scores and
 * logits get deviations of 1 and 2. */
static void add_layer(struct synth *s, int layer)
{
    const struct model_shape *m = s->shape;
    int q = m->n_head * m->head_dim, kv = m->n_head_kv * m->head_dim;
    double from_embd = 1 / sqrt(m->n_embd), damped = 1 / sqrt(m->n_layer);
    add(s, FORMAT_F32, 1, m->n_embd, 0, "attn_norm", layer);
    add(s, s->type, q, m->n_embd, from_embd, "attn_q", layer);
    add(s, s->type, kv, m->n_embd, from_embd, "attn_k", layer);
    add(s, s->type, kv, m->n_embd, from_embd, "attn_v", layer);
    if (m->has_head_norms) {
        add(s, FORMAT_F32, 1, m->head_dim, 0, "attn_q_norm", layer);
        add(s, FORMAT_F32, 1, m->head_dim, 0, "attn_k_norm", layer);
    }
    add(s, s->type, m->n_embd, q, damped / sqrt(q), "attn_output", layer);
    add(s, FORMAT_F32, 1, m->n_embd, 0, "ffn_norm", layer);
    add(s, s->type, m->n_ff, m->n_embd, from_embd, "ffn_gate", layer);
    add(s, s->type, m->n_ff, m->n_embd, from_embd, "ffn_up", layer);
    add(s, s->type, m->n_embd, m->n_ff, 2 * damped / sqrt(m->n_ff), "ffn_down", layer);
}

static enum status list_tensors(struct synth *s, struct error *err)
{
    const struct model_shape *m = s->shape;
    size_t most = 3 + 11 * (size_t)m->n_layer;
    s->tensors = memory_alloc(most, sizeof *s->tensors);
    if (!s->tensors)
        return fail_memory(err, s->options->out, most * sizeof *s->tensors);
    add(s, s->embedding_type, m->n_vocab, m->n_embd, 1, "token_embd", -1);
    for (int i = 0; i < m->n_layer; i++)
        add_layer(s, i);
    add(s, FORMAT_F32, 1, m->n_embd, 0, "output_norm", -1);
    add(s, s->output_type, m->n_vocab, m->n_embd, 2 / sqrt(m->n_embd), "output", -1);
    return STATUS_OK;
}

static enum status put_u32(struct synth *s, const char *name, int value, struct error *err)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", s->shape->arch, name);
    return gguf_put_u32(&s->writer, key, (uint32_t)value, err);
}

static enum status put_f32(struct synth *s, const char *name, float value, struct error *err)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", s->shape->arch, name);
    return gguf_put_f32(&s->writer, key, value, err);
}

static enum status put_metadata(struct synth *s, struct error *err)
{
    const struct model_shape *m = s->shape;
    struct gguf_writer *w = &s->writer;
    char name[96];
    snprintf(name, sizeof name, "random weights, shape of %s", m->name);
    TRY(gguf_put_string(w, "general.architecture", text_of(m->arch), err));
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
    snprintf(name, sizeof name, "%s.rope.scaling.type", m->arch);
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

/* Gains of a norm: 0.75 to 1.25, so that a norm left out shows. */
static enum status write_gains(struct synth *s, const struct synth_tensor *t, struct error *err)
{
    for (int i = 0; i < t->cols; i++) {
        float gain = (float)(0.75 + 0.5 * random_unit(&s->random));
        TRY(gguf_write_data(&s->writer, &gain, sizeof gain, err));
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
        TRY(t->rows == 1 ? write_gains(s, t, err) : write_matrix(s, t, err));
        if (isatty(STDERR_FILENO))
            fprintf(stderr, "\rtensor %zu of %zu", i + 1, s->n_tensors);
    }
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
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
