/* Which name of tokenizer.ggml.pre stands for the pre-tokenizer that tokenizer.json describes. */
#ifndef TRINE_CONVERT_HF_PRE_TOKENIZER_H
#define TRINE_CONVERT_HF_PRE_TOKENIZER_H

#include "convert/json_read.h"

/* root: of tokenizer.json. errors: UNSUPPORTED, with the expression, when none does; FORMAT */
enum status hf_pre_tokenizer_find(const json_t *root, const char *path, const char **name,
                                  struct error *err);

#endif
