/* An output matrix that is converted at load gives the bits of a file that has it in that type: written
 * here with the encoders that their own tests hold to known answers. */
#include "../fixture.h"
#include "engine_run.h"
#include "gguf/gguf_write.h"
#include "machine/cpu_features.h"

#define N_TOKENS 5

static bool is_head(const struct gguf_tensor *t)
{
    return text_is(t->span.name, "output.weight");
}

static uint64_t bytes_as(const struct gguf_tensor *t, enum format_id format)
{
    return is_head(t) ? t->span.ne[1] * format_row_bytes(format, t->span.ne[0]) : t->span.bytes;
}

/* The file with its output matrix in another format. */
static void write_converted(const struct gguf_file *file, enum format_id format, const char *path)
{
    struct gguf_writer w;
    assert_int_equal(gguf_writer_open(&w, path, NULL), STATUS_OK);
    for (size_t i = 0; i < file->n_pairs; i++)
        assert_int_equal(gguf_put_pair(&w, &file->pairs[i], NULL), STATUS_OK);
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct gguf_tensor *t = &file->tensors[i];
        uint32_t id = is_head(t) ? format_of(format)->type_id : t->span.type_id;
        assert_int_equal(gguf_put_tensor(&w, t->span.name, t->span.ne[1] > 1 ? 2 : 1, t->span.ne,
                                         id, bytes_as(t, format), NULL),
                         STATUS_OK);
    }
    assert_int_equal(gguf_write_header(&w, NULL), STATUS_OK);
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct gguf_tensor *t = &file->tensors[i];
        struct tensor tensor = model_tensor(t);
        float *values = test_alloc((size_t)tensor.n_rows, (size_t)tensor.n_cols * sizeof *values);
        uint8_t *bytes = test_alloc(1, bytes_as(t, format));
        if (is_head(t)) {
            tensor_decode(&tensor, 0, tensor.n_rows, values);
            format_of(format)->encode(values, tensor.n_rows, tensor.n_cols, bytes);
        } else {
            memcpy(bytes, t->data, t->span.bytes);
        }
        assert_int_equal(gguf_write_data(&w, bytes, bytes_as(t, format), NULL), STATUS_OK);
        free(bytes);
        free(values);
    }
    assert_int_equal(gguf_writer_commit(&w, NULL), STATUS_OK);
    gguf_writer_close(&w);
}

static void test_conversions(void **state)
{
    (void)state;
    static const struct {
        enum head_type head;
        enum format_id format;
    } heads[] = {{HEAD_Q8_0, FORMAT_Q8_0},
                 {HEAD_Q6_K, FORMAT_Q6_K},
                 {HEAD_Q4_K, FORMAT_Q4_K},
                 {HEAD_Q4_0, FORMAT_Q4_0}};
    struct model model;
    int32_t tokens[N_TOKENS];
    open_synth(&model, "head-f16", "--shape tiny --type TQ2_0 --output-type F16");
    fill_tokens(tokens, N_TOKENS, model.config.n_vocab, 9);
    struct engine_options options = {.isa = cpu_best_isa(), .n_threads = 3, .n_nodes = 2};
    float *kept = run_engine(&model, options, tokens, N_TOKENS, N_TOKENS);
    for (int i = 0; i < 4; i++) {
        struct model converted;
        const char *path = scratch_path("head-converted.gguf");
        write_converted(&model.file, heads[i].format, path);
        open_model(&converted, path);
        float *expected = run_engine(&converted, options, tokens, N_TOKENS, N_TOKENS);
        struct engine_options other = options;
        other.head = heads[i].head;
        float *logits = run_engine(&model, other, tokens, N_TOKENS, N_TOKENS);
        expect_same_bits(logits, expected, N_TOKENS, model.config.n_vocab,
                         format_of(heads[i].format)->name);
        assert_true(worst_difference(logits, kept, N_TOKENS * model.config.n_vocab) > 0);
        free(logits);
        logits =
            run_engine(&converted, other, tokens, N_TOKENS, N_TOKENS); /* of that type already */
        expect_same_bits(logits, expected, N_TOKENS, model.config.n_vocab, "kept");
        free(logits);
        free(expected);
        model_close(&converted);
    }
    free(kept);
    model_close(&model);
}

/* Rows of 288 hold no block of 256. */
static void test_rows_that_do_not_fit(void **state)
{
    (void)state;
    struct fixture fixture = {.width = 288, .n_ff = 576, .format = FORMAT_F16};
    const char *path = scratch_path("head-288.gguf");
    fixture_write(path, &fixture);
    struct model model;
    struct engine *engine;
    struct error err;
    open_model(&model, path);
    struct engine_options options = {.isa = cpu_best_isa(), .n_threads = 1, .n_nodes = 1};
    options.head = HEAD_Q6_K;
    assert_int_equal(engine_open(&engine, &model, &options, NULL, NULL, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "288"));
    assert_non_null(strstr(err.text, "--head q8_0"));
    model_close(&model);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_conversions),
                                       cmocka_unit_test(test_rows_that_do_not_fit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
