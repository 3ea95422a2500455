#include "tokenizer/pair_merge.h"

#include "base/memory.h"

bool merger_reset(struct merger *m, size_t n)
{
    m->n = 0;
    m->heap.n = 0;
    if (n <= m->size)
        return true;
    if (n > UINT32_MAX / 2)
        return false;
    size_t size = n + n / 2 + 64;
    struct merge_symbol *symbols = memory_resize(m->symbols, size, sizeof *symbols);
    if (!symbols)
        return false;
    m->symbols = symbols;
    m->size = (uint32_t)size;
    return true;
}

void merger_add(struct merger *m, uint32_t start, uint32_t n, uint32_t id)
{
    uint32_t at = m->n++;
    m->symbols[at] = (struct merge_symbol){
        .start = start, .n = n, .id = id, .prev = at - 1, .next = NO_ID, .rank = NO_ID};
    if (at > 0)
        m->symbols[at - 1].next = at;
}

/* Looks the pair of a symbol and its neighbour up; its heap key goes to *key. False: no merge. */
static bool look_up(struct merger *m, uint32_t at, pair_rule *rule, const struct tokenizer *t,
                    const char *bytes, uint64_t *key)
{
    struct merge_symbol *left = &m->symbols[at];
    left->rank =
        left->next == NO_ID ? NO_ID : rule(t, bytes, left, &m->symbols[left->next], &left->result);
    *key = (uint64_t)left->rank << 32 | at;
    return left->rank != NO_ID;
}

/* Joins a symbol with its neighbour. */
static void join(struct merger *m, uint32_t at)
{
    struct merge_symbol *left = &m->symbols[at], *right = &m->symbols[left->next];
    left->id = left->result;
    left->n += right->n;
    left->next = right->next;
    right->n = 0;
    right->rank = NO_ID;
    if (left->next != NO_ID)
        m->symbols[left->next].prev = at;
}

bool merger_run(struct merger *m, pair_rule *rule, const struct tokenizer *t, const char *bytes)
{
    uint64_t key;
    for (uint32_t at = 0; at < m->n; at++)
        if (look_up(m, at, rule, t, bytes, &key) && !min_heap_append(&m->heap, key))
            return false;
    min_heap_order(&m->heap);
    while (m->heap.n) {
        key = min_heap_pop(&m->heap);
        uint32_t at = (uint32_t)key;
        /* An entry is stale if its pair has changed. If the new pair has the same rank, merging it
         * here is right all the same: rank and place are all that decides. */
        if (m->symbols[at].rank != key >> 32)
            continue;
        join(m, at);
        if (look_up(m, at, rule, t, bytes, &key) && !min_heap_push(&m->heap, key))
            return false;
        uint32_t prev = m->symbols[at].prev;
        if (prev != NO_ID && look_up(m, prev, rule, t, bytes, &key) &&
            !min_heap_push(&m->heap, key))
            return false;
    }
    return true;
}

void merger_done(struct merger *m)
{
    memory_free(m->symbols);
    min_heap_done(&m->heap);
    *m = (struct merger){0};
}
