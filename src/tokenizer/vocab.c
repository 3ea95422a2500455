#include "tokenizer/vocab.h"

#include <stdio.h>
#include <string.h>

#include "base/float16.h"
#include "base/memory.h"
#include "gguf/gguf_metadata.h"

#define TOKENS "tokenizer.ggml.tokens"

static enum status fail_no_vocabulary(const char *path, struct error *err)
{
    return fail(err, STATUS_UNSUPPORTED,
                "%s: no vocabulary: " TOKENS " is absent; use a file that carries its tokenizer",
                path);
}

enum status vocab_kind_read(enum vocab_kind *kind, const struct gguf_file *file, const char *path,
                            struct error *err)
{
    struct text model = {0};
    if (!gguf_find(file, TOKENS) && !gguf_find(file, "tokenizer.ggml.model"))
        return fail_no_vocabulary(path, err);
    TRY(gguf_string(file, "tokenizer.ggml.model", &model, err));
    if (text_is(model, "llama"))
        *kind = VOCAB_SPM;
    else if (text_is(model, "gpt2"))
        *kind = VOCAB_BPE;
    else
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: tokenizer.ggml.model is '%.*s'; this build knows llama (SentencePiece) "
                    "and gpt2 (byte-level BPE); use a model with one of these",
                    path, TEXT(model));
    return STATUS_OK;
}

/* The array of that key, NULL when absent. errors: FORMAT when its elements or length are wrong. */
static enum status find_array(const struct gguf_file *file, const char *path, const char *key,
                              bool is_float, uint64_t n, const struct gguf_pair **pair,
                              struct error *err)
{
    *pair = gguf_find(file, key);
    if (!*pair)
        return STATUS_OK;
    enum gguf_type element = (*pair)->element;
    bool fits = is_float ? element == GGUF_FLOAT32 || element == GGUF_FLOAT64
                         : gguf_is_integer_type(element);
    if ((*pair)->type != GGUF_ARRAY || !fits)
        return fail(err, STATUS_FORMAT, "%s: %s: expected an array of %s, found %s of %s", path,
                    key, is_float ? "float32" : "int32", gguf_type_name((*pair)->type),
                    gguf_type_name(element));
    if ((*pair)->count != n)
        return fail(err, STATUS_FORMAT,
                    "%s: %s has %llu elements, but " TOKENS " has %llu; the file is damaged", path,
                    key, (unsigned long long)(*pair)->count, (unsigned long long)n);
    return STATUS_OK;
}

static enum status read_texts(struct vocab *v, const struct gguf_file *file, const char *path,
                              struct error *err)
{
    const struct gguf_pair *pair = gguf_find(file, TOKENS);
    if (!pair)
        return fail_no_vocabulary(path, err);
    if (pair->type != GGUF_ARRAY || pair->element != GGUF_STRING)
        return fail(err, STATUS_FORMAT, "%s: " TOKENS ": expected an array of strings, found %s",
                    path, gguf_type_name(pair->type));
    if (pair->count == 0 || pair->count > INT32_MAX / 2)
        return fail(err, STATUS_FORMAT, "%s: " TOKENS " has %llu elements; expected 1 to %d", path,
                    (unsigned long long)pair->count, INT32_MAX / 2);
    v->n_tokens = (uint32_t)pair->count;
    if (!text_table_reserve(&v->table, v->n_tokens))
        return fail_memory(err, path, v->n_tokens * sizeof(struct text));
    uint64_t at = 0;
    for (uint32_t id = 0; id < v->n_tokens; id++)
        if (!text_table_add(&v->table, gguf_next_string(pair, &at), NULL))
            return fail_memory(err, path, sizeof(struct text));
    return STATUS_OK;
}

static enum status read_types(struct vocab *v, const struct gguf_file *file, const char *path,
                              struct error *err)
{
    const char *key = "tokenizer.ggml.token_type";
    const struct gguf_pair *pair;
    TRY(find_array(file, path, key, false, v->n_tokens, &pair, err));
    v->types = memory_alloc(v->n_tokens, 1);
    v->is_end = memory_alloc(v->n_tokens, sizeof *v->is_end);
    if (!v->types || !v->is_end)
        return fail_memory(err, path, v->n_tokens);
    for (uint32_t id = 0; id < v->n_tokens; id++) {
        int64_t type = pair ? gguf_element_integer(pair, id) : TOKEN_NORMAL;
        if (type < 0 || type > TOKEN_BYTE)
            return fail(err, STATUS_FORMAT,
                        "%s: %s: token %u has type %lld; known are 0 to %d; the file is damaged",
                        path, key, id, (long long)type, TOKEN_BYTE);
        v->types[id] = type ? (uint8_t)type : TOKEN_NORMAL; /* 0: a writer that did not know */
    }
    return STATUS_OK;
}

/* Maps scores to numbers that order the other way round: a smaller one merges first. */
static uint32_t rank_of_score(float score)
{
    uint32_t bits = bits_from_f32(score + 0.0f); /* + 0 turns -0 into 0: they tie */
    uint32_t ascending = bits & 0x80000000 ? ~bits : bits | 0x80000000;
    return ~ascending == NO_ID ? NO_ID - 1 : ~ascending;
}

static enum status read_scores(struct vocab *v, const struct gguf_file *file, const char *path,
                               struct error *err)
{
    const char *key = "tokenizer.ggml.scores";
    const struct gguf_pair *pair;
    TRY(find_array(file, path, key, true, v->n_tokens, &pair, err));
    if (!pair)
        return fail(err, STATUS_FORMAT,
                    "%s: %s is absent; a vocabulary of tokenizer.ggml.model 'llama' needs it; "
                    "convert the model again",
                    path, key);
    v->ranks = memory_alloc(v->n_tokens, sizeof *v->ranks);
    if (!v->ranks)
        return fail_memory(err, path, v->n_tokens * sizeof *v->ranks);
    for (uint32_t id = 0; id < v->n_tokens; id++) {
        /* Text written by a user must not merge into a control or byte token by accident. */
        bool is_text = v->types[id] != TOKEN_CONTROL && v->types[id] != TOKEN_UNKNOWN &&
                       v->types[id] != TOKEN_BYTE && v->table.texts[id].n > 0;
        v->ranks[id] = is_text ? rank_of_score((float)gguf_element_number(pair, id)) : NO_ID;
    }
    return STATUS_OK;
}

/* Finds <0x00> to <0xFF>, which are byte tokens even in a file that stores no types. */
static void find_byte_tokens(struct vocab *v, bool has_types)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", byte);
        uint32_t id = text_table_find(&v->table, text_of(name));
        v->byte_tokens[byte] = id;
        if (id != NO_ID && !has_types)
            v->types[id] = TOKEN_BYTE;
    }
}

enum status vocab_id_read(const struct vocab *v, const struct gguf_file *file, const char *path,
                          const char *key, int32_t absent, int32_t *id, struct error *err)
{
    *id = absent;
    if (!gguf_find(file, key))
        return STATUS_OK;
    int64_t value = -1;
    TRY(gguf_optional_integer(file, key, INT64_MIN, INT64_MAX, &value, err));
    if (value == -1 || value == UINT32_MAX) {
        *id = -1;
        return STATUS_OK;
    }
    if (value < 0 || value >= v->n_tokens)
        return fail(err, STATUS_FORMAT,
                    "%s: %s is %lld; the vocabulary has ids 0 to %u; the file is damaged", path,
                    key, (long long)value, v->n_tokens - 1);
    *id = (int32_t)value;
    return STATUS_OK;
}

/* The id that a kind uses when the file names none. Byte-level BPE has 11, after the first model of
 * that kind in GGUF; in most vocabularies 11 is a plain character, which must not end a text. */
static int32_t default_id(const struct vocab *v, int32_t spm, int32_t bpe)
{
    int32_t id = v->kind == VOCAB_SPM ? spm : bpe;
    if (id < 0 || (uint32_t)id >= v->n_tokens)
        return -1;
    if (v->kind == VOCAB_BPE && v->types[id] == TOKEN_NORMAL)
        return -1;
    return id;
}

static enum status read_specials(struct vocab *v, const struct gguf_file *file, const char *path,
                                 bool add_bos, struct error *err)
{
    TRY(vocab_id_read(v, file, path, "tokenizer.ggml.bos_token_id", default_id(v, 1, 11), &v->bos,
                      err));
    TRY(vocab_id_read(v, file, path, "tokenizer.ggml.eos_token_id", default_id(v, 2, 11), &v->eos,
                      err));
    TRY(vocab_id_read(v, file, path, "tokenizer.ggml.unknown_token_id", default_id(v, 0, -1),
                      &v->unknown, err));
    v->add_bos = add_bos;
    v->add_eos = false;
    v->add_space_prefix = v->kind == VOCAB_SPM;
    TRY(gguf_optional_bool(file, "tokenizer.ggml.add_bos_token", &v->add_bos, err));
    TRY(gguf_optional_bool(file, "tokenizer.ggml.add_eos_token", &v->add_eos, err));
    return gguf_optional_bool(file, "tokenizer.ggml.add_space_prefix", &v->add_space_prefix, err);
}

/* The most bytes a text can give on output, where an invalid byte becomes a three-byte U+FFFD. */
static size_t output_bound(struct text text, bool is_byte_level)
{
    for (size_t at = 0; at < text.n;) {
        int n = utf8_decode(text.bytes + at, text.n - at, NULL);
        if (n == 0)
            return 3 * text.n;
        at += (size_t)n;
    }
    /* a stand-in for an invalid byte takes two bytes */
    return is_byte_level ? text.n + (text.n + 1) / 2 : text.n;
}

static void measure(struct vocab *v)
{
    for (uint32_t id = 0; id < v->n_tokens; id++) {
        size_t n = output_bound(v->table.texts[id], v->kind == VOCAB_BPE);
        if (n > v->longest)
            v->longest = n;
    }
}

static enum status read_all(struct vocab *v, const struct gguf_file *file, const char *path,
                            bool add_bos, struct error *err)
{
    TRY(read_texts(v, file, path, err));
    TRY(read_types(v, file, path, err));
    if (v->kind == VOCAB_SPM)
        find_byte_tokens(v, gguf_find(file, "tokenizer.ggml.token_type") != NULL);
    measure(v);
    TRY(read_specials(v, file, path, add_bos, err));
    TRY(vocab_find_ends(v, file, path, err)); /* changes types, which the scores look at */
    return v->kind == VOCAB_SPM ? read_scores(v, file, path, err) : STATUS_OK;
}

enum status vocab_open(struct vocab *vocab, enum vocab_kind kind, const struct gguf_file *file,
                       const char *path, bool add_bos, struct error *err)
{
    *vocab = (struct vocab){.kind = kind};
    enum status status = read_all(vocab, file, path, add_bos, err);
    if (status != STATUS_OK)
        vocab_close(vocab);
    return status;
}

void vocab_close(struct vocab *vocab)
{
    text_table_done(&vocab->table);
    memory_free(vocab->types);
    memory_free(vocab->is_end);
    memory_free(vocab->ranks);
    *vocab = (struct vocab){0};
}
