#include "tokenizer/special_tokens.h"

#include <stdlib.h>

#include "base/memory.h"

#define WHAT              "special tokens of a text"

/* Longest special token: the search looks that far ahead at every byte. Real ones are below 64. */
#define MAX_SPECIAL_BYTES 256

static bool is_special(const struct vocab *v, uint32_t id, bool only_user_defined)
{
    uint8_t type = v->types[id];
    if (v->table.texts[id].n == 0)
        return false;
    return type == TOKEN_USER_DEFINED ||
           (!only_user_defined && (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN));
}

static uint32_t child(const struct special_tokens *s, uint32_t node, char byte)
{
    return pair_map_find(&s->edges, node, (uint8_t)byte);
}

/* Adds the path of a text. Of equal texts the first one keeps the node. */
static void add_token(struct special_tokens *s, struct text text, uint32_t id)
{
    uint32_t node = 0;
    for (size_t i = 0; i < text.n; i++) {
        uint32_t next = child(s, node, text.bytes[i]);
        if (next == NO_ID) {
            next = s->n_nodes++;
            s->nodes[next] = (struct special_node){node, NO_ID, (uint32_t)i + 1, -1};
            pair_map_add(&s->edges, node, (uint8_t)text.bytes[i], next);
        }
        node = next;
    }
    s->starts[(uint8_t)text.bytes[0]] = true;
    if (s->nodes[node].id < 0) {
        s->nodes[node].id = (int32_t)id;
        s->by_order[s->n_orders++] = node;
    }
}

static int by_length_then_id(const void *a, const void *b, void *nodes)
{
    const struct special_node *left = (struct special_node *)nodes + *(const uint32_t *)a;
    const struct special_node *right = (struct special_node *)nodes + *(const uint32_t *)b;
    if (left->length != right->length)
        return left->length > right->length ? -1 : 1;
    return left->id < right->id ? -1 : left->id > right->id;
}

static enum status build(struct special_tokens *s, const struct vocab *v, bool only_user_defined,
                         const char *path, struct error *err)
{
    size_t n_bytes = 0, n_tokens = 0;
    for (uint32_t id = 0; id < v->n_tokens; id++)
        if (is_special(v, id, only_user_defined)) {
            if (v->table.texts[id].n > MAX_SPECIAL_BYTES)
                return fail(err, STATUS_LIMIT,
                            "%s: special token %u has %zu bytes, at most %d can be searched for; "
                            "the vocabulary is damaged: convert the model again",
                            path, id, v->table.texts[id].n, MAX_SPECIAL_BYTES);
            n_bytes += v->table.texts[id].n;
            n_tokens++;
        }
    if (n_bytes >= UINT32_MAX / 2)
        return fail(err, STATUS_FORMAT, "%s: %zu bytes of special tokens; the file is damaged",
                    path, n_bytes);
    s->nodes = memory_alloc(n_bytes + 1, sizeof *s->nodes);
    s->by_order = memory_alloc(n_tokens, sizeof *s->by_order);
    if (!s->nodes || !s->by_order || !pair_map_init(&s->edges, n_bytes))
        return fail_memory(err, path, (n_bytes + 1) * sizeof *s->nodes);
    s->nodes[0] = (struct special_node){0, NO_ID, 0, -1};
    s->n_nodes = 1;
    for (uint32_t id = 0; id < v->n_tokens; id++)
        if (is_special(v, id, only_user_defined))
            add_token(s, v->table.texts[id], id);
    qsort_r(s->by_order, s->n_orders, sizeof *s->by_order, by_length_then_id, s->nodes);
    for (uint32_t order = 0; order < s->n_orders; order++)
        s->nodes[s->by_order[order]].order = order;
    return STATUS_OK;
}

enum status special_tokens_open(struct special_tokens *s, const struct vocab *vocab,
                                bool only_user_defined, const char *path, struct error *err)
{
    *s = (struct special_tokens){0};
    enum status status = build(s, vocab, only_user_defined, path, err);
    if (status != STATUS_OK)
        special_tokens_close(s);
    return status;
}

void special_tokens_close(struct special_tokens *s)
{
    memory_free(s->nodes);
    memory_free(s->by_order);
    pair_map_done(&s->edges);
    *s = (struct special_tokens){0};
}

/* The node of the longest token that begins the text, or 0. */
static uint32_t longest_match(const struct special_tokens *s, const char *bytes, size_t n)
{
    uint32_t node = 0, best = 0;
    for (size_t i = 0; i < n && (node = child(s, node, bytes[i])) != NO_ID; i++)
        if (s->nodes[node].order != NO_ID)
            best = node;
    return best;
}

/* The longest token that is a proper prefix of this one, or 0. */
static uint32_t shorter(const struct special_tokens *s, uint32_t node)
{
    do
        node = s->nodes[node].parent;
    while (node && s->nodes[node].order == NO_ID);
    return node;
}

/* One heap entry per position where a token begins: that of the longest one. */
static bool find_candidates(const struct special_tokens *s, struct text text, struct min_heap *heap)
{
    for (size_t at = 0; at < text.n; at++) {
        if (!s->starts[(uint8_t)text.bytes[at]])
            continue;
        uint32_t node = longest_match(s, text.bytes + at, text.n - at);
        if (node && !min_heap_append(heap, (uint64_t)s->nodes[node].order << 32 | at))
            return false;
    }
    min_heap_order(heap);
    return true;
}

/* Takes candidates in order. One that meets a token already placed falls back to the next shorter
 * token at its position. All tokens placed so far are at least as long, so one that overlaps the
 * candidate without covering its first byte covers its last one: two looks decide. */
static bool place(const struct special_tokens *s, struct min_heap *heap, uint32_t *owners)
{
    while (heap->n) {
        uint64_t key = min_heap_pop(heap);
        uint32_t at = (uint32_t)key, first = s->by_order[key >> 32], node = first;
        if (owners[at])
            continue;
        while (node && owners[at + s->nodes[node].length - 1])
            node = shorter(s, node);
        if (node == first) {
            for (uint32_t i = 0; i < s->nodes[node].length; i++)
                owners[at + i] = node;
        } else if (node && !min_heap_push(heap, (uint64_t)s->nodes[node].order << 32 | at)) {
            return false;
        }
    }
    return true;
}

enum status special_tokens_cut(const struct special_tokens *s, struct text text, uint32_t **owners,
                               struct error *err)
{
    struct min_heap heap = {0};
    *owners = NULL;
    bool has_memory = find_candidates(s, text, &heap);
    if (has_memory && heap.n) {
        *owners = memory_alloc(text.n, sizeof **owners);
        has_memory = *owners && place(s, &heap, *owners);
    }
    min_heap_done(&heap);
    if (has_memory)
        return STATUS_OK;
    memory_free(*owners);
    *owners = NULL;
    return fail_memory(err, WHAT, text.n * sizeof **owners);
}
