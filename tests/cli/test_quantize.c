/* `trine quantize`: the same values in every ternary type, or a refusal and no file. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../fixture.h"
#include "../support.h"
#include "gguf/gguf_write.h"

static const char *trine, *source;

static const char *const types[] = {"TQ1_0", "TQ2_0",     "Q2_0", "IQ1_BN", "IQ2_BN",
                                    "I2_S",  "IQ2_BN_R4", "F16",  "F32"};
#define N_TYPES (sizeof types / sizeof types[0])

/* Logits of a fixed token list. */
static float *logits_of(const char *model, size_t *bytes)
{
    const char *out = scratch_path("logits.bin");
    struct outcome o =
        run_command("%s logits -q --reference %s --tokens 1,104,105,61,9 -o %s", trine, model, out);
    if (o.status != 0)
        fail_msg("%s: %s", model, o.err);
    outcome_done(&o);
    return (float *)read_whole(out, bytes);
}

static void expect_same_logits(const char *a, const char *b)
{
    size_t n_a, n_b;
    float *x = logits_of(a, &n_a), *y = logits_of(b, &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(x, y, n_a);
    free(x);
    free(y);
}

/* From F16 to every type and from each of those back: the logits of the reference stay equal to the
 * last bit. (The engine quantises activations by the groups that a type has.) */
static void test_every_type_keeps_the_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TYPES; i++) {
        const char *there = scratch_path("there.gguf"), *back = scratch_path("back.gguf");
        struct outcome o = run_command("%s quantize %s %s %s", trine, source, there, types[i]);
        if (o.status != 0)
            fail_msg("to %s: %s", types[i], o.err);
        assert_int_equal(o.out_bytes, 0);
        assert_non_null(strstr(o.err, "every value compared"));
        outcome_done(&o);
        expect_same_logits(source, there);
        o = run_command("%s quantize %s %s F16", trine, there, back);
        if (o.status != 0)
            fail_msg("from %s: %s", types[i], o.err);
        outcome_done(&o);
        expect_same_logits(source, back);
    }
}

/* Metadata survives, and the file is one that can be written over itself. */
static void test_in_place_and_metadata(void **state)
{
    (void)state;
    const char *path = scratch_path("place.gguf");
    struct outcome o = run_command("%s quantize %s %s TQ2_0", trine, source, path);
    assert_int_equal(o.status, 0);
    outcome_done(&o);
    o = run_command("%s quantize %s %s IQ2_BN", trine, path, path);
    assert_int_equal(o.status, 0);
    outcome_done(&o);
    expect_same_logits(source, path);
    o = run_command("%s inspect %s", trine, path);
    assert_non_null(strstr(o.out, "IQ2_BN     16 tensors"));
    assert_non_null(strstr(o.out, "general.name"));
    assert_non_null(strstr(o.out, "\"fixture\""));
    assert_null(strstr(o.out, "TQ2_0"));
    outcome_done(&o);
}

static void expect_refused(const char *in, const char *type, const char *word)
{
    const char *out = scratch_path("refused.gguf");
    struct outcome o = run_command("%s quantize %s %s %s", trine, in, out, type);
    if (o.status != 1 || !strstr(o.err, word))
        fail_msg("status %d, message: %s", o.status, o.err);
    outcome_done(&o);
    assert_int_not_equal(access(out, F_OK), 0);
    /* nothing half written lies beside it either */
    o = run_command("ls %s | grep part ; true", scratch_path(""));
    assert_string_equal(o.out, "");
    outcome_done(&o);
}

/* A model of two matrices, the second one as given. */
static void write_pair(const char *path, const float *values, int rows, int cols,
                       enum format_id format)
{
    struct gguf_writer w;
    const uint64_t ne[] = {(uint64_t)cols, (uint64_t)rows};
    uint64_t bytes;
    assert_int_equal(format_bytes(format, ne[1], ne[0], "x", &bytes, NULL), STATUS_OK);
    uint8_t *data = malloc(bytes);
    format_of(format)->encode(values, rows, cols, data);
    assert_int_equal(gguf_writer_open(&w, path, NULL), STATUS_OK);
    gguf_put_string(&w, "general.architecture", text_of("llama"), NULL);
    gguf_put_tensor(&w, text_of("blk.0.attn_q.weight"), 2, ne, format_of(format)->type_id, bytes,
                    NULL);
    gguf_write_header(&w, NULL);
    gguf_write_data(&w, data, bytes, NULL);
    assert_int_equal(gguf_writer_commit(&w, NULL), STATUS_OK);
    gguf_writer_close(&w);
    free(data);
}

static void test_what_would_lose_is_refused(void **state)
{
    (void)state;
    enum { ROWS = 4, COLS = 256 };
    static float values[ROWS * COLS];
    const char *path = scratch_path("pair.gguf");
    for (int i = 0; i < ROWS * COLS; i++)
        values[i] = (float)sin(i);
    write_pair(path, values, ROWS, COLS, FORMAT_F32);
    expect_refused(path, "TQ2_0", "none of its 1 tensors is ternary");

    for (int i = 0; i < ROWS * COLS; i++) /* a scale that f16 cannot hold */
        values[i] = (float)(i % 3 - 1) * 0.1f;
    write_pair(path, values, ROWS, COLS, FORMAT_F32);
    expect_refused(path, "TQ2_0", "blk.0.attn_q.weight");
    expect_refused(path, "F16", "0.1");

    for (int i = 0; i < ROWS * COLS; i++) /* two scales in one matrix */
        values[i] = (float)(i % 3 - 1) * (i < COLS ? 0.5f : 0.25f);
    write_pair(path, values, ROWS, COLS, FORMAT_F32);
    expect_refused(path, "I2_S", "blk.0.attn_q.weight");
}

/* Types whose file would be read as something else, or that hold rotated weights. */
static void test_no_other_model_is_written(void **state)
{
    (void)state;
    static const char *const never[] = {"I2_S_ARM", "I2_S_4ROW", "PQ2_0", "PTQ1_0", "Q8_K"};
    const char *out = scratch_path("never.gguf");
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
        struct outcome o = run_command("%s quantize %s %s %s", trine, source, out, never[i]);
        assert_int_equal(o.status, 2);
        assert_int_not_equal(access(out, F_OK), 0);
        outcome_done(&o);
        o = run_command("%s synth --shape tiny --type %s -o %s", trine, never[i], out);
        assert_int_equal(o.status, 2);
        assert_int_not_equal(access(out, F_OK), 0);
        outcome_done(&o);
    }
    const char *rotated = scratch_path("rotated.gguf");
    fixture_write(rotated, &(struct fixture){.format = FORMAT_PQ2_0});
    expect_refused(rotated, "TQ2_0", "rotated");
    /* a matrix so small that both layouts of type 42 fit: it would be read as the other one */
    static float values[4 * 128];
    for (int i = 0; i < 4 * 128; i++)
        values[i] = (float)(i % 3 - 1);
    const char *small = scratch_path("small.gguf");
    write_pair(small, values, 4, 128, FORMAT_F32);
    expect_refused(small, "Q2_0_G128", "would be read back as Q2_0");
}

/* A link stays a link, a mode stays a mode, and the model itself is never the output of `logits`.
 */
static void test_what_was_there(void **state)
{
    (void)state;
    const char *real = scratch_path("real.gguf"), *link_path = scratch_path("link.gguf");
    struct stat info;
    write_whole(real, "old", 3);
    assert_int_equal(chmod(real, 0600), 0);
    assert_int_equal(symlink("real.gguf", link_path), 0);
    struct outcome o = run_command("%s quantize %s %s TQ2_0", trine, source, link_path);
    assert_int_equal(o.status, 0);
    outcome_done(&o);
    assert_int_equal(lstat(link_path, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(stat(real, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_true(info.st_size > 3);
    o = run_command("%s logits %s --tokens 1 -o %s", trine, real, link_path);
    assert_int_equal(o.status, 2);
    outcome_done(&o);
}

/* Case S07: one id, two layouts, the same weights: both load, and the logits are identical. */
static void test_type_42_in_both_sizes(void **state)
{
    (void)state;
    const char *a = scratch_path("g64.gguf"), *b = scratch_path("g128.gguf");
    fixture_write(a, &(struct fixture){.format = FORMAT_Q2_0, .real_output = true});
    fixture_write(b, &(struct fixture){.format = FORMAT_Q2_0_G128, .real_output = true});
    expect_same_logits(a, b);
    struct outcome o = run_command("%s inspect --brief %s", trine, a);
    assert_non_null(strstr(o.out, "type id 42 read as Q2_0 with 64 weights a block"));
    outcome_done(&o);
    o = run_command("%s inspect --brief %s", trine, b);
    assert_non_null(strstr(o.out, "type id 42 read as"));
    assert_non_null(strstr(o.out, "128 weights a block"));
    outcome_done(&o);
}

static int write_source(void **state)
{
    (void)state;
    trine = build_path("trine");
    source = scratch_path("source.gguf");
    /* 260 tokens: IQ2_BN_R4 wants a multiple of 4 rows, and the embedding is ternary, too */
    static const char *const chain[] = {"one"};
    fixture_write(source, &(struct fixture){.chain = chain, .n_chain = 1, .real_output = true});
    return 0;
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_keeps_the_values),
        cmocka_unit_test(test_in_place_and_metadata),
        cmocka_unit_test(test_what_would_lose_is_refused),
        cmocka_unit_test(test_no_other_model_is_written),
        cmocka_unit_test(test_what_was_there),
        cmocka_unit_test(test_type_42_in_both_sizes),
    };
    return cmocka_run_group_tests(tests, write_source, NULL);
}
