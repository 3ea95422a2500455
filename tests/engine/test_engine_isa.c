/* Same bits on every instruction set that this machine has, for every packing. */
#include "engine_run.h"
#include "machine/cpu_features.h"

#define N_TOKENS (IS_SANITISED ? 4 : 8)

/* A prompt in one pass, a few columns a pass, and one: kernels specialise on that. */
static void check_arch(const char *arch, const char *type, enum kv_format kv_format)
{
    static const int cuts[] = {N_TOKENS, 3, 1};
    struct model model;
    int32_t tokens[N_TOKENS];
    open_tiny_arch(&model, arch, type);
    fill_tokens(tokens, N_TOKENS, model.config.n_vocab, 2);
    struct engine_options options = {.n_threads = 2, .n_nodes = 1, .kv_format = kv_format};
    float *scalar = run_engine(&model, options, tokens, N_TOKENS, N_TOKENS);
    for (int isa = ISA_scalar; isa < N_ISAS; isa++)
        for (int i = isa == ISA_scalar; i < 3 && cpu_has_isa((enum isa)isa); i++) {
            char what[64];
            snprintf(what, sizeof what, "%s %s, %s, pieces of %d", arch, type,
                     isa_name((enum isa)isa), cuts[i]);
            options.isa = (enum isa)isa;
            float *logits = run_engine(&model, options, tokens, N_TOKENS, cuts[i]);
            expect_same_bits(logits, scalar, N_TOKENS, model.config.n_vocab, what);
            free(logits);
        }
    free(scalar);
    model_close(&model);
}

static void check_type(const char *type, enum kv_format kv_format)
{
    check_arch("llama", type, kv_format);
}

/* Sub-norms with squared ReLU; heads that are normed, into both kinds of cache; floats. */
static void test_architectures(void **state)
{
    (void)state;
    check_arch("bitnet-b1.58", "IQ2_BN", KV_FORMAT_F16);
    check_arch("qwen3", "IQ2_BN", KV_FORMAT_F16);
    if (IS_SANITISED)
        return;
    check_arch("bitnet", "F16", KV_FORMAT_F16);
    check_arch("bitnet", "Q6_K", KV_FORMAT_F16);
    check_arch("qwen3", "Q2_0", KV_FORMAT_Q8_0);
    check_arch("qwen2", "Q4_0", KV_FORMAT_Q8_0);
}

static void test_ternary(void **state)
{
    (void)state;
    check_type("TQ2_0", KV_FORMAT_F16);
    if (IS_SANITISED)
        return;
    check_type("I2_S", KV_FORMAT_F16);
    check_type("Q2_0", KV_FORMAT_F16);
    check_type("IQ1_BN", KV_FORMAT_Q8_0);
}

static void test_blocks(void **state)
{
    (void)state;
    check_type("Q8_0", KV_FORMAT_F16);
    check_type("Q4_0", KV_FORMAT_Q8_0);
    check_type("Q6_K", KV_FORMAT_F16);
    check_type("Q3_K", KV_FORMAT_F16);
    check_type("IQ4_XS", KV_FORMAT_F16);
    if (IS_SANITISED)
        return;
    check_type("Q4_1", KV_FORMAT_F16);
    check_type("Q5_0", KV_FORMAT_F16);
    check_type("Q5_1", KV_FORMAT_Q8_0);
    check_type("IQ4_NL", KV_FORMAT_F16);
}

static void test_floats(void **state)
{
    (void)state;
    check_type("F16", KV_FORMAT_F16);
    check_type("BF16", KV_FORMAT_Q8_0);
    if (IS_SANITISED)
        return;
    check_type("TQ2_T", KV_FORMAT_F16); /* decoded to floats */
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_architectures),
        cmocka_unit_test(test_ternary),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_floats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
