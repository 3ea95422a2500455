/* What the parts of `trine ppl` share: options, and a model that runs many short texts. */
#ifndef TRINE_CLI_PPL_H
#define TRINE_CLI_PPL_H

#include <jansson.h>

#include "cli/engine_choice.h"
#include "reference/reference.h"
#include "tokenizer/tokenizer.h"

struct ppl_options {
    const char *model, *pre_tokenizer, *file, *kl_base, *kl, *greedy, *greedy_out, *against, *tasks;
    int64_t n_ctx, n_chunks, n_batch, n_predict, n_parallel;
    int kv_type; /* enum ppl_cache */
    bool reference, special, json, quiet;
    struct engine_choice engine;
};

enum ppl_cache { PPL_CACHE_AUTO, PPL_CACHE_F16, PPL_CACHE_Q8_0, PPL_CACHE_F32 };

/* Sequences that run together, on engine or reference pass. A zeroed one can be closed. */
struct ppl_model {
    const struct ppl_options *options; /* borrowed */
    struct model model;
    struct tokenizer *tokenizer;
    struct engine *engine;
    struct session **sessions;     /* owned: n_sequences, or of the reference */
    struct reference **references; /* owned */
    struct engine_column *columns; /* owned: n_batch */
    int32_t *tokens;               /* owned: n_batch */
    float *logits;                 /* owned: n_logits rows, of the reference */
    int n_sequences, n_batch, n_logits;
    bool adds_bos, adds_eos; /* the tokenizer, around a text */
};

/* A token of sequence 0, 1, ... at its next position. Of a sequence's columns in one batch those
 * that want logits are the last. */
struct ppl_column {
    int sequence;
    int32_t token;
    bool wants_logits;
};

/* Opens the model and its vocabulary.
 * errors: as model_open, tokenizer_open; USAGE for an output that is a part of the model */
enum status ppl_open(struct ppl_model *m, const struct ppl_options *options, struct error *err);

/* Makes ready what runs tokens: n_sequences of n_ctx positions, or n_logits if that is less; says
 * on standard error what was made. errors: as engine_open, session_open, reference_open */
enum status ppl_start(struct ppl_model *m, int n_ctx, int n_sequences, struct error *err);

/* Runs n columns, 1 to n_batch, of which at most n_logits want logits; their rows, in order, valid
 * until the next call.
 * errors: FORMAT for logits that are not finite */
enum status ppl_forward(struct ppl_model *m, const struct ppl_column *columns, int n,
                        const float **logits, struct error *err);

/* Forgets a sequence's tokens. */
void ppl_restart(struct ppl_model *m, int sequence);

void ppl_close(struct ppl_model *m);

/* Tokens of which the last ones are scored: [first, n), 1 <= first < n, each given those before. */
struct passage {
    const int32_t *tokens; /* borrowed */
    int n, first;
};

/* Gets the logits after which tokens[position] of a passage follows, and what they say of it: its negative
 * log likelihood. */
typedef enum status passage_row(void *context, size_t passage, int position, const float *logits,
                                double nll, struct error *err);

/* Sequences that are worth their memory for passages of at least n_shortest tokens. */
int ppl_sequences_for(const struct ppl_options *options, size_t n_passages, int n_shortest);

/* Runs passages in batches as full as they get, and calls `row` for each scored token: passages in
 * order, positions in order, the same logits whatever the batches are. The likelihoods of a batch are computed
 * by all threads. */
enum status ppl_run_passages(struct ppl_model *m, const struct passage *passages, size_t n,
                             passage_row *row, void *context, struct error *err);

/* Tokens of text that something follows: as the options say, with what the model adds in front but
 * not behind; with the token for the beginning of text where there would be none.
 * errors: LIMIT for no token at all, MEMORY */
enum status ppl_encode(const struct ppl_model *m, struct text text, struct token_list *list,
                       struct error *err);

/* Puts the token for the beginning of text before the others.
 * errors: LIMIT if the model has none, MEMORY */
enum status ppl_put_bos(const struct ppl_model *m, struct token_list *list, struct error *err);

/* " +/- 0.0123"; empty for NAN, the error of a single number. */
const char *ppl_error_text(double error, int n_digits, char out[32]);

/* The three uses. */
enum status ppl_text(const struct ppl_options *options, struct error *err);
enum status ppl_greedy(const struct ppl_options *options, struct error *err);
enum status ppl_tasks(const struct ppl_options *options, struct error *err);

#endif
