/* Whole tokenizers: published vocabularies with known answers, special tokens around a text,
 * running out of memory. */
#include <string.h>

#include "base/memory.h"
#include "vocab_fixture.h"

#include "../support.h" /* after base/error.h: cmocka has a macro named fail */

struct opened {
    struct gguf_file file;
    struct tokenizer *t;
};

static enum status open_path(struct opened *o, const char *path, const char *pre, struct error *err)
{
    *o = (struct opened){0};
    assert_int_equal(gguf_open(&o->file, path, format_resolve, err), STATUS_OK);
    return tokenizer_open(&o->t, &o->file, path, pre, err);
}

static void close_path(struct opened *o)
{
    tokenizer_close(o->t);
    gguf_close(&o->file);
}

static void expect_ids(const struct tokenizer *t, struct text text, const int32_t *ids, size_t n,
                       const char *what)
{
    struct token_list list = {0};
    assert_int_equal(tokenizer_encode(t, text, false, false, &list, NULL), STATUS_OK);
    bool equal = list.n == n && (n == 0 || memcmp(list.ids, ids, n * sizeof *ids) == 0);
    for (size_t i = 0; !equal && i < list.n; i++)
        print_error("%d ", list.ids[i]);
    if (!equal)
        fail_msg("%s: '%.*s': other ids", what, TEXT(text));
    token_list_done(&list);
}

/* The pieces of a file between separators, one after the other; false at the end. */
static bool next_part(char **rest, const char *separator, struct text *part)
{
    if (!*rest)
        return false;
    char *end = strstr(*rest, separator);
    *part = (struct text){*rest, end ? (size_t)(end - *rest) : strlen(*rest)};
    *rest = end ? end + strlen(separator) : NULL;
    return true;
}

static int parse_ids(struct text line, int32_t *ids)
{
    const char *at = line.bytes, *end = line.bytes + line.n;
    int n = 0;
    while (at < end && *at != '\r') {
        char *next;
        ids[n++] = (int32_t)strtol(at, &next, 10);
        at = next;
        while (at < end && *at == ' ')
            at++;
    }
    return n;
}

static void check_pairs(const char *name, const char *pre)
{
    char file[64];
    struct opened o;
    snprintf(file, sizeof file, "vocab/ggml-vocab-%s.gguf", name);
    const char *path = asset_path(file);
    NEED(path, "assets: vocabularies");
    assert_int_equal(open_path(&o, path, pre, NULL), STATUS_OK);
    snprintf(file, sizeof file, "vocab/ggml-vocab-%s.gguf.inp", name);
    char *input = read_whole(asset_path(file), NULL), *input_rest = input;
    snprintf(file, sizeof file, "vocab/ggml-vocab-%s.gguf.out", name);
    char *output = read_whole(asset_path(file), NULL), *output_rest = output;
    struct text text, line;
    int n = 0;
    while (next_part(&input_rest, "\n__ggml_vocab_test__\n", &text)) {
        static int32_t ids[4096];
        assert_true(next_part(&output_rest, "\n", &line));
        expect_ids(o.t, text, ids, (size_t)parse_ids(line, ids), name);
        n++;
    }
    assert_int_equal(n, 47);
    free(input);
    free(output);
    close_path(&o);
}

static void test_gpt2_pairs(void **state)
{
    (void)state;
    check_pairs("gpt-2", NULL);
}

static void test_mpt_pairs(void **state)
{
    (void)state;
    check_pairs("mpt", NULL);
}

static void test_falcon_pairs(void **state)
{
    (void)state;
    check_pairs("falcon", NULL);
}

static void test_phi3_pairs(void **state)
{
    (void)state;
    check_pairs("phi-3", NULL);
}

static void test_stories_ids(void **state)
{
    (void)state;
    struct opened o;
    const char *path = asset_path("stories260K.gguf");
    NEED(path, "assets: stories260K.gguf");
    assert_int_equal(open_path(&o, path, NULL, NULL), STATUS_OK);
    assert_string_equal(tokenizer_kind(o.t), "SPM");
    json_t *root = json_load_file("tests/golden/stories260K.golden.json", 0, NULL);
    json_t *cases = json_object_get(root, "tokenize"), *test;
    size_t i;
    assert_int_equal(json_array_size(cases), 9);
    json_array_foreach(cases, i, test)
    {
        int32_t want[64];
        json_t *ids = json_object_get(test, "ids_no_bos");
        for (size_t k = 0; k < json_array_size(ids); k++)
            want[k] = (int32_t)json_integer_value(json_array_get(ids, k));
        expect_ids(o.t, text_of(json_string_value(json_object_get(test, "text"))), want,
                   json_array_size(ids), "stories260K");
    }
    assert_int_equal(tokenizer_bos(o.t), 1);
    assert_int_equal(tokenizer_eos(o.t), 2);
    assert_true(tokenizer_is_end(o.t, 2));
    assert_int_equal(tokenizer_n_vocab(o.t), 512);
    json_decref(root);
    close_path(&o);
}

static void test_published_refusals(void **state)
{
    (void)state;
    struct opened o;
    struct error err;
    const char *bert = asset_path("vocab/ggml-vocab-bert-bge.gguf");
    NEED(bert, "assets: vocabularies");
    assert_int_equal(open_path(&o, bert, NULL, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "tokenizer.ggml.model is 'bert'"));
    assert_null(o.t);
    close_path(&o);
    const char *neox = asset_path("vocab/ggml-vocab-gpt-neox.gguf");
    assert_int_equal(open_path(&o, neox, NULL, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "--pre-tokenizer"));
    assert_non_null(strstr(err.text, "falcon3"));
    close_path(&o);
    assert_int_equal(open_path(&o, neox, "gpt-2", &err), STATUS_OK);
    assert_string_equal(tokenizer_kind(o.t), "BPE (gpt-2)");
    static const int32_t hello[] = {12092, 13, 1533, 2};
    expect_ids(o.t, text_of("Hello, world!"), hello, 4, "gpt-neox");
    close_path(&o);
}

static struct token_rows rows;

static void start_spm(struct fixture *f)
{
    memset(&rows, 0, sizeof rows);
    *f = (struct fixture){0};
    fixture_spm(f, &rows);
}

static void start_bpe(struct fixture *f, const char *pre)
{
    memset(&rows, 0, sizeof rows);
    *f = (struct fixture){0};
    fixture_bpe(f, &rows, pre);
}

static void expect_encoding(const struct fixture *f, const char *text, bool add_special,
                            bool parse_special, const int32_t *ids, size_t n)
{
    struct token_list list = {0};
    assert_int_equal(
        tokenizer_encode(f->tokenizer, text_of(text), add_special, parse_special, &list, NULL),
        STATUS_OK);
    assert_int_equal(list.n, n);
    assert_memory_equal(list.ids, ids, n * sizeof *ids);
    token_list_done(&list);
}

static void test_bos_and_eos(void **state)
{
    (void)state;
    struct fixture f;
    start_spm(&f);
    fixture_bool(&f, "add_eos_token", true);
    assert_int_equal(fixture_open(&f, NULL, NULL), STATUS_OK);
    const int32_t a = 259 + 7; /* the token of " a" */
    expect_encoding(&f, "a", true, true, (int32_t[]){1, a, 2}, 3);
    expect_encoding(&f, "a", false, true, (int32_t[]){a}, 1);
    expect_encoding(&f, "", true, true, (int32_t[]){1, 2}, 2);
    expect_encoding(&f, "<s>a", true, true, (int32_t[]){1, a, 2}, 3);
    expect_encoding(&f, "<s><s>", true, true, (int32_t[]){1, 1, 2}, 3);
    expect_encoding(&f, "a<s>a", true, true, (int32_t[]){1, a, 1, a, 2}, 5);
    struct token_list list = {0}; /* written out but not parsed: BOS comes in front */
    assert_int_equal(tokenizer_encode(f.tokenizer, text_of("<s>"), true, false, &list, NULL), 0);
    assert_true(list.n > 3);
    assert_int_equal(list.ids[0], 1);
    assert_int_not_equal(list.ids[1], 1);
    token_list_done(&list);
    fixture_close(&f);

    start_bpe(&f, "llama-bpe"); /* adds BOS unless told otherwise; appends to a list */
    assert_int_equal(fixture_open(&f, NULL, NULL), STATUS_OK);
    expect_encoding(&f, "a", true, false, (int32_t[]){tokenizer_bos(f.tokenizer), 'a'}, 2);
    fixture_close(&f);
    start_bpe(&f, "llama-bpe");
    fixture_bool(&f, "add_bos_token", false);
    assert_int_equal(fixture_open(&f, NULL, NULL), STATUS_OK);
    expect_encoding(&f, "a", true, false, (int32_t[]){'a'}, 1);
    fixture_close(&f);
}

/* "xyz" and "no" are tokens that no merge leads to; "no" is a control token. */
static void expect_whole_piece(const char *pre, const int32_t *ids, size_t n)
{
    struct fixture f = {0};
    struct text merge = text_of("a b"); /* its result is no token */
    memset(&rows, 0, sizeof rows);
    rows_add(&rows, text_of("xyz"), TOKEN_NORMAL, 0);
    rows_add(&rows, text_of("no"), TOKEN_CONTROL, 0);
    static const char *const letters[] = {"x", "y", "z", "n", "o", "b"};
    for (size_t i = 0; i < 6; i++)
        rows_add(&rows, text_of(letters[i]), TOKEN_NORMAL, 0);
    fixture_rows(&f, "gpt2", &rows);
    fixture_texts(&f, "merges", &merge, 1);
    assert_int_equal(fixture_open(&f, pre, NULL), STATUS_OK);
    /* "a" and the line feeds have no token and are dropped */
    expect_encoding(&f, "xyz\nno\nab", false, false, ids, n);
    fixture_close(&f);
}

static void test_whole_pieces(void **state)
{
    (void)state;
    expect_whole_piece("gpt-2", (int32_t[]){2, 3, 4, 5, 6, 7}, 6);
    expect_whole_piece("llama-bpe", (int32_t[]){0, 5, 6, 7}, 4);
}

/* Tokens are appended, and a failure takes back only its own. */
static void test_list_is_appended_to(void **state)
{
    (void)state;
    struct fixture f;
    struct token_list list = {0};
    start_bpe(&f, "gpt-2");
    assert_int_equal(fixture_open(&f, NULL, NULL), STATUS_OK);
    assert_int_equal(tokenizer_encode(f.tokenizer, text_of("a"), false, false, &list, NULL), 0);
    memory_fail_after(3);
    assert_int_equal(tokenizer_encode(f.tokenizer, text_of("a b c"), false, false, &list, NULL),
                     STATUS_MEMORY);
    memory_fail_after(-1);
    assert_int_equal(list.n, 1);
    assert_int_equal(tokenizer_encode(f.tokenizer, text_of("b"), false, false, &list, NULL), 0);
    assert_int_equal(list.n, 2);
    assert_int_equal(list.ids[0], 'a');
    assert_int_equal(list.ids[1], 'b');
    token_list_done(&list);
    fixture_close(&f);
}

/* Fails at each allocation in turn, while opening and then while encoding. */
static void run_out_of_memory(const struct fixture *f, const char *pre)
{
    struct text text = text_of("one <tool>abc\xff the <s> two <|endoftext|>\xe2\x82\xac aaaa");
    enum status status = STATUS_MEMORY;
    long count;
    for (count = 0; status != STATUS_OK; count++) {
        struct tokenizer *t = NULL;
        struct token_list list = {0};
        struct error err = {0};
        assert_true(count < 10000);
        memory_fail_after(count);
        status = tokenizer_open(&t, &f->file, "fixture", pre, &err);
        if (status == STATUS_OK)
            status = tokenizer_encode(t, text, true, true, &list, &err);
        memory_fail_after(-1);
        if (status != STATUS_OK) {
            assert_int_equal(status, STATUS_MEMORY);
            assert_int_equal(list.n, 0);
        }
        token_list_done(&list);
        tokenizer_close(t);
    }
    assert_true(count > 10);
}

static void test_memory_runs_out(void **state)
{
    (void)state;
    struct fixture f;
    start_spm(&f);
    assert_int_equal(fixture_open(&f, NULL, NULL), STATUS_OK);
    run_out_of_memory(&f, NULL);
    fixture_close(&f);
    start_bpe(&f, "default");
    assert_int_equal(fixture_open(&f, NULL, NULL), STATUS_OK);
    run_out_of_memory(&f, NULL);
    run_out_of_memory(&f, "llama-bpe");
    fixture_close(&f);
    tokenizer_close(NULL);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2_pairs),          cmocka_unit_test(test_mpt_pairs),
        cmocka_unit_test(test_falcon_pairs),        cmocka_unit_test(test_phi3_pairs),
        cmocka_unit_test(test_stories_ids),         cmocka_unit_test(test_published_refusals),
        cmocka_unit_test(test_bos_and_eos),         cmocka_unit_test(test_whole_pieces),
        cmocka_unit_test(test_list_is_appended_to), cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
