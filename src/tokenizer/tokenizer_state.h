/* What a tokenizer consists of, for the files of this folder. */
#ifndef TRINE_TOKENIZER_TOKENIZER_STATE_H
#define TRINE_TOKENIZER_TOKENIZER_STATE_H

#include "tokenizer/byte_map.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/vocab.h"

/* Merge rules of byte-level BPE. Symbols are ids of the vocabulary, or numbers from n_tokens on for
 * texts that only occur in merges. */
struct merge_rules {
    struct pair_map ranks; /* (left symbol, right symbol) to place in the list of merges */
    uint32_t *results;     /* owned: symbol by rank */
    uint32_t byte_symbols[256];
    struct arena texts; /* of symbols that are no tokens */
};

struct tokenizer {
    struct vocab vocab;
    struct special_tokens all_specials, user_specials;
    struct byte_map bytes;

    /* BPE only */
    const struct pretokenizer_row *row;
    struct pretokenizer *pre; /* owned */
    struct merge_rules merges;

    char kind[64];
};

#endif
