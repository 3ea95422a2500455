/* Architectures `bitnet` (1bitLLM large, xl, 3B), `bitnet-b1.58` and `bitnet-25` (BitNet 2B4T, under
 * two names): as `llama`, with halves as pairs, a norm before each projection back to the residual,
 * and in the latter two a squared ReLU.
 *   per layer  a = RMS(x, attn_norm)
 *              x += attn_output(RMS(attention(RoPE(q a), RoPE(k a), v a), attn_sub_norm))
 *              f = RMS(x, ffn_norm)
 *              x += ffn_down(RMS(act(ffn_gate f) * ffn_up f, ffn_sub_norm))
 *   logits     output RMS(x, output_norm); `bitnet` always with the embedding as output matrix
 * source  Ma et al. 2024, arXiv:2402.17764 and arXiv:2504.12285 */
#include "model/arch_rules.h"

static const struct tensor_rule tied_rules[] = {
    TABLE_RULES,
    {.name = NULL},
};

static const struct tensor_rule model_rules[] = {
    TABLE_RULES,
    OUTPUT_RULE,
    {.name = NULL},
};

static const struct tensor_rule layer_rules[] = {
    QKV_RULES(true),
    {"attn_sub_norm", REQUIRED, DIM_ONE, DIM_Q, false, LAYER(attn_sub_norm)},
    ATTN_OUTPUT_RULE(true),
    GATE_UP_RULES(true),
    {"ffn_sub_norm", REQUIRED, DIM_ONE, DIM_FF, false, LAYER(ffn_sub_norm)},
    DOWN_RULE(true),
    {.name = NULL},
};

const struct arch arch_bitnet = {"bitnet", ROPE_HALVES, ACTIVATION_SILU, tied_rules, layer_rules};
const struct arch arch_bitnet_b1_58 = {"bitnet-b1.58", ROPE_HALVES, ACTIVATION_RELU2, model_rules,
                                       layer_rules};
const struct arch arch_bitnet_25 = {"bitnet-25", ROPE_HALVES, ACTIVATION_RELU2, model_rules,
                                    layer_rules};
