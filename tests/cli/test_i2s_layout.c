/* --i2s-layout: the same weights in the three byte orders of I2_S, of which no file tells, give the same
 * result where the right one is named and another where it is not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"
#include "gguf/gguf_write.h"
#include "tensor/formats.h"

static const char *trine;

enum { PUBLISHED, ARM, FOUR_ROWS, N_ORDERS };
static const char *const words[N_ORDERS] = {"published", "arm", "4row"};
static char *paths[N_ORDERS];

/* Byte and shift of the code at row r, column c, as the three writers of bitnet.cpp place them. */
static size_t place_of(int order, uint64_t r, uint64_t c, uint64_t n_cols, int *shift)
{
    uint64_t k = r * n_cols + c;
    switch (order) {
    case ARM: *shift = 6 - 2 * (int)(k % 64 / 16); return 16 * (k / 64) + k % 16;
    case FOUR_ROWS: *shift = 6 - 2 * (int)(r % 4); return r / 4 * n_cols + c;
    default: *shift = 6 - 2 * (int)(k % 128 / 32); return 32 * (k / 128) + k % 32;
    }
}

/* The codes of a matrix in the published order moved to another one; `out` begins as a copy. */
static void reorder(int order, const struct tensor_span *s, const uint8_t *in, uint8_t *out)
{
    memset(out, 0, s->ne[0] * s->ne[1] / 4);
    for (uint64_t r = 0; r < s->ne[1]; r++)
        for (uint64_t c = 0; c < s->ne[0]; c++) {
            int from, to;
            size_t at = place_of(PUBLISHED, r, c, s->ne[0], &from);
            int code = in[at] >> from & 3;
            at = place_of(order, r, c, s->ne[0], &to);
            out[at] = (uint8_t)(out[at] | code << to);
        }
}

/* A file of random weights, all matrices I2_S, and the same in the other orders. */
static int write_orders(void **state)
{
    (void)state;
    struct gguf_file file;
    size_t size;
    int n_matrices = 0;
    for (int i = 0; i < N_ORDERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s.gguf", words[i]);
        paths[i] = strdup(scratch_path(name));
    }
    struct outcome o = run_command("%s synth --shape tiny --type I2_S --embedding-type I2_S "
                                   "--output-type I2_S -o %s",
                                   trine, paths[PUBLISHED]);
    if (o.status != 0)
        fail_msg("synth: %s", o.err);
    outcome_done(&o);
    uint8_t *published = (uint8_t *)read_whole(paths[PUBLISHED], &size), *other = malloc(size);
    assert_int_equal(gguf_open(&file, paths[PUBLISHED], format_resolve, NULL), STATUS_OK);
    for (int order = ARM; order < N_ORDERS; order++) {
        memcpy(other, published, size);
        for (size_t i = 0; i < file.n_tensors; i++) {
            const struct tensor_span *s = &file.tensors[i].span;
            size_t at = file.shards[0].data_offset + s->offset;
            if (s->format == FORMAT_I2_S)
                reorder(order, s, published + at, other + at);
            n_matrices += s->format == FORMAT_I2_S;
        }
        write_whole(paths[order], other, size);
    }
    assert_true(n_matrices > 2 * 9); /* more than one layer, embedding and output */
    gguf_close(&file);
    free(published);
    free(other);
    return 0;
}

static int free_paths(void **state)
{
    (void)state;
    for (int i = 0; i < N_ORDERS; i++)
        free(paths[i]);
    return 0;
}

static struct outcome run_well(const char *command, const char *path, const char *options)
{
    struct outcome o = run_command("%s %s %s %s", trine, command, path, options);
    if (o.status != 0)
        fail_msg("%s %s %s: status %d: %s", command, path, options, o.status, o.err);
    return o;
}

static char *logits_of(const char *path, const char *layout, const char *options, size_t *size)
{
    char all[512];
    const char *out = scratch_path("logits.bin");
    snprintf(all, sizeof all, "--i2s-layout %s --tokens 1,7,250,33 -q -o %s %s", layout, out,
             options);
    struct outcome o = run_well("logits", path, all);
    outcome_done(&o);
    char *bytes = read_whole(out, size);
    assert_non_null(bytes);
    return bytes;
}

static void test_logits(void **state)
{
    (void)state;
    static const char *const ways[] = {"--reference",    "",
                                       "--isa avx2",     "--isa scalar",
                                       "-t 2 --nodes 2", "-t 2 --nodes 2 --dataflow row"};
    size_t size, n;
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        char *expected = logits_of(paths[PUBLISHED], "published", ways[w], &size);
        for (int file = 0; file < N_ORDERS; file++)
            for (int named = 0; named < N_ORDERS; named++) {
                char *logits = logits_of(paths[file], words[named], ways[w], &n);
                assert_int_equal(n, size);
                if ((memcmp(logits, expected, n) == 0) != (file == named))
                    fail_msg("%s read as %s, '%s': %s", words[file], words[named], ways[w],
                             file == named ? "other logits" : "the same logits");
                free(logits);
            }
        free(expected);
    }
}

/* The value of a key that stands once in JSON, as text. */
static char *value_of(const char *json, const char *key)
{
    char name[64];
    snprintf(name, sizeof name, "\"%s\":", key);
    const char *at = strstr(json, name);
    if (!at)
        fail_msg("no %s in: %s", name, json);
    return strndup(at, strcspn(at, ",\n"));
}

/* What a command prints under a key must be that of the published file if, and only if, the order is
 * named. */
static void expect_same_value(const char *command, const char *options, const char *key)
{
    char chosen[512];
    struct outcome a = run_well(command, paths[PUBLISHED], options);
    char *expected = value_of(a.out, key);
    for (int file = ARM; file < N_ORDERS; file++) {
        snprintf(chosen, sizeof chosen, "%s --i2s-layout %s", options, words[file]);
        struct outcome right = run_well(command, paths[file], chosen);
        struct outcome wrong = run_well(command, paths[file], options);
        char *same = value_of(right.out, key), *other = value_of(wrong.out, key);
        assert_string_equal(same, expected);
        assert_string_not_equal(other, expected);
        free(same);
        free(other);
        outcome_done(&right);
        outcome_done(&wrong);
    }
    free(expected);
    outcome_done(&a);
}

static void test_other_commands(void **state)
{
    (void)state;
    const char *text = scratch_path("text"), *words_200 = "in the beginning was the word, and ";
    char options[256], content[2048] = "";
    for (int i = 0; i < 40; i++)
        strcat(content, words_200);
    write_whole(text, content, strlen(content));
    expect_same_value("bench", "-p 0 -n 4 -r 1 -o json", "logits_hash");
    snprintf(options, sizeof options, "-f %s -c 32 --json -q", text);
    expect_same_value("ppl", options, "nll");
    struct outcome expected = run_well("run", paths[PUBLISHED], "-p word -n 20 --temp 0 -q");
    struct outcome o =
        run_well("run", paths[FOUR_ROWS], "-p word -n 20 --temp 0 -q --i2s-layout 4row");
    assert_true(expected.out_bytes > 10);
    assert_string_equal(o.out, expected.out);
    outcome_done(&expected);
    outcome_done(&o);
    o = run_well("trace", paths[ARM], "-n 2 --i2s-layout arm");
    outcome_done(&o);
}

/* The published order is what is written, whatever becomes of a tensor. */
static void test_quantize(void **state)
{
    (void)state;
    static const char *const targets[] = {"I2_S", "IQ2_BN"};
    const char *out = scratch_path("out.gguf");
    size_t size, n;
    char chosen[512];
    for (int t = 0; t < 2; t++) {
        snprintf(chosen, sizeof chosen, "%s %s", out, targets[t]);
        struct outcome o = run_well("quantize", paths[PUBLISHED], chosen);
        outcome_done(&o);
        char *expected = read_whole(out, &size);
        for (int file = ARM; file < N_ORDERS; file++) {
            snprintf(chosen, sizeof chosen, "%s %s --i2s-layout %s", out, targets[t], words[file]);
            o = run_well("quantize", paths[file], chosen);
            assert_non_null(strstr(o.err, "every value compared, none has changed"));
            outcome_done(&o);
            char *bytes = read_whole(out, &n);
            assert_int_equal(n, size);
            assert_memory_equal(bytes, expected, n);
            free(bytes);
        }
        free(expected);
    }
}

static void test_inspect(void **state)
{
    (void)state;
    static const char *const said[N_ORDERS] = {"I2_S in the byte order of the published files",
                                               "I2_S in the byte order of ARM builds",
                                               "I2_S with four rows together"};
    static const char *const names[N_ORDERS] = {"\"I2_S\"", "\"I2_S_ARM\"", "\"I2_S_4ROW\""};
    char options[64];
    for (int i = 0; i < N_ORDERS; i++) {
        snprintf(options, sizeof options, "--brief --i2s-layout %s", words[i]);
        struct outcome o = run_well("inspect", paths[i], options);
        if (!strstr(o.out, said[i]) || !strstr(o.out, "the file does not say which"))
            fail_msg("%s: %s", words[i], o.out);
        assert_non_null(strstr(o.out, "runs       yes"));
        outcome_done(&o);
        snprintf(options, sizeof options, "--json --i2s-layout %s", words[i]);
        o = run_well("inspect", paths[i], options);
        assert_non_null(strstr(o.out, names[i]));
        outcome_done(&o);
        snprintf(options, sizeof options, "--plan --i2s-layout %s", words[i]);
        o = run_well("inspect", paths[i], options);
        outcome_done(&o);
    }
}

/* One I2_S matrix of that many rows. */
static void write_matrix(const char *path, uint64_t n_rows)
{
    const uint64_t ne[] = {128, n_rows};
    uint64_t bytes;
    struct gguf_writer w;
    assert_int_equal(format_bytes(FORMAT_I2_S, n_rows, 128, "x", &bytes, NULL), STATUS_OK);
    uint8_t *data = calloc(bytes, 1);
    assert_int_equal(gguf_writer_open(&w, path, NULL), STATUS_OK);
    gguf_put_string(&w, "general.architecture", text_of("llama"), NULL);
    gguf_put_tensor(&w, text_of("blk.0.attn_q.weight"), 2, ne, 36, bytes, NULL);
    gguf_write_header(&w, NULL);
    gguf_write_data(&w, data, bytes, NULL);
    assert_int_equal(gguf_writer_commit(&w, NULL), STATUS_OK);
    gguf_writer_close(&w);
    free(data);
}

static void expect_refused(int status, const char *word, const char *arguments)
{
    struct outcome o = run_command("%s %s", trine, arguments);
    if (o.status != status || !strstr(o.err, word) || strchr(o.err, '\n') != strrchr(o.err, '\n'))
        fail_msg("%s: status %d, message: %s", arguments, o.status, o.err);
    assert_int_equal(o.out_bytes, 0);
    outcome_done(&o);
}

static void test_refusals(void **state)
{
    (void)state;
    const char *six = scratch_path("six.gguf");
    char line[512];
    static const char *const commands[] = {"run -p x -m",    "logits --tokens 1 -o x -m",
                                           "bench -m",       "ppl -f README.md -m",
                                           "trace -m",       "inspect",
                                           "inspect --plan", "quantize -t F16 -o x -m"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        for (int order = PUBLISHED; order < N_ORDERS; order++) {
            snprintf(line, sizeof line, "%s models/trine-kjv.gguf --i2s-layout %s", commands[i],
                     words[order]);
            expect_refused(2, "none of its tensors is I2_S (type id 36), so --i2s-layout", line);
        }
    }
    expect_refused(2, "'x86' is none of published|arm|4row", "inspect x --i2s-layout x86");
    expect_refused(2, "--i2s-layout is for a file",
                   "bench --shape tiny --type I2_S --i2s-layout published");
    expect_refused(2, "--i2s-layout is for a file",
                   "inspect --plan --shape tiny --type I2_S --i2s-layout arm");
    write_matrix(six, 6);
    snprintf(line, sizeof line, "inspect %s --i2s-layout 4row", six);
    expect_refused(1,
                   "'blk.0.attn_q.weight': 6 rows; I2_S_4ROW needs a multiple of 4; use another "
                   "--i2s-layout",
                   line);
    snprintf(line, sizeof line, "--brief --i2s-layout arm");
    struct outcome o = run_well("inspect", six, line);
    outcome_done(&o);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    trine = build_path("trine");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),   cmocka_unit_test(test_other_commands),
        cmocka_unit_test(test_quantize), cmocka_unit_test(test_inspect),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, write_orders, free_paths);
}
