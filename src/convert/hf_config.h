/* config.json of a Hugging Face folder: which architecture of Trine it is, its hyperparameters, and
 * what its weights stand for. What would change the arithmetic and is not known is refused. */
#ifndef TRINE_CONVERT_HF_CONFIG_H
#define TRINE_CONVERT_HF_CONFIG_H

#include "convert/json_read.h"
#include "gguf/gguf_write.h"
#include "model/arch.h"

/* What the stored numbers of projections stand for, by `quantization_config`. */
enum hf_weights {
    HF_AS_STORED,       /* no quantisation */
    HF_PACKED_DIVIDE,   /* class BitLinear: codes / weight_scale */
    HF_PACKED_MULTIPLY, /* class AutoBitLinear, offline: codes * weight_scale */
    HF_ROUNDED_AT_RUN   /* the model's own program rounds them by the mean at run time */
};

struct hf_config {
    struct model_config model; /* rope.factors: owned by this struct */
    bool is_tied;
    bool has_qkv_bias, has_output_bias, has_ffn_bias;
    enum hf_weights weights;
    const char *reason; /* static: what in config.json decided `weights` */
    char unused[400];   /* names of members that were not looked at, separated by commas */
};

/* root: of config.json; path: for messages. On error nothing is owned.
 * errors  UNSUPPORTED, naming the member, for what is not known; FORMAT, MEMORY */
enum status hf_config_read(struct hf_config *config, const json_t *root, const char *path,
                           struct error *err);

/* Accepts a zeroed object. */
void hf_config_done(struct hf_config *config);

/* Writes the pairs of the architecture; name: general.name. errors: MEMORY */
enum status hf_config_put(const struct hf_config *config, const char *name,
                          struct gguf_writer *writer, struct error *err);

#endif
