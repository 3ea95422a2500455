/* Architectures `qwen2` and `qwen3` (Bonsai 1.7B, 4B, 8B): as `llama`, with halves as pairs; qwen2 has
 * biases on queries, keys and values, qwen3 norms every head of queries and keys before it turns.
 *   per layer  a = RMS(x, attn_norm)
 *              x += attn_output(attention(RoPE(RMS(q a, attn_q_norm)), RoPE(RMS(k a, attn_k_norm)), v a))
 *              f = RMS(x, ffn_norm);  x += ffn_down(silu(ffn_gate f) * ffn_up f)
 *   logits     output RMS(x, output_norm); without an output matrix the embedding serves
 * source  Qwen2: arXiv:2407.10671; Qwen3: arXiv:2505.09388 */
#include "model/arch_rules.h"

static const struct tensor_rule model_rules[] = {
    TABLE_RULES,
    OUTPUT_RULE,
    {.name = NULL},
};

static const struct tensor_rule qwen2_rules[] = {
    QKV_RULES(true),  ATTN_OUTPUT_RULE(false), GATE_UP_RULES(false),
    DOWN_RULE(false), {.name = NULL},
};

static const struct tensor_rule qwen3_rules[] = {
    QKV_RULES(false),
    {"attn_q_norm", REQUIRED, DIM_ONE, DIM_HEAD, false, LAYER(attn_q_norm)},
    {"attn_k_norm", REQUIRED, DIM_ONE, DIM_HEAD, false, LAYER(attn_k_norm)},
    ATTN_OUTPUT_RULE(false),
    GATE_UP_RULES(false),
    DOWN_RULE(false),
    {.name = NULL},
};

const struct arch arch_qwen2 = {"qwen2", ROPE_HALVES, ACTIVATION_SILU, model_rules, qwen2_rules};
const struct arch arch_qwen3 = {"qwen3", ROPE_HALVES, ACTIVATION_SILU, model_rules, qwen3_rules};
