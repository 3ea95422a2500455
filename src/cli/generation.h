/* What `run` and `logits` share: a model made ready to take tokens. */
#ifndef TRINE_CLI_GENERATION_H
#define TRINE_CLI_GENERATION_H

#include "cli/generation_options.h"
#include "model/model_load.h"
#include "reference/reference.h"
#include "sampler/sampler.h"
#include "tokenizer/tokenizer.h"

/* A model with tokenizer, prompt and cache. Zeroed objects can be closed. */
struct generation {
    const struct generation_options *options; /* borrowed */
    struct model model;
    struct tokenizer *tokenizer;
    struct reference *reference; /* one of these two */
    struct engine *engine;
    struct session *session;
    struct engine_column *columns; /* owned: n_batch */
    float *logits;                 /* owned: of the reference */
    struct token_list prompt;
    char *prompt_text; /* owned */
    size_t prompt_bytes;
    int n_ctx, n_batch;
};

/* Opens the model and checks it. With_tokenizer: also its vocabulary.
 * errors: as model_open and tokenizer_open; USAGE without a model. */
enum status generation_open(struct generation *g, const struct generation_options *options,
                            bool with_tokenizer, struct error *err);

/* Reads the prompt as the options say and turns it into tokens. errors: IO, USAGE, LIMIT */
enum status generation_read_prompt(struct generation *g, struct error *err);

/* Makes ready what runs tokens, and prints the lines that describe model and run on standard error.
 * n_more: tokens that must fit beyond the prompt; n_logits: most logits of one batch, 0: a batch.
 * With --dry-run only the plan is made. errors: LIMIT, MEMORY, FORMAT */
enum status generation_start(struct generation *g, int n_more, int n_logits, struct error *err);

/* Runs n tokens (at most n_batch) after those before; logits of the last n_logits of them, valid until
 * the next call. */
const float *generation_forward(struct generation *g, const int32_t *tokens, int n, int n_logits);

/* Tokens run so far. */
int generation_position(const struct generation *g);

/* errors: FORMAT when one of n rows of logits holds a number that is not finite */
enum status generation_check_logits(const struct generation *g, const float *logits, int n,
                                    struct error *err);

void generation_close(struct generation *g);

#endif
