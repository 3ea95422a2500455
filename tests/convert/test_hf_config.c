/* config.json: known classes and values, and everything else refused by name. */
#include <math.h>
#include <string.h>

#include "../support.h"
#include "convert/hf_config.h"

static const char base[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":64,"
    "\"intermediate_size\":96,\"num_hidden_layers\":3,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"vocab_size\":300,\"max_position_embeddings\":512,"
    "\"rms_norm_eps\":1e-06,\"hidden_act\":\"silu\",\"torch_dtype\":\"bfloat16\"}";

/* The base with these members in their place. */
static json_t *with(const char *members)
{
    json_t *root = json_loads(base, JSON_DECODE_INT_AS_REAL, NULL);
    json_t *changes = json_loads(members, JSON_DECODE_INT_AS_REAL, NULL);
    assert_non_null(root);
    assert_non_null(changes);
    json_object_update(root, changes);
    json_decref(changes);
    return root;
}

static void read_good(struct hf_config *c, const char *members)
{
    struct error err;
    json_t *root = with(members);
    if (hf_config_read(c, root, "config.json", &err) != STATUS_OK)
        fail_msg("%s: %s", members, err.text);
    json_decref(root);
}

static void test_sizes(void **state)
{
    (void)state;
    struct hf_config c;
    read_good(&c, "{}");
    assert_string_equal(c.model.arch->name, "llama");
    assert_int_equal(c.model.n_embd, 64);
    assert_int_equal(c.model.n_ff, 96);
    assert_int_equal(c.model.n_layer, 3);
    assert_int_equal(c.model.n_head, 4);
    assert_int_equal(c.model.n_head_kv, 2);
    assert_int_equal(c.model.head_dim, 16);
    assert_int_equal(c.model.n_vocab, 300);
    assert_true(c.model.norm_epsilon == 1e-6f);
    assert_true(c.model.rope.freq_base == 10000 && c.model.rope.freq_scale == 1);
    assert_false(c.is_tied || c.has_qkv_bias || c.has_output_bias || c.has_ffn_bias);
    assert_int_equal(c.weights, HF_AS_STORED);
    assert_string_equal(c.unused, "");
    hf_config_done(&c);
    read_good(&c, "{\"head_dim\":32,\"num_key_value_heads\":null,\"rope_theta\":5e5,"
                  "\"tie_word_embeddings\":true,\"attention_bias\":true,\"house\":1}");
    assert_int_equal(c.model.head_dim, 32);
    assert_int_equal(c.model.n_head_kv, 4);
    assert_true(c.model.rope.freq_base == 5e5);
    assert_true(c.is_tied && c.has_qkv_bias && c.has_output_bias && !c.has_ffn_bias);
    assert_string_equal(c.unused, "house");
    hf_config_done(&c);
}

static void test_classes(void **state)
{
    (void)state;
    static const struct {
        const char *members, *arch;
    } cases[] = {
        {"{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\"}", "qwen2"},
        {"{\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\",\"head_dim\":16}",
         "qwen3"},
        {"{\"architectures\":[\"BitNetForCausalLM\"],\"model_type\":\"bitnet\","
         "\"hidden_act\":\"relu2\"}",
         "bitnet-b1.58"},
        {"{\"architectures\":[\"BitnetForCausalLM\"],\"weight_bits\":1,\"input_bits\":8}",
         "bitnet"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hf_config c;
        read_good(&c, cases[i].members);
        assert_string_equal(c.model.arch->name, cases[i].arch);
        assert_int_equal(c.has_qkv_bias, i == 0);
        assert_int_equal(c.weights, i == 3 ? HF_ROUNDED_AT_RUN : HF_AS_STORED);
        hf_config_done(&c);
    }
}

/* What a class of transformers does with weight_scale. */
static void test_quantization(void **state)
{
    (void)state;
    static const struct {
        const char *members;
        enum hf_weights weights;
    } cases[] = {
        {"{\"quantization_config\":{\"quant_method\":\"bitnet\"}}", HF_PACKED_DIVIDE},
        {"{\"quantization_config\":{\"quant_method\":\"bitnet\",\"linear_class\":\"bitlinear\"}}",
         HF_PACKED_DIVIDE},
        {"{\"quantization_config\":{\"quant_method\":\"bitnet\",\"modules_to_not_convert\":[\"lm_"
         "head\"],\"linear_class\":\"autobitlinear\",\"quantization_mode\":\"offline\"}}",
         HF_PACKED_MULTIPLY},
        {"{\"quantization_config\":{\"quant_method\":\"bitnet\",\"linear_class\":"
         "\"autobitlinear\",\"quantization_mode\":\"online\"}}",
         HF_ROUNDED_AT_RUN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hf_config c;
        read_good(&c, cases[i].members);
        assert_int_equal(c.weights, cases[i].weights);
        hf_config_done(&c);
    }
}

#define LLAMA3                                                                                     \
    "\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"                                   \
    "\"original_max_position_embeddings\":64"

/* Both spellings; the divisors from the published formula, computed by hand for heads of 16:
 * wavelengths 2 pi 10000^(j/8) = 6.28, 19.9, 62.8, 199, ... against 64/4 = 16 and 64/1 = 64. */
static void test_rope(void **state)
{
    (void)state;
    struct hf_config c;
    read_good(&c, "{\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}");
    assert_true(c.model.rope.freq_scale == 0.25 && !c.model.rope.is_yarn);
    hf_config_done(&c);
    read_good(&c, "{\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":7e5}}");
    assert_true(c.model.rope.freq_base == 7e5 && !c.model.rope.factors);
    hf_config_done(&c);
    read_good(&c, "{\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4},"
                  "\"rope_scaling\":{\"factor\":4,\"rope_type\":\"linear\"}}");
    assert_true(c.model.rope.freq_scale == 0.25);
    hf_config_done(&c);
    read_good(&c, "{\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,"
                  "\"original_max_position_embeddings\":128,\"attention_factor\":2}}");
    assert_true(c.model.rope.is_yarn && c.model.rope.original_ctx == 128);
    assert_true(fabs(c.model.rope.attn_factor * (1 + 0.1 * log(4)) - 2) < 1e-12);
    hf_config_done(&c);
    read_good(&c, "{\"rope_scaling\":{\"rope_type\":\"llama3\"," LLAMA3 "}}");
    assert_non_null(c.model.rope.factors);
    assert_true(c.model.rope.factors[0] == 1);
    /* j = 1: s = (64 / 19.8692 - 1) / 3 = 0.74036, 1 / (0.25964 / 8 + 0.74036) = 1.29398;
     * j = 2: s = (64 / 62.8319 - 1) / 3 = 0.00620, 1 / (0.99380 / 8 + 0.00620) = 7.66739 */
    assert_true(fabs(c.model.rope.factors[1] - 1.29398) < 1e-4);
    assert_true(fabs(c.model.rope.factors[2] - 7.66739) < 1e-4);
    assert_true(c.model.rope.factors[3] == 8 && c.model.rope.factors[7] == 8);
    hf_config_done(&c);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *members, *word;
    } cases[] = {
        {"{\"architectures\":[\"MistralForCausalLM\"]}", "MistralForCausalLM"},
        {"{\"architectures\":null}", "(absent)"},
        {"{\"model_type\":\"qwen2\"}", "of type qwen2"},
        {"{\"hidden_size\":null}", "'hidden_size' is absent"},
        {"{\"hidden_size\":\"64\"}", "'hidden_size' is a text"},
        {"{\"hidden_size\":0}", "'hidden_size' is 0"},
        {"{\"hidden_size\":65}", "no multiple of 4 heads"},
        {"{\"hidden_size\":4194304}", "1048576 elements"},
        {"{\"num_hidden_layers\":1e9}", "'num_hidden_layers'"},
        {"{\"num_key_value_heads\":3}", "cannot share"},
        {"{\"head_dim\":15}", "in pairs"},
        {"{\"rms_norm_eps\":null}", "'rms_norm_eps'"},
        {"{\"hidden_act\":\"gelu\"}", "'hidden_act' is gelu"},
        {"{\"sliding_window\":4096}", "'sliding_window'"},
        {"{\"sliding_window\":4096,\"use_sliding_window\":true}", "'sliding_window'"},
        {"{\"layer_types\":[\"full_attention\",\"sliding_attention\"]}", "sliding_attention"},
        {"{\"partial_rotary_factor\":0.5}", "'partial_rotary_factor'"},
        {"{\"final_logit_softcapping\":30}", "'final_logit_softcapping'"},
        {"{\"num_experts\":8}", "'num_experts'"},
        {"{\"rope_theta\":0}", "'rope_theta'"},
        {"{\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}", "'dynamic'"},
        {"{\"rope_scaling\":{\"type\":\"longrope\",\"factor\":2}}", "'longrope'"},
        {"{\"rope_scaling\":{\"type\":\"linear\"}}", "'factor' is absent"},
        {"{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"beta_fast\":16}}", "'beta_fast'"},
        {"{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"truncate\":false}}", "'truncate'"},
        {"{\"rope_scaling\":[]}", "expected an object"},
        {"{\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8}}}",
         "'full_attention' (an object)"},
        {"{\"rope_parameters\":{\"rope_type\":\"default\",\"mrope_section\":[1,2]}}",
         "'mrope_section' (a list)"},
        {"{\"rope_scaling\":{\"factor\":8}}", "'factor' is 8"},
        {"{\"rope_scaling\":{\"type\":\"yarn\",\"rope_type\":\"linear\",\"factor\":8}}",
         "'rope_type' is linear"},
        {"{\"rope_parameters\":{\"rope_type\":\"default\"},"
         "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}}",
         "both there and differ"},
        {"{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,"
         "\"original_max_position_embeddings\":128.5}}",
         "expected a whole number"},
        {"{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,"
         "\"original_max_position_embeddings\":0}}",
         "'original_max_position_embeddings' is 0"},
        {"{\"rms_norm_eps\":0.99999999999}", "'rms_norm_eps'"}, /* 1 as the float that is stored */
        {"{\"rope_theta\":1.00000000001}", "'rope_theta'"},
        {"{\"rope_scaling\":{\"type\":\"linear\",\"factor\":1e6}}", "'factor' is 1e+06"},
        {"{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"attention_factor\":-2}}",
         "'attention_factor' is -2"},
        {"{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"attention_factor\":0}}",
         "'attention_factor' is 0"},
        {"{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"attention_factor\":1e-60}}",
         "'attention_factor' is 1e-60"},
        {"{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"attention_factor\":3e6}}",
         "'attention_factor' is 3e+06"},
        /* 0.1 * -20 * ln 2 + 1 is below 0, and so is the magnitude */
        {"{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"mscale\":-20,\"mscale_all_dim\":1}}",
         "'mscale'"},
        {"{\"architectures\":\"LlamaForCausalLM\"}", "'architectures' is a text"},
        {"{\"layer_types\":\"sliding_attention\"}", "'layer_types' is a text"},
        {"{\"quantization_config\":{\"quant_method\":\"bitnet\",\"modules_to_not_convert\":"
         "\"q_proj\"}}",
         "'modules_to_not_convert' is a text"},
        {"{\"rope_parameters\":{\"rope_type\":\"default\",\"partial_rotary_factor\":0.5}}",
         "'partial_rotary_factor'"},
        {"{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\",\"rope_scaling\":"
         "{\"type\":\"llama3\"," LLAMA3 "}}",
         "only architecture llama"},
        {"{\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\"}",
         "'head_dim' is absent"},
        {"{\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\",\"head_dim\":16,"
         "\"attention_bias\":true}",
         "'attention_bias'"},
        {"{\"architectures\":[\"BitNetForCausalLM\"],\"model_type\":\"bitnet\"}",
         "'hidden_act' is silu"},
        {"{\"quantization_config\":{\"quant_method\":\"gptq\"}}", "gptq"},
        {"{\"quantization_config\":{\"quant_method\":\"bitnet\",\"linear_class\":\"x\"}}",
         "linear_class x"},
        {"{\"quantization_config\":{\"quant_method\":\"bitnet\",\"use_rms_norm\":true}}",
         "'use_rms_norm'"},
        {"{\"quantization_config\":{\"quant_method\":\"bitnet\",\"modules_to_not_convert\":"
         "[\"q_proj\"]}}",
         "q_proj"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hf_config c;
        struct error err = {0};
        json_t *root = with(cases[i].members);
        enum status status = hf_config_read(&c, root, "config.json", &err);
        if (status == STATUS_OK || !strstr(err.text, cases[i].word) ||
            !strstr(err.text, "config.json"))
            fail_msg("%s: expected '%s', got: %s", cases[i].members, cases[i].word, err.text);
        hf_config_done(&c);
        json_decref(root);
    }
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_quantization), cmocka_unit_test(test_rope),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
