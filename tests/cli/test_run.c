/* `trine run` as a user and as a pipe see it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../fixture.h"
#include "../support.h"

static const char *trine, *model;

static void expect(const char *arguments, int status, const char *out)
{
    struct outcome o = run_command("%s run %s %s", trine, model, arguments);
    if (o.status != status || strcmp(o.out, out) != 0)
        fail_msg("run %s: status %d, output '%s', messages: %s", arguments, o.status, o.out, o.err);
    outcome_done(&o);
}

/* The scripted model says its chain, then ends the text. */
static void test_scripted_chain(void **state)
{
    (void)state;
    expect("-p hi: --temp 0", 0, "one two three\xc3\xa9!");
    expect("-p hi: --temp 0 -n 2", 0, "one two");
    expect("-p hi: --temp 0 -n 0", 0, "");
    expect("-p hi: --temp 0 --echo", 0, "hi:one two three\xc3\xa9!");
    expect("-p hi: --temp 0 -ctk f16 -b 1", 0, "one two three\xc3\xa9!");
    expect("-p hi: --temp 0.2 --seed 1 --reference", 0, "one two three\xc3\xa9!");
}

/* S24 */
static void test_pipes(void **state)
{
    (void)state;
    struct outcome o = run_command("printf 'hi:' | %s run -m %s -n 2 --temp 0", trine, model);
    assert_int_equal(o.status, 0);
    assert_string_equal(o.out, "one two");
    assert_non_null(strstr(o.err, "tok/s"));
    assert_null(strchr(o.err, '\x1b'));
    outcome_done(&o);

    o = run_command("echo 'hi:' | %s run -m %s -n 2 --temp 0 -q", trine, model);
    assert_string_equal(o.out, "one two");
    assert_string_equal(o.err, "");
    outcome_done(&o);

    o = run_command("%s run -m %s -n 2 --temp 0 -p hi: <&-", trine, model);
    assert_int_equal(o.status, 0);
    assert_string_equal(o.out, "one two");
    outcome_done(&o);

    o = run_command("%s run -m %s -n 1 --temp 0 <&-", trine,
                    model); /* an empty prompt: BOS alone */
    assert_int_equal(o.status, 0);
    outcome_done(&o);

    o = run_command("timeout 5 %s run -m %s -n 4 --temp 0 < /dev/null", trine, model);
    assert_int_equal(o.status, 0);
    outcome_done(&o);
}

static void test_reader_that_leaves(void **state)
{
    (void)state;
    static const char *const chain[] = {"one", " two"};
    const char *ring = scratch_path("ring.gguf");
    fixture_write(ring,
                  &(struct fixture){.chain = chain, .n_chain = 2, .ring = true, .n_ctx = 4096});
    struct outcome o = run_command(
        "{ %s run -m %s -p hi: --temp 0 ; echo status $? >&2 ; } | head -c 1", trine, ring);
    assert_string_equal(o.out, "o");
    assert_non_null(strstr(o.err, "status 0"));
    outcome_done(&o);

    o = run_command("%s run -m %s -p hi: --temp 0 >&-", trine, model);
    assert_int_equal(o.status, 1);
    assert_non_null(strstr(o.err, "cannot write"));
    outcome_done(&o);
    o = run_command("%s run -m %s -p hi: --temp 0 >/dev/full", trine, model);
    assert_int_equal(o.status, 1);
    outcome_done(&o);
}

/* S20: a full context ends the text, and says so. */
static void test_context_full(void **state)
{
    (void)state;
    static const char *const chain[] = {"one", " two"};
    const char *ring = scratch_path("full.gguf");
    fixture_write(ring, &(struct fixture){.chain = chain, .n_chain = 2, .ring = true});
    struct outcome o = run_command("%s run -m %s -p hi: --temp 0 -c 8", trine, ring);
    assert_int_equal(o.status, 0);
    /* BOS, h, i, : are 4 tokens; prompt and text together fill the context */
    assert_string_equal(o.out, "one twoone two");
    assert_non_null(strstr(o.err, "context full"));
    outcome_done(&o);
    o = run_command("%s run -m %s -p hi: --temp 0 -c 5", trine, ring);
    assert_string_equal(o.out, "one");
    outcome_done(&o);
    o = run_command("%s run -m %s -p hi: --temp 0 -c 4", trine, ring);
    assert_int_equal(o.status, 1);
    assert_non_null(strstr(o.err, "4 tokens"));
    assert_non_null(strstr(o.err, "-c 5"));
    outcome_done(&o);
}

/* A character made of several tokens comes out whole or not at all. */
static void test_characters_are_not_split(void **state)
{
    (void)state;
    static const char *const chain[] = {"one", "\xf0", "\x9f", "\x98", "\x80", "!"};
    const char *path = scratch_path("emoji.gguf");
    fixture_write(path, &(struct fixture){.chain = chain, .n_chain = 6});
    struct outcome o = run_command("%s run -m %s -p hi: --temp 0 -q", trine, path);
    assert_string_equal(o.out, "one\xf0\x9f\x98\x80!");
    outcome_done(&o);
    o = run_command("%s run -m %s -p hi: --temp 0 -q -n 3", trine, path);
    assert_string_equal(o.out, "one\xef\xbf\xbd");
    outcome_done(&o);
}

static void test_same_seed_same_text(void **state)
{
    (void)state;
    const char *path = scratch_path("random.gguf");
    fixture_write(path, &(struct fixture){.real_output = true, .n_ctx = 128});
    char *texts[3];
    for (int i = 0; i < 3; i++) {
        struct outcome o = run_command("%s run -m %s -p hi --temp 2 --top-k 0 --top-p 1 --min-p 0 "
                                       "-n 20 --ignore-eos -q --seed %d",
                                       trine, path, i == 2 ? 8 : 7);
        assert_int_equal(o.status, 0);
        texts[i] = strdup(o.out);
        outcome_done(&o);
    }
    assert_string_equal(texts[0], texts[1]);
    assert_string_not_equal(texts[0], texts[2]);
    for (int i = 0; i < 3; i++)
        free(texts[i]);
}

static void test_prompt_file(void **state)
{
    (void)state;
    const char *path = scratch_path("prompt.txt");
    write_whole(path, "hi:\n", 4);
    struct outcome o = run_command("%s run -m %s -f %s --temp 0 -n 1 -q", trine, model, path);
    assert_string_equal(o.out, "one");
    outcome_done(&o);
    o = run_command("%s run -m %s -f %s.absent --temp 0 -n 1", trine, model, path);
    assert_int_equal(o.status, 1);
    outcome_done(&o);
}

static void test_wrong_usage(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "run",
        "frobnicate",
        "run MODEL -p x --temp warm",
        "run MODEL -p x --temp -1",
        "run MODEL -p x -n 1.5",
        "run MODEL -p x -n two",
        "run MODEL -p x -n ''",
        "run MODEL -p x -b 100000",
        "run MODEL -p x -ctk q9",
        "run MODEL -p x --no-such-option",
        "run MODEL -p x -f y",
        "run MODEL -p",
        "run MODEL other -p x",
        "run MODEL -p x --echo=yes",
        "logits MODEL --tokens 1",
        "logits MODEL --tokens 1,x -o out",
        "quantize MODEL",
        "quantize MODEL out.gguf TQ9_9",
        "quantize MODEL out.gguf Q8_K",
        "inspect",
        "synth --shape tiny --type TQ2_0",
        "synth --shape no-such --type TQ2_0 -o out.gguf",
        "synth --shape tiny --type no-such -o out.gguf",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        const char *at = strstr(lines[i], "MODEL");
        struct outcome o =
            at ? run_command("%s %.*s%s%s", trine, (int)(at - lines[i]), lines[i], model, at + 5)
               : run_command("%s %s", trine, lines[i]);
        const char *newline = strchr(o.err, '\n');
        if (o.status != 2 || o.out_bytes || !newline || newline[1])
            fail_msg("trine %s: status %d, messages: %s", lines[i], o.status, o.err);
        outcome_done(&o);
    }
    assert_int_not_equal(access("out.gguf", F_OK), 0);
}

static void test_help_and_version(void **state)
{
    (void)state;
    struct outcome o = run_command("%s run --help", trine);
    assert_int_equal(o.status, 0);
    assert_non_null(strstr(o.out, "--top-k K"));
    assert_non_null(strstr(o.out, "[40]"));
    outcome_done(&o);
    o = run_command("%s --version", trine);
    assert_int_equal(o.status, 0);
    assert_memory_equal(o.out, "trine ", 6);
    outcome_done(&o);
    o = run_command("%s manual", trine);
    assert_int_equal(o.status, 0);
    assert_memory_equal(o.out, ".TH TRINE 1", 11);
    assert_non_null(strstr(o.out, "\\-\\-top\\-k"));
    outcome_done(&o);
}

/* Tokens by number, positions by row; a prompt gives the same as its tokens. */
static void test_logits(void **state)
{
    (void)state;
    const char *a = scratch_path("a.bin"), *b = scratch_path("b.bin");
    struct outcome o = run_command("%s logits %s --tokens 1,107,108,61 -o %s", trine, model, a);
    assert_int_equal(o.status, 0);
    assert_int_equal(o.out_bytes, 0);
    outcome_done(&o);
    o = run_command("%s logits %s -p hi: -o %s -b 3", trine, model, b);
    assert_int_equal(o.status, 0);
    outcome_done(&o);
    size_t n_a, n_b;
    char *bytes_a = read_whole(a, &n_a), *bytes_b = read_whole(b, &n_b);
    assert_int_equal(n_a, 4 * 263 * sizeof(float)); /* 259 tokens and four of the chain */
    assert_int_equal(n_a, n_b);
    assert_memory_equal(bytes_a, bytes_b, n_a);
    free(bytes_a);
    free(bytes_b);
    o = run_command("%s logits %s --tokens 263 -o %s", trine, model, a);
    assert_int_equal(o.status, 1);
    assert_non_null(strstr(o.err, "0 to 262"));
    outcome_done(&o);
    o = run_command("%s logits %s --tokens 1 -o %s/no/such", trine, model, a);
    assert_int_equal(o.status, 1);
    outcome_done(&o);
}

static int write_model(void **state)
{
    (void)state;
    static const char *const chain[] = {"one", " two", " three\xc3\xa9", "!"};
    trine = build_path("trine");
    model = scratch_path("chain.gguf");
    fixture_write(model, &(struct fixture){.chain = chain, .n_chain = 4});
    return 0;
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scripted_chain),
        cmocka_unit_test(test_pipes),
        cmocka_unit_test(test_reader_that_leaves),
        cmocka_unit_test(test_context_full),
        cmocka_unit_test(test_characters_are_not_split),
        cmocka_unit_test(test_same_seed_same_text),
        cmocka_unit_test(test_prompt_file),
        cmocka_unit_test(test_wrong_usage),
        cmocka_unit_test(test_help_and_version),
        cmocka_unit_test(test_logits),
    };
    return cmocka_run_group_tests(tests, write_model, NULL);
}
