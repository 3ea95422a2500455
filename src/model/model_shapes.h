/* Exact shapes of published models, for files of random weights (`synth`) that cost as much time
 * and memory as the real ones.
 * source  the models' configurations; falcon3: tiiuae, llama3: HF1BitLLM, bonsai: prism-ml,
 *         bitnet-2b4t: microsoft, bitnet-large, -xl and -3b: 1bitLLM, trilm: SpectraSuite */
#ifndef TRINE_MODEL_MODEL_SHAPES_H
#define TRINE_MODEL_MODEL_SHAPES_H

#include <stdbool.h>

struct model_shape {
    const char *name; /* as `--shape` takes it */
    const char *arch; /* general.architecture */
    int n_embd, n_layer, n_head, n_head_kv, head_dim, n_ff, n_vocab, n_ctx;
    float rope_base, norm_epsilon;
    float yarn_factor; /* 0: none */
    int yarn_original_ctx;
    bool has_f16_tables;       /* published with an F16 embedding */
    bool is_tied;              /* the embedding is the output matrix too */
    bool has_ternary_tables;   /* published with embedding and output in the projections' type */
    const char *pre_tokenizer; /* NULL: SPM vocabulary of bytes */
    int bos, eos;
    int n_control; /* the last tokens of the vocabulary are control tokens */
};

/* The shape of that name, or NULL. */
const struct model_shape *model_shape_find(const char *name);

/* Names of all, separated by commas. */
const char *model_shape_names(void);

#endif
