/* Topology, placement and pinning on a machine that really has several nodes: scripts/check_numa
 * starts such machines and says with --nodes CPUS/MIB,CPUS/MIB,... what they are like. CPUs are
 * numbered node by node. Without --nodes everything is skipped. */
#include "../support.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "machine/node_memory.h"
#include "machine/thread_team.h"

#define MIB       ((uint64_t)1 << 20)
#define MAX_NODES 16
#define CGROUP    "/sys/fs/cgroup/"

/* What the machine was started with. */
static struct {
    int n_nodes, n_cpus, n_with_memory;
    int cpu0[MAX_NODES], n_node_cpus[MAX_NODES];
    uint64_t mib[MAX_NODES];
} machine;

static void parse_nodes(int argc, char **argv)
{
    const char *text = "";
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], "--nodes") == 0)
            text = argv[i + 1];
    int n_cpus, length;
    uint64_t mib;
    while (machine.n_nodes < MAX_NODES &&
           sscanf(text, "%d/%" SCNu64 "%n", &n_cpus, &mib, &length) == 2) {
        int node = machine.n_nodes++;
        machine.cpu0[node] = machine.n_cpus;
        machine.n_node_cpus[node] = n_cpus;
        machine.mib[node] = mib;
        machine.n_cpus += n_cpus;
        machine.n_with_memory += mib > 0;
        text += length + (text[length] == ',');
    }
    if (text[0]) {
        print_error("--nodes: cannot read \"%s\"\n", text);
        exit(2);
    }
}

/* The topology and the default layout, as the engine would make them. */
struct fixture {
    struct topology topology;
    struct team_layout layout;
};

static void fixture_open(struct fixture *f)
{
    struct error err;
    *f = (struct fixture){0};
    if (topology_read(&f->topology, &(struct topology_source){0}, &err) != STATUS_OK ||
        team_layout_make(&f->layout, &f->topology, &(struct team_request){0}, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static void fixture_close(struct fixture *f)
{
    team_layout_done(&f->layout);
    topology_done(&f->topology);
}

#define NEED_NODES() NEED(machine.n_nodes ? "" : NULL, "a machine of scripts/check_numa")

static void test_topology_is_as_given(void **state)
{
    (void)state;
    NEED_NODES();
    struct fixture f;
    fixture_open(&f);
    assert_true(f.topology.is_this_machine);
    assert_int_equal(f.topology.n_nodes, machine.n_nodes);
    assert_int_equal(f.topology.n_cores, machine.n_cpus);
    for (int i = 0; i < machine.n_nodes; i++) {
        const struct machine_node *node = &f.topology.nodes[i];
        assert_int_equal(node->os_node, i);
        assert_int_equal(node->n_cores, machine.n_node_cpus[i]);
        for (int k = 0; k < node->n_cores; k++)
            assert_int_equal(node->cpus[k], machine.cpu0[i] + k);
        assert_in_range(node->memory_node, 0, machine.n_nodes - 1);
        if (machine.mib[i])
            assert_int_equal(node->memory_node, i);
        uint64_t mib = machine.mib[node->memory_node]; /* not 0: the next line */
        assert_in_range(node->memory_bytes, mib * MIB / 2 + 1, mib * MIB);
    }
    fixture_close(&f);
}

/* The numbers of pages on each node that the kernel lists for the mapping at `base`, and its policy:
 * a second witness beside move_pages. */
static void read_numa_maps(const void *base, uint64_t *pages, char *policy)
{
    FILE *f = fopen("/proc/self/numa_maps", "r");
    assert_non_null(f);
    char line[1024] = "", word[64];
    bool is_found = false;
    while (!is_found && fgets(line, sizeof line, f))
        is_found = (uintptr_t)strtoull(line, NULL, 16) == (uintptr_t)base;
    fclose(f);
    assert_true(is_found);
    assert_int_equal(sscanf(line, "%*s %63s", policy), 1);
    for (int i = 0; i < machine.n_nodes; i++) {
        snprintf(word, sizeof word, " N%d=", i);
        const char *at = strstr(line, word);
        pages[i] = at ? strtoull(at + strlen(word), NULL, 10) : 0;
    }
}

static void assert_all_on(const struct node_arena *arena, int memory_node)
{
    struct page_report report = {0};
    page_report_add(&report, arena->base, arena->bytes, memory_node, UINT64_MAX);
    assert_true(report.is_known);
    assert_int_equal(report.n_absent, 0);
    assert_int_equal(report.n_sampled, arena->bytes / (uint64_t)sysconf(_SC_PAGESIZE));
    assert_int_equal(report.n_right, report.n_sampled);
}

static void pin(int cpu)
{
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(cpu, &own);
    assert_int_equal(sched_setaffinity(0, sizeof own, &own), 0);
}

static void unpin(void)
{
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int i = 0; i < machine.n_cpus; i++)
        CPU_SET(i, &all);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

/* Every node's memory, touched from CPU 0. */
static void test_local_places_every_page(void **state)
{
    (void)state;
    NEED_NODES();
    struct fixture f;
    fixture_open(&f);
    pin(0);
    for (int node = 0; node < machine.n_nodes; node++) {
        struct node_arena arena;
        int memory_node = f.topology.nodes[node].memory_node;
        assert_int_equal(node_arena_open(&arena, &f.topology, &f.layout, MEMORY_LOCAL, memory_node,
                                         16 * MIB, "local", NULL),
                         STATUS_OK);
        assert_true(arena.is_bound);
        memset(arena.base, 1, arena.bytes);
        assert_all_on(&arena, memory_node);
        uint64_t pages[MAX_NODES];
        char policy[64];
        read_numa_maps(arena.base, pages, policy);
        for (int i = 0; i < machine.n_nodes; i++)
            assert_int_equal(pages[i] > 0, i == memory_node);
        assert_memory_equal(policy, "prefer", 6);
        node_arena_close(&arena);
    }
    unpin();
    fixture_close(&f);
}

/* 2 MiB pages go round: nodes differ by one of them at most. */
static void test_interleave_spreads_evenly(void **state)
{
    (void)state;
    NEED_NODES();
    struct fixture f;
    fixture_open(&f);
    struct node_arena arena;
    assert_int_equal(node_arena_open(&arena, &f.topology, &f.layout, MEMORY_INTERLEAVE, 0, 50 * MIB,
                                     "interleaved", NULL),
                     STATUS_OK);
    assert_true(arena.is_bound);
    memset(arena.base, 1, arena.bytes);
    uint64_t n[MAX_NODES] = {0}, page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    for (uint64_t at = 0; at < arena.bytes; at += page_bytes) {
        const void *page = arena.base + at;
        int node;
        assert_true(pages_where(&page, 1, &node));
        assert_in_range(node, 0, machine.n_nodes - 1);
        n[node]++;
    }
    uint64_t share = 50 * MIB / page_bytes / (uint64_t)machine.n_with_memory;
    for (int i = 0; i < machine.n_nodes; i++)
        if (machine.mib[i])
            assert_in_range(n[i], share - 2 * MIB / page_bytes, share + 2 * MIB / page_bytes);
        else
            assert_int_equal(n[i], 0);
    node_arena_close(&arena);
    fixture_close(&f);
}

/* More than the node has: the rest lies elsewhere, is reported so, and nobody is killed. */
static void test_full_node_spills_over(void **state)
{
    (void)state;
    NEED_NODES();
    struct fixture f;
    fixture_open(&f);
    int node = machine.n_nodes - 1;
    while (!machine.mib[node])
        node--;
    struct node_arena arena;
    assert_int_equal(node_arena_open(&arena, &f.topology, &f.layout, MEMORY_LOCAL, node,
                                     (machine.mib[node] + 32) * MIB, "large", NULL),
                     STATUS_OK);
    assert_true(arena.is_bound);
    memset(arena.base, 1, arena.bytes);
    struct page_report report = {0};
    page_report_add(&report, arena.base, arena.bytes, node, 4096);
    assert_int_equal(report.n_sampled, 4096);
    assert_int_equal(report.n_absent, 0);
    assert_in_range(report.n_right, 4096 / 2, 4096 - 4096 * 32 / (machine.mib[node] + 32));
    node_arena_close(&arena);
    fixture_close(&f);
}

struct touch {
    struct node_arena *arenas;
    int cpus[MAX_NODES * 64], nodes[MAX_NODES * 64]; /* where each thread found itself */
};

static void touch_own(void *context, const struct team_member *me)
{
    struct touch *touch = context;
    unsigned cpu, node;
    if (getcpu(&cpu, &node) == 0) {
        touch->cpus[me->index] = (int)cpu;
        touch->nodes[me->index] = (int)node;
    }
    if (me->in_node == 0)
        memset(touch->arenas[me->node].base, 1, touch->arenas[me->node].bytes);
}

/* Where binding is forbidden, pages lie beside the pinned thread that touches them first. */
static void test_first_touch_by_pinned_threads(void **state)
{
    (void)state;
    NEED_NODES();
    struct fixture f;
    fixture_open(&f);
    struct node_arena arenas[MAX_NODES];
    struct touch touch = {.arenas = arenas};
    node_memory_forbid(true);
    for (int i = 0; i < f.layout.n_nodes; i++) {
        assert_int_equal(node_arena_open(&arenas[i], &f.topology, &f.layout, MEMORY_LOCAL,
                                         f.layout.nodes[i].memory_node, 8 * MIB, "touched", NULL),
                         STATUS_OK);
        assert_false(arenas[i].is_bound);
    }
    node_memory_forbid(false);
    struct thread_team *team;
    assert_int_equal(team_open(&team, &f.layout, true, NULL), STATUS_OK);
    assert_true(team_is_pinned(team));
    team_run(team, touch_own, &touch);
    team_close(team);

    assert_int_equal(f.layout.n_nodes, machine.n_nodes);
    for (int i = 0; i < f.layout.n_nodes; i++) {
        const struct team_node *node = &f.layout.nodes[i];
        for (int t = node->thread0; t < node->thread0 + node->n_threads; t++) {
            assert_int_equal(touch.cpus[t], f.layout.cpus[t]);
            assert_int_equal(touch.nodes[t], node->os_node);
        }
        if (machine.mib[node->os_node]) /* otherwise the kernel's choice of equally near ones */
            assert_all_on(&arenas[i], node->os_node);
        node_arena_close(&arenas[i]);
    }
    fixture_close(&f);
}

/* The process may use the last CPU of node 0 and the first of node 1. */
static void assert_two_cpus(void)
{
    struct fixture f;
    fixture_open(&f);
    int last = machine.cpu0[1] - 1, first = machine.cpu0[1];
    assert_int_equal(f.topology.n_nodes, 2);
    assert_int_equal(f.topology.n_cores, 2);
    assert_int_equal(f.layout.n_nodes, 2);
    assert_int_equal(f.layout.n_threads, 2);
    assert_int_equal(f.layout.nodes[0].os_node, 0);
    assert_int_equal(f.layout.nodes[1].os_node, 1);
    assert_int_equal(f.layout.cpus[0], last);
    assert_int_equal(f.layout.cpus[1], first);
    struct node_arena arena;
    assert_int_equal(
        node_arena_open(&arena, &f.topology, &f.layout, MEMORY_LOCAL, 1, 4 * MIB, "local", NULL),
        STATUS_OK);
    assert_true(arena.is_bound);
    memset(arena.base, 1, arena.bytes);
    assert_all_on(&arena, 1);
    node_arena_close(&arena);
    fixture_close(&f);
}

static void test_affinity_restricts_the_layout(void **state)
{
    (void)state;
    NEED_NODES();
    cpu_set_t two;
    CPU_ZERO(&two);
    CPU_SET(machine.cpu0[1] - 1, &two);
    CPU_SET(machine.cpu0[1], &two);
    assert_int_equal(sched_setaffinity(0, sizeof two, &two), 0);
    assert_two_cpus();
    unpin();
}

static void write_text(const char *path, const char *text)
{
    write_whole(path, text, strlen(text));
}

/* Last, as the process leaves the group only if all went well. */
static void test_cpuset_restricts_the_layout(void **state)
{
    (void)state;
    NEED_NODES();
    char cpus[32], process[32];
    snprintf(cpus, sizeof cpus, "%d-%d", machine.cpu0[1] - 1, machine.cpu0[1]);
    snprintf(process, sizeof process, "%ld", (long)getpid());
    struct outcome made = run_command("mkdir " CGROUP "two");
    assert_int_equal(made.status, 0);
    outcome_done(&made);
    write_text(CGROUP "two/cpuset.cpus", cpus);
    write_text(CGROUP "two/cpuset.mems", "0-1");
    write_text(CGROUP "two/cgroup.procs", process);
    assert_two_cpus();
    write_text(CGROUP "cgroup.procs", process);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    parse_nodes(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_topology_is_as_given),
        cmocka_unit_test(test_local_places_every_page),
        cmocka_unit_test(test_interleave_spreads_evenly),
        cmocka_unit_test(test_full_node_spills_over),
        cmocka_unit_test(test_first_touch_by_pinned_threads),
        cmocka_unit_test(test_affinity_restricts_the_layout),
        cmocka_unit_test(test_cpuset_restricts_the_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
