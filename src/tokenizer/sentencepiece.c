/* SentencePiece vocabularies with scores: the pair whose text is the token of the highest score
 * merges first. */
#include "tokenizer/encoder.h"

#include <string.h>

#include "base/memory.h"

#define SPACE_MARK "\xe2\x96\x81" /* U+2581 stands for a space */

/* Writes the text with its spaces marked to the buffer; *n gets the length. */
static enum status mark_spaces(struct encoder *e, struct text text, size_t *n, struct error *err)
{
    const size_t mark = sizeof SPACE_MARK - 1;
    TRY(encoder_room(e, mark * (text.n + 1), err));
    char *out = e->buffer;
    if (e->t->vocab.add_space_prefix)
        out = mempcpy(out, SPACE_MARK, mark);
    for (size_t i = 0; i < text.n; i++) {
        if (text.bytes[i] == ' ')
            out = mempcpy(out, SPACE_MARK, mark);
        else
            *out++ = text.bytes[i];
    }
    *n = (size_t)(out - e->buffer);
    return STATUS_OK;
}

/* The token of a text that text may merge to, or NO_ID. */
static uint32_t find_token(const struct vocab *v, struct text text)
{
    if (text.n > v->longest)
        return NO_ID;
    uint32_t id = text_table_find(&v->table, text);
    return id != NO_ID && v->ranks[id] != NO_ID ? id : NO_ID;
}

static uint32_t score_rule(const struct tokenizer *t, const char *bytes,
                           const struct merge_symbol *left, const struct merge_symbol *right,
                           uint32_t *result)
{
    uint32_t id =
        find_token(&t->vocab, (struct text){bytes + left->start, (size_t)left->n + right->n});
    *result = id;
    return id == NO_ID ? NO_ID : t->vocab.ranks[id];
}

/* Appends a symbol that is no token: as its bytes, or as the unknown token if one of them has no
 * token. */
static enum status put_bytes(struct encoder *e, const char *bytes, uint32_t n, struct error *err)
{
    const struct vocab *v = &e->t->vocab;
    for (uint32_t i = 0; i < n; i++)
        if (v->byte_tokens[(uint8_t)bytes[i]] == NO_ID)
            return v->unknown < 0 ? STATUS_OK : encoder_put(e, (uint32_t)v->unknown, err);
    for (uint32_t i = 0; i < n; i++)
        TRY(encoder_put(e, v->byte_tokens[(uint8_t)bytes[i]], err));
    return STATUS_OK;
}

enum status spm_encode(struct encoder *e, struct text text, struct error *err)
{
    struct merger *m = &e->merger;
    size_t n;
    TRY(mark_spaces(e, text, &n, err));
    if (!merger_reset(m, text.n + 1))
        return fail_memory(err, "text to tokens", text.n * sizeof *m->symbols);
    for (uint32_t at = 0; at < n;) {
        int length = utf8_decode(e->buffer + at, n - at, NULL);
        uint32_t bytes = length ? (uint32_t)length : 1;
        merger_add(m, at, bytes, find_token(&e->t->vocab, (struct text){e->buffer + at, bytes}));
        at += bytes;
    }
    if (!merger_run(m, score_rule, e->t, e->buffer))
        return fail_memory(err, "text to tokens", n * sizeof *m->heap.keys);
    for (uint32_t at = 0; at != NO_ID; at = m->symbols[at].next) {
        const struct merge_symbol *symbol = &m->symbols[at];
        if (symbol->id != NO_ID)
            TRY(encoder_put(e, symbol->id, err));
        else
            TRY(put_bytes(e, e->buffer + symbol->start, symbol->n, err));
    }
    return STATUS_OK;
}
