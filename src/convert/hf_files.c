#include "convert/hf_files.h"

const char *const hf_file_names[N_HF_FILES] = {
    [HF_FILE_CONFIG] = "config.json",
    [HF_FILE_GENERATION] = "generation_config.json",
    [HF_FILE_TENSORS] = "model.safetensors",
    [HF_FILE_INDEX] = "model.safetensors.index.json",
    [HF_FILE_TOKENIZER] = "tokenizer.json",
    [HF_FILE_PIECES] = "tokenizer.model",
    [HF_FILE_TOKENIZER_CONFIG] = "tokenizer_config.json",
    [HF_FILE_SPECIAL] = "special_tokens_map.json",
    [HF_FILE_ADDED] = "added_tokens.json",
    [HF_FILE_TEMPLATE] = "chat_template.jinja",
};
