/* Architectures as data: which tensors a model of this kind has, their shapes, how its parts are
 * wired. Adding one is a file arch_NAME.c and a row in arch_list.h. */
#ifndef TRINE_MODEL_ARCH_H
#define TRINE_MODEL_ARCH_H

#include "model/model_config.h"
#include "model/model_weights.h"

/* A size that depends on the model. */
enum dim { DIM_ONE, DIM_EMBD, DIM_FF, DIM_Q, DIM_KV, DIM_HEAD, DIM_VOCAB, DIM_ROPE };

/* REQUIRED and OPTIONAL tensors are bound; LEFTOVER ones may be in old files and are not used. */
enum presence { REQUIRED, OPTIONAL, LEFTOVER };

/* One tensor: "NAME.weight" of the model or "blk.N.NAME.weight" of a layer. A matrix may carry
 * "NAME.bias" (rows) and "NAME.scale" (one number) beside it. */
struct tensor_rule {
    const char *name;
    enum presence presence;
    enum dim rows, cols; /* a vector has rows == DIM_ONE */
    bool may_have_bias;
    size_t offset; /* of the struct weight or const float * in model_weights or layer_weights */
};

/* What the gate does to the other half of a feed-forward block: silu(gate) * up, or
 * relu(gate)^2 * up. */
enum activation { ACTIVATION_SILU, ACTIVATION_RELU2 };

struct arch {
    const char *name; /* general.architecture, and prefix of its keys */
    enum rope_pairs rope_pairs;
    enum activation activation;
    const struct tensor_rule *model_rules, *layer_rules; /* each ends with a NULL name */
};

/* The architecture of that name, or NULL. */
const struct arch *arch_find(struct text name);

/* Elements of a dimension. */
int64_t arch_dim(const struct model_config *config, enum dim dim);

/* Comma-separated names of all, for messages. */
const char *arch_names(void);

#endif
