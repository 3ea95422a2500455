/* The vocabulary as the file stores it: texts, types, scores and the ids with a meaning. Knows
 * nothing of how text is cut or merged. */
#ifndef TRINE_TOKENIZER_VOCAB_H
#define TRINE_TOKENIZER_VOCAB_H

#include "gguf/gguf_read.h"
#include "tokenizer/text_table.h"
#include "tokenizer/tokenizer.h"

enum vocab_kind { VOCAB_SPM, VOCAB_BPE };

struct vocab {
    enum vocab_kind kind;
    uint32_t n_tokens;
    struct text_table table; /* token texts by id; behind them what the merge rules add */
    uint8_t *types;          /* owned: enum token_type */
    bool *is_end;            /* owned: ends a generation */
    uint32_t *ranks;         /* owned; SPM: 0 = highest score; NO_ID for tokens no text merges to */
    uint32_t byte_tokens[256]; /* SPM: <0xXX>; NO_ID for a missing one */
    int32_t bos, eos, unknown; /* -1: none */
    bool add_bos, add_eos, add_space_prefix;
    size_t longest; /* bytes a token can give on output at most */
};

/* The kind by tokenizer.ggml.model. errors: UNSUPPORTED for an unknown or absent one. */
enum status vocab_kind_read(enum vocab_kind *kind, const struct gguf_file *file, const char *path,
                            struct error *err);

/* add_bos: whether to add one if the file says nothing. Closes itself on error.
 * errors  UNSUPPORTED without tokens; FORMAT for arrays that do not fit together, for ids out of
 *         range; MEMORY */
enum status vocab_open(struct vocab *vocab, enum vocab_kind kind, const struct gguf_file *file,
                       const char *path, bool add_bos, struct error *err);

/* Accepts a zeroed object. */
void vocab_close(struct vocab *vocab);

/* Marks the tokens that end a generation: those the file names and those known by their text,
 * which become control tokens. errors: FORMAT, MEMORY */
enum status vocab_find_ends(struct vocab *vocab, const struct gguf_file *file, const char *path,
                            struct error *err);

/* The id a key gives: -1 when it is unset (-1 or 0xFFFFFFFF), `absent` when there is no such key.
 * errors: FORMAT when it is no token of the vocabulary */
enum status vocab_id_read(const struct vocab *vocab, const struct gguf_file *file, const char *path,
                          const char *key, int32_t absent, int32_t *id, struct error *err);

#endif
