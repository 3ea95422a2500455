/* Files of predictions: the layout byte by byte, what rounding does to them, and hostile ones. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"
#include "base/random.h"
#include "base/reader.h"
#include "measure/logits_file.h"
#include "measure/perplexity.h"

/* A file of the given rows. */
static void write_file(const char *path, const struct logits_shape *shape, const int32_t *tokens,
                       const float *logits, int n_rows)
{
    struct logits_writer writer;
    struct error err;
    assert_int_equal(logits_writer_open(&writer, path, shape, tokens, &err), STATUS_OK);
    for (int i = 0; i < n_rows; i++)
        assert_int_equal(logits_writer_add(&writer, logits + i * shape->n_vocab, &err), STATUS_OK);
    assert_int_equal(logits_writer_commit(&writer, &err), STATUS_OK);
    logits_writer_close(&writer);
}

/* Two chunks of 3 tokens over a vocabulary of 3: one scored token each. */
static const struct logits_shape tiny = {3, 3, 2};
static const int32_t tiny_tokens[] = {0, 1, 2, 2, 1, 0};
static const float tiny_logits[] = {5, 1, -15, 2, 2, 2};

/* 16 below the largest are 65535 steps, so 4 below are step 49151.25; deeper is step 0. */
static void test_layout(void **state)
{
    (void)state;
    const char *path = scratch_path("layout");
    write_file(path, &tiny, tiny_tokens, tiny_logits, 2);
    size_t size;
    char *text = read_whole(path, &size);
    const uint8_t *bytes = (const uint8_t *)text;
    assert_int_equal(size, 8 + 12 + 6 * 4 + 2 * (8 + 4 * 2));
    assert_memory_equal(bytes, "_logits_\3\0\0\0\3\0\0\0\2\0\0\0", 20);
    for (int i = 0; i < 6; i++)
        assert_int_equal(load_u32(bytes + 20 + 4 * i), tiny_tokens[i]);
    const uint8_t *row = bytes + 44;
    assert_true(load_f32(row) == (float)(16.0 / 65535));
    assert_true(load_f32(row + 4) == (float)(-16 - log(1 + exp(-4) + exp(-20))));
    assert_int_equal(load_u16(row + 8), 65535);
    assert_int_equal(load_u16(row + 10), 49151);
    assert_int_equal(load_u16(row + 12), 0);
    row += 16; /* all equal: no steps, and log p = -log 3 */
    assert_true(load_f32(row) == 0 && load_f32(row + 4) == (float)-log(3));
    assert_int_equal(load_u16(row + 8) | load_u16(row + 10) | load_u16(row + 12), 0);
    free(text);
}

#define N_VOCAB 2001
#define N_ROWS  8 /* of 2 chunks of 10 tokens */

static float logits[N_ROWS * N_VOCAB];

/* Rows of growing spread: the last ones are deeper than a file keeps. */
static void write_random(const char *path)
{
    static const struct logits_shape shape = {10, N_VOCAB, 2};
    static int32_t tokens[20];
    struct random random;
    random_init(&random, 11);
    for (int i = 0; i < N_ROWS * N_VOCAB; i++)
        logits[i] = (float)((1 + i / N_VOCAB) * random_normal(&random));
    for (int i = 0; i < 20; i++)
        tokens[i] = 100 * i;
    write_file(path, &shape, tokens, logits, N_ROWS);
}

/* log p comes back within half a step, the sum of what is left out within its limits. */
static void test_round_trip(void **state)
{
    (void)state;
    const char *path = scratch_path("round");
    struct logits_reader reader;
    struct base_row row;
    struct error err;
    int n_deep = 0;
    write_random(path);
    assert_int_equal(logits_reader_open(&reader, path, &err), STATUS_OK);
    assert_int_equal(reader.shape.n_ctx, 10);
    assert_int_equal(reader.shape.n_vocab, N_VOCAB);
    assert_int_equal(reader.tokens[19], 1900);
    for (int i = 0; i < N_ROWS; i++) {
        const float *exact = logits + i * N_VOCAB;
        double norm = log_sum_exp(exact, N_VOCAB), tail = 0;
        assert_int_equal(logits_reader_next(&reader, &row, &err), STATUS_OK);
        for (int k = 0; k < N_VOCAB; k++) {
            double log_p = exact[k] - norm;
            if (row.log_p[k] > row.floor)
                assert_true(fabs(row.log_p[k] - log_p) <= 16.0 / 65535 / 2 + 1e-5);
            else
                tail += exp(log_p);
        }
        n_deep += row.floor > -INFINITY;
        assert_true(row.tail_least <= tail && tail <= row.tail_most * 1.001);
        /* and so a model differs by nothing from its own file */
        struct row_divergence d = row_divergence(&row, exact, N_VOCAB, 0);
        assert_true(d.kl < 1e-8 && d.total_variation < 1e-4 && d.is_same_top);
    }
    assert_true(n_deep > 0 && n_deep < N_ROWS);
    assert_int_equal(logits_reader_next(&reader, &row, &err), STATUS_FORMAT);
    logits_reader_close(&reader);
}

/* A logit wrong by d is seen through the file as the equation says, also where the file keeps
 * nothing of its token: KL = log z - p d with z = 1 + p (e^d - 1). */
static void test_planted_logit(void **state)
{
    (void)state;
    const char *path = scratch_path("planted");
    struct logits_reader reader;
    struct base_row row;
    struct error err;
    write_random(path);
    assert_int_equal(logits_reader_open(&reader, path, &err), STATUS_OK);
    for (int i = 0; i < N_ROWS; i++) {
        float *wrong = logits + i * N_VOCAB;
        int token = 3 * i;
        double p = exp(wrong[token] - log_sum_exp(wrong, N_VOCAB)), d = i % 2 ? 1 : 3 + 5 * i;
        float right = wrong[token];
        assert_int_equal(logits_reader_next(&reader, &row, &err), STATUS_OK);
        wrong[token] = (float)(right + d);
        d = (double)wrong[token] - right;
        double kl = log1p(p * expm1(d)) - p * d;
        double found = row_divergence(&row, wrong, N_VOCAB, token).kl;
        if (!(fabs(found - kl) < 1e-6 + 0.01 * kl))
            fail_msg("row %d: KL %g instead of %g", i, found, kl);
        wrong[token] = right;
    }
    logits_reader_close(&reader);
}

/* Opens and reads a file of these bytes to its end; the status. A failure names the file. */
static enum status read_bytes(const void *bytes, size_t size)
{
    const char *path = scratch_path("hostile");
    struct logits_reader reader;
    struct base_row row;
    struct error err = {0};
    write_whole(path, bytes, size);
    enum status status = logits_reader_open(&reader, path, &err);
    for (int i = 0; status == STATUS_OK && i < 2; i++)
        status = logits_reader_next(&reader, &row, &err);
    assert_true(status == STATUS_OK || strstr(err.text, path));
    logits_reader_close(&reader);
    return status;
}

/* As ik_llama.cpp writes it: 24 deep, nothing left out. */
static void test_deep_row(void **state)
{
    (void)state;
    const char *path = scratch_path("deep");
    struct logits_reader reader;
    struct base_row row;
    struct error err;
    size_t size;
    write_file(path, &tiny, tiny_tokens, tiny_logits, 2);
    char *bytes = read_whole(path, &size);
    uint8_t *first = (uint8_t *)bytes + 44;
    store_f32(first, 24.0f / 65535);
    store_f32(first + 4, (float)(-24 - log(1 + exp(-12) + exp(-24))));
    store_u16(first + 10, 32768);
    write_whole(path, bytes, size);
    free(bytes);
    assert_int_equal(logits_reader_open(&reader, path, &err), STATUS_OK);
    assert_int_equal(logits_reader_next(&reader, &row, &err), STATUS_OK);
    assert_true(row.floor == -INFINITY);
    static const float logits_24[] = {0, -12, -24};
    assert_true(row_divergence(&row, logits_24, 3, 0).kl < 1e-9);
    assert_true(fabs(row.log_p[2] + 24) < 1e-4 && fabs(row.log_p[1] + 12) < 4e-4);
    logits_reader_close(&reader);
}

/* From logits around 4100, where floats are 0.0005 apart, a program may find a depth of 15.9995:
 * the row still is one that leaves out what is deeper. */
static void test_rounded_depth(void **state)
{
    (void)state;
    const char *path = scratch_path("rounded");
    struct logits_reader reader;
    struct base_row row;
    struct error err;
    size_t size;
    volatile float high = 4100.7f, low = nextafterf(high - 16, INFINITY);
    float step = (high - low) / 65535;
    assert_true(step < 16.0f / 65535);
    write_file(path, &tiny, tiny_tokens, tiny_logits, 2);
    char *bytes = read_whole(path, &size);
    store_f32((uint8_t *)bytes + 44, step);
    write_whole(path, bytes, size);
    free(bytes);
    assert_int_equal(logits_reader_open(&reader, path, &err), STATUS_OK);
    assert_int_equal(logits_reader_next(&reader, &row, &err), STATUS_OK);
    assert_true(row.floor == row.log_p[2]);
    assert_int_equal(logits_reader_next(&reader, &row, &err), STATUS_OK);
    logits_reader_close(&reader);
}

/* One row of n_vocab probabilities: step, lowest log p, and codes that are all the same but the
 * first. */
static enum status read_row(int n_vocab, float step, float lowest, uint16_t first, uint16_t others)
{
    const char *path = scratch_path("row");
    struct logits_shape shape = {3, n_vocab, 1};
    struct logits_reader reader;
    struct base_row row;
    struct error err = {0};
    float *flat = calloc((size_t)n_vocab, sizeof *flat);
    size_t size;
    write_file(path, &shape, (const int32_t[]){0, 1, 2}, flat, 1);
    free(flat);
    char *bytes = read_whole(path, &size);
    uint8_t *at = (uint8_t *)bytes + 20 + 3 * 4;
    store_f32(at, step);
    store_f32(at + 4, lowest);
    for (int i = 0; i < n_vocab; i++)
        store_u16(at + 8 + 2 * i, i ? others : first);
    write_whole(path, bytes, size);
    free(bytes);
    assert_int_equal(logits_reader_open(&reader, path, &err), STATUS_OK);
    enum status status = logits_reader_next(&reader, &row, &err);
    assert_true(status == STATUS_OK || strstr(err.text, "sum to"));
    logits_reader_close(&reader);
    return status;
}

/* The largest log p may be sound where their sum is not. */
static void test_sum(void **state)
{
    (void)state;
    const float full = 16.0f / 65535;
    assert_int_equal(read_row(2048, 0, (float)-log(2048), 0, 0), STATUS_OK);
    assert_int_equal(read_row(2048, 0, -0.001f, 0, 0), STATUS_FORMAT); /* 2046 */
    /* 24 deep, nothing left out: 2047 of e^-24, and too little or much beside them */
    assert_int_equal(read_row(2048, 24.0f / 65535, -24, 65535, 0), STATUS_OK);
    assert_int_equal(read_row(2048, 24.0f / 65535, -24.02f, 65535, 0), STATUS_FORMAT);
    assert_int_equal(read_row(2048, 24.0f / 65535, -24, 65535, 45000), STATUS_FORMAT);
    /* 16 deep: what is left out may hold 2047 e^-16 = 0.0002, not 0.02; nor is what is kept 1.1 */
    assert_int_equal(read_row(2048, full, -16, 65535, 0), STATUS_OK);
    assert_int_equal(read_row(2048, full, -16.02f, 65535, 0), STATUS_FORMAT);
    assert_int_equal(read_row(2048, full, -16, 65535, 25000), STATUS_FORMAT);
    /* of 200,000 it may hold 0.02 */
    assert_int_equal(read_row(200000, full, -16.02f, 65535, 0), STATUS_OK);
}

static void test_hostile(void **state)
{
    (void)state;
    const char *path = scratch_path("sound");
    write_file(path, &tiny, tiny_tokens, tiny_logits, 2);
    size_t size;
    char *sound = read_whole(path, &size);
    char bytes[128];
    memcpy(bytes, sound, size);
    bytes[size] = 0;
    assert_int_equal(read_bytes(bytes, size), STATUS_OK);
    for (size_t n = 0; n < size; n++)
        assert_int_equal(read_bytes(bytes, n), STATUS_FORMAT);
    assert_int_equal(read_bytes(bytes, size + 1), STATUS_FORMAT);
    static const struct {
        size_t at;
        uint32_t value;
    } changes[] = {{0, 0},           {8, 2},           {8, 0xffffffff},  {12, 0},
                   {12, 0x7fffffff}, {12, 0x80000000}, {16, 0},          {16, 0xffffffff},
                   {20, 3},          {24, 0xffffffff}, {44, 0x7fc00000}, {44, 0xff800000},
                   {44, 0x3f800000}, {48, 0x7fc00000}, {48, 0},          {48, 0xc7000000},
                   {44, 0xb0000000}};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        memcpy(bytes, sound, size);
        store_u32((uint8_t *)bytes + changes[i].at, changes[i].value);
        if (read_bytes(bytes, size) != STATUS_FORMAT)
            fail_msg("accepted: %08x at %zu", changes[i].value, changes[i].at);
    }
    free(sound);
    struct logits_reader reader;
    struct error err;
    assert_int_equal(logits_reader_open(&reader, "tests", &err), STATUS_IO);
    logits_reader_close(&reader);
    assert_int_equal(logits_reader_open(&reader, scratch_path("absent"), &err), STATUS_IO);
    logits_reader_close(&reader);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_planted_logit), cmocka_unit_test(test_deep_row),
        cmocka_unit_test(test_rounded_depth), cmocka_unit_test(test_sum),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
