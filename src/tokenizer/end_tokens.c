/* Which tokens end a generation. Files name one to three of them; models were trained with more,
 * so the others are known by their text. */
#include "tokenizer/vocab.h"

static const char *const end_keys[] = {
    "tokenizer.ggml.eos_token_id",     "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",     "tokenizer.ggml.fim_pad_token_id",
    "tokenizer.ggml.fim_rep_token_id", "tokenizer.ggml.fim_sep_token_id",
};

#define HARMONY_END "<|end|>"

/* clang-format off */
static const char *const end_texts[] = {
    "<|eot_id|>", "<|im_end|>", HARMONY_END, "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
    "<EOT>", "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>", "<|eom_id|>",
    "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "</s>", "[EOS]", "<eos>", "<turn|>",
    "<|tool_response>",
    /* fill in the middle: padding, repository, file separator */
    "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>",
    "<reponame>", "<|file_sep|>",
};
/* clang-format on */

static bool has(const struct vocab *v, const char *text)
{
    return text_table_find(&v->table, text_of(text)) != NO_ID;
}

/* In the harmony format <|end|> closes one message of several; other tokens end the turn. */
static bool is_harmony(const struct vocab *v)
{
    return (has(v, "<|return|>") || has(v, "<|call|>")) && has(v, HARMONY_END);
}

static void find_by_text(struct vocab *v)
{
    bool skip_end = is_harmony(v);
    for (size_t i = 0; i < sizeof end_texts / sizeof *end_texts; i++) {
        uint32_t id = text_table_find(&v->table, text_of(end_texts[i]));
        if (id == NO_ID)
            continue;
        /* some files store them as ordinary tokens, which would be shown and not parsed */
        v->types[id] = TOKEN_CONTROL;
        v->is_end[id] = !(skip_end && text_is(v->table.texts[id], HARMONY_END));
    }
}

enum status vocab_find_ends(struct vocab *v, const struct gguf_file *file, const char *path,
                            struct error *err)
{
    find_by_text(v);
    if (v->eos >= 0)
        v->is_end[v->eos] = true;
    for (size_t i = 0; i < sizeof end_keys / sizeof *end_keys; i++) {
        int32_t id;
        TRY(vocab_id_read(v, file, path, end_keys[i], -1, &id, err));
        if (id >= 0)
            v->is_end[id] = true;
    }
    return STATUS_OK;
}
