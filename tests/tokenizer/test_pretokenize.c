/* The cuts of all expression sets against known ones, and what hostile text does to them. */
#include <string.h>

#include "base/memory.h"
#include "tokenizer/pretokenize.h"

#include "../support.h" /* after base/error.h: cmocka has a macro named fail */

struct pieces {
    struct text list[4096];
    size_t n;
};

static enum status collect(void *user, struct text piece, struct error *err)
{
    struct pieces *pieces = user;
    (void)err;
    assert_true(piece.n > 0);
    if (pieces->n < sizeof pieces->list / sizeof *pieces->list)
        pieces->list[pieces->n] = piece;
    pieces->n++;
    return STATUS_OK;
}

static void cut(const char *name, struct text text, struct pieces *pieces)
{
    struct pretokenizer *pre;
    struct splitter *splitter;
    const struct pretokenizer_row *row = pretokenizer_find(text_of(name));
    pieces->n = 0;
    assert_non_null(row);
    assert_int_equal(pretokenizer_open(&pre, row, NULL), STATUS_OK);
    assert_int_equal(splitter_open(&splitter, pre, collect, pieces, NULL), STATUS_OK);
    assert_int_equal(splitter_cut(splitter, text, NULL), STATUS_OK);
    splitter_close(splitter);
    pretokenizer_close(pre);
}

static struct pieces pieces;

static void check_case(json_t *test, const char *set, const char *name)
{
    json_t *text = json_object_get(test, "text");
    json_t *want = json_object_get(json_object_get(test, "pieces"), set);
    assert_non_null(want);
    cut(name, (struct text){json_string_value(text), json_string_length(text)}, &pieces);
    size_t n = json_array_size(want);
    bool equal = pieces.n == n;
    for (size_t i = 0; equal && i < n; i++) {
        json_t *piece = json_array_get(want, i);
        equal = text_equal(pieces.list[i],
                           (struct text){json_string_value(piece), json_string_length(piece)});
    }
    if (equal)
        return;
    for (size_t i = 0; i < pieces.n; i++)
        print_error("[%.*s]", TEXT(pieces.list[i]));
    fail_msg("%s: '%s': %zu pieces, expected %zu", set, json_string_value(text), pieces.n, n);
}

static void test_known_cuts(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        {"llama3", "llama-bpe"}, {"qwen2", "qwen2"},   {"qwen35", "qwen35"},  {"gpt2", "gpt-2"},
        {"smollm", "smollm"},    {"falcon", "falcon"}, {"default", "default"}};
    json_error_t problem;
    json_t *root = json_load_file("tests/golden/pretok.json", JSON_ALLOW_NUL, &problem);
    if (!root)
        fail_msg("tests/golden/pretok.json: %s", problem.text);
    json_t *cases = json_object_get(root, "cases");
    size_t n = json_array_size(cases);
    assert_int_equal(n, 74);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 7; k++)
            check_case(json_array_get(cases, i), names[k][0], names[k][1]);
    json_decref(root);
}

static void expect(const char *name, struct text text, const char *joined)
{
    char got[512] = "";
    size_t n = 0;
    cut(name, text, &pieces);
    for (size_t i = 0; i < pieces.n; i++)
        n +=
            (size_t)snprintf(got + n, sizeof got - n, "%s%.*s", i ? "|" : "", TEXT(pieces.list[i]));
    assert_string_equal(got, joined);
}

static void test_white_space_is_unicode(void **state)
{
    (void)state;
    /* U+3000 and U+0085 are white space; U+180E and U+200B are not */
    expect("gpt-2", text_of("a\xe3\x80\x80 b"), "a|\xe3\x80\x80| b");
    expect("gpt-2", text_of("a\xc2\x85 b"), "a|\xc2\x85| b");
    expect("gpt-2", text_of("a \xe1\xa0\x8e"), "a| \xe1\xa0\x8e");
    expect("gpt-2", text_of("a \xe2\x80\x8b"), "a| \xe2\x80\x8b");
}

static void test_contractions_fold_ascii_only(void **state)
{
    (void)state;
    expect("llama-bpe", text_of("it'S"), "it|'S");
    expect("gpt-2", text_of("it'S"), "it|'|S");
    expect("llama-bpe", text_of("it'\xc5\xbf"), "it|'\xc5\xbf"); /* long s: a letter */
    expect("llama-bpe", text_of("it'\xc5\xbfx"), "it|'\xc5\xbfx");
}

static void test_invalid_bytes_are_pieces(void **state)
{
    (void)state;
    expect("gpt-2", text_of("ab\xff\xfe cd\xe2\x96"), "ab|\xff\xfe| cd|\xe2\x96");
    expect("falcon", text_of("\x80"), "\x80");
    expect("llama-bpe", (struct text){"a\0b", 3}, "a|\0b"); /* printed up to the zero */
    assert_int_equal(pieces.n, 2);
}

static void test_names(void **state)
{
    (void)state;
    char names[512], *rest = names, *name;
    int n = 0;
    pretokenizer_names(names, sizeof names);
    while ((name = strsep(&rest, ","))) {
        assert_non_null(pretokenizer_find(text_of(name + (*name == ' '))));
        n++;
    }
    assert_int_equal(n, 22);
    assert_null(pretokenizer_find(text_of("")));
    assert_null(pretokenizer_find(text_of("GPT-2")));
    assert_true(pretokenizer_find(text_of("falcon3"))->ignore_merges);
    assert_true(pretokenizer_find(text_of("llama-v3"))->add_bos);
    assert_false(pretokenizer_find(text_of("qwen2"))->add_bos);
}

/* Every set over 1 MB of one repeated pattern: no limit is met and the time stays linear. */
static void test_long_texts(void **state)
{
    (void)state;
    static const char *const patterns[] = {"a",      " ",  "\n",  "1",  "!",    "\xff",
                                           "\u3000", "a ", " \n", "' ", "\xffg"};
    static const char *const names[] = {"llama-bpe", "qwen2",  "qwen35", "gpt-2",
                                        "smollm",    "falcon", "default"};
    size_t size = (size_t)1 << 20;
    char *text = malloc(size + 1);
    assert_non_null(text);
    double slowest = 0;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        size_t unit = strlen(patterns[i]);
        for (size_t at = 0; at < size; at++)
            text[at] = patterns[i][at % unit];
        text[size] = 'x';
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            int64_t start = cpu_ns();
            cut(names[k], (struct text){text, size + 1}, &pieces);
            double seconds = (double)(cpu_ns() - start) * 1e-9;
            slowest = seconds > slowest ? seconds : slowest;
        }
    }
    free(text);
    print_message("slowest: %.3f s per MB\n", slowest);
    assert_true(slowest < 20);
}

static void test_memory_runs_out(void **state)
{
    (void)state;
    const struct pretokenizer_row *row = pretokenizer_find(text_of("default"));
    enum status status = STATUS_MEMORY;
    for (long count = 0; status != STATUS_OK; count++) {
        struct pretokenizer *pre = NULL;
        struct splitter *splitter = NULL;
        struct error err = {0};
        assert_true(count < 1000);
        pieces.n = 0;
        memory_fail_after(count);
        status = pretokenizer_open(&pre, row, &err);
        if (status == STATUS_OK)
            status = splitter_open(&splitter, pre, collect, &pieces, &err);
        if (status == STATUS_OK)
            status = splitter_cut(splitter, text_of("one two, 3 four"), &err);
        memory_fail_after(-1);
        if (status != STATUS_OK)
            assert_int_equal(status, STATUS_MEMORY);
        splitter_close(splitter);
        pretokenizer_close(pre);
    }
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_cuts),
        cmocka_unit_test(test_white_space_is_unicode),
        cmocka_unit_test(test_contractions_fold_ascii_only),
        cmocka_unit_test(test_invalid_bytes_are_pieces),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
