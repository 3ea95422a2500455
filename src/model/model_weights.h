/* Named tensors of a model, bound to the file's mapping. */
#ifndef TRINE_MODEL_MODEL_WEIGHTS_H
#define TRINE_MODEL_MODEL_WEIGHTS_H

#include "tensor/tensor.h"

/* y = scale * (W x) + bias */
struct weight {
    struct tensor tensor; /* data NULL: the model has no such matrix */
    float scale;          /* of a "NAME.scale" tensor beside it; 1 without */
    const float *bias;    /* owned: model arena; n_rows floats, or NULL */
};

/* Vectors are owned by the model arena, as floats; NULL: the model has none. */
struct layer_weights {
    const float *attn_norm;                 /* (n_embd) */
    struct weight attn_q;                   /* (n_head * head_dim, n_embd) */
    struct weight attn_k, attn_v;           /* (n_head_kv * head_dim, n_embd) */
    const float *attn_q_norm, *attn_k_norm; /* (head_dim): heads are normed before they turn */
    const float *attn_sub_norm;             /* (n_head * head_dim): what attention yields is */
    struct weight attn_output;              /* (n_embd, n_head * head_dim) */
    const float *ffn_norm;                  /* (n_embd) */
    struct weight ffn_gate, ffn_up;         /* (n_ff, n_embd) */
    const float *ffn_sub_norm;              /* (n_ff): the gated product is normed */
    struct weight ffn_down;                 /* (n_embd, n_ff) */
};

struct model_weights {
    struct weight token_embd;     /* (n_vocab, n_embd) */
    const float *output_norm;     /* (n_embd) */
    struct weight output;         /* (n_vocab, n_embd); token_embd's tensor where they are tied */
    const float *rope_freqs;      /* (n_rot / 2) */
    struct layer_weights *layers; /* owned: model arena; n_layer of them */
};

#endif
