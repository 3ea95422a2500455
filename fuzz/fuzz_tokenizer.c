/* Encodes the input with one of four small vocabularies and turns the tokens back into text. The
 * first byte chooses the vocabulary. */
#include "../tests/tokenizer/vocab_fixture.h"

#define N_WORLDS  4
#define MAX_INPUT 65536

static struct fixture worlds[N_WORLDS];
static bool is_spm[N_WORLDS] = {true, false, false, false};

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* Specials that overlap and nest, in a vocabulary with few merges. */
static void make_specials(struct fixture *f, struct token_rows *rows)
{
    static const char *const texts[] = {"<a>", "<a><b>", "b><", "  ",  "   ",
                                        "aab", "ab",     "b",   "\xff"};
    rows_add_bpe_bytes(rows);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        rows_add(rows, text_of(texts[i]), i % 2 ? TOKEN_USER_DEFINED : TOKEN_CONTROL, 0);
    struct text merge = text_of("a a");
    fixture_rows(f, "gpt2", rows);
    fixture_texts(f, "merges", &merge, 1);
}

static void make_worlds(void)
{
    static struct token_rows rows[N_WORLDS];
    fixture_spm(&worlds[0], &rows[0]);
    fixture_bpe(&worlds[1], &rows[1], "llama-bpe");
    fixture_bpe(&worlds[2], &rows[2], "default");
    make_specials(&worlds[3], &rows[3]);
    for (int i = 0; i < N_WORLDS; i++)
        require(fixture_open(&worlds[i], i == 3 ? "qwen35" : NULL, NULL) == STATUS_OK);
}

/* The tokens as bytes, equal to the text where the vocabulary loses nothing. */
static void check_bytes(const struct tokenizer *t, const struct token_list *list, const char *text,
                        size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < list->n; i++) {
        char bytes[64];
        size_t length = token_bytes(t, list->ids[i], true, bytes, sizeof bytes);
        require(at + length <= n && memcmp(bytes, text + at, length) == 0);
        at += length;
    }
    require(at == n);
}

/* The stream is valid UTF-8 in every part. */
static void check_stream(const struct tokenizer *t, const struct token_list *list, bool special)
{
    struct detokenizer d;
    char out[256];
    size_t room = tokenizer_longest(t) + 16;
    require(room <= sizeof out);
    detokenizer_init(&d, t, special, true);
    for (size_t i = 0; i <= list->n; i++) {
        size_t n = i < list->n ? detokenizer_next(&d, list->ids[i], out, room)
                               : detokenizer_finish(&d, out, room);
        require(n <= room);
        for (size_t at = 0; at < n;) {
            int length = utf8_decode(out + at, n - at, NULL);
            require(length > 0);
            at += (size_t)length;
        }
    }
}

static void check(int world, const char *text, size_t n, bool parse_special)
{
    const struct tokenizer *t = worlds[world].tokenizer;
    struct token_list list = {0};
    require(tokenizer_encode(t, (struct text){text, n}, false, parse_special, &list, NULL) ==
            STATUS_OK);
    for (size_t i = 0; i < list.n; i++)
        require(list.ids[i] >= 0 && list.ids[i] < tokenizer_n_vocab(t));
    if (!is_spm[world])
        check_bytes(t, &list, text, n);
    check_stream(t, &list, parse_special);
    token_list_done(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!worlds[0].tokenizer)
        make_worlds();
    if (size == 0 || size > MAX_INPUT)
        return 0;
    check(data[0] % N_WORLDS, (const char *)data + 1, size - 1, false);
    check(data[0] % N_WORLDS, (const char *)data + 1, size - 1, true);
    return 0;
}
