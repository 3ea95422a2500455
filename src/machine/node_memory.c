#include "machine/node_memory.h"

#include <assert.h>
#include <hwloc.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_BYTES ((uint64_t)2 << 20)

static bool is_binding_forbidden;

void node_memory_forbid(bool is_forbidden)
{
    is_binding_forbidden = is_forbidden;
}

/* A mapping counts as one allocation, so that memory_fail_after reaches it too. */
static bool may_map(void)
{
    void *token = memory_alloc(1, 1);
    memory_free(token);
    return token != NULL;
}

/* `bytes` (a multiple of 2 MiB) of zero pages, aligned to 2 MiB; NULL when there is no room. Not
 * MAP_NORESERVE: a size that the machine cannot hold is refused here, not by a signal when the pages
 * are touched. */
static uint8_t *map_aligned(uint64_t bytes)
{
    uint64_t mapped_bytes;
    if (__builtin_add_overflow(bytes, HUGE_BYTES, &mapped_bytes) || !may_map())
        return NULL;
    uint8_t *mapped =
        mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
        return NULL;
    uint64_t head = -(uintptr_t)mapped & (HUGE_BYTES - 1), tail = HUGE_BYTES - head;
    if (head)
        munmap(mapped, head);
    if (tail)
        munmap(mapped + head + bytes, tail);
    return mapped + head;
}

/* True when there is a choice of nodes and the kernel may be asked for one. */
static bool is_bindable(const struct topology *topology)
{
    return !is_binding_forbidden && topology->is_this_machine && topology->hwloc &&
           hwloc_get_nbobjs_by_type(topology->hwloc, HWLOC_OBJ_NUMANODE) > 1;
}

/* The nodes that the arena's pages may lie on. False when there is no memory for the set. */
static bool fill_node_set(hwloc_bitmap_t set, const struct node_arena *arena,
                          const struct team_layout *layout)
{
    if (arena->policy == MEMORY_LOCAL)
        return hwloc_bitmap_only(set, (unsigned)arena->memory_node) == 0;
    for (int i = 0; i < layout->n_nodes; i++)
        if (hwloc_bitmap_set(set, (unsigned)layout->nodes[i].memory_node) != 0)
            return false;
    return true;
}

/* Asks the kernel for the arena's nodes; false when it refuses (EPERM and ENOSYS in containers).
 * Not HWLOC_MEMBIND_STRICT: a node that is full then spills over to others, which page_report
 * shows; bound strictly, the process would be killed although the machine has memory. */
static bool bind_pages(const struct node_arena *arena, const struct topology *topology,
                       const struct team_layout *layout)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (!set)
        return false;
    hwloc_membind_policy_t policy =
        arena->policy == MEMORY_LOCAL ? HWLOC_MEMBIND_BIND : HWLOC_MEMBIND_INTERLEAVE;
    bool is_bound = fill_node_set(set, arena, layout) &&
                    hwloc_set_area_membind(topology->hwloc, arena->base, arena->bytes, set, policy,
                                           HWLOC_MEMBIND_BYNODESET) == 0;
    hwloc_bitmap_free(set);
    return is_bound;
}

enum status node_arena_open(struct node_arena *arena, const struct topology *topology,
                            const struct team_layout *layout, enum memory_policy policy,
                            int memory_node, uint64_t bytes, const char *name, struct error *err)
{
    *arena = (struct node_arena){.policy = policy, .memory_node = memory_node};
    uint64_t n_huge = bytes / HUGE_BYTES + (bytes % HUGE_BYTES || !bytes);
    uint64_t rounded;
    if (!__builtin_mul_overflow(n_huge, HUGE_BYTES, &rounded))
        arena->base = map_aligned(rounded);
    if (!arena->base)
        return fail(err, STATUS_MEMORY,
                    "%s: cannot map %llu MiB; free memory, or use a smaller model or context", name,
                    (unsigned long long)(bytes / (1 << 20) + (bytes % (1 << 20) != 0)));
    arena->bytes = rounded;
    /* Kernels without transparent huge pages refuse: the pages are small then. */
    madvise(arena->base, arena->bytes, MADV_HUGEPAGE);
    arena->is_bound = is_bindable(topology) && bind_pages(arena, topology, layout);
    return STATUS_OK;
}

void *node_arena_take(struct node_arena *arena, uint64_t bytes)
{
    uint64_t rounded = node_arena_round(bytes);
    assert(rounded >= bytes && rounded <= arena->bytes - arena->used);
    void *block = arena->base + arena->used;
    arena->used += rounded;
    return block;
}

void node_arena_close(struct node_arena *arena)
{
    if (arena->base)
        munmap(arena->base, arena->bytes);
    *arena = (struct node_arena){0};
}
