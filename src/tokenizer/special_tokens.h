/* Cuts a text at the special tokens written out in it. The cut is defined as: for each special
 * token, longest first (of equal length, lower id first), every fragment that is still raw is split
 * at every occurrence, from left to right. Computed with one walk over the text. */
#ifndef TRINE_TOKENIZER_SPECIAL_TOKENS_H
#define TRINE_TOKENIZER_SPECIAL_TOKENS_H

#include "tokenizer/min_heap.h"
#include "tokenizer/vocab.h"

/* Node of a trie over the token texts; node 0 is the root. */
struct special_node {
    uint32_t parent;
    uint32_t order;  /* place in the sequence of tokens, NO_ID: no token ends here */
    uint32_t length; /* bytes from the root */
    int32_t id;
};

struct special_tokens {
    struct special_node *nodes; /* owned */
    uint32_t n_nodes;
    struct pair_map edges; /* (node, byte) to node */
    uint32_t *by_order;    /* owned: nodes of tokens, longest first */
    uint32_t n_orders;
    bool starts[256]; /* bytes that begin a token */
};

/* only_user_defined: leave out control and unknown tokens. Closes itself on error. errors: MEMORY
 */
enum status special_tokens_open(struct special_tokens *s, const struct vocab *vocab,
                                bool only_user_defined, const char *path, struct error *err);
void special_tokens_close(struct special_tokens *s);

/* owner: one number per byte of the text: 0 for raw text, else the node whose token covers it.
 * *owners: owned by the caller, NULL when there is no token in the text. errors: MEMORY */
enum status special_tokens_cut(const struct special_tokens *s, struct text text, uint32_t **owners,
                               struct error *err);

#endif
