/* The vocabulary of a Hugging Face folder as GGUF stores one: byte-level BPE from tokenizer.json,
 * SentencePiece from tokenizer.model; tokens with a meaning and the chat templates from the files
 * beside it. Kinds, expressions and merges that Trine does not have are refused; what changes few
 * texts (form NFC, spaces beside tokens, 'legacy') is noted. */
#ifndef TRINE_CONVERT_HF_TOKENIZER_H
#define TRINE_CONVERT_HF_TOKENIZER_H

#include "base/memory.h"
#include "base/text.h"
#include "convert/json_read.h"
#include "gguf/gguf_write.h"

enum { HF_N_DOCUMENTS = 8, HF_N_ENDS = 3 };

/* Numbered as in GGUF, and in SentencePiece. */
enum { HF_NORMAL = 1, HF_UNKNOWN, HF_CONTROL, HF_USER_DEFINED, HF_UNUSED, HF_BYTE };

/* A chat template; "default": the one without a name in GGUF. */
struct hf_template {
    const char *name;
    struct text text;
};

struct hf_tokenizer {
    struct arena arena;
    json_t *documents[HF_N_DOCUMENTS]; /* owned: texts below point into them */
    int n_documents;
    const uint8_t *pieces; /* owned mapping of tokenizer.model */
    size_t pieces_bytes;

    bool is_spm;
    const char *pre;    /* of BPE */
    struct text *texts; /* n_tokens, one for each row of the embedding */
    int32_t *types;
    float *scores;              /* SPM */
    uint32_t n_tokens, n_named; /* n_named: before the padding */
    struct text *merges;        /* BPE: "a b" */
    size_t n_merges;

    int64_t bos, unknown, padding; /* -1: none */
    int64_t ends[HF_N_ENDS];       /* eos, eot, eom; -1: none */
    bool add_bos, add_eos, add_space_prefix;
    struct hf_template *templates; /* what is written, names once each */
    size_t n_templates;
    char notes[600]; /* what is not as in the folder, for people */
};

/* n_tokens: rows of the embedding. pre_tokenizer: name of the pre-tokenizer, which is then not
 * looked at, or NULL. config: root of config.json, for ids. Closes itself on error.
 * errors  UNSUPPORTED for a kind, a normaliser or a pre-tokenizer that is not known, naming it;
 *         FORMAT for ids that do not fit together, IO, MEMORY, LIMIT */
enum status hf_tokenizer_open(struct hf_tokenizer *t, const char *dir, uint32_t n_tokens,
                              const char *pre_tokenizer, const json_t *config, struct error *err);

/* The part of it that reads tokenizer.json; takes root over. */
enum status hf_tokenizer_read_json(struct hf_tokenizer *t, json_t *root, const char *path,
                                   const char *pre_tokenizer, struct error *err);

/* The list added_tokens of tokenizer.json; json NULL: none. errors: FORMAT */
enum status hf_tokenizer_read_added(struct hf_tokenizer *t, const json_t *json, const char *path,
                                    struct error *err);

/* The part of it that reads tokenizer.model from bytes, which are borrowed. */
enum status hf_tokenizer_read_pieces(struct hf_tokenizer *t, const uint8_t *bytes, size_t size,
                                     const char *path, struct error *err);

/* Room for n_tokens tokens that are not named yet. errors: MEMORY */
enum status hf_tokenizer_reserve(struct hf_tokenizer *t, uint32_t n_tokens, struct error *err);

/* Names the token of that id. errors: FORMAT for an id out of range or with another text */
enum status hf_tokenizer_name(struct hf_tokenizer *t, const char *path, int64_t id,
                              struct text text, int type, struct error *err);

/* The same for a token that was added to a vocabulary; a piece of SentencePiece keeps its type. */
enum status hf_tokenizer_add(struct hf_tokenizer *t, const char *path, int64_t id, struct text text,
                             int type, struct error *err);

/* The id of a text, -1 for none. Looks at every token. */
int64_t hf_tokenizer_find(const struct hf_tokenizer *t, struct text text);

void hf_tokenizer_note(struct hf_tokenizer *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Writes the pairs. errors: MEMORY */
enum status hf_tokenizer_put(const struct hf_tokenizer *t, struct gguf_writer *writer,
                             struct error *err);

/* Accepts a zeroed object. */
void hf_tokenizer_close(struct hf_tokenizer *t);

/* Is tokenizer.json one of byte-level BPE? Others (SentencePiece in another dress) need
 * tokenizer.model. */
bool hf_tokenizer_is_byte_level(const json_t *root);

/* Name and expression i of the pre-tokenizers that are told from tokenizer.json; NULL at the end. */
const char *hf_pre_tokenizer_name(size_t i, bool *ignore_merges);

#endif
