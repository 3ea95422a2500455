/* Tokens back to text: what each type shows, characters cut across tokens, invalid bytes, and round
 * trips. */
#include <string.h>

#include "vocab_fixture.h"

#include "../support.h" /* after base/error.h: cmocka has a macro named fail */

static struct token_rows rows;

static void open_spm(struct fixture *f)
{
    memset(&rows, 0, sizeof rows);
    *f = (struct fixture){0};
    fixture_spm(f, &rows);
    assert_int_equal(fixture_open(f, NULL, NULL), STATUS_OK);
}

static void open_bpe(struct fixture *f, const char *pre)
{
    memset(&rows, 0, sizeof rows);
    *f = (struct fixture){0};
    fixture_bpe(f, &rows, pre);
    assert_int_equal(fixture_open(f, NULL, NULL), STATUS_OK);
}

/* Streams tokens into out, a terminated text, with '|' after each token if `marked`. */
static void stream(const struct tokenizer *t, const int32_t *ids, size_t n, bool special,
                   bool marked, char *out, size_t size)
{
    struct detokenizer d;
    size_t at = 0;
    detokenizer_init(&d, t, special, true);
    for (size_t i = 0; i < n; i++) {
        assert_true(size - at > tokenizer_longest(t) + 16);
        at += detokenizer_next(&d, ids[i], out + at, tokenizer_longest(t) + 16);
        if (marked)
            out[at++] = '|';
    }
    at += detokenizer_finish(&d, out + at, size - at);
    assert_int_equal(detokenizer_finish(&d, out + at, size - at), 0);
    out[at] = 0;
}

static void expect_stream(const struct fixture *f, const int32_t *ids, size_t n, bool special,
                          const char *want)
{
    char out[1024];
    stream(f->tokenizer, ids, n, special, true, out, sizeof out);
    assert_string_equal(out, want);
}

#define BYTE(b) (3 + (b)) /* id of a byte token of the SPM vocabulary */
#define WORD(i) (259 + (i))

static void test_emoji_from_four_tokens(void **state)
{
    (void)state;
    struct fixture f;
    open_spm(&f);
    static const int32_t ids[] = {WORD(12),   BYTE(0xf0), BYTE(0x9f),
                                  BYTE(0x98), BYTE(0x80), BYTE('!')};
    expect_stream(&f, ids, 6, false, "one||||\xf0\x9f\x98\x80|!|");
    expect_stream(&f, ids, 3, false, "one|||\xef\xbf\xbd");
    expect_stream(&f, ids, 1, false, "one|");
    fixture_close(&f);
    open_bpe(&f, "gpt-2"); /* ids of bytes are the bytes */
    expect_stream(&f, (int32_t[]){0xf0, 0x9f, 0x98, 0x80, '!'}, 5, false, "|||\xf0\x9f\x98\x80|!|");
    fixture_close(&f);
}

static void test_invalid_bytes(void **state)
{
    (void)state;
    struct fixture f;
    open_spm(&f);
    /* each longest beginning that cannot go on becomes one U+FFFD */
    expect_stream(&f, (int32_t[]){BYTE(0xff), WORD(1)}, 2, false, "\xef\xbf\xbd|a|");
    expect_stream(&f, (int32_t[]){BYTE(0xe2), BYTE(0x82), WORD(1)}, 3, false,
                  "||\xef\xbf\xbd"
                  "a|");
    expect_stream(&f, (int32_t[]){BYTE(0xe2), BYTE(0xe2), BYTE(0x82), BYTE(0xac)}, 4, false,
                  "|\xef\xbf\xbd||\xe2\x82\xac|");
    expect_stream(&f, (int32_t[]){BYTE(0xc0), BYTE(0x80)}, 2, false, "\xef\xbf\xbd|\xef\xbf\xbd|");
    expect_stream(&f, (int32_t[]){BYTE(0xed), BYTE(0xa0), BYTE(0x80)}, 3, false,
                  "|\xef\xbf\xbd\xef\xbf\xbd|\xef\xbf\xbd|");
    fixture_close(&f);
}

static void test_what_types_show(void **state)
{
    (void)state;
    struct fixture f = {0};
    memset(&rows, 0, sizeof rows);
    static const char *const texts[] = {"<unk>", "\xe2\x96\x81n", "<c>",   "\xe2\x96\x81u",
                                        "<no>",  "<0x41>",        "<0xzz>"};
    static const int32_t types[] = {2, 1, 3, 4, 5, 6, 6};
    for (size_t i = 0; i < 7; i++)
        rows_add(&rows, text_of(texts[i]), types[i], 0);
    fixture_rows(&f, "llama", &rows);
    assert_int_equal(fixture_open(&f, NULL, NULL), STATUS_OK);
    static const int32_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7, -1};
    expect_stream(&f, ids, 9, false, "|n||\xe2\x96\x81u||A|<0xzz>|||");
    expect_stream(&f, ids, 9, true, "<unk>|n|<c>|\xe2\x96\x81u|<no>|A|<0xzz>|||");
    char out[3];
    assert_int_equal(token_bytes(f.tokenizer, 1, false, out, 3), 2);
    assert_memory_equal(out, " n", 2);
    assert_int_equal(token_bytes(f.tokenizer, 6, false, out, 3), 3);
    assert_int_equal(token_bytes(f.tokenizer, 99, true, out, 3), 0);
    fixture_close(&f);
}

static void test_leading_space(void **state)
{
    (void)state;
    struct fixture f;
    struct detokenizer d;
    char out[64];
    open_spm(&f);
    expect_stream(&f, (int32_t[]){1, WORD(7), WORD(7)}, 3, false, "|a| a|");
    expect_stream(&f, (int32_t[]){1, WORD(7), WORD(7)}, 3, true, "<s>|a| a|");
    expect_stream(&f, (int32_t[]){WORD(0), WORD(0), WORD(1)}, 3, false, "| |a|");
    expect_stream(&f, (int32_t[]){WORD(14), WORD(1)}, 2, false, " |a|");
    detokenizer_init(&d, f.tokenizer, false, false); /* in the middle of a text */
    assert_int_equal(detokenizer_next(&d, WORD(7), out, sizeof out), 2);
    fixture_close(&f);
    open_bpe(&f, "gpt-2"); /* adds none, drops none */
    struct token_list list = {0};
    assert_int_equal(tokenizer_encode(f.tokenizer, text_of(" the"), false, false, &list, NULL), 0);
    assert_int_equal(list.n, 1);
    expect_stream(&f, list.ids, 1, false, " the|");
    token_list_done(&list);
    fixture_close(&f);
}

static void expect_round_trip(const struct tokenizer *t, const char *text)
{
    struct token_list list = {0};
    static char out[65536];
    assert_int_equal(tokenizer_encode(t, text_of(text), true, true, &list, NULL), STATUS_OK);
    stream(t, list.ids, list.n, tokenizer_kind(t)[0] == 'B', false, out, sizeof out);
    assert_string_equal(out, text);
    token_list_done(&list);
}

static void test_round_trips(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        " ",
                                        "  a",
                                        "one two\n\n three\t",
                                        "caf\xc3\xa9 \xf0\x9f\x98\x80!",
                                        "123456 \xe3\x80\x80x"};
    struct fixture f;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        open_spm(&f);
        expect_round_trip(f.tokenizer, texts[i]);
        fixture_close(&f);
        open_bpe(&f, "default");
        expect_round_trip(f.tokenizer, texts[i]);
        fixture_close(&f);
    }
}

/* Invalid bytes survive as tokens, even though the stream shows U+FFFD for them. */
static void test_bytes_survive(void **state)
{
    (void)state;
    struct fixture f;
    char all[512], back[512];
    for (int i = 0; i < 512; i++)
        all[i] = (char)(i * 7 + i / 256);
    static const char *const pres[] = {"gpt-2", "llama-bpe", "falcon", "default"};
    for (size_t k = 0; k < 5; k++) {
        struct token_list list = {0};
        size_t n = 0;
        if (k < 4)
            open_bpe(&f, pres[k]);
        else
            open_spm(&f);
        assert_int_equal(
            tokenizer_encode(f.tokenizer, (struct text){all, 512}, false, false, &list, NULL), 0);
        for (size_t i = 0; i < list.n; i++) {
            char bytes[16];
            size_t length = token_bytes(f.tokenizer, list.ids[i], true, bytes, 16);
            size_t skip = k == 4 && i == 0 ? 1 : 0; /* the added space */
            assert_true(n + length - skip <= 512);
            memcpy(back + n, bytes + skip, length - skip);
            n += length - skip;
        }
        assert_int_equal(n, 512);
        assert_memory_equal(back, all, 512);
        token_list_done(&list);
        fixture_close(&f);
    }
}

static void test_published_round_trips(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-2", "phi-3"};
    for (size_t i = 0; i < 2; i++) {
        char name[64];
        struct gguf_file file;
        struct tokenizer *t;
        snprintf(name, sizeof name, "vocab/ggml-vocab-%s.gguf", names[i]);
        const char *path = asset_path(name);
        NEED(path, "assets: vocabularies");
        assert_int_equal(gguf_open(&file, path, format_resolve, NULL), STATUS_OK);
        assert_int_equal(tokenizer_open(&t, &file, path, NULL, NULL), STATUS_OK);
        snprintf(name, sizeof name, "vocab/ggml-vocab-%s.gguf.inp", names[i]);
        char *text = read_whole(asset_path(name), NULL);
        expect_round_trip(t, text);
        free(text);
        tokenizer_close(t);
        gguf_close(&file);
    }
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_emoji_from_four_tokens),
        cmocka_unit_test(test_invalid_bytes),
        cmocka_unit_test(test_what_types_show),
        cmocka_unit_test(test_leading_space),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_bytes_survive),
        cmocka_unit_test(test_published_round_trips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
