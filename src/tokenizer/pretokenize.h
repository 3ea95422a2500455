/* Cuts text into the pieces within which byte-level BPE merges, by the regular expressions that
 * belong to a name. The pieces together are the text. Bytes that are not UTF-8 form pieces of their
 * own: the expressions see valid text only, and no byte is lost. */
#ifndef TRINE_TOKENIZER_PRETOKENIZE_H
#define TRINE_TOKENIZER_PRETOKENIZE_H

#include "base/error.h"
#include "base/text.h"

/* What a name stands for. */
struct pretokenizer_row {
    const char *name; /* as in tokenizer.ggml.pre */
    int set;
    bool ignore_merges; /* a piece that is a token as a whole is not merged */
    bool add_bos;       /* if the file does not say */
};

/* NULL for an unknown name. */
const struct pretokenizer_row *pretokenizer_find(struct text name);

/* Writes the known names, separated by commas. */
void pretokenizer_names(char *out, size_t size);

/* The compiled expressions; shared by threads. */
struct pretokenizer;
enum status pretokenizer_open(struct pretokenizer **pre, const struct pretokenizer_row *row,
                              struct error *err);
void pretokenizer_close(struct pretokenizer *pre);

/* Called for each piece in order; stops the cutting unless it returns STATUS_OK. */
typedef enum status piece_visit(void *user, struct text piece, struct error *err);

/* What one thread needs to cut texts. */
struct splitter;
enum status splitter_open(struct splitter **splitter, const struct pretokenizer *pre,
                          piece_visit *visit, void *user, struct error *err);
void splitter_close(struct splitter *splitter);

/* errors: MEMORY, LIMIT, those of visit */
enum status splitter_cut(struct splitter *splitter, struct text text, struct error *err);

#endif
