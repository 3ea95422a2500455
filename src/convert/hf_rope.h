/* The rotary embedding of config.json, in its old form (`rope_theta`, `rope_scaling`) and its new
 * one (`rope_parameters`). */
#ifndef TRINE_CONVERT_HF_ROPE_H
#define TRINE_CONVERT_HF_ROPE_H

#include "convert/hf_config.h"

/* Fills model.rope, of which head_dim and n_ctx_train must be known; factors are allocated where the
 * kind llama3 needs them.
 * kinds   none, linear, yarn, and llama3 as divisors of the angles (architecture llama only)
 * errors  UNSUPPORTED for another kind, a member that is not known (angles per kind of layer too), and
 *         both forms with different contents; FORMAT, MEMORY */
enum status hf_rope_read(struct hf_config *config, struct json_object root, double default_base,
                         struct error *err);

#endif
