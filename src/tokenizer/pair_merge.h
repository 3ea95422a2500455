/* Merging of neighbours, best pair first, which both kinds of vocabulary share: a piece is a list
 * of symbols, and a rule says which two may become one. Takes O(n log n) for n symbols. */
#ifndef TRINE_TOKENIZER_PAIR_MERGE_H
#define TRINE_TOKENIZER_PAIR_MERGE_H

#include "tokenizer/min_heap.h"
#include "tokenizer/tokenizer_state.h"

/* A stretch of the piece. */
struct merge_symbol {
    uint32_t start, n;   /* bytes; n 0: merged into the one before */
    uint32_t id;         /* meaning set by the rule */
    uint32_t prev, next; /* neighbours; NO_ID at the ends */
    uint32_t rank;   /* of the pair with the next symbol, the lowest merges first; NO_ID: none */
    uint32_t result; /* id the pair would get */
};

struct merger {
    struct merge_symbol *symbols; /* owned */
    uint32_t n, size;
    struct min_heap heap; /* rank << 32 | symbol; may hold pairs that are no more */
};

/* The rank of two neighbours, and the id of the merged symbol in *result; NO_ID if they stay apart.
 * bytes: of the piece. */
typedef uint32_t pair_rule(const struct tokenizer *t, const char *bytes,
                           const struct merge_symbol *left, const struct merge_symbol *right,
                           uint32_t *result);

/* Empties the list; then room for n symbols. False: no memory. */
bool merger_reset(struct merger *m, size_t n);

/* Appends a symbol; there must be room. */
void merger_add(struct merger *m, uint32_t start, uint32_t n, uint32_t id);

/* Merges until no pair is left. Walk the result from symbol 0 along next. False: no memory. */
bool merger_run(struct merger *m, pair_rule *rule, const struct tokenizer *t, const char *bytes);

void merger_done(struct merger *m);

#endif
