/* Time to encode 1 MB of texts that merge badly, repeat, or are no text at all. */
#include <string.h>

#include "base/random.h"
#include "vocab_fixture.h"

#include "../support.h" /* after base/error.h: cmocka has a macro named fail */

/* Seconds of processor time to encode a text; other processes do not count. */
static double seconds_to_encode(const struct tokenizer *t, const char *text, size_t n)
{
    struct token_list list = {0};
    int64_t start = cpu_ns();
    assert_int_equal(tokenizer_encode(t, (struct text){text, n}, true, true, &list, NULL),
                     STATUS_OK);
    double seconds = (double)(cpu_ns() - start) * 1e-9;
    assert_true(list.n > 0);
    token_list_done(&list);
    return seconds;
}

static const char *const shapes[] = {"aaaa",     "spaces",   "letters", "words",
                                     "specials", "newlines", "bytes",   "thethe"};

static void make_shape(size_t shape, char *text, size_t n)
{
    struct random random;
    random_init(&random, 7);
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = random_bits(&random);
        char letter = (char)('a' + bits % 26);
        switch (shape) {
        case 0: text[i] = 'a'; break;
        case 1: text[i] = ' '; break;
        case 2: text[i] = letter; break;
        case 3: text[i] = bits >> 32 & 3 ? letter : ' '; break;
        case 4: text[i] = "<|endoftext|><s><tool></s>"[i % 26]; break;
        case 5: text[i] = '\n'; break;
        case 6: text[i] = (char)bits; break;
        default: text[i] = "the"[i % 3]; break;
        }
    }
}

/* The time allowed for 1 MB. It is meant for optimised builds; sanitizers slow all work down. */
static double time_bound(void)
{
#ifdef __has_feature
    bool is_slow = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#elif defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    bool is_slow = true;
#else
    bool is_slow = false;
#endif
#ifndef __OPTIMIZE__
    is_slow = true;
#endif
    return is_slow ? 30 : 1;
}

static void check_time(const struct tokenizer *t, const char *what)
{
    size_t n = (size_t)1 << 20;
    char *text = malloc(n);
    assert_non_null(text);
    for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++) {
        make_shape(shape, text, n);
        double seconds = seconds_to_encode(t, text, n);
        for (int i = 0; i < 2 && seconds >= time_bound(); i++) /* a busy machine: again */
            seconds = seconds_to_encode(t, text, n);
        print_message("%-12s 1 MB of %-10s %.3f s\n", what, shapes[shape], seconds);
        assert_true(seconds < time_bound());
    }
    free(text);
}

static struct token_rows rows;

static void test_spm(void **state)
{
    (void)state;
    struct fixture f = {0};
    memset(&rows, 0, sizeof rows);
    fixture_spm(&f, &rows);
    assert_int_equal(fixture_open(&f, NULL, NULL), STATUS_OK);
    check_time(f.tokenizer, "SPM, small");
    fixture_close(&f);
}

static void test_bpe(void **state)
{
    (void)state;
    struct fixture f = {0};
    memset(&rows, 0, sizeof rows);
    fixture_bpe(&f, &rows, "gpt-2");
    assert_int_equal(fixture_open(&f, NULL, NULL), STATUS_OK);
    check_time(f.tokenizer, "BPE, small");
    fixture_close(&f);
}

/* More special tokens than any published vocabulary has, all of them in the text. */
static void test_many_special_tokens(void **state)
{
    (void)state;
    enum { N_SPECIALS = 700 };
    struct fixture f = {0};
    struct text merge = text_of("a b");
    memset(&rows, 0, sizeof rows);
    rows_add_bpe_bytes(&rows);
    for (int i = 0; i < N_SPECIALS; i++) {
        char name[16];
        int length = snprintf(name, sizeof name, "<|r_%d|>", i);
        rows_add(&rows, rows_copy(&rows, name, (size_t)length), TOKEN_CONTROL, 0);
    }
    fixture_rows(&f, "gpt2", &rows);
    fixture_texts(&f, "merges", &merge, 1);
    assert_int_equal(fixture_open(&f, "llama-bpe", NULL), STATUS_OK);
    size_t size = (size_t)1 << 20, n = 0;
    char *text = malloc(size + 16);
    assert_non_null(text);
    for (int i = 0; n < size; i++)
        n += (size_t)snprintf(text + n, 16, "<|r_%d|>%s", i % N_SPECIALS, i % 3 ? "" : " a");
    double seconds = seconds_to_encode(f.tokenizer, text, n);
    print_message("%d special tokens: 1 MB in %.3f s\n", N_SPECIALS, seconds);
    assert_true(seconds < time_bound());
    free(text);
    fixture_close(&f);
}

static void check_published(const char *name, const char *pre)
{
    char path[64];
    struct gguf_file file;
    struct tokenizer *t;
    snprintf(path, sizeof path, "vocab/ggml-vocab-%s.gguf", name);
    const char *found = asset_path(path);
    NEED(found, "assets: vocabularies");
    assert_int_equal(gguf_open(&file, found, format_resolve, NULL), STATUS_OK);
    assert_int_equal(tokenizer_open(&t, &file, found, pre, NULL), STATUS_OK);
    check_time(t, name);
    tokenizer_close(t);
    gguf_close(&file);
}

static void test_published_spm(void **state)
{
    (void)state;
    check_published("phi-3", NULL);
}

static void test_published_bpe(void **state)
{
    (void)state;
    check_published("gpt-2", "llama-bpe");
    check_published("falcon", NULL);
    check_published("mpt", NULL);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spm),
        cmocka_unit_test(test_bpe),
        cmocka_unit_test(test_many_special_tokens),
        cmocka_unit_test(test_published_spm),
        cmocka_unit_test(test_published_bpe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
