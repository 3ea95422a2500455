/* Architecture `llama`: Llama3-8B-1.58, Falcon3-1.58bit, TriLM, stories260K.
 *   per layer  a = RMS(x, attn_norm); x += attn_output(attention(RoPE(q a), RoPE(k a), v a))
 *              f = RMS(x, ffn_norm);  x += ffn_down(silu(ffn_gate f) * ffn_up f)
 *   logits     output RMS(x, output_norm); without an output matrix the embedding serves */
#include "model/arch.h"

#define MODEL(field) offsetof(struct model_weights, field)
#define LAYER(field) offsetof(struct layer_weights, field)

static const struct tensor_rule model_rules[] = {
    {"token_embd", REQUIRED, DIM_VOCAB, DIM_EMBD, false, MODEL(token_embd)},
    {"output_norm", REQUIRED, DIM_ONE, DIM_EMBD, false, MODEL(output_norm)},
    {"output", OPTIONAL, DIM_VOCAB, DIM_EMBD, false, MODEL(output)},
    {"rope_freqs", OPTIONAL, DIM_ONE, DIM_ROPE, false, MODEL(rope_freqs)},
    {.name = NULL},
};

static const struct tensor_rule layer_rules[] = {
    {"attn_norm", REQUIRED, DIM_ONE, DIM_EMBD, false, LAYER(attn_norm)},
    {"attn_q", REQUIRED, DIM_Q, DIM_EMBD, true, LAYER(attn_q)},
    {"attn_k", REQUIRED, DIM_KV, DIM_EMBD, true, LAYER(attn_k)},
    {"attn_v", REQUIRED, DIM_KV, DIM_EMBD, true, LAYER(attn_v)},
    {"attn_output", REQUIRED, DIM_EMBD, DIM_Q, true, LAYER(attn_output)},
    {"ffn_norm", REQUIRED, DIM_ONE, DIM_EMBD, false, LAYER(ffn_norm)},
    {"ffn_gate", REQUIRED, DIM_FF, DIM_EMBD, true, LAYER(ffn_gate)},
    {"ffn_up", REQUIRED, DIM_FF, DIM_EMBD, true, LAYER(ffn_up)},
    {"ffn_down", REQUIRED, DIM_EMBD, DIM_FF, true, LAYER(ffn_down)},
    {"attn_rot_embd", LEFTOVER, DIM_ONE, DIM_ROPE, false, 0},
    {.name = NULL},
};

const struct arch arch_llama = {"llama", ROPE_ADJACENT, ACTIVATION_SILU, model_rules, layer_rules};
