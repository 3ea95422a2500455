/* Rows of tensor tables that architectures have in common. For arch_*.c only. */
#ifndef TRINE_MODEL_ARCH_RULES_H
#define TRINE_MODEL_ARCH_RULES_H

#include "model/arch.h"

#define MODEL(field) offsetof(struct model_weights, field)
#define LAYER(field) offsetof(struct layer_weights, field)

#define TABLE_RULES                                                                                \
    {"token_embd", REQUIRED, DIM_VOCAB, DIM_EMBD, false, MODEL(token_embd)},                       \
    {                                                                                              \
        "output_norm", REQUIRED, DIM_ONE, DIM_EMBD, false, MODEL(output_norm)                      \
    }

/* Without it the embedding serves. */
#define OUTPUT_RULE                                                                                \
    {                                                                                              \
        "output", OPTIONAL, DIM_VOCAB, DIM_EMBD, false, MODEL(output)                              \
    }

/* has_bias: the matrices may have biases. */
#define QKV_RULES(has_bias)                                                                        \
    {"attn_norm", REQUIRED, DIM_ONE, DIM_EMBD, false, LAYER(attn_norm)},                           \
        {"attn_q", REQUIRED, DIM_Q, DIM_EMBD, has_bias, LAYER(attn_q)},                            \
        {"attn_k", REQUIRED, DIM_KV, DIM_EMBD, has_bias, LAYER(attn_k)},                           \
    {                                                                                              \
        "attn_v", REQUIRED, DIM_KV, DIM_EMBD, has_bias, LAYER(attn_v)                              \
    }

#define ATTN_OUTPUT_RULE(has_bias)                                                                 \
    {                                                                                              \
        "attn_output", REQUIRED, DIM_EMBD, DIM_Q, has_bias, LAYER(attn_output)                     \
    }

#define GATE_UP_RULES(has_bias)                                                                    \
    {"ffn_norm", REQUIRED, DIM_ONE, DIM_EMBD, false, LAYER(ffn_norm)},                             \
        {"ffn_gate", REQUIRED, DIM_FF, DIM_EMBD, has_bias, LAYER(ffn_gate)},                       \
    {                                                                                              \
        "ffn_up", REQUIRED, DIM_FF, DIM_EMBD, has_bias, LAYER(ffn_up)                              \
    }

#define DOWN_RULE(has_bias)                                                                        \
    {                                                                                              \
        "ffn_down", REQUIRED, DIM_EMBD, DIM_FF, has_bias, LAYER(ffn_down)                          \
    }

#endif
