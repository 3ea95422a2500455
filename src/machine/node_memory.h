/* Memory on a chosen node. Sizes are known before anything is taken: an arena is one mapping of a
 * fixed size, whose pages belong to one node or are spread over all. */
#ifndef TRINE_MACHINE_NODE_MEMORY_H
#define TRINE_MACHINE_NODE_MEMORY_H

#include "machine/topology.h"

/* LOCAL: on the given node. INTERLEAVE: page by page over all nodes of the layout. */
enum memory_policy { MEMORY_LOCAL, MEMORY_INTERLEAVE };

struct node_arena {
    uint8_t *base; /* owned: mmap, zero pages, 2 MiB aligned, transparent huge pages advised */
    uint64_t bytes, used;
    int memory_node; /* OS number; LOCAL */
    enum memory_policy policy;
    bool is_bound; /* false: the kernel forbids memory policies or there is nothing to bind: pages
                      belong to whoever touches them first, so a thread of the node has to */
};

/* Maps `bytes` (rounded up to 2 MiB) for memory_node. The layout gives the nodes of INTERLEAVE.
 * Bound pages go to other nodes only when theirs is full; the kernel's NUMA balancing leaves them.
 * errors  MEMORY: "NAME: cannot map N MiB" */
enum status node_arena_open(struct node_arena *arena, const struct topology *topology,
                            const struct team_layout *layout, enum memory_policy policy,
                            int memory_node, uint64_t bytes, const char *name, struct error *err);

/* The next `bytes`, aligned to 64; the caller has counted: never beyond the arena (asserted). */
void *node_arena_take(struct node_arena *arena, uint64_t bytes);

/* Accepts a zeroed object. */
void node_arena_close(struct node_arena *arena);

/* Bytes that node_arena_take uses for a request of that size. */
static inline uint64_t node_arena_round(uint64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Where pages lie, from samples at equal distances (at most max_samples). */
struct page_report {
    uint64_t n_sampled;
    uint64_t n_right;  /* on the node they should be on */
    uint64_t n_absent; /* never touched, or not told; see pages_where */
    bool is_known;     /* false: the system does not tell (move_pages forbidden) */
};
void page_report_add(struct page_report *report, const void *begin, uint64_t bytes, int memory_node,
                     uint64_t max_samples);

/* NUMA node of each of n pages; -1: never touched, or unknown. False when the system does not tell
 * at all. Linux 6.1 to 6.5 do not tell of pages that NUMA balancing watches at the moment: any that
 * are not bound. */
bool pages_where(const void *const *pages, int n, int *nodes);

/* Pages that the kernel's NUMA balancing has moved since it started, on the whole machine; -1: not
 * told. The difference of two calls is what happened during a run. */
int64_t pages_migrated(void);

/* Makes binding fail as in a container that forbids it. For tests. */
void node_memory_forbid(bool is_forbidden);

#endif
