/* What a model file must hold, and what is refused by name. */
#include <stdlib.h>
#include <string.h>

#include "../fixture.h"
#include "../support.h"
#include "base/memory.h"
#include "gguf/gguf_write.h"
#include "model/arch.h"
#include "model/model_load.h"

/* Opens the fixture; err gets the refusal. */
static enum status try_open(const struct fixture *fixture, struct error *err)
{
    const char *path = scratch_path("model.gguf");
    struct model model;
    fixture_write(path, fixture);
    enum status status = model_open(&model, path, err);
    model_close(&model);
    return status;
}

static void expect_refusal(const struct fixture *fixture, enum status status, const char *first,
                           const char *second)
{
    struct error err = {0};
    assert_int_equal(try_open(fixture, &err), status);
    if (!strstr(err.text, first) || !strstr(err.text, second))
        fail_msg("'%s' lacks '%s' or '%s'", err.text, first, second);
}

static void test_valid_model(void **state)
{
    (void)state;
    struct model model;
    struct error err;
    const char *path = scratch_path("valid.gguf");
    fixture_write(path, &(struct fixture){0});
    if (model_open(&model, path, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    const struct model_config *c = &model.config;
    assert_int_equal(c->n_layer, 2);
    assert_int_equal(c->n_embd, 256);
    assert_int_equal(c->n_ff, 512);
    assert_int_equal(c->n_head, 4);
    assert_int_equal(c->n_head_kv, 2);
    assert_int_equal(c->head_dim, 64);
    assert_int_equal(c->n_vocab, 259);
    assert_int_equal(c->rope.pairs, ROPE_ADJACENT);
    assert_true(c->rope.freq_base == 10000);
    assert_int_equal(model.weights.layers[1].attn_k.tensor.n_rows, 128);
    assert_int_equal(model.weights.layers[1].ffn_down.tensor.n_cols, 512);
    assert_true(model.weights.layers[0].attn_q.scale == 1);
    assert_null(model.weights.layers[0].attn_q.bias);
    assert_int_equal(model_check_scales(&model, &err), STATUS_OK);
    model_close(&model);
}

/* Case S05: a missing tensor is missing, not "truncated". */
static void test_each_missing_tensor_is_named(void **state)
{
    (void)state;
    static const char *const names[] = {
        "token_embd.weight",        "output_norm.weight",    "blk.0.attn_norm.weight",
        "blk.1.attn_q.weight",      "blk.0.attn_k.weight",   "blk.0.attn_v.weight",
        "blk.1.attn_output.weight", "blk.0.ffn_norm.weight", "blk.0.ffn_gate.weight",
        "blk.0.ffn_up.weight",      "blk.1.ffn_down.weight"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        expect_refusal(&(struct fixture){.omit = names[i]}, STATUS_FORMAT, names[i], "absent");
}

static void test_tied_output(void **state)
{
    (void)state;
    struct model model;
    const char *path = scratch_path("tied.gguf");
    fixture_write(path, &(struct fixture){.omit = "output.weight"});
    assert_int_equal(model_open(&model, path, NULL), STATUS_OK);
    assert_ptr_equal(model.weights.output.tensor.data, model.weights.token_embd.tensor.data);
    model_close(&model);
}

static void test_unused_tensor_is_refused(void **state)
{
    (void)state;
    expect_refusal(&(struct fixture){.extra = "blk.0.attn_sub_norm.weight"}, STATUS_UNSUPPORTED,
                   "blk.0.attn_sub_norm.weight", "not part of architecture llama");
    /* embedding models norm the input of every projection once more */
    expect_refusal(&(struct fixture){.extra = "blk.0.ffn_down_norm_in.weight"}, STATUS_UNSUPPORTED,
                   "blk.0.ffn_down_norm_in.weight", "not part of architecture llama");
    struct error err;
    assert_int_equal(try_open(&(struct fixture){.extra = "blk.1.attn_rot_embd.weight"}, &err),
                     STATUS_OK);
    assert_int_equal(try_open(&(struct fixture){.extra = "blk.1.attn_rot_embd"}, &err), STATUS_OK);
}

static void test_duplicate_tensor(void **state)
{
    (void)state;
    expect_refusal(&(struct fixture){.twice = "blk.0.attn_q.weight"}, STATUS_FORMAT,
                   "blk.0.attn_q.weight", "twice");
}

static void test_wrong_shape(void **state)
{
    (void)state;
    expect_refusal(&(struct fixture){.swap_shape = "blk.0.ffn_up.weight"}, STATUS_FORMAT,
                   "blk.0.ffn_up.weight", "expected 256 x 512");
}

/* Case S08: weights of these types are meaningless without the rotation that goes with them. */
static void test_rotated_types_need_their_keys(void **state)
{
    (void)state;
    expect_refusal(&(struct fixture){.format = FORMAT_PQ2_0}, STATUS_UNSUPPORTED, "type 142",
                   "'prism.hadamard.version' is absent");
    expect_refusal(&(struct fixture){.format = FORMAT_PTQ1_0}, STATUS_UNSUPPORTED, "type 143",
                   "'prism.hadamard.version' is absent");
}

static void test_unknown_architecture(void **state)
{
    (void)state;
    expect_refusal(&(struct fixture){.architecture = "mamba"}, STATUS_UNSUPPORTED, "'mamba'",
                   arch_names());
}

/* Writes the metadata of a model with one value changed, and no tensors: enough for the config. */
struct change {
    const char *key;
    int kind; /* 'u', 'f', 's', or 'x' to leave the key out */
    double number;
    const char *text;
};

static void put_key(struct gguf_writer *w, const struct change *change, const char *key, int kind,
                    double number)
{
    if (change->key && strcmp(change->key, key) == 0)
        return;
    if (kind == 'u')
        gguf_put_u32(w, key, (uint32_t)number, NULL);
    else
        gguf_put_f32(w, key, (float)number, NULL);
}

static enum status read_changed(const struct change *change, struct model_config *config,
                                struct error *err)
{
    const char *path = scratch_path("config.gguf");
    struct gguf_writer w;
    assert_int_equal(gguf_writer_open(&w, path, NULL), STATUS_OK);
    gguf_put_string(&w, "general.architecture", text_of("llama"), NULL);
    put_key(&w, change, "llama.block_count", 'u', 2);
    put_key(&w, change, "llama.context_length", 'u', 512);
    put_key(&w, change, "llama.embedding_length", 'u', 256);
    put_key(&w, change, "llama.feed_forward_length", 'u', 512);
    put_key(&w, change, "llama.attention.head_count", 'u', 4);
    put_key(&w, change, "llama.attention.head_count_kv", 'u', 2);
    put_key(&w, change, "llama.attention.layer_norm_rms_epsilon", 'f', 1e-5);
    if (change->kind == 'u')
        gguf_put_u32(&w, change->key, (uint32_t)change->number, NULL);
    else if (change->kind == 'f')
        gguf_put_f32(&w, change->key, (float)change->number, NULL);
    else if (change->kind == 's')
        gguf_put_string(&w, change->key, text_of(change->text), NULL);
    gguf_write_header(&w, NULL);
    assert_int_equal(gguf_writer_commit(&w, NULL), STATUS_OK);
    gguf_writer_close(&w);
    struct gguf_file file;
    assert_int_equal(gguf_open(&file, path, format_resolve, err), STATUS_OK);
    enum status status = model_config_read(config, &file, err);
    gguf_close(&file);
    return status;
}

static void test_impossible_values_are_refused(void **state)
{
    (void)state;
    static const struct change changes[] = {
        {"llama.block_count", 'u', 0, NULL},
        {"llama.block_count", 'u', 4e9, NULL},
        {"llama.block_count", 's', 0, "two"},
        {"llama.embedding_length", 'x', 0, NULL},
        {"llama.embedding_length", 'f', 256, NULL},
        {"llama.context_length", 'x', 0, NULL},
        {"llama.feed_forward_length", 'u', 0, NULL},
        {"llama.attention.head_count", 'u', 0, NULL},
        {"llama.attention.head_count_kv", 'u', 3, NULL},
        {"llama.attention.head_count_kv", 'u', 8, NULL},
        {"llama.attention.key_length", 'u', 0, NULL},
        {"llama.attention.value_length", 'u', 32, NULL},
        {"llama.attention.layer_norm_rms_epsilon", 'x', 0, NULL},
        {"llama.attention.layer_norm_rms_epsilon", 'f', -1, NULL},
        {"llama.rope.dimension_count", 'u', 32, NULL},
        {"llama.rope.freq_base", 'f', 0, NULL},
        {"llama.rope.freq_base", 'f', 1.0f / 0.0f, NULL},
        {"llama.rope.scaling.type", 's', 0, "longrope"},
        {"llama.rope.scaling.factor", 'f', -4, NULL},
        {"llama.rope.scaling.attn_factor", 'f', 0, NULL},
        {"llama.rope.scaling.attn_factor", 'f', 1.0f / 0.0f, NULL},
        {"llama.expert_count", 'u', 4, NULL},
        {"prism.hadamard.version", 'u', 1, NULL},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct model_config config;
        struct error err = {0};
        if (read_changed(&changes[i], &config, &err) == STATUS_OK)
            fail_msg("%s changed to %g was accepted", changes[i].key, changes[i].number);
        /* the message names the key, or the sibling with which it disagrees */
        if (!strstr(err.text, changes[i].key) && !strstr(err.text, "heads"))
            fail_msg("'%s' does not name %s", err.text, changes[i].key);
    }
}

static void test_rope_scaling_is_read(void **state)
{
    (void)state;
    struct model_config c;
    struct error err;
    assert_int_equal(
        read_changed(&(struct change){"llama.rope.scaling.factor", 'f', 4, NULL}, &c, &err),
        STATUS_OK);
    assert_true(c.rope.freq_scale == 0.25 && !c.rope.is_yarn);
    assert_int_equal(
        read_changed(&(struct change){"llama.rope.scale_linear", 'f', 2, NULL}, &c, &err),
        STATUS_OK);
    assert_true(c.rope.freq_scale == 0.5);
    assert_int_equal(
        read_changed(&(struct change){"llama.rope.scaling.type", 's', 0, "yarn"}, &c, &err),
        STATUS_OK);
    assert_true(c.rope.is_yarn && c.rope.original_ctx == 512);
}

/* Every allocation that opening a model makes can fail; each time it says so and leaks nothing. */
static void test_out_of_memory(void **state)
{
    (void)state;
    const char *path = scratch_path("memory.gguf");
    fixture_write(path, &(struct fixture){0});
    enum status status = STATUS_MEMORY;
    int n_failed = 0;
    for (long n = 0; status == STATUS_MEMORY && n < 1000; n++) {
        struct model model;
        struct error err;
        memory_fail_after(n);
        status = model_open(&model, path, &err);
        memory_fail_after(-1);
        n_failed += status == STATUS_MEMORY;
        model_close(&model);
    }
    assert_int_equal(status, STATUS_OK);
    assert_true(n_failed >= 3);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid_model),
        cmocka_unit_test(test_each_missing_tensor_is_named),
        cmocka_unit_test(test_tied_output),
        cmocka_unit_test(test_unused_tensor_is_refused),
        cmocka_unit_test(test_duplicate_tensor),
        cmocka_unit_test(test_wrong_shape),
        cmocka_unit_test(test_rotated_types_need_their_keys),
        cmocka_unit_test(test_unknown_architecture),
        cmocka_unit_test(test_impossible_values_are_refused),
        cmocka_unit_test(test_rope_scaling_is_read),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
