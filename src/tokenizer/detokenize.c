/* Tokens back to bytes, and bytes to whole characters. */
#include <string.h>

#include "tokenizer/tokenizer_state.h"

#define SPACE_MARK    "\xe2\x96\x81"
#define REPLACEMENT   "\xef\xbf\xbd" /* U+FFFD */
#define N_REPLACEMENT 3

/* What is left of a token's text while it is turned into bytes. */
struct token_walk {
    const struct tokenizer *t;
    struct text text;
    uint8_t type;
};

static struct token_walk walk_token(const struct tokenizer *t, int32_t id, bool special)
{
    struct token_walk walk = {.t = t};
    if (id < 0 || (uint32_t)id >= t->vocab.n_tokens)
        return walk;
    walk.type = t->vocab.types[id];
    bool is_hidden =
        walk.type == TOKEN_CONTROL || walk.type == TOKEN_UNKNOWN || walk.type == TOKEN_UNUSED;
    if (special || !is_hidden)
        walk.text = t->vocab.table.texts[id];
    return walk;
}

static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

/* The byte that <0xXX> means, or -1. */
static int byte_of_text(struct text text)
{
    if (text.n != 6 || !text_starts(text, "<0x") || text.bytes[5] != '>')
        return -1;
    int high = hex_value(text.bytes[3]), low = hex_value(text.bytes[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* Takes `used` bytes of the text, which stand for n bytes. */
static size_t take(struct token_walk *walk, size_t used, const char *bytes, size_t n, char out[4])
{
    memcpy(out, bytes, n);
    walk->text.bytes += used;
    walk->text.n -= used;
    return n;
}

/* The next one to four bytes; 0 at the end. */
static size_t walk_next(struct token_walk *walk, char out[4])
{
    struct text text = walk->text;
    if (text.n == 0)
        return 0;
    if (walk->type == TOKEN_BYTE && byte_of_text(text) >= 0) {
        char byte = (char)byte_of_text(text);
        return take(walk, text.n, &byte, 1, out);
    }
    if (walk->type != TOKEN_NORMAL)
        return take(walk, 1, text.bytes, 1, out);
    if (walk->t->vocab.kind == VOCAB_SPM) {
        if (text_starts(text, SPACE_MARK))
            return take(walk, sizeof SPACE_MARK - 1, " ", 1, out);
        return take(walk, 1, text.bytes, 1, out);
    }
    uint32_t code;
    int length = utf8_decode(text.bytes, text.n, &code);
    if (length == 0)
        return take(walk, 1, text.bytes, 1, out);
    if (code < N_BYTE_CODES && walk->t->bytes.byte[code] >= 0) {
        char byte = (char)walk->t->bytes.byte[code];
        return take(walk, (size_t)length, &byte, 1, out);
    }
    return take(walk, (size_t)length, text.bytes, (size_t)length, out);
}

size_t token_bytes(const struct tokenizer *t, int32_t id, bool special, char *out, size_t size)
{
    struct token_walk walk = walk_token(t, id, special);
    char bytes[4];
    size_t n = 0;
    for (size_t k; (k = walk_next(&walk, bytes)) > 0 && n + k <= size; n += k)
        memcpy(out + n, bytes, k);
    return n;
}

void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool special, bool at_start)
{
    *d = (struct detokenizer){.tokenizer = t, .special = special, .at_start = at_start};
}

/* Output with a fixed end; what does not fit is left out whole. */
struct bounded {
    char *bytes;
    size_t n, size;
};

static void emit(struct bounded *out, const char *bytes, int n)
{
    if (out->size - out->n < (size_t)n)
        return;
    memcpy(out->bytes + out->n, bytes, (size_t)n);
    out->n += (size_t)n;
}

static void drop_held(struct detokenizer *d, int n)
{
    d->n_held -= n;
    memmove(d->held, d->held + n, (size_t)d->n_held);
}

/* Adds a byte, and emits what it completes: a character, or U+FFFD for each longest sequence that
 * no byte could complete. */
static void add_byte(struct detokenizer *d, char byte, struct bounded *out)
{
    d->held[d->n_held++] = byte;
    while (d->n_held > 0) {
        size_t n = (size_t)d->n_held;
        int length = utf8_decode(d->held, n, NULL);
        if (length > 0) {
            emit(out, d->held, length);
            drop_held(d, length);
        } else if (utf8_incomplete_tail(d->held, n) == d->n_held) {
            return;
        } else {
            /* before the last byte the held ones were a good beginning: it is the last that breaks
             * them, and it may begin something itself */
            emit(out, REPLACEMENT, N_REPLACEMENT);
            drop_held(d, n > 1 ? d->n_held - 1 : 1);
        }
    }
}

/* True for the space that an SPM vocabulary puts before a text. */
static bool is_added_space(const struct detokenizer *d, char first)
{
    const struct vocab *v = &d->tokenizer->vocab;
    return d->at_start && v->kind == VOCAB_SPM && v->add_space_prefix && first == ' ';
}

size_t detokenizer_next(struct detokenizer *d, int32_t id, char *out, size_t size)
{
    struct token_walk walk = walk_token(d->tokenizer, id, d->special);
    struct bounded bounded = {out, 0, size};
    bool is_text = walk.type != TOKEN_CONTROL && walk.type != TOKEN_UNKNOWN;
    char bytes[4];
    for (size_t n; (n = walk_next(&walk, bytes)) > 0;) {
        bool skip = is_text && is_added_space(d, bytes[0]);
        if (is_text)
            d->at_start = false;
        for (size_t i = 0; i < n && !skip; i++)
            add_byte(d, bytes[i], &bounded);
    }
    return bounded.n;
}

size_t detokenizer_finish(struct detokenizer *d, char *out, size_t size)
{
    struct bounded bounded = {out, 0, size};
    if (d->n_held)
        emit(&bounded, REPLACEMENT, N_REPLACEMENT);
    d->n_held = 0;
    return bounded.n;
}
