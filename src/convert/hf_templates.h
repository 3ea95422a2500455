/* The chat templates of a folder: chat_template.jinja, or `chat_template` of tokenizer_config.json,
 * which is one text or a list of texts with names. */
#ifndef TRINE_CONVERT_HF_TEMPLATES_H
#define TRINE_CONVERT_HF_TEMPLATES_H

#include "convert/hf_tokenizer.h"

/* Fills t->templates. config: tokenizer_config.json, json NULL: absent; path: of
 * chat_template.jinja, which replaces the template without a name. What is left out is noted.
 * errors  FORMAT, naming the file, for another kind of value, an entry without a template, a name
 *         that is no key or occurs twice; IO, MEMORY */
enum status hf_templates_read(struct hf_tokenizer *t, struct json_object config, const char *path,
                              struct error *err);

/* Writes one pair for each, and the list of the names. errors: MEMORY */
enum status hf_templates_put(const struct hf_tokenizer *t, struct gguf_writer *writer,
                             struct error *err);

#endif
