/* The cut at special tokens against the definition carried out step by step. */
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "tokenizer/special_tokens.h"

#include "../support.h" /* after base/error.h: cmocka has a macro named fail */

#define MAX_TOKENS 24
#define MAX_TEXT   64

struct world {
    struct vocab vocab;
    char texts[MAX_TOKENS][8];
    uint8_t types[MAX_TOKENS];
};

static struct random source;

static uint32_t below(uint32_t n)
{
    return (uint32_t)(random_bits(&source) % n);
}

static void add(struct world *w, const char *text, uint8_t type)
{
    uint32_t id = w->vocab.n_tokens++;
    strcpy(w->texts[id], text);
    w->types[id] = type;
    assert_true(text_table_add(&w->vocab.table, text_of(w->texts[id]), NULL));
}

/* Tokens over two or three letters, so that they overlap in every way; some equal, some empty. */
static void make_world(struct world *w)
{
    memset(w, 0, sizeof *w);
    w->vocab.types = w->types;
    uint32_t n = below(MAX_TOKENS), n_letters = 1 + below(3);
    for (uint32_t id = 0; id < n; id++) {
        char text[8] = "";
        uint32_t length = below(7);
        for (uint32_t i = 0; i < length; i++)
            text[i] = (char)('a' + below(n_letters));
        add(w, text, (uint8_t)(1 + below(6)));
    }
}

static bool is_candidate(const struct world *w, uint32_t id, bool only_user)
{
    uint8_t type = w->types[id];
    if (w->texts[id][0] == 0)
        return false;
    return type == TOKEN_USER_DEFINED ||
           (!only_user && (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN));
}

/* Splits every raw stretch at one token. ids: token that begins here, -1; taken: not raw. */
static void split_at(const char *token, int32_t id, const char *text, size_t n, int32_t *ids,
                     bool *taken)
{
    size_t length = strlen(token);
    for (size_t at = 0; at + length <= n;) {
        bool fits = memcmp(text + at, token, length) == 0;
        for (size_t i = 0; fits && i < length; i++)
            fits = !taken[at + i];
        if (fits) {
            ids[at] = id;
            memset(taken + at, true, length);
        }
        at += fits ? length : 1;
    }
}

static void cut_by_definition(const struct world *w, bool only_user, const char *text, size_t n,
                              int32_t *ids, bool *taken)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = -1;
    memset(taken, 0, n);
    for (size_t length = 7; length > 0; length--)
        for (uint32_t id = 0; id < w->vocab.n_tokens; id++)
            if (is_candidate(w, id, only_user) && strlen(w->texts[id]) == length)
                split_at(w->texts[id], (int32_t)id, text, n, ids, taken);
}

static void compare(const struct world *w, bool only_user, const char *text, size_t n)
{
    struct special_tokens s;
    uint32_t *owners;
    int32_t ids[MAX_TEXT];
    bool taken[MAX_TEXT];
    assert_int_equal(special_tokens_open(&s, &w->vocab, only_user, "test", NULL), STATUS_OK);
    assert_int_equal(special_tokens_cut(&s, (struct text){text, n}, &owners, NULL), STATUS_OK);
    cut_by_definition(w, only_user, text, n, ids, taken);
    for (size_t at = 0; at < n;) {
        uint32_t owner = owners ? owners[at] : 0;
        int32_t id = owner ? s.nodes[owner].id : -1;
        if (id != ids[at] || (owner != 0) != taken[at])
            fail_msg("'%.*s' at %zu: token %d, expected %d", (int)n, text, at, id, ids[at]);
        at += owner ? s.nodes[owner].length : 1;
    }
    memory_free(owners);
    special_tokens_close(&s);
}

static void test_random_vocabularies(void **state)
{
    (void)state;
    random_init(&source, 1);
    for (int round = 0; round < 4000; round++) {
        struct world w;
        make_world(&w);
        for (int i = 0; i < 8; i++) {
            char text[MAX_TEXT];
            size_t n = below(MAX_TEXT);
            for (size_t k = 0; k < n; k++)
                text[k] = (char)('a' + below(3));
            compare(&w, i & 1, text, n);
        }
        text_table_done(&w.vocab.table);
    }
}

static void test_longest_wins_over_leftmost(void **state)
{
    (void)state;
    struct world w = {0};
    w.vocab.types = w.types;
    add(&w, "ab", TOKEN_CONTROL);
    add(&w, "bcd", TOKEN_CONTROL);
    compare(&w, false, "abcd", 4);
    struct special_tokens s;
    uint32_t *owners;
    assert_int_equal(special_tokens_open(&s, &w.vocab, false, "test", NULL), STATUS_OK);
    assert_int_equal(special_tokens_cut(&s, text_of("abcd"), &owners, NULL), STATUS_OK);
    assert_int_equal(owners[0], 0);
    assert_int_equal(s.nodes[owners[1]].id, 1);
    memory_free(owners);
    assert_int_equal(special_tokens_cut(&s, text_of("xyz"), &owners, NULL), STATUS_OK);
    assert_null(owners);
    assert_int_equal(special_tokens_cut(&s, text_of(""), &owners, NULL), STATUS_OK);
    assert_null(owners);
    special_tokens_close(&s);
    text_table_done(&w.vocab.table);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_vocabularies),
        cmocka_unit_test(test_longest_wins_over_leftmost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
