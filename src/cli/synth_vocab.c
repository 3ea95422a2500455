#include "cli/synth_vocab.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "tokenizer/byte_map.h"

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_BYTE = 6 };

struct vocab {
    struct arena arena;
    struct text *tokens; /* n */
    int32_t *types;      /* n */
    float *scores;       /* n; SPM */
    struct text *merges; /* BPE */
    size_t n, n_merges;
};

static struct text copy(struct vocab *v, const char *text)
{
    size_t n = strlen(text);
    return (struct text){arena_text(&v->arena, text, n), n};
}

static enum status allocate(struct vocab *v, const struct model_shape *shape, struct error *err)
{
    v->n = (size_t)shape->n_vocab;
    v->tokens = arena_alloc(&v->arena, v->n, sizeof *v->tokens);
    v->types = arena_alloc(&v->arena, v->n, sizeof *v->types);
    v->scores = arena_alloc(&v->arena, v->n, sizeof *v->scores);
    v->merges = arena_alloc(&v->arena, v->n, sizeof *v->merges);
    if (!v->tokens || !v->types || !v->scores || !v->merges)
        return fail_memory(err, "vocabulary", v->n * 64);
    return STATUS_OK;
}

/* <unk>, <s>, </s>, the 256 bytes, then the letters with falling scores. */
static void fill_spm(struct vocab *v)
{
    static const char *const first[] = {"<unk>", "<s>", "</s>"};
    for (size_t i = 0; i < v->n; i++) {
        char text[16];
        v->types[i] = i == 0    ? TYPE_UNKNOWN
                      : i < 3   ? TYPE_CONTROL
                      : i < 259 ? TYPE_BYTE
                                : TYPE_NORMAL;
        v->scores[i] = i < 259 ? 0 : -(float)(i - 259);
        if (i < 3)
            snprintf(text, sizeof text, "%s", first[i]);
        else if (i < 259)
            snprintf(text, sizeof text, "<0x%02X>", (unsigned)(i - 3));
        else if (i == 259)
            snprintf(text, sizeof text, "\xe2\x96\x81"); /* the SPM space */
        else
            snprintf(text, sizeof text, "%c",
                     i < 286    ? (char)('a' + i - 260)
                     : i == 286 ? '.'
                                : ',');
        v->tokens[i] = copy(v, text);
    }
}

/* What byte-level BPE writes for a byte. Returns its length. */
static int byte_text(const struct byte_map *map, size_t byte, char *out)
{
    return utf8_encode(map->code[byte], out);
}

/* The k-th ordinary token as the two parts of its merge: 256 bytes (left part empty), all pairs of
 * bytes, then those pairs followed by a byte. */
static void bpe_parts(const struct byte_map *map, size_t k, char left[16], char right[8])
{
    int n = 0;
    left[0] = 0;
    if (k >= 256 + 65536) {
        size_t pair = (k - 256 - 65536) / 256;
        n = byte_text(map, pair / 256, left);
        n += byte_text(map, pair % 256, left + n);
        k -= 256 + 65536;
    } else if (k >= 256) {
        n = byte_text(map, (k - 256) / 256, left);
        k -= 256;
    }
    left[n] = 0;
    n = byte_text(map, k % 256, right);
    right[n] = 0;
}

static bool is_control(const struct model_shape *shape, int id)
{
    return id == shape->bos || id == shape->eos || id >= shape->n_vocab - shape->n_control;
}

static void fill_bpe(struct vocab *v, const struct model_shape *shape)
{
    size_t k = 0;
    struct byte_map map;
    byte_map_init(&map);
    for (int id = 0; id < shape->n_vocab; id++) {
        char left[16], right[8], text[40];
        if (is_control(shape, id)) {
            v->types[id] = TYPE_CONTROL;
            if (id == shape->eos)
                snprintf(text, sizeof text, "<|endoftext|>");
            else
                snprintf(text, sizeof text, "<|control_%d|>", id);
        } else {
            bpe_parts(&map, k, left, right);
            v->types[id] = TYPE_NORMAL;
            if (k++ >= 256) {
                snprintf(text, sizeof text, "%s %s", left, right);
                v->merges[v->n_merges++] = copy(v, text);
            }
            snprintf(text, sizeof text, "%s%s", left, right);
        }
        v->tokens[id] = copy(v, text);
    }
}

static enum status put(struct gguf_writer *w, const struct vocab *v,
                       const struct model_shape *shape, struct error *err)
{
    bool is_bpe = shape->pre_tokenizer;
    TRY(gguf_put_string(w, "tokenizer.ggml.model", text_of(is_bpe ? "gpt2" : "llama"), err));
    TRY(gguf_put_string(w, "tokenizer.ggml.pre", text_of(is_bpe ? shape->pre_tokenizer : "default"),
                        err));
    TRY(gguf_put_strings(w, "tokenizer.ggml.tokens", v->tokens, v->n, err));
    TRY(gguf_put_i32s(w, "tokenizer.ggml.token_type", v->types, v->n, err));
    if (is_bpe)
        TRY(gguf_put_strings(w, "tokenizer.ggml.merges", v->merges, v->n_merges, err));
    else
        TRY(gguf_put_f32s(w, "tokenizer.ggml.scores", v->scores, v->n, err));
    TRY(gguf_put_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)shape->bos, err));
    return gguf_put_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)shape->eos, err);
}

enum status synth_vocab_put(struct gguf_writer *w, const struct model_shape *shape,
                            struct error *err)
{
    struct vocab v = {0};
    enum status status = allocate(&v, shape, err);
    if (status == STATUS_OK) {
        if (shape->pre_tokenizer)
            fill_bpe(&v, shape);
        else
            fill_spm(&v);
        status = put(w, &v, shape, err);
    }
    arena_done(&v.arena);
    return status;
}
