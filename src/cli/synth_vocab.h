/* A vocabulary for a model of random weights: as large as the published one and valid, with every
 * token reachable, though its tokens mean nothing. */
#ifndef TRINE_CLI_SYNTH_VOCAB_H
#define TRINE_CLI_SYNTH_VOCAB_H

#include "gguf/gguf_write.h"
#include "model/model_shapes.h"

/* Appends all tokenizer.* pairs. errors: MEMORY */
enum status synth_vocab_put(struct gguf_writer *w, const struct model_shape *shape,
                            struct error *err);

#endif
