/* Hyperparameters of a model, read from GGUF metadata and range-checked before anything is sized by
 * them. Field names are those of the metadata keys. */
#ifndef TRINE_MODEL_MODEL_CONFIG_H
#define TRINE_MODEL_MODEL_CONFIG_H

#include "gguf/gguf_read.h"
#include "model/rope.h"

struct arch;

struct model_config {
    const struct arch *arch;
    struct text name; /* general.name, or empty */
    int n_layer, n_embd, n_ff, n_vocab;
    int n_head, n_head_kv;
    int head_dim; /* of queries, keys and values */
    int n_ctx_train;
    float norm_epsilon; /* in units of x^2 */
    struct rope_config rope;
};

/* Inputs of the longest row of a layer's matrices. */
static inline int64_t model_longest_row(const struct model_config *c)
{
    int64_t n = c->n_embd > c->n_ff ? c->n_embd : c->n_ff, q = (int64_t)c->n_head * c->head_dim;
    return n > q ? n : q;
}

/* Reads everything but n_vocab and rope.factors, which the tensors give (model_load.c).
 * errors  UNSUPPORTED for an architecture that is not in arch_list.h and for a feature that
 *         would change the arithmetic and is not implemented; FORMAT for absent or impossible
 * values. */
enum status model_config_read(struct model_config *config, const struct gguf_file *file,
                              struct error *err);

#endif
