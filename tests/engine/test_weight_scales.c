/* Separate "NAME.scale" tensors: a file whose matrices are twice as large and carry a scale of a half
 * is the same model to the last bit, in every architecture, dataflow and on any node count. */
#include "engine_run.h"
#include "gguf/gguf_write.h"
#include "machine/cpu_features.h"

#define N_TOKENS 6
#define EACH(i)  for (size_t i = 0; i < file->n_tensors; i++)

static bool is_projection(const struct gguf_tensor *t)
{
    return text_starts(t->span.name, "blk.") && t->span.ne[1] > 1;
}

/* The name with "scale" instead of "weight". */
static struct text scale_name(const struct gguf_tensor *t, char name[80])
{
    int n = (int)t->span.name.n - (int)strlen("weight");
    snprintf(name, 80, "%.*sscale", n, t->span.name.bytes);
    return text_of(name);
}

static void declare(struct gguf_writer *w, const struct gguf_file *file)
{
    static const uint64_t one[] = {1};
    char name[80];
    for (size_t i = 0; i < file->n_pairs; i++)
        assert_int_equal(gguf_put_pair(w, &file->pairs[i], NULL), STATUS_OK);
    EACH(i)
    {
        const struct gguf_tensor *t = &file->tensors[i];
        assert_int_equal(gguf_put_tensor(w, t->span.name, t->span.ne[1] > 1 ? 2 : 1, t->span.ne,
                                         t->span.type_id, t->span.bytes, NULL),
                         STATUS_OK);
        if (is_projection(t))
            assert_int_equal(gguf_put_tensor(w, scale_name(t, name), 1, one, 0, 4, NULL),
                             STATUS_OK);
    }
    assert_int_equal(gguf_write_header(w, NULL), STATUS_OK);
}

/* An F32 file once more, with the scales outside. */
static void write_scaled(const struct gguf_file *file, const char *path)
{
    struct gguf_writer w;
    static const float half = 0.5f;
    assert_int_equal(gguf_writer_open(&w, path, NULL), STATUS_OK);
    declare(&w, file);
    EACH(i)
    {
        const struct gguf_tensor *t = &file->tensors[i];
        float *values = test_alloc(1, t->span.bytes);
        memcpy(values, t->data, t->span.bytes);
        for (size_t k = 0; is_projection(t) && k < t->span.bytes / sizeof *values; k++)
            values[k] *= 2;
        assert_int_equal(gguf_write_data(&w, values, t->span.bytes, NULL), STATUS_OK);
        if (is_projection(t))
            assert_int_equal(gguf_write_data(&w, &half, sizeof half, NULL), STATUS_OK);
        free(values);
    }
    assert_int_equal(gguf_writer_commit(&w, NULL), STATUS_OK);
    gguf_writer_close(&w);
}

static void check_arch(const char *arch)
{
    struct model plain, scaled;
    int32_t tokens[N_TOKENS];
    const char *path = scratch_path("scaled.gguf");
    open_tiny_arch(&plain, arch, "F32");
    write_scaled(&plain.file, path);
    open_model(&scaled, path);
    assert_true(scaled.weights.layers[3].attn_output.scale == 0.5f);
    int n_vocab = plain.config.n_vocab;
    fill_tokens(tokens, N_TOKENS, n_vocab, 8);
    struct engine_options options = {.isa = cpu_best_isa(), .n_threads = 2};
    for (options.n_nodes = 1; options.n_nodes <= 2; options.n_nodes++)
        for (int flow = DATAFLOW_COLUMN; flow <= DATAFLOW_ROW; flow++) {
            options.dataflow = (enum dataflow)flow;
            float *expected = run_engine(&plain, options, tokens, N_TOKENS, N_TOKENS);
            float *logits = run_engine(&scaled, options, tokens, N_TOKENS, N_TOKENS);
            expect_same_bits(logits, expected, N_TOKENS, n_vocab, arch);
            free(logits);
            free(expected);
        }
    float *expected = run_reference(&plain, true, tokens, N_TOKENS);
    float *logits = run_reference(&scaled, true, tokens, N_TOKENS);
    expect_same_bits(logits, expected, N_TOKENS, n_vocab, arch);
    free(logits);
    free(expected);
    model_close(&scaled);
    model_close(&plain);
}

static void test_every_architecture(void **state)
{
    (void)state;
    static const char *const archs[] = {"bitnet", "qwen3", "llama", "bitnet-b1.58", "qwen2"};
    for (int i = 0; i < (IS_SANITISED ? 2 : 5); i++)
        check_arch(archs[i]);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_architecture)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
