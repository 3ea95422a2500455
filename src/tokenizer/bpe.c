/* Byte-level byte-pair encoding. */
#include "tokenizer/encoder.h"

#include <string.h>

#include "base/memory.h"
#include "gguf/gguf_metadata.h"

#define MERGES "tokenizer.ggml.merges"

/* The symbol of a text, made if there is none. The text is copied. */
static enum status intern(struct tokenizer *t, struct text text, uint32_t *symbol,
                          struct error *err)
{
    *symbol = text_table_find(&t->vocab.table, text);
    if (*symbol != NO_ID)
        return STATUS_OK;
    text.bytes = arena_text(&t->merges.texts, text.bytes, text.n);
    if (!text.bytes || !text_table_add(&t->vocab.table, text, symbol))
        return fail_memory(err, MERGES, text.n);
    return STATUS_OK;
}

/* Cuts "left right" at its first space behind the first byte. False: there is none. */
static bool split_merge(struct text merge, struct text *left, struct text *right)
{
    const char *space = merge.n < 3 ? NULL : memchr(merge.bytes + 1, ' ', merge.n - 2);
    if (!space)
        return false;
    *left = (struct text){merge.bytes, (size_t)(space - merge.bytes)};
    *right = (struct text){space + 1, merge.n - left->n - 1};
    return true;
}

/* Adds one rule. joined: room for the two texts together. */
static enum status add_merge(struct tokenizer *t, struct text left, struct text right,
                             uint32_t rank, char *joined, struct error *err)
{
    uint32_t left_symbol, right_symbol;
    TRY(intern(t, left, &left_symbol, err));
    TRY(intern(t, right, &right_symbol, err));
    memcpy(joined, left.bytes, left.n);
    memcpy(joined + left.n, right.bytes, right.n);
    TRY(intern(t, (struct text){joined, left.n + right.n}, &t->merges.results[rank], err));
    pair_map_add(&t->merges.ranks, left_symbol, right_symbol, rank);
    return STATUS_OK;
}

static size_t longest_string(const struct gguf_pair *pair)
{
    uint64_t at = 0;
    size_t longest = 0;
    for (uint64_t i = 0; i < pair->count; i++) {
        struct text text = gguf_next_string(pair, &at);
        longest = text.n > longest ? text.n : longest;
    }
    return longest;
}

static enum status read_merges(struct tokenizer *t, const struct gguf_pair *pair, const char *path,
                               struct error *err)
{
    char *joined = memory_alloc(longest_string(pair), 1);
    enum status status = joined ? STATUS_OK : fail_memory(err, MERGES, pair->count);
    uint64_t at = 0;
    for (uint32_t rank = 0; rank < pair->count && status == STATUS_OK; rank++) {
        struct text merge = gguf_next_string(pair, &at), left, right;
        if (split_merge(merge, &left, &right))
            status = add_merge(t, left, right, rank, joined, err);
        else
            status = fail(err, STATUS_FORMAT,
                          "%s: " MERGES ": element %u is '%.*s'; expected two texts with a space "
                          "between; the file is damaged",
                          path, rank, TEXT(merge));
    }
    memory_free(joined);
    return status;
}

static enum status init_bytes(struct tokenizer *t, struct error *err)
{
    for (int byte = 0; byte < 256; byte++) {
        char text[4];
        int n = utf8_encode(t->bytes.code[byte], text);
        TRY(intern(t, (struct text){text, (size_t)n}, &t->merges.byte_symbols[byte], err));
    }
    return STATUS_OK;
}

enum status bpe_open(struct tokenizer *t, const struct gguf_file *file, const char *path,
                     struct error *err)
{
    const struct gguf_pair *pair = gguf_find(file, MERGES);
    if (!pair)
        return fail(err, STATUS_FORMAT,
                    "%s: " MERGES " is absent; a vocabulary of tokenizer.ggml.model 'gpt2' needs "
                    "it; convert the model again",
                    path);
    if (pair->type != GGUF_ARRAY || pair->element != GGUF_STRING || pair->count >= UINT32_MAX / 2)
        return fail(err, STATUS_FORMAT,
                    "%s: " MERGES ": expected an array of fewer than 2^31 strings, found %s of "
                    "%llu",
                    path, gguf_type_name(pair->type), (unsigned long long)pair->count);
    t->merges.results = memory_alloc(pair->count, sizeof *t->merges.results);
    if (!t->merges.results || !pair_map_init(&t->merges.ranks, pair->count))
        return fail_memory(err, MERGES, pair->count * sizeof(struct pair_slot));
    TRY(init_bytes(t, err));
    return read_merges(t, pair, path, err);
}

void bpe_close(struct tokenizer *t)
{
    pair_map_done(&t->merges.ranks);
    memory_free(t->merges.results);
    arena_done(&t->merges.texts);
}

static uint32_t merge_rule(const struct tokenizer *t, const char *bytes,
                           const struct merge_symbol *left, const struct merge_symbol *right,
                           uint32_t *result)
{
    (void)bytes;
    uint32_t rank = pair_map_find(&t->merges.ranks, left->id, right->id);
    if (rank != NO_ID)
        *result = t->merges.results[rank];
    return rank;
}

/* The token that is the whole piece, or NO_ID. */
static enum status whole_token(struct encoder *e, struct text piece, uint32_t *id,
                               struct error *err)
{
    const struct vocab *v = &e->t->vocab;
    *id = NO_ID;
    if (piece.n > v->longest)
        return STATUS_OK;
    TRY(encoder_room(e, 2 * piece.n, err));
    size_t n = byte_map_encode(&e->t->bytes, piece.bytes, piece.n, e->buffer);
    uint32_t found = text_table_find(&v->table, (struct text){e->buffer, n});
    if (found < v->n_tokens && v->types[found] != TOKEN_CONTROL && v->types[found] != TOKEN_UNKNOWN)
        *id = found;
    return STATUS_OK;
}

/* Appends a symbol that is no token as the tokens of its bytes, as far as there are any. */
static enum status put_bytes(struct encoder *e, const char *bytes, uint32_t n, struct error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t symbol = e->t->merges.byte_symbols[(uint8_t)bytes[i]];
        if (symbol < e->t->vocab.n_tokens)
            TRY(encoder_put(e, symbol, err));
    }
    return STATUS_OK;
}

enum status bpe_encode_piece(void *encoder, struct text piece, struct error *err)
{
    struct encoder *e = encoder;
    struct merger *m = &e->merger;
    if (e->t->row->ignore_merges) {
        uint32_t id;
        TRY(whole_token(e, piece, &id, err));
        if (id != NO_ID)
            return encoder_put(e, id, err);
    }
    if (!merger_reset(m, piece.n))
        return fail_memory(err, "text to tokens", piece.n * sizeof *m->symbols);
    for (uint32_t i = 0; i < piece.n; i++)
        merger_add(m, i, 1, e->t->merges.byte_symbols[(uint8_t)piece.bytes[i]]);
    if (!merger_run(m, merge_rule, e->t, piece.bytes))
        return fail_memory(err, "text to tokens", piece.n * sizeof *m->heap.keys);
    for (uint32_t at = 0; at != NO_ID; at = m->symbols[at].next) {
        const struct merge_symbol *symbol = &m->symbols[at];
        if (symbol->id < e->t->vocab.n_tokens)
            TRY(encoder_put(e, symbol->id, err));
        else
            TRY(put_bytes(e, piece.bytes + symbol->start, symbol->n, err));
    }
    return STATUS_OK;
}
