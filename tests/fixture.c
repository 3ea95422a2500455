#include "fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/random.h"
#include "gguf/gguf_read.h"
#include "gguf/gguf_write.h"

#define N_LAYERS 2

struct table {
    char name[64];
    int rows, cols;
    enum format_id format;
    float *values; /* owned */
};

struct building {
    const struct fixture *f;
    struct random random;
    struct text tokens[320];
    int32_t types[320];
    int n_vocab, width, n_ff;
    int order[64], n_order; /* token ids of the chain: ':' ... end */
    signed char *codes;     /* (n_vocab, width): +-1 */
    struct table tables[64];
    int n_tables;
};

static float ternary(struct building *b)
{
    return (float)((int)(random_bits(&b->random) >> 33) % 3 - 1) * 0.0625f;
}

static struct table *add(struct building *b, const char *name, int rows, int cols,
                         enum format_id format)
{
    if (b->f->omit && strcmp(b->f->omit, name) == 0)
        return NULL;
    struct table *t = &b->tables[b->n_tables++];
    *t = (struct table){.rows = rows, .cols = cols, .format = format};
    snprintf(t->name, sizeof t->name, "%s", name);
    t->values = calloc((size_t)rows * (size_t)cols, sizeof *t->values);
    assert_non_null(t->values);
    return t;
}

static void add_vector(struct building *b, const char *name, int n)
{
    struct table *t = add(b, name, 1, n, FORMAT_F32);
    for (int i = 0; t && i < n; i++)
        t->values[i] = 1;
}

static void add_matrix(struct building *b, const char *name, int rows, int cols, bool is_zero)
{
    struct table *t = add(b, name, rows, cols, b->f->format ? b->f->format : FORMAT_F16);
    for (int i = 0; i < rows * cols; i++) {
        float value = ternary(b);
        if (t && !is_zero)
            t->values[i] = value;
    }
}

static void make_vocab(struct building *b)
{
    static char byte_names[256][8];
    const char *const first[] = {"<unk>", "<s>", "</s>"};
    for (int i = 0; i < 3; i++) {
        b->types[i] = i ? 3 : 2;
        b->tokens[i] = text_of(first[i]);
    }
    for (int i = 0; i < 256; i++) {
        snprintf(byte_names[i], sizeof byte_names[i], "<0x%02X>", (unsigned)i);
        b->types[3 + i] = 6;
        b->tokens[3 + i] = text_of(byte_names[i]);
    }
    b->n_vocab = 259;
    b->order[b->n_order++] = 3 + ':';
    for (int i = 0; i < b->f->n_chain; i++) {
        const char *text = b->f->chain[i];
        bool is_byte = (unsigned char)text[0] >= 0x80 && text[1] == 0;
        b->order[b->n_order++] = is_byte ? 3 + (unsigned char)text[0] : b->n_vocab;
        if (!is_byte) {
            b->types[b->n_vocab] = 1;
            b->tokens[b->n_vocab++] = text_of(text);
        }
    }
    if (!b->f->ring)
        b->order[b->n_order++] = 2;
}

static void add_tables(struct building *b)
{
    struct table *embedding = add(b, "token_embd.weight", b->n_vocab, b->width, FORMAT_F16);
    b->codes = malloc((size_t)b->n_vocab * (size_t)b->width);
    assert_non_null(b->codes);
    for (int i = 0; i < b->n_vocab * b->width; i++) {
        b->codes[i] = random_bits(&b->random) >> 63 ? 1 : -1;
        if (embedding)
            embedding->values[i] = b->codes[i];
    }
    add_vector(b, "output_norm.weight", b->width);
    struct table *output = add(b, "output.weight", b->n_vocab, b->width, FORMAT_F16);
    for (int k = 0; output && k + (b->f->ring ? 0 : 1) < b->n_order; k++) {
        int from = b->order[k], to = k + 1 < b->n_order ? b->order[k + 1] : b->order[1];
        for (int i = 0; i < b->width; i++)
            output->values[to * b->width + i] += b->codes[from * b->width + i];
    }
    for (int layer = 0; layer < N_LAYERS; layer++) {
        static const struct {
            const char *name;
            int rows, cols; /* -1: n_ff; else divisor of the width */
        } parts[] = {{"attn_q", 1, 1},      {"attn_k", 2, 1},    {"attn_v", 2, 1},
                     {"attn_output", 1, 1}, {"ffn_gate", -1, 1}, {"ffn_up", -1, 1},
                     {"ffn_down", 1, -1}};
        char name[64];
        snprintf(name, sizeof name, "blk.%d.attn_norm.weight", layer);
        add_vector(b, name, b->width);
        snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", layer);
        add_vector(b, name, b->width);
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            bool is_zero = !b->f->real_output && (i == 3 || i == 6);
            snprintf(name, sizeof name, "blk.%d.%s.weight", layer, parts[i].name);
            add_matrix(b, name, parts[i].rows < 0 ? b->n_ff : b->width / parts[i].rows,
                       parts[i].cols < 0 ? b->n_ff : b->width, is_zero);
        }
    }
    if (b->f->extra)
        add_vector(b, b->f->extra, b->width);
}

static void put_u32(struct gguf_writer *w, const char *arch, const char *name, int value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", arch, name);
    assert_int_equal(gguf_put_u32(w, key, (uint32_t)value, NULL), STATUS_OK);
}

static void put_metadata(struct building *b, struct gguf_writer *w)
{
    const char *arch = b->f->architecture ? b->f->architecture : "llama";
    char key[96];
    gguf_put_string(w, "general.architecture", text_of(arch), NULL);
    gguf_put_string(w, "general.name", text_of("fixture"), NULL);
    put_u32(w, arch, "context_length", b->f->n_ctx ? b->f->n_ctx : 512);
    put_u32(w, arch, "embedding_length", b->width);
    put_u32(w, arch, "block_count", N_LAYERS);
    put_u32(w, arch, "feed_forward_length", b->n_ff);
    put_u32(w, arch, "attention.head_count", 4);
    put_u32(w, arch, "attention.head_count_kv", 2);
    put_u32(w, arch, "rope.dimension_count", b->width / 4);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    gguf_put_f32(w, key, 1e-6f, NULL);
    gguf_put_string(w, "tokenizer.ggml.model", text_of("llama"), NULL);
    gguf_put_string(w, "tokenizer.ggml.pre", text_of("default"), NULL);
    float scores[320];
    for (int i = 0; i < b->n_vocab; i++)
        scores[i] = -(float)i;
    gguf_put_strings(w, "tokenizer.ggml.tokens", b->tokens, (size_t)b->n_vocab, NULL);
    gguf_put_f32s(w, "tokenizer.ggml.scores", scores, (size_t)b->n_vocab, NULL);
    gguf_put_i32s(w, "tokenizer.ggml.token_type", b->types, (size_t)b->n_vocab, NULL);
    gguf_put_u32(w, "tokenizer.ggml.bos_token_id", 1, NULL);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", 2, NULL);
    gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", false, NULL);
    if (b->f->no_bos)
        gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false, NULL);
    if (b->f->add_eos)
        gguf_put_bool(w, "tokenizer.ggml.add_eos_token", true, NULL);
}

static uint64_t table_bytes(const struct table *t)
{
    uint64_t bytes;
    assert_int_equal(
        format_bytes(t->format, (uint64_t)t->rows, (uint64_t)t->cols, t->name, &bytes, NULL),
        STATUS_OK);
    return bytes;
}

static void declare(struct building *b, struct gguf_writer *w, const struct table *t)
{
    bool is_swapped = b->f->swap_shape && strcmp(b->f->swap_shape, t->name) == 0;
    uint64_t ne[] = {(uint64_t)t->cols, (uint64_t)t->rows};
    if (is_swapped) {
        ne[0] = (uint64_t)t->rows;
        ne[1] = (uint64_t)t->cols;
    }
    gguf_put_tensor(w, text_of(t->name), t->rows == 1 ? 1 : 2, ne, format_of(t->format)->type_id,
                    table_bytes(t), NULL);
}

static void write_table(struct gguf_writer *w, const struct table *t)
{
    uint64_t bytes = table_bytes(t);
    uint8_t *out = calloc(bytes, 1);
    assert_non_null(out);
    format_of(t->format)->encode(t->values, t->rows, t->cols, out);
    assert_int_equal(gguf_write_data(w, out, bytes, NULL), STATUS_OK);
    free(out);
}

void fixture_write(const char *path, const struct fixture *fixture)
{
    struct building *b = calloc(1, sizeof *b);
    struct gguf_writer w;
    assert_non_null(b);
    b->f = fixture;
    b->width = fixture->width ? fixture->width : 256;
    b->n_ff = fixture->n_ff ? fixture->n_ff : 512;
    random_init(&b->random, fixture->seed + 7);
    make_vocab(b);
    add_tables(b);
    assert_int_equal(gguf_writer_open(&w, path, NULL), STATUS_OK);
    put_metadata(b, &w);
    int twice = -1;
    for (int i = 0; i < b->n_tables; i++) {
        declare(b, &w, &b->tables[i]);
        if (fixture->twice && strcmp(fixture->twice, b->tables[i].name) == 0)
            twice = i;
    }
    if (twice >= 0)
        declare(b, &w, &b->tables[twice]);
    assert_int_equal(gguf_write_header(&w, NULL), STATUS_OK);
    for (int i = 0; i < b->n_tables; i++)
        write_table(&w, &b->tables[i]);
    if (twice >= 0)
        write_table(&w, &b->tables[twice]);
    assert_int_equal(gguf_writer_commit(&w, NULL), STATUS_OK);
    gguf_writer_close(&w);
    for (int i = 0; i < b->n_tables; i++)
        free(b->tables[i].values);
    free(b->codes);
    free(b);
}

char *fixture_bytes(const struct fixture *fixture, size_t *size)
{
    const char *path = scratch_path("fixture-bytes.gguf");
    fixture_write(path, fixture);
    char *bytes = read_whole(path, size);
    assert_non_null(bytes);
    return bytes;
}

void fixture_add_fourth_value(const char *path)
{
    struct gguf_file file;
    struct error err;
    if (gguf_open(&file, path, format_resolve, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    int out = open(path, O_WRONLY);
    assert_true(out >= 0);
    for (size_t i = 0; i < file.n_tensors; i++) {
        const struct tensor_span *span = &file.tensors[i].span;
        if (span->format != FORMAT_TQ2_0)
            continue;
        uint8_t codes = file.tensors[i].data[0] | 3; /* a block begins with the codes */
        off_t at = (off_t)(file.shards[0].data_offset + span->offset);
        assert_int_equal(pwrite(out, &codes, 1, at), 1);
    }
    close(out);
    gguf_close(&file);
}
