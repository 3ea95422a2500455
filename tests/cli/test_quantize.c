/* `trine quantize`: the same values in every ternary type, the known bytes in the others, what does
 * not fit said before; or a refusal and no file. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../fixture.h"
#include "../support.h"
#include "base/reader.h"
#include "gguf/gguf_write.h"
#include "tensor/tensor.h"

static const char *trine, *source;

static const char *const types[] = {"TQ1_0", "TQ2_0",     "Q2_0", "IQ1_BN", "IQ2_BN",
                                    "I2_S",  "IQ2_BN_R4", "F16",  "F32",    "BF16"};
#define N_TYPES (sizeof types / sizeof types[0])

/* Logits of a fixed token list. */
static float *logits_by(const char *options, const char *model, size_t *bytes)
{
    const char *out = scratch_path("logits.bin");
    struct outcome o =
        run_command("%s logits -q %s %s --tokens 1,104,105,61,9 -o %s", trine, options, model, out);
    if (o.status != 0)
        fail_msg("%s: %s", model, o.err);
    outcome_done(&o);
    return (float *)read_whole(out, bytes);
}

static void expect_same_by(const char *options, const char *a, const char *b)
{
    size_t n_a, n_b;
    float *x = logits_by(options, a, &n_a), *y = logits_by(options, b, &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(x, y, n_a);
    free(x);
    free(y);
}

static void expect_same_logits(const char *a, const char *b)
{
    expect_same_by("--reference", a, b);
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

/* Metadata survives, tables keep their types unless told otherwise, and no file is written over the
 * model that is being read. */
static void test_metadata_and_tables(void **state)
{
    (void)state;
    const char *path = scratch_path("place.gguf"), *link_path = scratch_path("self.gguf");
    struct outcome o = run_command("%s quantize %s %s IQ2_BN", trine, source, path);
    assert_int_equal(o.status, 0);
    outcome_done(&o);
    expect_same_logits(source, path);
    o = run_command("%s inspect %s", trine, path);
    assert_non_null(strstr(o.out, "IQ2_BN     14 tensors"));
    assert_non_null(strstr(o.out, "F16         2 tensors"));
    assert_non_null(strstr(o.out, "general.name"));
    assert_non_null(strstr(o.out, "\"fixture\""));
    assert_null(strstr(o.out, "file_type")); /* this type has no number */
    outcome_done(&o);
    o = run_command("%s quantize %s %s Q8_0 --embedding-type F32 --output-type Q4_0 --tensor-type "
                    "'ffn_(up|down)=Q5_0,0.attn_q=BF16'",
                    trine, source, path);
    assert_int_equal(o.status, 0);
    outcome_done(&o);
    o = run_command("%s inspect %s", trine, path);
    assert_non_null(strstr(o.out, "Q8_0        9 tensors"));
    assert_non_null(strstr(o.out, "Q5_0        4 tensors"));
    assert_non_null(strstr(o.out, "BF16        1 tensors"));
    assert_non_null(strstr(o.out, "Q4_0        1 tensors"));
    assert_non_null(strstr(o.out, "general.file_type                          uint32   7"));
    assert_non_null(strstr(o.out, "general.quantization_version               uint32   2"));
    outcome_done(&o);
    size_t before, after;
    char *old = read_whole(path, &before);
    assert_int_equal(symlink("place.gguf", link_path), 0);
    for (int i = 0; i < 2; i++) {
        o = run_command("%s quantize %s %s F16", trine, path, i ? link_path : path);
        assert_int_equal(o.status, 2);
        assert_non_null(strstr(o.err, "is the model itself"));
        outcome_done(&o);
    }
    char *now = read_whole(path, &after);
    assert_int_equal(before, after);
    assert_memory_equal(old, now, before);
    free(old);
    free(now);
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
    expect_refused(path, "TQ2_0", "blk.0.attn_q.weight");
    expect_refused(path, "IQ2_BN", "making a model ternary is training");

    for (int i = 0; i < ROWS * COLS; i++) /* a scale that f16 cannot hold */
        values[i] = (float)(i % 3 - 1) * 0.1f;
    write_pair(path, values, ROWS, COLS, FORMAT_F32);
    expect_refused(path, "TQ2_0", "blk.0.attn_q.weight");
    struct outcome o = run_command("%s quantize %s %s F16", trine, path, scratch_path("x.gguf"));
    assert_int_equal(o.status, 0); /* 0.0999755859375: relative error 0.000244 */
    assert_non_null(strstr(o.err, "attn_q                 F16       relative RMS error 0.000244"));
    assert_non_null(strstr(o.err, "values are rounded"));
    outcome_done(&o);

    for (int i = 0; i < ROWS * COLS; i++) /* two scales in one matrix */
        values[i] = (float)(i % 3 - 1) * (i < COLS ? 0.5f : 0.25f);
    write_pair(path, values, ROWS, COLS, FORMAT_F32);
    expect_refused(path, "I2_S", "blk.0.attn_q.weight");

    values[3 * COLS + 7] = 1e20f;
    write_pair(path, values, ROWS, COLS, FORMAT_F32);
    expect_refused(path, "F16", "row 3, column 7: 1.00000002e+20 becomes inf in F16");
    values[3 * COLS + 7] = NAN;
    write_pair(path, values, ROWS, COLS, FORMAT_F32);
    expect_refused(path, "Q8_0", "row 3, column 7 is infinite or no number");
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

/* What a misfit says: width 288 is 4.5 blocks of 64, 320 is 5 and 2.5 of 128; ffn_down has 512. */
static const struct {
    int width;
    const char *type;
    const char *line, *cost; /* of the first tensor; of all; NULL: everything fits */
} misfits[] = {
    {288, "TQ2_0",
     "blk.0.attn_q.weight          rows of 288 weights, TQ2_0 has blocks of 256: stays F16, "
     "162.0 KiB instead of 20.9 KiB (+676 %)",
     "12 tensors cannot take the type"},
    {288, "I2_S",
     "blk.0.attn_q.weight          rows of 288 weights, I2_S has blocks of 128: stays F16, "
     "162.0 KiB instead of 20.3 KiB (+699 %)",
     "12 tensors cannot take the type"},
    {288, "Q2_0",
     "blk.1.ffn_up.weight          rows of 288 weights, Q2_0 has blocks of 64: stays F16, "
     "288.0 KiB instead of 40.5 KiB (+611 %)",
     "that costs 1.8 MiB"},
    {288, "Q1_0",
     "blk.0.attn_k.weight          rows of 288 weights, Q1_0 has blocks of 128: becomes Q4_0, "
     "22.8 KiB instead of 5.7 KiB (+300 %)",
     "that costs 448.0 KiB"},
    {288, "Q4_K",
     "blk.0.attn_k.weight          rows of 288 weights, Q4_K has blocks of 256: becomes Q4_0, "
     "22.8 KiB instead of 22.8 KiB (+0 %)",
     "that costs 0 B"},
    {288, "Q6_K",
     "blk.0.attn_k.weight          rows of 288 weights, Q6_K has blocks of 256: becomes Q8_0, "
     "43.0 KiB instead of 33.2 KiB (+30 %)",
     "12 tensors cannot take the type"},
    {320, "TQ2_0",
     "blk.0.attn_q.weight          rows of 320 weights, TQ2_0 has blocks of 256: becomes Q2_0, "
     "28.1 KiB instead of 25.8 KiB (+9 %)",
     "12 tensors cannot take the type"},
    {320, "I2_S",
     "blk.0.attn_q.weight          rows of 320 weights, I2_S has blocks of 128: becomes IQ2_BN, ",
     "12 tensors cannot take the type"},
    {320, "IQ2_BN", NULL, NULL},
};

/* Case S23. */
static void test_what_does_not_fit_is_said_before(void **state)
{
    (void)state;
    const char *in = scratch_path("odd.gguf"), *out = scratch_path("fit.gguf");
    for (size_t i = 0; i < sizeof misfits / sizeof misfits[0]; i++) {
        fixture_write(in, &(struct fixture){.width = misfits[i].width, .real_output = true});
        struct outcome o =
            run_command("%s quantize --strict %s %s %s", trine, in, out, misfits[i].type);
        assert_int_equal(o.status, misfits[i].line ? 1 : 0);
        assert_int_equal(access(out, F_OK), misfits[i].line ? -1 : 0);
        outcome_done(&o);
        if (!misfits[i].line)
            continue;
        for (int n = 0; n < 3; n++) { /* asked, then not to be written, then written */
            const char *option = n == 0 ? "--dry-run" : "", *folder = n == 1 ? "/nowhere/" : "";
            o = run_command("%s quantize %s %s %s%s %s", trine, option, in, folder,
                            n == 1 ? "x.gguf" : out, misfits[i].type);
            assert_int_equal(o.status, n == 1 ? 1 : 0);
            const char *list = n == 0 ? o.out : o.err;
            if (!strstr(list, misfits[i].line) || !strstr(list, misfits[i].cost))
                fail_msg("expected '%s' and '%s' in: %s", misfits[i].line, misfits[i].cost, list);
            assert_int_equal(access(out, F_OK), n == 2 ? 0 : -1);
            outcome_done(&o);
        }
        if (format_of(format_by_name(misfits[i].type))->is_ternary)
            expect_same_logits(in, out);
        unlink(out);
    }
}

static void test_row_groups_that_do_not_fit(void **state)
{
    (void)state;
    static float values[6 * 64];
    for (int i = 0; i < 6 * 64; i++)
        values[i] = (float)(i % 3 - 1);
    const char *path = scratch_path("six.gguf");
    write_pair(path, values, 6, 64, FORMAT_F32);
    struct outcome o =
        run_command("%s quantize %s %s IQ2_BN_R4", trine, path, scratch_path("x.gguf"));
    assert_int_equal(o.status, 0);
    assert_non_null(strstr(o.err, "6 rows, IQ2_BN_R4 stores 4 together: becomes IQ2_BN, 120 B "));
    outcome_done(&o);
}

/* The bytes of the first tensor of a file; the caller frees the file. */
static const uint8_t *first_tensor(const char *path, struct gguf_file *file, uint64_t *bytes)
{
    struct error err;
    if (gguf_open(file, path, format_resolve, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    *bytes = file->tensors[0].span.bytes;
    return file->tensors[0].data;
}

static int n_golden;

/* The error that is printed must be that of the known bytes of one row. */
static void expect_error_of(const struct tensor *t, const float *values, const char *printed)
{
    float decoded[256];
    double difference2 = 0, weight2 = 0;
    char expected[64] = "none has changed";
    tensor_decode(t, 0, 1, decoded);
    for (int i = 0; i < t->n_cols; i++) {
        double difference = (double)decoded[i] - (double)values[i];
        difference2 += difference * difference;
        weight2 += (double)values[i] * (double)values[i];
    }
    if (difference2 > 0)
        snprintf(expected, sizeof expected, "relative RMS error %.6f\n",
                 sqrt(difference2 / weight2));
    if (!strstr(printed, expected))
        fail_msg("expected '%s' in: %s", expected, printed);
}

/* Two rows of a known vector become twice the known bytes. */
static void check_known_row(const char *type, const float *row, uint8_t *raw, size_t n_raw)
{
    enum { N = 256 };
    float values[2 * N];
    memcpy(values, row, N * sizeof *row);
    memcpy(values + N, row, N * sizeof *row);
    const char *in = scratch_path("vector.gguf"), *out = scratch_path("encoded.gguf");
    write_pair(in, values, 2, N, FORMAT_F32);
    struct outcome o = run_command("%s quantize %s %s %s", trine, in, out, type);
    if (o.status != 0)
        fail_msg("%s: %s", type, o.err);
    struct gguf_file file;
    uint64_t bytes;
    const uint8_t *data = first_tensor(out, &file, &bytes);
    assert_int_equal(bytes, 2 * n_raw);
    assert_memory_equal(data, raw, n_raw);
    assert_memory_equal(data + n_raw, raw, n_raw);
    expect_error_of(&(struct tensor){format_by_name(type), N, 1, raw, n_raw}, values, o.err);
    outcome_done(&o);
    gguf_close(&file);
    n_golden++;
}

static void check_golden(json_t *line)
{
    const char *type = json_string_value(json_object_get(line, "type"));
    const char *variant = json_string_value(json_object_get(line, "variant"));
    const char *name = json_string_value(json_object_get(line, "case"));
    bool is_infinite = strcmp(name, "huge") == 0; /* refused: test_what_would_lose_is_refused */
    if ((strcmp(type, "Q8_0") && strcmp(type, "Q1_0")) || strcmp(variant, "ref") || is_infinite)
        return;
    size_t n_src, n_raw;
    uint8_t *src = from_hex(json_string_value(json_object_get(line, "src")), &n_src);
    uint8_t *raw = from_hex(json_string_value(json_object_get(line, "raw")), &n_raw);
    float row[256];
    assert_int_equal(n_src, sizeof row);
    memcpy(row, src, sizeof row);
    check_known_row(type, row, raw, n_raw);
    free(src);
    free(raw);
}

static void test_known_bytes(void **state)
{
    (void)state;
    each_json_line("tests/golden/quantize_ggml.jsonl", check_golden);
    assert_int_equal(n_golden, 28);
}

enum {
    MANY_ROWS = 2200,
    MANY_COLS = 4096
}; /* several batches of several chunks, the last of a few rows */

/* The file is what the encoder makes of the whole matrix at once, for any number of threads. */
static void expect_encoded(const char *in, const float *values, const char *type)
{
    enum format_id id = format_by_name(type);
    const char *out = scratch_path("threads.gguf");
    char *errors = NULL;
    uint64_t n;
    assert_int_equal(format_bytes(id, MANY_ROWS, MANY_COLS, "x", &n, NULL), STATUS_OK);
    uint8_t *expected = malloc(n);
    assert_non_null(expected);
    format_of(id)->encode(values, MANY_ROWS, MANY_COLS, expected);
    for (int n_threads = 1; n_threads <= 5; n_threads += 2) {
        struct gguf_file file;
        uint64_t bytes;
        struct outcome o =
            run_command("%s quantize %s %s %s --threads %d", trine, in, out, type, n_threads);
        if (o.status != 0)
            fail_msg("%s: %s", type, o.err);
        const uint8_t *data = first_tensor(out, &file, &bytes);
        assert_int_equal(bytes, n);
        assert_memory_equal(data, expected, n);
        gguf_close(&file);
        if (errors)
            assert_string_equal(o.err, errors);
        else
            errors = strdup(o.err);
        outcome_done(&o);
    }
    free(errors);
    free(expected);
}

/* Files, errors and the line about the first value that does not fit are the same for any number of
 * threads. */
static void test_threads_change_nothing(void **state)
{
    (void)state;
    const char *in = scratch_path("many.gguf");
    int64_t n = (int64_t)MANY_ROWS * MANY_COLS;
    float *values = malloc((size_t)n * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)(i % 7 % 3 - 1) * 0.25f;
    for (int64_t i = 0; i < 5 * MANY_COLS; i++)
        values[i] = 0; /* the scale of all is found behind them */
    write_pair(in, values, MANY_ROWS, MANY_COLS, FORMAT_F32);
    expect_encoded(in, values, "I2_S");
    expect_encoded(in, values, "TQ2_0");
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)((double)((i * 2654435761u) % 100003) / 100003 - 0.5);
    write_pair(in, values, MANY_ROWS, MANY_COLS, FORMAT_F32);
    expect_encoded(in, values, "Q8_0");
    expect_encoded(in, values, "Q6_K");
    values[77 * MANY_COLS + 5] = 1e6f;
    values[78 * MANY_COLS + 4] = values[2199 * MANY_COLS] = values[95 * MANY_COLS] = -1e6f;
    write_pair(in, values, MANY_ROWS, MANY_COLS, FORMAT_F32);
    for (int i = 0; i < 8; i++)
        expect_refused(in, i % 2 ? "F16 --threads 5" : "F16",
                       "row 77, column 5: 1000000 becomes inf");
    free(values);
}

/* An output that cannot be written, and sources that are damaged: one line, no file. */
static void test_failures_leave_nothing(void **state)
{
    (void)state;
    size_t size;
    char *bytes = read_whole(source, &size);
    const char *cut = scratch_path("cut.gguf");
    write_whole(cut, bytes, size - 1000);
    expect_refused(cut, "Q8_0", "cut.gguf");
    free(bytes);
    static const char *const outputs[] = {"/dev/full", "/nowhere/x.gguf", "."};
    for (int i = 0; i < 3; i++) {
        struct outcome o = run_command("%s quantize %s %s Q8_0", trine, source, outputs[i]);
        assert_int_equal(o.status, 1);
        assert_non_null(strstr(o.err, outputs[i]));
        outcome_done(&o);
    }
    static const char *const wrong[] = {"--tensor-type attn_q",      "--tensor-type =F16",
                                        "--tensor-type 'attn(=F16'", "--tensor-type a=F17",
                                        "--output-type Q8_K",        "--embedding-type x"};
    for (int i = 0; i < 6; i++) {
        struct outcome o = run_command("%s quantize %s %s Q8_0 %s", trine, source,
                                       scratch_path("x.gguf"), wrong[i]);
        assert_int_equal(o.status, 2);
        assert_ptr_equal(strchr(o.err, '\n') + 1, o.err + strlen(o.err));
        outcome_done(&o);
    }
}

/* Ternary values in F16 and BF16 are packed as the ternary type's: the engine gives the same bits. One
 * weight that differs by an ulp, and the tensor is what it says. */
static void test_engine_knows_ternary_values(void **state)
{
    (void)state;
    const char *ternary = scratch_path("tq2.gguf"), *half = scratch_path("half.gguf");
    struct outcome o = run_command("%s synth --shape tiny --type TQ2_0 -o %s", trine, ternary);
    assert_int_equal(o.status, 0);
    outcome_done(&o);
    o = run_command("%s quantize %s %s F16", trine, ternary, half);
    assert_int_equal(o.status, 0);
    outcome_done(&o);
    expect_same_by("--threads 2", ternary, half);
    expect_same_by("--threads 2 --act-scale group", ternary, half);
    o = run_command("%s inspect %s", trine, half);
    assert_non_null(
        strstr(o.out, "           ternary values, packed as trits4, or trits5 with VBMI\n"));
    outcome_done(&o);
    struct gguf_file file;
    struct error err;
    assert_int_equal(gguf_open(&file, half, format_resolve, &err), STATUS_OK);
    const struct gguf_tensor *t = gguf_find_tensor(&file, "blk.1.ffn_up.weight");
    size_t size, at = (size_t)(t->data + t->span.bytes - file.shards[0].mapping);
    char *bytes = read_whole(half, &size);
    gguf_close(&file);
    do
        at -= 2;
    while (load_u16((uint8_t *)bytes + at) == 0);
    bytes[at] ^= 1;
    write_whole(half, bytes, size);
    free(bytes);
    o = run_command("%s inspect %s", trine, half);
    assert_non_null(strstr(o.out, "27 with ternary values, packed as trits4, or trits5 with VBMI; "
                                  "the others packed as f16"));
    outcome_done(&o);
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
        cmocka_unit_test(test_metadata_and_tables),
        cmocka_unit_test(test_what_does_not_fit_is_said_before),
        cmocka_unit_test(test_row_groups_that_do_not_fit),
        cmocka_unit_test(test_known_bytes),
        cmocka_unit_test(test_threads_change_nothing),
        cmocka_unit_test(test_failures_leave_nothing),
        cmocka_unit_test(test_engine_knows_ternary_values),
        cmocka_unit_test(test_what_would_lose_is_refused),
        cmocka_unit_test(test_no_other_model_is_written),
        cmocka_unit_test(test_what_was_there),
        cmocka_unit_test(test_type_42_in_both_sizes),
    };
    return cmocka_run_group_tests(tests, write_source, NULL);
}
