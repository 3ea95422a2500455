#include "tokenizer/tokenizer.h"

#include <stdio.h>

#include "base/memory.h"
#include "gguf/gguf_metadata.h"
#include "tokenizer/encoder.h"

#define MAX_TEXT ((size_t)1 << 30) /* keeps every offset, also of marked spaces, below 2^32 */

/* Which expressions cut the text: by the caller's name, else by the file's. */
static enum status choose_row(const struct pretokenizer_row **row, const struct gguf_file *file,
                              const char *path, const char *name, struct error *err)
{
    char known[512];
    struct text stored = {0};
    pretokenizer_names(known, sizeof known);
    if (name) {
        *row = pretokenizer_find(text_of(name));
        if (!*row)
            return fail(err, STATUS_UNSUPPORTED, "--pre-tokenizer %s: unknown name; known are %s",
                        name, known);
        return STATUS_OK;
    }
    TRY(gguf_optional_string(file, "tokenizer.ggml.pre", &stored, err));
    *row = pretokenizer_find(stored);
    if (*row)
        return STATUS_OK;
    if (!stored.bytes)
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: tokenizer.ggml.pre is absent; name the model's with --pre-tokenizer "
                    "NAME, one of %s",
                    path, known);
    return fail(err, STATUS_UNSUPPORTED,
                "%s: tokenizer.ggml.pre is '%.*s', which is unknown; known are %s; choose one "
                "with --pre-tokenizer NAME if it cuts alike",
                path, TEXT(stored), known);
}

static enum status open_parts(struct tokenizer *t, const struct gguf_file *file, const char *path,
                              const char *pre_tokenizer, struct error *err)
{
    enum vocab_kind kind;
    TRY(vocab_kind_read(&kind, file, path, err));
    if (kind == VOCAB_SPM && pre_tokenizer)
        return fail(err, STATUS_UNSUPPORTED,
                    "--pre-tokenizer %s: %s has a SentencePiece vocabulary, which is not cut "
                    "before merging; leave the option out",
                    pre_tokenizer, path);
    if (kind == VOCAB_BPE)
        TRY(choose_row(&t->row, file, path, pre_tokenizer, err));
    TRY(vocab_open(&t->vocab, kind, file, path, t->row ? t->row->add_bos : true, err));
    TRY(special_tokens_open(&t->all_specials, &t->vocab, false, path, err));
    TRY(special_tokens_open(&t->user_specials, &t->vocab, true, path, err));
    if (kind == VOCAB_SPM) {
        snprintf(t->kind, sizeof t->kind, "SPM");
        return STATUS_OK;
    }
    snprintf(t->kind, sizeof t->kind, "BPE (%s)", t->row->name);
    byte_map_init(&t->bytes);
    TRY(pretokenizer_open(&t->pre, t->row, err));
    return bpe_open(t, file, path, err);
}

enum status tokenizer_open(struct tokenizer **tokenizer, const struct gguf_file *file,
                           const char *path, const char *pre_tokenizer, struct error *err)
{
    struct tokenizer *t = *tokenizer = memory_alloc(1, sizeof *t);
    if (!t)
        return fail_memory(err, path, sizeof *t);
    enum status status = open_parts(t, file, path, pre_tokenizer, err);
    if (status != STATUS_OK) {
        tokenizer_close(t);
        *tokenizer = NULL;
    }
    return status;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    bpe_close(t);
    pretokenizer_close(t->pre);
    special_tokens_close(&t->all_specials);
    special_tokens_close(&t->user_specials);
    vocab_close(&t->vocab);
    memory_free(t);
}

enum status encoder_put(struct encoder *e, uint32_t id, struct error *err)
{
    struct token_list *list = e->list;
    if (list->n == list->size) {
        size_t size = list->size * 2 + 64;
        int32_t *ids = memory_resize(list->ids, size, sizeof *ids);
        if (!ids)
            return fail_memory(err, "text to tokens", size * sizeof *ids);
        list->ids = ids;
        list->size = size;
    }
    list->ids[list->n++] = (int32_t)id;
    return STATUS_OK;
}

enum status encoder_room(struct encoder *e, size_t n, struct error *err)
{
    if (n <= e->buffer_size)
        return STATUS_OK;
    char *buffer = memory_resize(e->buffer, n, 1);
    if (!buffer)
        return fail_memory(err, "text to tokens", n);
    e->buffer = buffer;
    e->buffer_size = n;
    return STATUS_OK;
}

static enum status encode_raw(struct encoder *e, struct text text, struct error *err)
{
    return e->t->pre ? splitter_cut(e->splitter, text, err) : spm_encode(e, text, err);
}

/* Encodes what lies between special tokens, and these. owners: of special_tokens_cut, or NULL. */
static enum status encode_fragments(struct encoder *e, struct text text,
                                    const struct special_tokens *specials, const uint32_t *owners,
                                    struct error *err)
{
    if (!owners)
        return text.n ? encode_raw(e, text, err) : STATUS_OK;
    for (size_t at = 0; at < text.n;) {
        size_t begin = at;
        while (at < text.n && !owners[at])
            at++;
        if (at > begin)
            TRY(encode_raw(e, (struct text){text.bytes + begin, at - begin}, err));
        if (at < text.n) {
            const struct special_node *node = &specials->nodes[owners[at]];
            TRY(encoder_put(e, (uint32_t)node->id, err));
            at += node->length;
        }
    }
    return STATUS_OK;
}

static enum status encode(struct encoder *e, struct text text, bool add_special,
                          const struct special_tokens *specials, const uint32_t *owners,
                          struct error *err)
{
    const struct vocab *v = &e->t->vocab;
    bool begins_with_bos = text.n && owners && owners[0] && specials->nodes[owners[0]].id == v->bos;
    if (add_special && v->add_bos && v->bos >= 0 && !begins_with_bos)
        TRY(encoder_put(e, (uint32_t)v->bos, err));
    TRY(encode_fragments(e, text, specials, owners, err));
    if (add_special && v->add_eos && v->eos >= 0)
        TRY(encoder_put(e, (uint32_t)v->eos, err));
    return STATUS_OK;
}

enum status tokenizer_encode(const struct tokenizer *t, struct text text, bool add_special,
                             bool parse_special, struct token_list *list, struct error *err)
{
    if (text.n > MAX_TEXT)
        return fail(err, STATUS_LIMIT, "text of %zu bytes; at most %zu become tokens at once",
                    text.n, MAX_TEXT);
    const struct special_tokens *specials = parse_special ? &t->all_specials : &t->user_specials;
    struct encoder e = {.t = t, .list = list};
    uint32_t *owners = NULL;
    size_t n_before = list->n;
    enum status status = special_tokens_cut(specials, text, &owners, err);
    if (status == STATUS_OK && t->pre)
        status = splitter_open(&e.splitter, t->pre, bpe_encode_piece, &e, err);
    if (status == STATUS_OK)
        status = encode(&e, text, add_special, specials, owners, err);
    if (status != STATUS_OK)
        list->n = n_before;
    splitter_close(e.splitter);
    merger_done(&e.merger);
    memory_free(e.buffer);
    memory_free(owners);
    return status;
}

void token_list_done(struct token_list *list)
{
    memory_free(list->ids);
    *list = (struct token_list){0};
}

int32_t tokenizer_n_vocab(const struct tokenizer *t)
{
    return (int32_t)t->vocab.n_tokens;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->vocab.bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->vocab.eos;
}

bool tokenizer_is_end(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && (uint32_t)id < t->vocab.n_tokens && t->vocab.is_end[id];
}

const char *tokenizer_kind(const struct tokenizer *t)
{
    return t->kind;
}

size_t tokenizer_longest(const struct tokenizer *t)
{
    return t->vocab.longest;
}
