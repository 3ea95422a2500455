/* Opens a model: the file, its hyperparameters, every tensor bound to a name with its shape
 * checked. What the file holds beyond that is refused, so that no model is run with a part of it
 * ignored. */
#ifndef TRINE_MODEL_MODEL_LOAD_H
#define TRINE_MODEL_MODEL_LOAD_H

#include "base/memory.h"
#include "gguf/gguf_read.h"
#include "model/model_config.h"
#include "model/model_weights.h"

struct model {
    const char *path; /* borrowed */
    struct gguf_file file;
    struct model_config config;
    struct model_weights weights;
    struct arena arena;
};

/* Layers are alike, so the first one tells. */
static inline bool model_has_sub_norms(const struct model *model)
{
    return model->weights.layers[0].attn_sub_norm != NULL;
}
static inline bool model_has_head_norms(const struct model *model)
{
    return model->weights.layers[0].attn_q_norm != NULL;
}

/* errors  as gguf_open and model_config_read; FORMAT for a tensor that is absent, has another shape
 *         or holds scales that are not finite; UNSUPPORTED for one that would not be used.
 *         On error the object is closed. */
enum status model_open(struct model *model, const char *path, struct error *err);

/* As model_open with another rule for types than format_resolve: one for a byte order of I2_S. */
enum status model_open_by(struct model *model, const char *path, span_rule *rule,
                          struct error *err);

/* As model_open for a file that is already open, which the model takes over in any case. */
enum status model_bind(struct model *model, const char *path, struct gguf_file *file,
                       struct error *err);

/* Checks all scales of all tensors: reads the whole file. */
enum status model_check_scales(const struct model *model, struct error *err);

/* Accepts a zeroed object. */
void model_close(struct model *model);

/* A tensor of the file as numbers; two-dimensional or less folded to rows. */
struct tensor model_tensor(const struct gguf_tensor *t);

#endif
