/* Arenas of node memory: exact sizes, clear refusals, and pages that are reported where they are.
 * What needs several nodes is in tests/numa. */
#include <errno.h>
#include <hwloc.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../support.h"
#include "machine/node_memory.h"

#define MIB ((uint64_t)1 << 20)

/* This machine with a layout of one thread, which is where the test runs: beside memory. */
struct fixture {
    struct topology topology;
    struct team_layout layout;
    struct team_node node;
    int cpu;
};

/* The first node that has memory and CPUs. */
static hwloc_obj_t first_node(hwloc_topology_t hwloc)
{
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, node)))
        if (node->attr->numanode.local_memory > 0 && !hwloc_bitmap_iszero(node->cpuset))
            return node;
    return NULL;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    hwloc_topology_t hwloc;
    if (!f || hwloc_topology_init(&hwloc) != 0 || hwloc_topology_load(hwloc) != 0)
        return -1;
    hwloc_obj_t first = first_node(hwloc);
    if (!first || hwloc_set_cpubind(hwloc, first->cpuset, HWLOC_CPUBIND_PROCESS) != 0)
        return -1;
    int node = (int)first->os_index;
    f->cpu = hwloc_bitmap_first(first->cpuset);
    f->node = (struct team_node){.os_node = node, .memory_node = node, .n_threads = 1};
    f->topology = (struct topology){.n_nodes = 1, .hwloc = hwloc, .is_this_machine = true};
    f->layout =
        (struct team_layout){.n_nodes = 1, .n_threads = 1, .nodes = &f->node, .cpus = &f->cpu};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    hwloc_topology_destroy(f->topology.hwloc);
    free(f);
    return 0;
}

static enum status open_arena(const struct fixture *f, struct node_arena *arena, uint64_t bytes,
                              struct error *err)
{
    return node_arena_open(arena, &f->topology, &f->layout, MEMORY_LOCAL, f->node.memory_node,
                           bytes, "weights", err);
}

static void test_arena_is_aligned_zeroed_and_rounded(void **state)
{
    struct node_arena arena;
    assert_int_equal(open_arena(*state, &arena, 3 * MIB + 1, NULL), STATUS_OK);
    assert_int_equal(arena.bytes, 4 * MIB);
    assert_int_equal((uintptr_t)arena.base % (2 * MIB), 0);
    uint64_t n_zero = 0;
    while (n_zero < arena.bytes && arena.base[n_zero] == 0)
        n_zero++;
    assert_int_equal(n_zero, arena.bytes);
    memset(arena.base, 1, arena.bytes);
    node_arena_close(&arena);
    assert_null(arena.base);
    node_arena_close(&arena);

    assert_int_equal(open_arena(*state, &arena, 0, NULL), STATUS_OK);
    assert_int_equal(arena.bytes, 2 * MIB);
    node_arena_close(&arena);
}

static void test_take_to_the_last_byte(void **state)
{
    struct node_arena arena;
    assert_int_equal(open_arena(*state, &arena, 2 * MIB, NULL), STATUS_OK);
    uint8_t *first = node_arena_take(&arena, 1), *second = node_arena_take(&arena, 65);
    uint8_t *empty = node_arena_take(&arena, 0), *rest = node_arena_take(&arena, 2 * MIB - 192);
    assert_ptr_equal(first, arena.base);
    assert_ptr_equal(second, arena.base + 64);
    assert_ptr_equal(empty, arena.base + 192);
    assert_ptr_equal(rest, arena.base + 192);
    assert_int_equal(arena.used, arena.bytes);
    node_arena_close(&arena);
}

/* Pages that the process has mapped, resident or not. */
static long mapped_pages(void)
{
    char *text = read_whole("/proc/self/statm", NULL);
    assert_non_null(text);
    long n = strtol(text, NULL, 10);
    free(text);
    return n;
}

/* Nothing stays mapped, neither the arena nor what was cut off to align it. */
static void test_close_unmaps_all(void **state)
{
    struct node_arena arena;
    unsigned char resident;
    mapped_pages(); /* what the C library keeps from the first call is not counted */
    long before = mapped_pages(), page = sysconf(_SC_PAGESIZE);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(open_arena(*state, &arena, 6 * MIB, NULL), STATUS_OK);
        if (!IS_SANITISED)
            assert_int_equal(mapped_pages() - before, 6 * (long)MIB / page);
        uint8_t *base = arena.base;
        node_arena_close(&arena);
        assert_int_equal(mincore(base, 1, &resident), -1);
        assert_int_equal(errno, ENOMEM);
    }
    if (!IS_SANITISED)
        assert_int_equal(mapped_pages(), before);
}

static void test_absurd_sizes_are_refused(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *mib;
    } cases[] = {
        {(uint64_t)1 << 47, "134217728"}, /* all addresses that a process has */
        {((uint64_t)1 << 62) + 1, "4398046511105"},
        {UINT64_MAX - 2 * MIB + 1, "17592186044414"},
        {UINT64_MAX, "17592186044416"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct node_arena arena;
        struct error err;
        char begin[64];
        snprintf(begin, sizeof begin, "weights: cannot map %s MiB", cases[i].mib);
        assert_int_equal(open_arena(*state, &arena, cases[i].bytes, &err), STATUS_MEMORY);
        assert_memory_equal(err.text, begin, strlen(begin));
        assert_null(strchr(err.text, '\n'));
        assert_null(arena.base);
        node_arena_close(&arena);
    }
}

static void test_mapping_can_be_made_to_fail(void **state)
{
    struct node_arena arena;
    struct error err;
    memory_fail_after(0);
    enum status status = open_arena(*state, &arena, MIB, &err);
    memory_fail_after(-1);
    assert_int_equal(status, STATUS_MEMORY);
    assert_null(arena.base);
}

/* Without binding an arena works the same: forbidden, a description of another machine, or no
 * machine at all. */
static void test_unbound_arena_works(void **state)
{
    struct fixture *f = *state;
    struct topology other = f->topology, none = {.is_this_machine = true};
    other.is_this_machine = false;
    for (int i = 0; i < 3; i++) {
        struct node_arena arena;
        const struct topology *topology = i == 0 ? &f->topology : i == 1 ? &other : &none;
        node_memory_forbid(i == 0);
        enum status status = node_arena_open(&arena, topology, &f->layout, MEMORY_INTERLEAVE, 0,
                                             2 * MIB, "cache", NULL);
        node_memory_forbid(false);
        assert_int_equal(status, STATUS_OK);
        assert_false(arena.is_bound);
        memset(arena.base, 1, arena.bytes);
        node_arena_close(&arena);
    }
}

/* True where the system tells where pages are, as containers may forbid. */
static bool is_told(void)
{
    static int touched = 1;
    const void *page = &touched;
    int node;
    return pages_where(&page, 1, &node);
}

/* Half the pages are touched: these are on the node of this CPU, the others nowhere. */
static void test_report_tells_touched_from_absent(void **state)
{
    struct fixture *f = *state;
    NEED(is_told() ? "" : NULL, "a system that allows move_pages");
    struct node_arena arena;
    assert_int_equal(open_arena(f, &arena, 8 * MIB, NULL), STATUS_OK);
    uint64_t n_pages = arena.bytes / (uint64_t)sysconf(_SC_PAGESIZE);
    struct page_report report = {0};
    page_report_add(&report, arena.base, arena.bytes, f->node.memory_node, UINT64_MAX);
    assert_true(report.is_known);
    assert_int_equal(report.n_sampled, n_pages);
    assert_int_equal(report.n_absent, n_pages);
    assert_int_equal(report.n_right, 0);

    memset(arena.base, 1, 4 * MIB);
    report = (struct page_report){0};
    page_report_add(&report, arena.base, arena.bytes, f->node.memory_node, UINT64_MAX);
    assert_int_equal(report.n_sampled, n_pages);
    assert_int_equal(report.n_absent, n_pages / 2);
    assert_int_equal(report.n_right, n_pages / 2);

    page_report_add(&report, arena.base, 4 * MIB, f->node.memory_node + 1, UINT64_MAX);
    assert_int_equal(report.n_sampled, n_pages + n_pages / 2);
    assert_int_equal(report.n_absent, n_pages / 2);
    assert_int_equal(report.n_right, n_pages / 2);
    node_arena_close(&arena);
}

static void test_samples_are_spread_over_all_pages(void **state)
{
    struct fixture *f = *state;
    NEED(is_told() ? "" : NULL, "a system that allows move_pages");
    struct node_arena arena;
    assert_int_equal(open_arena(f, &arena, 8 * MIB, NULL), STATUS_OK);
    memset(arena.base + 6 * MIB, 1, 2 * MIB);
    struct page_report report = {0};
    page_report_add(&report, arena.base, arena.bytes, f->node.memory_node, 700);
    assert_int_equal(report.n_sampled, 700);
    assert_int_equal(report.n_right, 175);
    assert_int_equal(report.n_absent, 525);

    report = (struct page_report){0};
    page_report_add(&report, arena.base, 0, f->node.memory_node, 700);
    assert_int_equal(report.n_sampled, 0);
    page_report_add(&report, arena.base + 6 * MIB - 1, 2, f->node.memory_node, 700);
    assert_int_equal(report.n_sampled, 2); /* the last absent page and the first that is there */
    assert_int_equal(report.n_absent, 1);
    assert_int_equal(report.n_right, 1);
    node_arena_close(&arena);
}

static void test_migrated_pages_are_those_of_the_kernel(void **state)
{
    (void)state;
    struct outcome told = run_command("sed -n 's/^numa_pages_migrated //p' /proc/vmstat");
    int64_t n = pages_migrated();
    if (told.out[0])
        assert_in_range(n, strtoll(told.out, NULL, 10), INT64_MAX);
    else
        assert_int_equal(n, -1);
    outcome_done(&told);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena_is_aligned_zeroed_and_rounded),
        cmocka_unit_test(test_take_to_the_last_byte),
        cmocka_unit_test(test_close_unmaps_all),
        cmocka_unit_test(test_absurd_sizes_are_refused),
        cmocka_unit_test(test_mapping_can_be_made_to_fail),
        cmocka_unit_test(test_unbound_arena_works),
        cmocka_unit_test(test_report_tells_touched_from_absent),
        cmocka_unit_test(test_samples_are_spread_over_all_pages),
        cmocka_unit_test(test_migrated_pages_are_those_of_the_kernel),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
