/* What a file may say about its vocabulary: refusals, special ids, the tokens that end a text. */
#include <string.h>

#include "vocab_fixture.h"

#include "../support.h" /* after base/error.h: cmocka has a macro named fail */

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

static void expect_refusal(struct fixture *f, const char *pre, enum status status, const char *part)
{
    struct error err = {0};
    assert_int_equal(fixture_open(f, pre, &err), status);
    assert_null(f->tokenizer);
    if (!strstr(err.text, part))
        fail_msg("'%s' does not say '%s'", err.text, part);
    assert_null(strchr(err.text, '\n'));
    fixture_close(f);
}

static void test_pre_tokenizer_names(void **state)
{
    (void)state;
    static const char *const wrong[] = {NULL, "falcon_e", "no-such"};
    struct fixture f;
    for (size_t i = 0; i < 3; i++) {
        start_bpe(&f, wrong[i]);
        expect_refusal(&f, NULL, STATUS_UNSUPPORTED, "--pre-tokenizer NAME");
        start_bpe(&f, wrong[i]);
        expect_refusal(&f, "nothing", STATUS_UNSUPPORTED, "--pre-tokenizer nothing: unknown name");
        start_bpe(&f, wrong[i]);
        assert_int_equal(fixture_open(&f, "gpt-2", NULL), STATUS_OK);
        expect_encoding(&f, " thethe", false, false, (int32_t[]){258, 257}, 2);
        fixture_close(&f);
    }
}

static void test_malformed_vocabularies(void **state)
{
    (void)state;
    struct fixture f = {0};
    fixture_u32(&f, "bos_token_id", 1);
    expect_refusal(&f, NULL, STATUS_UNSUPPORTED, "tokenizer.ggml.tokens is absent");
    fixture_string(&f, "model", "gpt2");
    fixture_string(&f, "pre", "gpt-2");
    expect_refusal(&f, NULL, STATUS_UNSUPPORTED, "tokenizer.ggml.tokens is absent");
    fixture_string(&f, "model", "none");
    expect_refusal(&f, NULL, STATUS_UNSUPPORTED, "'none'");

    struct text tokens[] = {text_of("a"), text_of("b")};
    fixture_string(&f, "model", "llama");
    fixture_texts(&f, "tokens", tokens, 2);
    expect_refusal(&f, NULL, STATUS_FORMAT, "scores is absent");
    fixture_string(&f, "model", "llama");
    fixture_texts(&f, "tokens", tokens, 2);
    fixture_f32s(&f, "scores", (float[]){1, 2, 3}, 3);
    expect_refusal(&f, NULL, STATUS_FORMAT, "scores has 3 elements");
    fixture_string(&f, "model", "llama");
    fixture_texts(&f, "tokens", tokens, 2);
    fixture_i32s(&f, "token_type", (int32_t[]){1, 7}, 2);
    expect_refusal(&f, NULL, STATUS_FORMAT, "type 7");
    fixture_string(&f, "model", "llama");
    fixture_texts(&f, "tokens", tokens, 0);
    expect_refusal(&f, NULL, STATUS_FORMAT, "0 elements");
    fixture_string(&f, "model", "llama");
    fixture_i32s(&f, "tokens", (int32_t[]){1, 7}, 2);
    expect_refusal(&f, NULL, STATUS_FORMAT, "array of strings");
}

static void test_malformed_merges_and_ids(void **state)
{
    (void)state;
    struct fixture f;
    start_spm(&f);
    fixture_u32(&f, "eos_token_id", (uint32_t)rows.n);
    expect_refusal(&f, NULL, STATUS_FORMAT, "tokenizer.ggml.eos_token_id is 276");
    static const char *const merges[] = {"ab", "", " a", "a ", "a"};
    for (size_t i = 0; i < 5; i++) {
        struct text texts[] = {text_of("a b"), text_of(merges[i])};
        memset(&rows, 0, sizeof rows);
        rows_add_bpe_bytes(&rows);
        f = (struct fixture){0};
        fixture_rows(&f, "gpt2", &rows);
        fixture_string(&f, "pre", "gpt-2");
        fixture_texts(&f, "merges", texts, 2);
        expect_refusal(&f, NULL, STATUS_FORMAT, "merges: element 1");
    }
    memset(&rows, 0, sizeof rows);
    rows_add_bpe_bytes(&rows);
    f = (struct fixture){0};
    fixture_rows(&f, "gpt2", &rows);
    fixture_string(&f, "pre", "gpt-2");
    expect_refusal(&f, NULL, STATUS_FORMAT, "merges is absent");
}

static void test_unset_ids(void **state)
{
    (void)state;
    struct fixture f;
    start_spm(&f);
    fixture_u32(&f, "bos_token_id", UINT32_MAX);
    fixture_u32(&f, "eos_token_id", UINT32_MAX);
    assert_int_equal(fixture_open(&f, NULL, NULL), STATUS_OK);
    assert_int_equal(tokenizer_bos(f.tokenizer), -1);
    assert_int_equal(tokenizer_eos(f.tokenizer), -1);
    assert_true(tokenizer_is_end(f.tokenizer, 2)); /* </s>, by its text */
    assert_false(tokenizer_is_end(f.tokenizer, -1));
    assert_false(tokenizer_is_end(f.tokenizer, 100000));
    struct token_list list = {0};
    assert_int_equal(tokenizer_encode(f.tokenizer, text_of("a"), true, false, &list, NULL),
                     STATUS_OK);
    assert_int_equal(list.n, 1);
    token_list_done(&list);
    fixture_close(&f);
}

static void test_end_set(void **state)
{
    (void)state;
    struct fixture f = {0};
    memset(&rows, 0, sizeof rows);
    rows_add_bpe_bytes(&rows);
    static const char *const texts[] = {"<|im_end|>", "<|eot_id|>", "<other>", "<stop>",
                                        "<|end|>",    "<sep>",      "[EOS]"};
    for (size_t i = 0; i < 7; i++)
        rows_add(&rows, text_of(texts[i]), TOKEN_NORMAL, 0);
    fixture_rows(&f, "gpt2", &rows);
    struct text merge = text_of("a b");
    fixture_texts(&f, "merges", &merge, 1);
    fixture_u32(&f, "eot_token_id", 256 + 3);
    fixture_u32(&f, "fim_sep_token_id", 256 + 5);
    assert_int_equal(fixture_open(&f, "qwen2", NULL), STATUS_OK);
    static const bool ends[] = {true, true, false, true, true, true, true};
    for (int i = 0; i < 7; i++)
        assert_int_equal(tokenizer_is_end(f.tokenizer, 256 + i), ends[i]);
    assert_int_equal(tokenizer_eos(f.tokenizer), -1); /* 11 is a plain character here */
    /* known by text: parsed as control although stored as ordinary, and not shown */
    expect_encoding(&f, "<|im_end|>", false, true, (int32_t[]){256}, 1);
    char shown[16];
    assert_int_equal(token_bytes(f.tokenizer, 256, false, shown, 16), 0);
    assert_int_equal(token_bytes(f.tokenizer, 256, true, shown, 16), 10);
    assert_int_equal(token_bytes(f.tokenizer, 256, true, shown, 4), 4);
    fixture_close(&f);
}

static void test_harmony_end(void **state)
{
    (void)state;
    struct fixture f = {0};
    struct text merge = text_of("a b");
    memset(&rows, 0, sizeof rows);
    rows_add_bpe_bytes(&rows);
    rows_add(&rows, text_of("<|end|>"), TOKEN_CONTROL, 0);
    rows_add(&rows, text_of("<|return|>"), TOKEN_CONTROL, 0);
    fixture_rows(&f, "gpt2", &rows);
    fixture_texts(&f, "merges", &merge, 1);
    assert_int_equal(fixture_open(&f, "gpt-2", NULL), STATUS_OK);
    assert_false(tokenizer_is_end(f.tokenizer, 256));
    assert_true(tokenizer_is_end(f.tokenizer, 257));
    fixture_close(&f);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pre_tokenizer_names),
        cmocka_unit_test(test_malformed_vocabularies),
        cmocka_unit_test(test_malformed_merges_and_ids),
        cmocka_unit_test(test_unset_ids),
        cmocka_unit_test(test_end_set),
        cmocka_unit_test(test_harmony_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
