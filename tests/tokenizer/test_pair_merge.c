/* Both kinds of merging against the definitions carried out step by step, on random vocabularies
 * full of ties, unreachable tokens and results that are no tokens. */
#include <string.h>

#include "base/random.h"
#include "vocab_fixture.h"

#include "../support.h" /* after base/error.h: cmocka has a macro named fail */

#define MAX_PARTS 64
#define MAX_RULES 12

/* A text as parts that merge: part i is text[at[i], at[i + 1]). */
struct parts {
    const char *text;
    size_t at[MAX_PARTS + 1];
    size_t n;
};

static struct random source;
static struct token_rows rows;

static uint32_t below(uint32_t n)
{
    return (uint32_t)(random_bits(&source) % n);
}

static struct parts letters_of(const char *text)
{
    struct parts parts = {.text = text, .n = strlen(text)};
    for (size_t i = 0; i <= parts.n; i++)
        parts.at[i] = i;
    return parts;
}

static struct text part(const struct parts *parts, size_t first, size_t n)
{
    return (struct text){parts->text + parts->at[first], parts->at[first + n] - parts->at[first]};
}

static void join(struct parts *parts, size_t i)
{
    memmove(parts->at + i + 1, parts->at + i + 2, (parts->n - i - 1) * sizeof *parts->at);
    parts->n--;
}

static int find_row(struct text text)
{
    for (size_t i = rows.n; i-- > 0;)
        if (text_equal(rows.texts[i], text))
            return (int)i;
    return -1;
}

static void random_letters(char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        text[i] = (char)('a' + below(3));
    text[n] = 0;
}

struct rule {
    struct text left, right;
};

static struct rule rules[MAX_RULES];

static void merge_by_rules(struct parts *parts)
{
    for (size_t rank = 0; rank < MAX_RULES; rank++)
        for (size_t i = 0; i + 1 < parts->n; i++)
            if (text_equal(part(parts, i, 1), rules[rank].left) &&
                text_equal(part(parts, i + 1, 1), rules[rank].right)) {
                join(parts, i);
                rank = (size_t)-1; /* a lower rank may fit now */
                break;
            }
}

/* Rules of random texts; half of their results are tokens. */
static void make_bpe(struct fixture *f)
{
    struct text merges[MAX_RULES];
    *f = (struct fixture){0};
    memset(&rows, 0, sizeof rows);
    rows_add_bpe_bytes(&rows);
    for (size_t i = 0; i < MAX_RULES; i++) {
        char left[8], right[8], text[24];
        random_letters(left, 1 + below(i < 4 ? 1 : 3));
        random_letters(right, 1 + below(i < 4 ? 1 : 2));
        int n = snprintf(text, sizeof text, "%s %s", left, right);
        merges[i] = rows_copy(&rows, text, (size_t)n);
        rules[i].left = (struct text){merges[i].bytes, strlen(left)};
        rules[i].right = (struct text){merges[i].bytes + strlen(left) + 1, strlen(right)};
        n = snprintf(text, sizeof text, "%s%s", left, right);
        if (below(2))
            rows_add(&rows, rows_copy(&rows, text, (size_t)n), TOKEN_NORMAL, 0);
    }
    fixture_rows(f, "gpt2", &rows);
    fixture_texts(f, "merges", merges, MAX_RULES);
}

static void compare(const struct tokenizer *t, const char *text, const struct parts *parts,
                    bool is_bpe)
{
    struct token_list list = {0};
    size_t n = 0;
    assert_int_equal(tokenizer_encode(t, text_of(text), false, false, &list, NULL), STATUS_OK);
    for (size_t i = 0; i < parts->n; i++) {
        struct text piece = part(parts, i, 1);
        int id = find_row(piece);
        if (id < 0 && !is_bpe)
            id = 0; /* <unk>: there are no byte tokens */
        for (size_t k = 0; k < (id < 0 ? piece.n : 1); k++) {
            int want = id < 0 ? find_row((struct text){piece.bytes + k, 1}) : id;
            if (n >= list.n || list.ids[n] != want)
                fail_msg("'%s': token %zu is not %d", text, n, want);
            n++;
        }
    }
    assert_int_equal(list.n, n);
    token_list_done(&list);
}

static void test_bpe_merges(void **state)
{
    (void)state;
    random_init(&source, 2);
    for (int round = 0; round < 1000; round++) {
        struct fixture f;
        make_bpe(&f);
        assert_int_equal(fixture_open(&f, "gpt-2", NULL), STATUS_OK);
        for (int i = 0; i < 10; i++) {
            char text[MAX_PARTS];
            random_letters(text, 1 + below(40));
            struct parts parts = letters_of(text);
            merge_by_rules(&parts);
            compare(f.tokenizer, text, &parts, true);
        }
        fixture_close(&f);
    }
}

static void merge_by_scores(struct parts *parts)
{
    for (;;) {
        size_t best = parts->n;
        float score = 0;
        for (size_t i = 0; i + 1 < parts->n; i++) {
            int id = find_row(part(parts, i, 2));
            if (id >= 0 && (best == parts->n || rows.scores[id] > score)) {
                best = i;
                score = rows.scores[id];
            }
        }
        if (best == parts->n)
            return;
        join(parts, best);
    }
}

static void make_spm(struct fixture *f)
{
    *f = (struct fixture){0};
    memset(&rows, 0, sizeof rows);
    rows_add(&rows, text_of("<unk>"), TOKEN_UNKNOWN, 0);
    for (int i = 0; i < 14; i++) {
        char text[8];
        random_letters(text, 1 + below(5));
        rows_add(&rows, rows_copy(&rows, text, strlen(text)), TOKEN_NORMAL, (float)below(4) - 2.0f);
    }
    fixture_rows(f, "llama", &rows);
    fixture_bool(f, "add_space_prefix", false);
}

static void test_spm_merges(void **state)
{
    (void)state;
    random_init(&source, 3);
    for (int round = 0; round < 1000; round++) {
        struct fixture f;
        make_spm(&f);
        assert_int_equal(fixture_open(&f, NULL, NULL), STATUS_OK);
        for (int i = 0; i < 10; i++) {
            char text[MAX_PARTS];
            random_letters(text, 1 + below(40));
            struct parts parts = letters_of(text);
            merge_by_scores(&parts);
            compare(f.tokenizer, text, &parts, false);
        }
        fixture_close(&f);
    }
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bpe_merges),
        cmocka_unit_test(test_spm_merges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
