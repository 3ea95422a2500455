/* The options that `run` and `logits` share. */
#ifndef TRINE_CLI_GENERATION_OPTIONS_H
#define TRINE_CLI_GENERATION_OPTIONS_H

#include "cli/engine_choice.h"

struct generation_options {
    const char *model, *prompt, *prompt_file, *pre_tokenizer;
    int64_t n_predict, n_ctx, n_batch, top_k, repeat_last_n, seed;
    double temperature, top_p, min_p, repeat_penalty, frequency_penalty, presence_penalty;
    int kv_type; /* enum kv_type */
    bool reference, echo, special, ignore_eos, quiet, dry_run;
    struct engine_choice engine;
};

enum kv_type { KV_AUTO, KV_F16, KV_Q8_0, KV_F32 };

/* Rows of the option table of a command whose options struct begins with these. */
#define GENERATION(field) offsetof(struct generation_options, field)
#define GENERATION_OPTIONS                                                                         \
    {NULL, NULL, NULL, "Model", OPT_FLAG, 0, 0, 0},                                                \
        {"MODEL, -m, --model",                                                                     \
         "FILE",                                                                                   \
         NULL,                                                                                     \
         "the GGUF file (the first one of a split model)",                                         \
         OPT_TEXT,                                                                                 \
         GENERATION(model),                                                                        \
         0,                                                                                        \
         0},                                                                                       \
        {"-c, --ctx-size",                                                                         \
         "N",                                                                                      \
         "0",                                                                                      \
         "context in tokens; 0: that of the training, at most 4096 and what fits in memory",       \
         OPT_INT,                                                                                  \
         GENERATION(n_ctx),                                                                        \
         0,                                                                                        \
         1 << 30},                                                                                 \
        {"-ctk, --cache-type",                                                                     \
         "auto|f16|q8_0|f32",                                                                      \
         "auto",                                                                                   \
         "numbers that the KV cache keeps; auto: f16; f32 is for --reference only",                \
         OPT_CHOICE,                                                                               \
         GENERATION(kv_type),                                                                      \
         0,                                                                                        \
         0},                                                                                       \
        {"-b, --batch-size",                                                                       \
         "N",                                                                                      \
         "0",                                                                                      \
         "prompt tokens that are run at once; 0: as many as is fast",                              \
         OPT_INT,                                                                                  \
         GENERATION(n_batch),                                                                      \
         0,                                                                                        \
         ENGINE_MAX_BATCH},                                                                        \
        {"--pre-tokenizer",                                                                        \
         "NAME",                                                                                   \
         NULL,                                                                                     \
         "split text as tokenizer.ggml.pre NAME says, whatever the file says",                     \
         OPT_TEXT,                                                                                 \
         GENERATION(pre_tokenizer),                                                                \
         0,                                                                                        \
         0},                                                                                       \
        {"--reference",                                                                            \
         NULL,                                                                                     \
         NULL,                                                                                     \
         "the plain one-thread path in float that defines the results",                            \
         OPT_FLAG,                                                                                 \
         GENERATION(reference),                                                                    \
         0,                                                                                        \
         0},                                                                                       \
        {NULL, NULL, NULL, "Prompt", OPT_FLAG, 0, 0, 0},                                           \
        {"-p, --prompt",                                                                           \
         "TEXT",                                                                                   \
         NULL,                                                                                     \
         "the prompt; without -p and -f it is read from standard input",                           \
         OPT_TEXT,                                                                                 \
         GENERATION(prompt),                                                                       \
         0,                                                                                        \
         0},                                                                                       \
        {"-f, --file",                                                                             \
         "FILE",                                                                                   \
         NULL,                                                                                     \
         "read the prompt from a file (one final newline is dropped)",                             \
         OPT_TEXT,                                                                                 \
         GENERATION(prompt_file),                                                                  \
         0,                                                                                        \
         0},                                                                                       \
        {"--special", NULL,                                                                        \
         NULL,        "control tokens: read them in the prompt, show them in the text",            \
         OPT_FLAG,    GENERATION(special),                                                         \
         0,           0},                                                                          \
        {NULL, NULL, NULL, "Text", OPT_FLAG, 0, 0, 0},                                             \
        {"-n, --predict",                                                                          \
         "N",                                                                                      \
         "-1",                                                                                     \
         "tokens to write at most; -1: until the model or the context "                            \
         "ends",                                                                                   \
         OPT_INT,                                                                                  \
         GENERATION(n_predict),                                                                    \
         -1,                                                                                       \
         1 << 30},                                                                                 \
        {"--echo",         NULL, NULL, "write the prompt before the text", OPT_FLAG,               \
         GENERATION(echo), 0,    0},                                                               \
        {"--ignore-eos",         NULL, NULL, "go on after an end-of-generation token", OPT_FLAG,   \
         GENERATION(ignore_eos), 0,    0},                                                         \
        {"-q, --quiet",     NULL, NULL, "nothing on standard error but failures", OPT_FLAG,        \
         GENERATION(quiet), 0,    0},                                                              \
        {NULL, NULL, NULL, "Sampling", OPT_FLAG, 0, 0, 0},                                         \
        {"--temp",   "T",                                                                          \
         "0.8",      "temperature; 0: always the most likely token",                               \
         OPT_NUMBER, GENERATION(temperature),                                                      \
         0,          1000},                                                                        \
        {"--top-k",         "K", "40",   "only the K most likely tokens; 0: all", OPT_INT,         \
         GENERATION(top_k), 0,   1 << 30},                                                         \
        {"--top-p",  "P",                                                                          \
         "0.95",     "only the likeliest tokens that sum to P; 1: all",                            \
         OPT_NUMBER, GENERATION(top_p),                                                            \
         0,          1},                                                                           \
        {"--min-p",  "P",                                                                          \
         "0.05",     "only tokens at least P times as likely as the likeliest; 0: all",            \
         OPT_NUMBER, GENERATION(min_p),                                                            \
         0,          1},                                                                           \
        {"--repeat-last-n",                                                                        \
         "N",                                                                                      \
         "64",                                                                                     \
         "penalties look at the last N tokens; -1: all",                                           \
         OPT_INT,                                                                                  \
         GENERATION(repeat_last_n),                                                                \
         -1,                                                                                       \
         1 << 30},                                                                                 \
        {"--repeat-penalty",                                                                       \
         "X",                                                                                      \
         "1",                                                                                      \
         "divide the logits of seen tokens by X; 1: off",                                          \
         OPT_NUMBER,                                                                               \
         GENERATION(repeat_penalty),                                                               \
         0.01,                                                                                     \
         100},                                                                                     \
        {"--frequency-penalty",                                                                    \
         "X",                                                                                      \
         "0",                                                                                      \
         "subtract X for each time a token was seen",                                              \
         OPT_NUMBER,                                                                               \
         GENERATION(frequency_penalty),                                                            \
         -100,                                                                                     \
         100},                                                                                     \
        {"--presence-penalty",         "X",  "0", "subtract X if a token was seen", OPT_NUMBER,    \
         GENERATION(presence_penalty), -100, 100},                                                 \
        {"-s, --seed", "N",                                                                        \
         "-1",         "of the sampling; -1: another one each time",                               \
         OPT_INT,      GENERATION(seed),                                                           \
         -1,           9007199254740992.0},                                                        \
        {"--dry-run",         NULL, NULL, "say what memory it would take, and stop", OPT_FLAG,     \
         GENERATION(dry_run), 0,    0},                                                            \
        ENGINE_OPTIONS(GENERATION(engine))

#endif
