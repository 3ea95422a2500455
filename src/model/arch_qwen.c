/* Architectures `qwen2` and `qwen3` (Bonsai 1.7B, 4B, 8B): as `llama`, with halves as pairs; qwen2 has
 * biases on queries, keys and values, qwen3 norms every head of queries and keys before it turns.
 *   per layer  a = RMS(x, attn_norm)
 *              x += attn_output(attention(RoPE(RMS(q a, attn_q_norm)), RoPE(RMS(k a, attn_k_norm)), v a))
 *              f = RMS(x, ffn_norm);  x += ffn_down(silu(ffn_gate f) * ffn_up f)
 *   logits     output RMS(x, output_norm); without an output matrix the embedding serves
 * source  Qwen2: arXiv:2407.10671; Qwen3: arXiv:2505.09388 */
#include "model/arch.h"

#define MODEL(field) offsetof(struct model_weights, field)
#define LAYER(field) offsetof(struct layer_weights, field)

static const struct tensor_rule model_rules[] = {
    {"token_embd", REQUIRED, DIM_VOCAB, DIM_EMBD, false, MODEL(token_embd)},
    {"output_norm", REQUIRED, DIM_ONE, DIM_EMBD, false, MODEL(output_norm)},
    {"output", OPTIONAL, DIM_VOCAB, DIM_EMBD, false, MODEL(output)},
    {.name = NULL},
};

static const struct tensor_rule qwen2_rules[] = {
    {"attn_norm", REQUIRED, DIM_ONE, DIM_EMBD, false, LAYER(attn_norm)},
    {"attn_q", REQUIRED, DIM_Q, DIM_EMBD, true, LAYER(attn_q)},
    {"attn_k", REQUIRED, DIM_KV, DIM_EMBD, true, LAYER(attn_k)},
    {"attn_v", REQUIRED, DIM_KV, DIM_EMBD, true, LAYER(attn_v)},
    {"attn_output", REQUIRED, DIM_EMBD, DIM_Q, false, LAYER(attn_output)},
    {"ffn_norm", REQUIRED, DIM_ONE, DIM_EMBD, false, LAYER(ffn_norm)},
    {"ffn_gate", REQUIRED, DIM_FF, DIM_EMBD, false, LAYER(ffn_gate)},
    {"ffn_up", REQUIRED, DIM_FF, DIM_EMBD, false, LAYER(ffn_up)},
    {"ffn_down", REQUIRED, DIM_EMBD, DIM_FF, false, LAYER(ffn_down)},
    {.name = NULL},
};

static const struct tensor_rule qwen3_rules[] = {
    {"attn_norm", REQUIRED, DIM_ONE, DIM_EMBD, false, LAYER(attn_norm)},
    {"attn_q", REQUIRED, DIM_Q, DIM_EMBD, false, LAYER(attn_q)},
    {"attn_k", REQUIRED, DIM_KV, DIM_EMBD, false, LAYER(attn_k)},
    {"attn_v", REQUIRED, DIM_KV, DIM_EMBD, false, LAYER(attn_v)},
    {"attn_q_norm", REQUIRED, DIM_ONE, DIM_HEAD, false, LAYER(attn_q_norm)},
    {"attn_k_norm", REQUIRED, DIM_ONE, DIM_HEAD, false, LAYER(attn_k_norm)},
    {"attn_output", REQUIRED, DIM_EMBD, DIM_Q, false, LAYER(attn_output)},
    {"ffn_norm", REQUIRED, DIM_ONE, DIM_EMBD, false, LAYER(ffn_norm)},
    {"ffn_gate", REQUIRED, DIM_FF, DIM_EMBD, false, LAYER(ffn_gate)},
    {"ffn_up", REQUIRED, DIM_FF, DIM_EMBD, false, LAYER(ffn_up)},
    {"ffn_down", REQUIRED, DIM_EMBD, DIM_FF, false, LAYER(ffn_down)},
    {.name = NULL},
};

const struct arch arch_qwen2 = {"qwen2", ROPE_HALVES, ACTIVATION_SILU, model_rules, qwen2_rules};
const struct arch arch_qwen3 = {"qwen3", ROPE_HALVES, ACTIVATION_SILU, model_rules, qwen3_rules};
