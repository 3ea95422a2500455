/* Architectures `bitnet` (1bitLLM large, xl, 3B), `bitnet-b1.58` and `bitnet-25` (BitNet 2B4T, under
 * two names): as `llama`, with halves as pairs, a norm before each projection back to the residual,
 * and in the latter two a squared ReLU.
 *   per layer  a = RMS(x, attn_norm)
 *              x += attn_output(RMS(attention(RoPE(q a), RoPE(k a), v a), attn_sub_norm))
 *              f = RMS(x, ffn_norm)
 *              x += ffn_down(RMS(act(ffn_gate f) * ffn_up f, ffn_sub_norm))
 *   logits     output RMS(x, output_norm); `bitnet` always with the embedding as output matrix
 * source  Ma et al. 2024, arXiv:2402.17764 and arXiv:2504.12285 */
#include "model/arch.h"

#define MODEL(field) offsetof(struct model_weights, field)
#define LAYER(field) offsetof(struct layer_weights, field)

static const struct tensor_rule tied_rules[] = {
    {"token_embd", REQUIRED, DIM_VOCAB, DIM_EMBD, false, MODEL(token_embd)},
    {"output_norm", REQUIRED, DIM_ONE, DIM_EMBD, false, MODEL(output_norm)},
    {.name = NULL},
};

static const struct tensor_rule model_rules[] = {
    {"token_embd", REQUIRED, DIM_VOCAB, DIM_EMBD, false, MODEL(token_embd)},
    {"output_norm", REQUIRED, DIM_ONE, DIM_EMBD, false, MODEL(output_norm)},
    {"output", OPTIONAL, DIM_VOCAB, DIM_EMBD, false, MODEL(output)},
    {.name = NULL},
};

static const struct tensor_rule layer_rules[] = {
    {"attn_norm", REQUIRED, DIM_ONE, DIM_EMBD, false, LAYER(attn_norm)},
    {"attn_q", REQUIRED, DIM_Q, DIM_EMBD, true, LAYER(attn_q)},
    {"attn_k", REQUIRED, DIM_KV, DIM_EMBD, true, LAYER(attn_k)},
    {"attn_v", REQUIRED, DIM_KV, DIM_EMBD, true, LAYER(attn_v)},
    {"attn_sub_norm", REQUIRED, DIM_ONE, DIM_Q, false, LAYER(attn_sub_norm)},
    {"attn_output", REQUIRED, DIM_EMBD, DIM_Q, true, LAYER(attn_output)},
    {"ffn_norm", REQUIRED, DIM_ONE, DIM_EMBD, false, LAYER(ffn_norm)},
    {"ffn_gate", REQUIRED, DIM_FF, DIM_EMBD, true, LAYER(ffn_gate)},
    {"ffn_up", REQUIRED, DIM_FF, DIM_EMBD, true, LAYER(ffn_up)},
    {"ffn_sub_norm", REQUIRED, DIM_ONE, DIM_FF, false, LAYER(ffn_sub_norm)},
    {"ffn_down", REQUIRED, DIM_EMBD, DIM_FF, true, LAYER(ffn_down)},
    {.name = NULL},
};

const struct arch arch_bitnet = {"bitnet", ROPE_HALVES, ACTIVATION_SILU, tied_rules, layer_rules};
const struct arch arch_bitnet_b1_58 = {"bitnet-b1.58", ROPE_HALVES, ACTIVATION_RELU2, model_rules,
                                       layer_rules};
const struct arch arch_bitnet_25 = {"bitnet-25", ROPE_HALVES, ACTIVATION_RELU2, model_rules,
                                    layer_rules};
