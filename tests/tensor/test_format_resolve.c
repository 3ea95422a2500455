/* Which format the type ids of a file mean, decided from the places of its tensors. */
#include "../support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/formats.h"

enum { MAX_SPANS = 8, ALIGNMENT = 32 };

/* A file being laid out: each tensor at the next multiple of the alignment. */
struct layout {
    struct tensor_span spans[MAX_SPANS];
    size_t n;
    struct error err;
};

static uint64_t padded(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static struct tensor_span *add(struct layout *l, uint32_t type_id, uint64_t n_cols, uint64_t n_rows,
                               uint64_t bytes)
{
    static const char *const names[MAX_SPANS] = {"t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"};
    struct tensor_span *s = &l->spans[l->n];
    *s = (struct tensor_span){.name = text_of(names[l->n]),
                              .type_id = type_id,
                              .ne = {n_cols, n_rows, 1, 1},
                              .room = padded(bytes),
                              .alignment = ALIGNMENT,
                              .format = -1};
    l->n++;
    return s;
}

/* The bytes that were written behind the start of the last tensor. */
static void end(struct layout *l, uint64_t bytes)
{
    l->spans[l->n - 1].is_last = true;
    l->spans[l->n - 1].room = bytes;
}

static enum status resolve(struct layout *l)
{
    l->err.text[0] = 0;
    return format_resolve(l->spans, l->n, "f.gguf", &l->err);
}

static void expect(struct layout *l, size_t i, enum format_id format)
{
    enum status status = resolve(l);
    if (status != STATUS_OK)
        fail_msg("%s", l->err.text);
    assert_int_equal(l->spans[i].format, format);
}

static void expect_refusal(struct layout *l, enum status status, const char *text)
{
    assert_int_equal(resolve(l), status);
    if (!strstr(l->err.text, text))
        fail_msg("'%s' is not in: %s", text, l->err.text);
    assert_non_null(strstr(l->err.text, "f.gguf: tensor 't"));
}

static void test_plain_ids(void **state)
{
    (void)state;
    static const enum format_id plain[] = {FORMAT_F32,   FORMAT_BF16,   FORMAT_Q4_K,
                                           FORMAT_TQ1_0, FORMAT_IQ1_BN, FORMAT_IQ2_BN_R4};
    struct layout l = {.n = 0};
    for (int i = 0; i < 6; i++)
        add(&l, format_of(plain[i])->type_id, 256, 4, 0);
    l.spans[0].ne[2] = 3;
    assert_int_equal(resolve(&l), STATUS_OK);
    for (int i = 0; i < 6; i++) {
        uint64_t bytes;
        assert_int_equal(l.spans[i].format, plain[i]);
        assert_null(l.spans[i].reason);
        assert_null(format_decision(plain[i]));
        format_bytes(plain[i], i == 0 ? 12 : 4, 256, "", &bytes, NULL);
        assert_int_equal(l.spans[i].bytes, bytes);
    }
}

static void test_id_42_by_geometry(void **state)
{
    (void)state;
    for (int group = 64; group <= 128; group += 64) {
        uint64_t bytes = group == 64 ? 256 * 64 / 64 * 18 : 256 * 64 / 128 * 34;
        struct layout l = {.n = 0};
        add(&l, 42, 256, 64, bytes);
        add(&l, 0, 256, 1, 1024);
        add(&l, 42, 256, 64, bytes);
        end(&l, bytes);
        expect(&l, 2, group == 64 ? FORMAT_Q2_0 : FORMAT_Q2_0_G128);
        assert_int_equal(l.spans[0].bytes, bytes);
        assert_non_null(strstr(l.spans[0].reason, group == 64 ? "64 weights" : "128 weights"));
        assert_non_null(strstr(l.spans[0].reason, "only this meaning"));
    }
}

static void test_id_42_small_tensors(void **state)
{
    (void)state;
    struct layout l = {.n = 0};
    add(&l, 42, 128, 8, 8 * 36); /* 272 and 288 bytes pad alike */
    expect(&l, 0, FORMAT_Q2_0);
    assert_non_null(strstr(l.spans[0].reason, "another meaning fits"));
    add(&l, 42, 128, 64, 64 * 34); /* one that decides for all */
    expect(&l, 0, FORMAT_Q2_0_G128);
    add(&l, 42, 192, 2, 2 * 54); /* and one that cannot be 128 */
    expect_refusal(&l, STATUS_UNSUPPORTED, "18 bytes per 64 weights");
    assert_non_null(strstr(l.err.text, "34 bytes per 128 weights"));
}

static void test_id_42_last_tensor(void **state)
{
    (void)state;
    struct layout l = {.n = 0};
    add(&l, 42, 128, 64, 0);
    end(&l, 64 * 34); /* 36 do not fit */
    expect(&l, 0, FORMAT_Q2_0_G128);
    end(&l, 64 * 36);
    expect(&l, 0, FORMAT_Q2_0);
    assert_non_null(strstr(l.spans[0].reason, "last tensor"));
    end(&l, 64 * 36 + 5000);
    expect(&l, 0, FORMAT_Q2_0);
    end(&l, 1000); /* cut short: sizes still come out, for the reader to say so */
    expect(&l, 0, FORMAT_Q2_0);
    l.spans[0].ne[0] = 192;
    end(&l, 64 * 54 + 100);
    expect(&l, 0, FORMAT_Q2_0);
    assert_non_null(strstr(l.spans[0].reason, "only this meaning"));
}

static void test_ids_of_two_forks(void **state)
{
    (void)state;
    static const struct {
        uint32_t type_id;
        enum format_id format;
        uint64_t other; /* bytes of 16 rows of 512 in the other meaning */
        const char *name;
    } cases[] = {
        {144, FORMAT_TQ2_T, 16 * (4 + 2 * 136), "IQ4_KS (ik_llama.cpp)"},
        {145, FORMAT_TQK6, 16 * (2 + 2 * 70), "IQ2_KS (ik_llama.cpp)"},
        {146, FORMAT_TQK7, 16 * (4 + 2 * 128), "IQ4_KSS (ik_llama.cpp)"},
        {41, FORMAT_Q1_0, 16 * 512 / 4 + 32, "TL1 (bitnet.cpp forks)"},
    };
    for (int i = 0; i < 4; i++) {
        uint64_t bytes;
        struct layout l = {.n = 0};
        format_bytes(cases[i].format, 16, 512, "", &bytes, NULL);
        add(&l, cases[i].type_id, 512, 16, bytes);
        add(&l, cases[i].type_id, 512, 16, bytes);
        end(&l, bytes + 10000);
        expect(&l, 0, cases[i].format);
        assert_ptr_equal(l.spans[0].reason, format_decision(cases[i].format));
        l.spans[0].room = padded(cases[i].other);
        expect_refusal(&l, STATUS_UNSUPPORTED, cases[i].name);
        assert_non_null(strstr(l.err.text, "by the sizes of its tensors"));
        l.spans[0].room = 320; /* neither */
        expect_refusal(&l, STATUS_UNSUPPORTED, cases[i].name);
        assert_non_null(strstr(l.err.text, format_of(cases[i].format)->name));
    }
}

static void test_prism_ids(void **state)
{
    (void)state;
    struct layout l = {.n = 0};
    add(&l, 142, 512, 16, 16 * 4 * 34);
    add(&l, 143, 512, 16, 16 * 4 * 28);
    end(&l, 16 * 4 * 28);
    expect(&l, 0, FORMAT_PQ2_0);
    assert_int_equal(l.spans[1].format, FORMAT_PTQ1_0);
    l.spans[0].room = 16 * (4 + 2 * 64);
    expect_refusal(&l, STATUS_UNSUPPORTED, "PQ2_0 (Prism, 34 bytes per 128 weights), IQ2_TN");
}

static void test_undecidable_is_refused(void **state)
{
    (void)state;
    struct layout l = {.n = 0};
    add(&l, 144, 512, 1, 0);
    end(&l, 100000); /* both fit and both leave more than padding */
    expect_refusal(&l, STATUS_UNSUPPORTED, "fit more than one of these");
}

static void test_known_ids_that_are_not_supported(void **state)
{
    (void)state;
    static const struct {
        uint32_t type_id;
        const char *text;
    } cases[] = {
        {37, "I8_S of bitnet.cpp"},
        {38, "TL1 of bitnet.cpp, whose byte order"},
        {39, "MXFP4 of llama.cpp, or TL2"},
        {9, "Q8_1"},
        {16, "IQ2_XXS"},
        {4, "removed from llama.cpp"},
        {137, "IQ2_K of ik_llama.cpp"},
        {77, "type id 77, which is not known here"},
        {0xffffffff, "TQ1_0, TQ2_0, I2_S"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct layout l = {.n = 0};
        add(&l, 0, 4, 1, 16);
        add(&l, cases[i].type_id, 256, 4, 1000);
        expect_refusal(&l, STATUS_UNSUPPORTED, cases[i].text);
        assert_non_null(strstr(l.err.text, "'t1'"));
    }
}

static void test_shapes(void **state)
{
    (void)state;
    struct layout l = {.n = 0};
    struct tensor_span *s = add(&l, 36, 128, 4, 160);
    expect(&l, 0, FORMAT_I2_S);
    assert_int_equal(s->bytes, 160);
    assert_ptr_equal(s->reason, format_decision(FORMAT_I2_S));
    s->ne[2] = 2;
    expect_refusal(&l, STATUS_UNSUPPORTED, "one scale for the whole tensor");
    s->ne[2] = 1;
    s->ne[0] = 192;
    expect_refusal(&l, STATUS_FORMAT, "I2_S needs a multiple of 128");
    s->type_id = 335;
    s->ne[1] = 6;
    s->ne[2] = 2; /* 12 rows in all, but 6 in a matrix */
    expect_refusal(&l, STATUS_FORMAT, "6 rows; IQ2_BN_R4 needs a multiple of 4");
    s->type_id = 0;
    s->ne[1] = s->ne[2] = 1ull << 40;
    expect_refusal(&l, STATUS_FORMAT, "overflows");
    s->ne[2] = 1;
    s->ne[0] = 1ull << 40;
    expect_refusal(&l, STATUS_FORMAT, "overflows");
    s->type_id = 42;
    s->ne[0] = 1ull << 62;
    expect_refusal(&l, STATUS_UNSUPPORTED, "type id 42");
}

/* The three byte orders of I2_S are chosen by the rule, not by anything in the file. */
static void test_orders_of_i2_s(void **state)
{
    (void)state;
    static span_rule *const rules[] = {format_resolve_i2_s_published, format_resolve_i2_s_arm,
                                       format_resolve_i2_s_4row};
    static const enum format_id formats[] = {FORMAT_I2_S, FORMAT_I2_S_ARM, FORMAT_I2_S_4ROW};
    for (int i = 0; i < 3; i++) {
        struct layout l = {.n = 0};
        add(&l, 0, 4, 1, 16);
        assert_int_equal(rules[i](l.spans, l.n, "f.gguf", &l.err), STATUS_USAGE);
        assert_non_null(strstr(l.err.text, "none of its tensors is I2_S"));
        struct tensor_span *s = add(&l, 36, 128, 4, 160);
        assert_int_equal(rules[i](l.spans, l.n, "f.gguf", &l.err), STATUS_OK);
        assert_int_equal(l.spans[0].format, FORMAT_F32);
        assert_int_equal(s->format, formats[i]);
        assert_int_equal(s->bytes, 160);
        assert_ptr_equal(s->reason, format_decision(formats[i]));
        s->ne[1] = 6;
        enum status status = rules[i](l.spans, l.n, "f.gguf", &l.err);
        assert_int_equal(status, i < 2 ? STATUS_OK : STATUS_FORMAT);
        s->ne[1] = 4;
        s->ne[2] = 2;
        assert_int_equal(rules[i](l.spans, l.n, "f.gguf", &l.err), STATUS_UNSUPPORTED);
    }
}

static void test_nothing_to_decide(void **state)
{
    (void)state;
    struct layout l = {.n = 0};
    assert_int_equal(resolve(&l), STATUS_OK);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_ids),
        cmocka_unit_test(test_id_42_by_geometry),
        cmocka_unit_test(test_id_42_small_tensors),
        cmocka_unit_test(test_id_42_last_tensor),
        cmocka_unit_test(test_ids_of_two_forks),
        cmocka_unit_test(test_prism_ids),
        cmocka_unit_test(test_undecidable_is_refused),
        cmocka_unit_test(test_known_ids_that_are_not_supported),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_orders_of_i2_s),
        cmocka_unit_test(test_nothing_to_decide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
