/* Small vocabularies built in memory as GGUF bytes, for tests and fuzzing. */
#ifndef TRINE_TESTS_VOCAB_FIXTURE_H
#define TRINE_TESTS_VOCAB_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/reader.h"
#include "tensor/formats.h"
#include "tokenizer/byte_map.h"
#include "tokenizer/tokenizer.h"

struct fixture {
    uint8_t *bytes; /* owned: the GGUF file */
    size_t n, size;
    uint64_t n_pairs;
    struct gguf_file file;
    struct tokenizer *tokenizer; /* owned */
};

static inline void fixture_put(struct fixture *f, const void *bytes, size_t n)
{
    if (f->n + n > f->size) {
        f->size = 2 * (f->n + n) + 256;
        f->bytes = realloc(f->bytes, f->size);
        if (!f->bytes)
            abort();
    }
    if (n)
        memcpy(f->bytes + f->n, bytes, n);
    f->n += n;
}

static inline void fixture_number(struct fixture *f, uint64_t value, size_t n_bytes)
{
    uint8_t bytes[8];
    store_u64(bytes, value);
    fixture_put(f, bytes, n_bytes);
}

static inline void fixture_text(struct fixture *f, struct text text)
{
    fixture_number(f, text.n, 8);
    fixture_put(f, text.bytes, text.n);
}

/* Begins a pair; its value follows. */
static inline void fixture_key(struct fixture *f, const char *key, enum gguf_type type)
{
    if (f->n == 0) { /* the header; the number of pairs comes in fixture_open */
        fixture_put(f, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
    }
    char name[64];
    snprintf(name, sizeof name, "tokenizer.ggml.%s", key);
    fixture_text(f, text_of(name));
    fixture_number(f, type, 4);
    f->n_pairs++;
}

static inline void fixture_string(struct fixture *f, const char *key, const char *value)
{
    fixture_key(f, key, GGUF_STRING);
    fixture_text(f, text_of(value));
}

static inline void fixture_u32(struct fixture *f, const char *key, uint32_t value)
{
    fixture_key(f, key, GGUF_UINT32);
    fixture_number(f, value, 4);
}

static inline void fixture_bool(struct fixture *f, const char *key, bool value)
{
    fixture_key(f, key, GGUF_BOOL);
    fixture_number(f, value, 1);
}

static inline void fixture_array(struct fixture *f, const char *key, enum gguf_type element,
                                 uint64_t n)
{
    fixture_key(f, key, GGUF_ARRAY);
    fixture_number(f, element, 4);
    fixture_number(f, n, 8);
}

static inline void fixture_texts(struct fixture *f, const char *key, const struct text *texts,
                                 size_t n)
{
    fixture_array(f, key, GGUF_STRING, n);
    for (size_t i = 0; i < n; i++)
        fixture_text(f, texts[i]);
}

static inline void fixture_f32s(struct fixture *f, const char *key, const float *values, size_t n)
{
    fixture_array(f, key, GGUF_FLOAT32, n);
    for (size_t i = 0; i < n; i++) {
        uint8_t bytes[4];
        store_f32(bytes, values[i]);
        fixture_put(f, bytes, 4);
    }
}

static inline void fixture_i32s(struct fixture *f, const char *key, const int32_t *values, size_t n)
{
    fixture_array(f, key, GGUF_INT32, n);
    for (size_t i = 0; i < n; i++)
        fixture_number(f, (uint32_t)values[i], 4);
}

/* Opens what was put together. Call once. */
static inline enum status fixture_open(struct fixture *f, const char *pre, struct error *err)
{
    store_u64(f->bytes + 16, f->n_pairs);
    TRY(gguf_open_bytes(&f->file, f->bytes, f->n, "fixture", format_resolve, err));
    return tokenizer_open(&f->tokenizer, &f->file, "fixture", pre, err);
}

static inline void fixture_close(struct fixture *f)
{
    tokenizer_close(f->tokenizer);
    gguf_close(&f->file);
    free(f->bytes);
    *f = (struct fixture){0};
}

/* A vocabulary being listed: texts, types and scores together. */
#define MAX_FIXTURE_TOKENS 1024
struct token_rows {
    struct text texts[MAX_FIXTURE_TOKENS];
    int32_t types[MAX_FIXTURE_TOKENS];
    float scores[MAX_FIXTURE_TOKENS];
    size_t n;
    char room[8192]; /* of texts made up here */
    size_t n_room;
};

static inline void rows_add(struct token_rows *rows, struct text text, int32_t type, float score)
{
    if (rows->n == MAX_FIXTURE_TOKENS)
        abort();
    rows->texts[rows->n] = text;
    rows->types[rows->n] = type;
    rows->scores[rows->n++] = score;
}

static inline struct text rows_copy(struct token_rows *rows, const char *bytes, size_t n)
{
    char *copy = rows->room + rows->n_room;
    if (rows->n_room + n > sizeof rows->room)
        abort();
    memcpy(copy, bytes, n);
    rows->n_room += n;
    return (struct text){copy, n};
}

/* The 256 byte tokens of SPM. */
static inline void rows_add_spm_bytes(struct token_rows *rows)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        int n = snprintf(name, sizeof name, "<0x%02X>", byte);
        rows_add(rows, rows_copy(rows, name, (size_t)n), TOKEN_BYTE, 0);
    }
}

/* The 256 characters of byte-level BPE. */
static inline void rows_add_bpe_bytes(struct token_rows *rows)
{
    struct byte_map map;
    byte_map_init(&map);
    for (int byte = 0; byte < 256; byte++) {
        char text[4], raw = (char)byte;
        size_t n = byte_map_encode(&map, &raw, 1, text);
        rows_add(rows, rows_copy(rows, text, n), TOKEN_NORMAL, 0);
    }
}

static inline void fixture_rows(struct fixture *f, const char *model, const struct token_rows *rows)
{
    fixture_string(f, "model", model);
    fixture_texts(f, "tokens", rows->texts, rows->n);
    fixture_i32s(f, "token_type", rows->types, rows->n);
    if (strcmp(model, "llama") == 0)
        fixture_f32s(f, "scores", rows->scores, rows->n);
}

/* SPM: <unk> <s> </s>, bytes from id 3, then a few letters and words. */
static inline void fixture_spm(struct fixture *f, struct token_rows *rows)
{
    static const char *const words[] = {"▁",   "a",  "b",   "c",    "o", "n",  "e",  "▁a",  "ab",
                                        "abc", "on", "one", "▁one", "é", "▁▁", "aa", "aaaa"};
    rows_add(rows, text_of("<unk>"), TOKEN_UNKNOWN, 0);
    rows_add(rows, text_of("<s>"), TOKEN_CONTROL, 0);
    rows_add(rows, text_of("</s>"), TOKEN_CONTROL, 0);
    rows_add_spm_bytes(rows);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        rows_add(rows, text_of(words[i]), TOKEN_NORMAL, -(float)i);
    fixture_rows(f, "llama", rows);
}

/* BPE: bytes from id 0, then results of merges, then specials. */
static inline void fixture_bpe(struct fixture *f, struct token_rows *rows, const char *pre)
{
    static const char *const merges[] = {"t h",
                                         "th e",
                                         "\xc4\xa0 the",
                                         "a a",
                                         "aa aa",
                                         "\xc4\xa0 \xc4\xa0",
                                         "\xc4\xa0\xc4\xa0 \xc4\xa0\xc4\xa0",
                                         "o n",
                                         "on e",
                                         "1 2"};
    struct text texts[sizeof merges / sizeof *merges];
    size_t n = sizeof merges / sizeof *merges;
    rows_add_bpe_bytes(rows);
    for (size_t i = 0; i < n; i++) {
        texts[i] = text_of(merges[i]);
        const char *space = strchr(merges[i], ' ');
        char joined[32];
        int length = snprintf(joined, sizeof joined, "%.*s%s", (int)(space - merges[i]), merges[i],
                              space + 1);
        rows_add(rows, rows_copy(rows, joined, (size_t)length), TOKEN_NORMAL, 0);
    }
    rows_add(rows, text_of("<|bos|>"), TOKEN_CONTROL, 0);
    rows_add(rows, text_of("<|endoftext|>"), TOKEN_CONTROL, 0);
    rows_add(rows, text_of("<tool>"), TOKEN_USER_DEFINED, 0);
    fixture_rows(f, "gpt2", rows);
    fixture_texts(f, "merges", texts, n);
    if (pre)
        fixture_string(f, "pre", pre);
    fixture_u32(f, "bos_token_id", (uint32_t)rows->n - 3);
    fixture_u32(f, "eos_token_id", (uint32_t)rows->n - 2);
}

#endif
