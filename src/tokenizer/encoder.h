/* The work of turning one text into tokens. */
#ifndef TRINE_TOKENIZER_ENCODER_H
#define TRINE_TOKENIZER_ENCODER_H

#include "tokenizer/pair_merge.h"

struct encoder {
    const struct tokenizer *t; /* borrowed */
    struct token_list *list;   /* borrowed: the tokens go here */
    struct merger merger;
    struct splitter *splitter; /* owned; BPE */
    char *buffer;              /* owned: a text as the vocabulary writes it */
    size_t buffer_size;
};

/* Appends one token. errors: MEMORY */
enum status encoder_put(struct encoder *e, uint32_t id, struct error *err);

/* Grows the buffer to n bytes. errors: MEMORY */
enum status encoder_room(struct encoder *e, size_t n, struct error *err);

/* Reads tokenizer.ggml.merges. errors: FORMAT, MEMORY */
enum status bpe_open(struct tokenizer *t, const struct gguf_file *file, const char *path,
                     struct error *err);
void bpe_close(struct tokenizer *t);

/* Appends the tokens of one piece of the pre-tokenizer; a piece_visit whose user is the encoder. */
enum status bpe_encode_piece(void *encoder, struct text piece, struct error *err);

/* Appends the tokens of a text without special tokens. */
enum status spm_encode(struct encoder *e, struct text text, struct error *err);

#endif
