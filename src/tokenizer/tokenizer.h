/* Text to tokens and back, from the vocabulary a GGUF file carries. Two kinds: SPM (SentencePiece
 * with scores) and byte-level BPE with a pre-tokenizer. Anything else is refused. */
#ifndef TRINE_TOKENIZER_TOKENIZER_H
#define TRINE_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/text.h"
#include "gguf/gguf_read.h"

struct tokenizer;

enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6
};

struct token_list {
    int32_t *ids; /* owned: free with token_list_done */
    size_t n, size;
};

/* Reads the vocabulary. pre_tokenizer: overrides tokenizer.ggml.pre, or NULL to use the file's; SPM
 * has none and ignores it. The texts point into the file's mapping, which must outlive the
 * tokenizer; path need not. On error *tokenizer is NULL.
 * errors  UNSUPPORTED for no vocabulary, an unknown kind, or an absent or unknown pre-tokenizer
 * (the text lists the known names and the option --pre-tokenizer); FORMAT for inconsistent arrays
 * and ids out of range; MEMORY. */
enum status tokenizer_open(struct tokenizer **tokenizer, const struct gguf_file *file,
                           const char *path, const char *pre_tokenizer, struct error *err);
void tokenizer_close(struct tokenizer *tokenizer);

/* Appends the tokens of text to list. add_special: the beginning- and end-of-text tokens the file
 * asks for (no second BOS if the text begins with one); parse_special: control tokens written out
 * in the text become tokens (user-defined ones always do). Any bytes are text, also invalid UTF-8.
 * Takes O(n log n) for n bytes, whatever they are. Any number of threads may encode at once. On
 * error the list is as before. errors: MEMORY; LIMIT above 1 GiB of text */
enum status tokenizer_encode(const struct tokenizer *t, struct text text, bool add_special,
                             bool parse_special, struct token_list *list, struct error *err);
void token_list_done(struct token_list *list);

int32_t tokenizer_n_vocab(const struct tokenizer *t);
int32_t tokenizer_bos(const struct tokenizer *t);             /* -1: none */
int32_t tokenizer_eos(const struct tokenizer *t);             /* -1: none */
bool tokenizer_is_end(const struct tokenizer *t, int32_t id); /* any end-of-generation token */
const char *tokenizer_kind(const struct tokenizer *t); /* "SPM" or "BPE (llama-bpe)" for messages */

/* Bytes that this token stands for in running text ("" for control, unknown and unused tokens and
 * for ids out of range), written to out; returns how many were written, never more than size.
 * special: control, unknown and unused tokens as their text. */
size_t token_bytes(const struct tokenizer *t, int32_t id, bool special, char *out, size_t size);

/* Streaming detokenisation: emits only whole UTF-8 characters and holds back the bytes of an
 * unfinished one; drops the leading space an SPM model adds to a text. */
struct detokenizer {
    const struct tokenizer *tokenizer; /* borrowed */
    bool special;                      /* show control tokens */
    bool at_start;                     /* no text emitted yet */
    char held[4];
    int n_held;
};
void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool special,
                      bool at_start);

/* Bytes that are complete after this token; out must hold token text + 16 bytes (see
 * tokenizer_longest). Invalid bytes come out as U+FFFD. Returns the number of bytes. */
size_t detokenizer_next(struct detokenizer *d, int32_t id, char *out, size_t size);

/* What is left at the end: U+FFFD for an unfinished character. */
size_t detokenizer_finish(struct detokenizer *d, char *out, size_t size);

/* The most bytes one token adds to a text, for buffers: the longest token text, counting invalid
 * bytes as the three of U+FFFD. */
size_t tokenizer_longest(const struct tokenizer *t);

#endif
