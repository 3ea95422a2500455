/* The files of a folder that are read beside its shards, by the names they have there. */
#ifndef TRINE_CONVERT_HF_FILES_H
#define TRINE_CONVERT_HF_FILES_H

enum hf_file {
    HF_FILE_CONFIG,
    HF_FILE_GENERATION,
    HF_FILE_TENSORS,
    HF_FILE_INDEX, /* which names the shards */
    HF_FILE_TOKENIZER,
    HF_FILE_PIECES,
    HF_FILE_TOKENIZER_CONFIG,
    HF_FILE_SPECIAL,
    HF_FILE_ADDED,
    HF_FILE_TEMPLATE,
    N_HF_FILES
};

extern const char *const hf_file_names[N_HF_FILES];

#endif
