/* Architecture `llama`: Llama3-8B-1.58, Falcon3-1.58bit, TriLM, stories260K.
 *   per layer  a = RMS(x, attn_norm); x += attn_output(attention(RoPE(q a), RoPE(k a), v a))
 *              f = RMS(x, ffn_norm);  x += ffn_down(silu(ffn_gate f) * ffn_up f)
 *   logits     output RMS(x, output_norm); without an output matrix the embedding serves */
#include "model/arch_rules.h"

static const struct tensor_rule model_rules[] = {
    TABLE_RULES,
    OUTPUT_RULE,
    {"rope_freqs", OPTIONAL, DIM_ONE, DIM_ROPE, false, MODEL(rope_freqs)},
    {.name = NULL},
};

static const struct tensor_rule layer_rules[] = {
    QKV_RULES(true),
    ATTN_OUTPUT_RULE(true),
    GATE_UP_RULES(true),
    DOWN_RULE(true),
    {"attn_rot_embd", LEFTOVER, DIM_ONE, DIM_ROPE, false, 0},
    {.name = NULL},
};

const struct arch arch_llama = {"llama", ROPE_ADJACENT, ACTIVATION_SILU, model_rules, layer_rules};
