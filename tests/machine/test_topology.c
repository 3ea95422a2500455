/* Topologies of other machines, from hwloc's synthetic descriptions and from XML, what this process
 * may use of this one, and the layouts of threads made of them. */
#include "../support.h"

#include <dirent.h>
#include <hwloc.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "machine/topology.h"

#define GIB      ((uint64_t)1 << 30)
#define MACHINES "tests/machine/machines/"

static struct topology read_synthetic(const char *text)
{
    struct topology t;
    struct error err;
    if (topology_read(&t, &(struct topology_source){.synthetic = text}, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_false(t.is_this_machine);
    return t;
}

static struct topology read_xml(const char *path)
{
    struct topology t;
    struct error err;
    if (topology_read(&t, &(struct topology_source){.xml = path}, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_false(t.is_this_machine);
    return t;
}

static struct team_layout make(const struct topology *t, struct team_request request)
{
    struct team_layout layout;
    struct error err;
    if (team_layout_make(&layout, t, &request, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return layout;
}

/* The CPUs of threads [thread0, thread0 + n), n numbers that end with -1. */
static void assert_cpus(const struct team_layout *layout, int thread0, const int *cpus)
{
    for (int i = 0; cpus[i] >= 0; i++)
        assert_int_equal(layout->cpus[thread0 + i], cpus[i]);
}
#define CPUS(...) ((const int[]){__VA_ARGS__, -1})

/* Two sockets, 4 nodes of 16 cores of 2 threads. hwloc numbers synthetic CPUs depth first. */
static void test_server(void **state)
{
    (void)state;
    struct topology t = read_synthetic("pack:2 node:2(memory=68719476736) l3:2(size=33554432) "
                                       "l2:8(size=1048576) core:1 pu:2");
    assert_int_equal(t.n_nodes, 4);
    assert_int_equal(t.n_cores, 64);
    assert_int_equal(t.n_cpus, 128);
    assert_int_equal(t.n_usable, 64);
    assert_int_equal(t.n_slow_cores, 0);
    assert_int_equal(t.n_memory_only, 0);
    assert_true(t.quota == 0);
    assert_true(t.memory_bytes == 256 * GIB);
    assert_true(t.l2_bytes == 1048576 && t.l3_bytes == 2 * 33554432);
    for (int n = 0; n < 4; n++) {
        const struct machine_node *node = &t.nodes[n];
        assert_int_equal(node->os_node, n);
        assert_int_equal(node->memory_node, n);
        assert_true(node->memory_bytes == 64 * GIB);
        assert_int_equal(node->n_cores, 16);
        assert_int_equal(node->n_ways, 2);
        for (int i = 0; i < 16; i++) {
            assert_int_equal(node->cpus[i], 32 * n + 2 * i);
            assert_int_equal(node->cpus[16 + i], 32 * n + 2 * i + 1);
        }
    }
    topology_done(&t);
}

/* A cache of several cores or nodes is theirs in equal parts. */
static void test_shared_caches(void **state)
{
    (void)state;
    struct topology t = read_synthetic("l3:1(size=33554432) node:2 l2:2(size=2097152) core:4 pu:1");
    assert_int_equal(t.n_nodes, 2);
    assert_true(t.l2_bytes == 2097152 / 4);
    assert_true(t.l3_bytes == 33554432 / 2);
    topology_done(&t);
}

/* One thread a core by default; the other CPUs of the cores only when there are more threads. */
static void test_server_layouts(void **state)
{
    (void)state;
    struct topology t = read_synthetic("pack:2 node:2 core:16 pu:2");
    struct team_layout l = make(&t, (struct team_request){0});
    assert_int_equal(l.n_nodes, 4);
    assert_int_equal(l.n_threads, 64);
    assert_false(l.is_virtual || l.is_oversubscribed);
    for (int i = 0; i < 64; i++)
        assert_int_equal(l.cpus[i], 2 * i);
    for (int n = 0; n < 4; n++) {
        assert_int_equal(l.nodes[n].os_node, n);
        assert_int_equal(l.nodes[n].thread0, 16 * n);
        assert_int_equal(l.nodes[n].n_threads, 16);
    }
    team_layout_done(&l);

    l = make(&t, (struct team_request){.n_nodes = 1}); /* no more than the cores of that node */
    assert_int_equal(l.n_threads, 16);
    assert_false(l.is_oversubscribed);
    team_layout_done(&l);

    l = make(&t, (struct team_request){.n_nodes = 1, .n_threads = 20});
    assert_true(l.is_oversubscribed);
    assert_cpus(&l, 14, CPUS(28, 30, 1, 3, 5, 7));
    team_layout_done(&l);

    l = make(&t, (struct team_request){.n_nodes = 2, .n_threads = 8}); /* spread over the cores */
    assert_cpus(&l, 0, CPUS(0, 8, 16, 24, 32, 40, 48, 56));
    team_layout_done(&l);

    l = make(&t, (struct team_request){.n_threads = 3}); /* at most as many nodes as threads */
    assert_int_equal(l.n_nodes, 3);
    assert_cpus(&l, 0, CPUS(0, 32, 64));
    team_layout_done(&l);

    t.n_usable = 2; /* a quota does not take nodes away from who asks for threads on each */
    l = make(&t, (struct team_request){.n_threads_a_node = 3});
    assert_int_equal(l.n_threads, 12);
    assert_int_equal(l.nodes[2].thread0, 6);
    team_layout_done(&l);
    topology_done(&t);
}

/* Case S14: four times as many threads as cores, each CPU gets as many. */
static void test_oversubscribed(void **state)
{
    (void)state;
    struct topology t = read_synthetic("node:2 core:2 pu:2");
    struct team_layout l = make(&t, (struct team_request){.n_threads = 16});
    assert_true(l.is_oversubscribed);
    assert_false(l.is_virtual);
    assert_int_equal(l.n_nodes, 2);
    assert_int_equal(l.nodes[1].thread0, 8);
    assert_cpus(&l, 0, CPUS(0, 2, 1, 3, 0, 2, 1, 3, 4, 6, 5, 7, 4, 6, 5, 7));
    team_layout_done(&l);
    l = make(&t, (struct team_request){.n_threads = 4});
    assert_false(l.is_oversubscribed);
    team_layout_done(&l);
    l = make(&t, (struct team_request){.n_threads = 5});
    assert_true(l.is_oversubscribed);
    team_layout_done(&l);
    topology_done(&t);
}

/* Fast cores only; the ones that boost highest are not the only fast ones. The P-cores have two
 * CPUs and 2 MiB of L2 each. */
static void test_hybrid_desktop(void **state)
{
    (void)state;
    struct topology t = read_xml(MACHINES "hybrid_desktop.xml");
    assert_int_equal(t.n_nodes, 1);
    assert_int_equal(t.n_cores, 4);
    assert_int_equal(t.n_slow_cores, 4);
    assert_int_equal(t.n_cpus, 8);
    assert_int_equal(t.n_usable, 4);
    assert_string_equal(t.cpu, "Hybrid desktop processor");
    assert_true(t.l2_bytes == 2 << 20 && t.l3_bytes == 24 << 20);
    struct team_layout l = make(&t, (struct team_request){.n_threads = 10});
    assert_cpus(&l, 0, CPUS(0, 2, 4, 6, 1, 3, 5, 7, 0, 2));
    team_layout_done(&l);
    topology_done(&t);
}

/* Where only slow cores may be used they are the fast ones. */
static void test_slow_cores_only(void **state)
{
    (void)state;
    static const char all[] = "allowed_cpuset=\"0x00000fff\"",
                      some[] = "allowed_cpuset=\"0x00000f00\"";
    size_t size;
    char *xml = read_whole(MACHINES "hybrid_desktop.xml", &size);
    assert_non_null(xml);
    char *mask = strstr(xml, all);
    assert_non_null(mask);
    memcpy(mask, some, strlen(some));
    write_whole(scratch_path("slow.xml"), xml, size);
    free(xml);
    struct topology t = read_xml(scratch_path("slow.xml"));
    assert_int_equal(t.n_cores, 4);
    assert_int_equal(t.n_slow_cores, 0);
    assert_int_equal(t.nodes[0].cpus[0], 8);
    assert_true(t.l2_bytes == (2 << 20) / 4);
    topology_done(&t);
}

/* Kinds that differ in frequency only: 5.1 and 5.7 GHz are one kind of core, 5.1 and 3.3 are not. */
static void test_kinds_by_frequency(void **state)
{
    (void)state;
    struct topology t = read_xml(MACHINES "favoured_cores.xml");
    assert_int_equal(t.n_cores, 4);
    assert_int_equal(t.n_slow_cores, 0);
    topology_done(&t);
    t = read_xml(MACHINES "dense_cores.xml");
    assert_int_equal(t.n_cores, 2);
    assert_int_equal(t.n_slow_cores, 2);
    assert_int_equal(t.nodes[0].cpus[1], 1);
    topology_done(&t);
}

static void test_gaps_in_node_numbers(void **state)
{
    (void)state;
    struct topology t = read_synthetic("node:3(indexes=9,2,5) core:2 pu:1");
    assert_int_equal(t.n_nodes, 3);
    static const int os_nodes[] = {2, 5, 9}, cpus[] = {2, 4, 0};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(t.nodes[i].os_node, os_nodes[i]);
        assert_int_equal(t.nodes[i].memory_node, os_nodes[i]);
        assert_int_equal(t.nodes[i].cpus[0], cpus[i]);
    }
    struct team_layout l = make(&t, (struct team_request){0});
    assert_int_equal(l.nodes[2].os_node, 9);
    assert_int_equal(l.nodes[2].memory_node, 9);
    assert_int_equal(l.nodes[2].thread0, 4);
    team_layout_done(&l);
    topology_done(&t);
}

/* Node 1 has no cores but names those of nodes 0 and 2, its users. */
static void test_memory_only_node(void **state)
{
    (void)state;
    struct topology t = read_xml(MACHINES "memory_only_node.xml");
    assert_int_equal(t.n_nodes, 2);
    assert_int_equal(t.n_memory_only, 1);
    assert_int_equal(t.nodes[0].os_node, 0);
    assert_int_equal(t.nodes[1].os_node, 2);
    assert_int_equal(t.nodes[1].memory_node, 2);
    assert_int_equal(t.nodes[1].cpus[0], 2);
    assert_true(t.memory_bytes == 128 * GIB); /* without the 128 GiB of node 1 */
    topology_done(&t);
}

/* Nodes 1 and 5 have no memory. By the table of distances node 4 is nearest to both; without the
 * table the node of the same package is. */
static void test_nodes_without_memory(void **state)
{
    (void)state;
    struct topology t = read_xml(MACHINES "cpu_only_nodes.xml");
    assert_int_equal(t.n_nodes, 4);
    assert_int_equal(t.nodes[1].os_node, 1);
    assert_int_equal(t.nodes[1].memory_node, 4);
    assert_int_equal(t.nodes[3].os_node, 5);
    assert_int_equal(t.nodes[3].memory_node, 4);
    assert_true(t.nodes[3].memory_bytes == 32 * GIB);
    assert_true(t.memory_bytes == 64 * GIB);
    assert_int_equal(t.n_memory_only, 0);
    topology_done(&t);

    size_t size;
    char *xml = read_whole(MACHINES "cpu_only_nodes.xml", &size);
    assert_non_null(xml);
    char *begin = strstr(xml, "<distances2"), *end = strstr(xml, "</distances2>");
    assert_true(begin && end);
    memset(begin, ' ', (size_t)(end - begin) + strlen("</distances2>"));
    const char *path = scratch_path("no_distances.xml");
    write_whole(path, xml, size);
    free(xml);
    t = read_xml(path);
    assert_int_equal(t.nodes[1].memory_node, 0);
    assert_int_equal(t.nodes[3].memory_node, 4);
    topology_done(&t);
}

/* A recorded cpuset: CPUs 1 and 3, memory of node 0. */
static void test_cpuset(void **state)
{
    (void)state;
    struct topology t = read_xml(MACHINES "container.xml");
    assert_int_equal(t.n_nodes, 2);
    assert_int_equal(t.n_cpus, 2);
    assert_int_equal(t.nodes[0].cpus[0], 1);
    assert_int_equal(t.nodes[1].cpus[0], 3);
    assert_int_equal(t.nodes[1].os_node, 1);
    assert_int_equal(t.nodes[1].memory_node, 0);
    assert_true(t.memory_bytes == 8 * GIB);
    struct team_layout l = make(&t, (struct team_request){.n_threads = 7});
    for (int i = 0; i < 7; i++)
        assert_int_equal(l.cpus[i], i < 4 ? 1 : 3);
    team_layout_done(&l);
    topology_done(&t);
}

static void test_one_core(void **state)
{
    (void)state;
    struct topology t = read_synthetic("core:1 pu:1");
    assert_int_equal(t.n_nodes, 1);
    assert_int_equal(t.n_cores, 1);
    assert_int_equal(t.n_usable, 1);
    assert_true(t.l2_bytes == 0 && t.l3_bytes == 0);
    struct team_layout l = make(&t, (struct team_request){0});
    assert_int_equal(l.n_threads, 1);
    assert_false(l.is_virtual || l.is_oversubscribed);
    team_layout_done(&l);
    l = make(&t, (struct team_request){.n_nodes = 3}); /* a thread for every node */
    assert_int_equal(l.n_threads, 3);
    assert_true(l.is_virtual && l.is_oversubscribed);
    assert_cpus(&l, 0, CPUS(0, 0, 0));
    team_layout_done(&l);
    topology_done(&t);
}

/* A machine that tells of CPUs only: each is a core. */
static void test_no_cores_told(void **state)
{
    (void)state;
    struct topology t = read_synthetic("node:2 pu:3");
    assert_int_equal(t.n_nodes, 2);
    assert_int_equal(t.n_cores, 6);
    assert_int_equal(t.nodes[1].cpus[2], 5);
    topology_done(&t);
}

/* A synthetic machine under a cpuset that leaves only the CPUs of `mask`. */
static struct topology read_masked(const char *text, unsigned long mask)
{
    const char *path = scratch_path("masked.xml");
    hwloc_topology_t hwloc;
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    assert_int_equal(hwloc_topology_init(&hwloc), 0);
    assert_int_equal(hwloc_topology_set_flags(hwloc, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED), 0);
    assert_int_equal(hwloc_topology_set_synthetic(hwloc, text), 0);
    assert_int_equal(hwloc_topology_load(hwloc), 0);
    hwloc_bitmap_from_ulong(cpus, mask);
    assert_int_equal(hwloc_topology_allow(hwloc, cpus, NULL, HWLOC_ALLOW_FLAG_CUSTOM), 0);
    assert_int_equal(hwloc_topology_export_xml(hwloc, path, 0), 0);
    hwloc_bitmap_free(cpus);
    hwloc_topology_destroy(hwloc);
    return read_xml(path);
}

/* CPU 1 of node 0, CPUs 2 and 3 of node 1: a free core comes before an even number of threads. */
static void test_uneven_nodes(void **state)
{
    (void)state;
    struct topology t = read_masked("node:2 core:2 pu:1", 0xe);
    assert_int_equal(t.nodes[0].n_cores, 1);
    assert_int_equal(t.nodes[1].n_cores, 2);
    struct team_layout l = make(&t, (struct team_request){0});
    assert_int_equal(l.n_threads, 3);
    assert_int_equal(l.nodes[0].n_threads, 1);
    assert_int_equal(l.nodes[1].n_threads, 2);
    assert_false(l.is_oversubscribed);
    assert_cpus(&l, 0, CPUS(1, 2, 3));
    team_layout_done(&l);
    l = make(&t, (struct team_request){.n_threads = 6}); /* as many on every CPU */
    assert_cpus(&l, 0, CPUS(1, 1, 2, 3, 2, 3));
    team_layout_done(&l);
    l = make(&t, (struct team_request){.n_nodes = 1}); /* the larger one */
    assert_int_equal(l.nodes[0].os_node, 1);
    assert_cpus(&l, 0, CPUS(2, 3));
    team_layout_done(&l);
    l = make(&t,
             (struct team_request){.n_threads_a_node = 2}); /* as asked, though node 0 is full */
    assert_true(l.is_oversubscribed);
    assert_cpus(&l, 0, CPUS(1, 1, 2, 3));
    team_layout_done(&l);
    l = make(&t, (struct team_request){.n_nodes = 3}); /* the larger one is split */
    assert_true(l.is_virtual);
    assert_int_equal(l.nodes[0].os_node, 0);
    assert_int_equal(l.nodes[1].os_node, 1);
    assert_int_equal(l.nodes[2].os_node, 1);
    assert_cpus(&l, 0, CPUS(1, 2, 3));
    team_layout_done(&l);
    topology_done(&t);
}

/* One core of two CPUs on node 0, three on node 1: a third thread of node 1 has a core of its own, a
 * second one of node 0 has not. */
static void test_cores_before_hyper_threads(void **state)
{
    (void)state;
    struct topology t = read_masked("node:2 core:3 pu:2", 0xfc3);
    assert_int_equal(t.nodes[0].n_cores, 1);
    assert_int_equal(t.nodes[1].n_cores, 3);
    struct team_layout l = make(&t, (struct team_request){.n_threads = 4});
    assert_false(l.is_oversubscribed);
    assert_cpus(&l, 0, CPUS(0, 6, 8, 10));
    team_layout_done(&l);
    l = make(&t, (struct team_request){.n_threads = 5});
    assert_cpus(&l, 0, CPUS(0, 1, 6, 8, 10));
    team_layout_done(&l);
    topology_done(&t);
}

/* 1 to 5 virtual nodes on 2 to 7 threads of a node of 4 cores: consecutive threads, shared evenly (but
 * 3 nodes have 1, 1 and 2 cores); as long as there are cores no two nodes share a CPU. */
static void test_virtual_nodes(void **state)
{
    (void)state;
    struct topology t = read_synthetic("node:1 core:4 pu:1");
    struct team_layout l;
    for (int n_nodes = 1; n_nodes <= 5; n_nodes++)
        for (int n_threads = n_nodes > 2 ? n_nodes : 2; n_threads <= 7; n_threads++) {
            l = make(&t, (struct team_request){.n_threads = n_threads, .n_nodes = n_nodes});
            assert_int_equal(l.is_virtual, n_nodes > 1);
            assert_int_equal(l.is_oversubscribed, n_threads > 4);
            int thread = 0, owner[4] = {-1, -1, -1, -1};
            for (int n = 0; n < n_nodes; n++) {
                assert_int_equal(l.nodes[n].os_node, 0);
                assert_int_equal(l.nodes[n].thread0, thread);
                assert_in_range(l.nodes[n].n_threads, n_threads / n_nodes,
                                (n_threads + n_nodes - 1) / n_nodes + (n_nodes == 3));
                for (int k = 0; k < l.nodes[n].n_threads; k++, thread++) {
                    int cpu = l.cpus[thread];
                    assert_in_range(cpu, 0, 3);
                    assert_true(n_nodes > 4 || owner[cpu] < 0 || owner[cpu] == n);
                    owner[cpu] = n;
                }
            }
            assert_int_equal(thread, n_threads);
            team_layout_done(&l);
        }
    l = make(&t, (struct team_request){.n_threads = 5, .n_nodes = 3}); /* cores 1, 1, 2 */
    assert_int_equal(l.nodes[2].n_threads, 2);
    assert_cpus(&l, 3, CPUS(2, 3));
    team_layout_done(&l);
    topology_done(&t);
}

/* Every node of the machine is split alike. */
static void test_virtual_nodes_of_two(void **state)
{
    (void)state;
    struct topology t = read_synthetic("node:2 core:4 pu:1");
    struct team_layout l = make(&t, (struct team_request){.n_nodes = 4});
    assert_true(l.is_virtual);
    for (int n = 0; n < 4; n++) {
        assert_int_equal(l.nodes[n].os_node, n / 2);
        assert_int_equal(l.nodes[n].thread0, 2 * n);
        assert_int_equal(l.nodes[n].n_threads, 2);
    }
    assert_cpus(&l, 0, CPUS(0, 1, 2, 3, 4, 5, 6, 7));
    team_layout_done(&l);
    topology_done(&t);
}

/* More virtual nodes than cores: those of one core use its CPUs in turn. */
static void test_virtual_nodes_on_one_core(void **state)
{
    (void)state;
    struct topology t = read_synthetic("core:2 pu:2");
    struct team_layout l = make(&t, (struct team_request){.n_nodes = 4});
    assert_cpus(&l, 0, CPUS(0, 2, 1, 3));
    team_layout_done(&l);
    topology_done(&t);
}

static void test_impossible_layouts(void **state)
{
    (void)state;
    static const struct {
        struct team_request request;
        enum status status;
        const char *text;
    } cases[] = {
        {{.n_threads = 2, .n_nodes = 3}, STATUS_LIMIT, "3 nodes"},
        {{.n_threads = 4097}, STATUS_LIMIT, "4096"},
        {{.n_threads_a_node = 1025, .n_nodes = 4}, STATUS_LIMIT, "4096"},
        {{.n_nodes = 5000}, STATUS_LIMIT, "4096"},
        {{.n_threads = 7, .n_threads_a_node = 2}, STATUS_USAGE, "2 on each"},
    };
    struct topology t = read_synthetic("node:4 core:2 pu:1");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct team_layout l;
        struct error err;
        assert_int_equal(team_layout_make(&l, &t, &cases[i].request, &err), cases[i].status);
        assert_non_null(strstr(err.text, cases[i].text));
        assert_null(l.cpus);
        team_layout_done(&l);
    }
    struct team_layout l = make(&t, (struct team_request){.n_threads_a_node = 1024});
    assert_int_equal(l.n_threads, 4096);
    team_layout_done(&l);
    topology_done(&t);
}

static void test_bad_sources(void **state)
{
    (void)state;
    static const char half[] =
        "<?xml version=\"1.0\"?><topology version=\"2.0\"><object type=\"Mach";
    struct topology t;
    struct error err;
    struct topology_source source = {.xml = scratch_path("none.xml")};
    assert_int_equal(topology_read(&t, &source, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "none.xml"));
    topology_done(&t); /* as after every failure, nothing is left */

    static const char *const broken[] = {"", "no XML at all", half, "<topology/>"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        source.xml = scratch_path("broken.xml");
        write_whole(source.xml, broken[i], strlen(broken[i]));
        assert_int_equal(topology_read(&t, &source, &err), STATUS_FORMAT);
        assert_non_null(strstr(err.text, "broken.xml"));
        assert_null(strchr(err.text, '\n'));
    }
    source = (struct topology_source){.synthetic = "node:two"};
    assert_int_equal(topology_read(&t, &source, &err), STATUS_FORMAT);
    assert_non_null(strstr(err.text, "node:two"));
}

static void test_this_machine(void **state)
{
    (void)state;
    struct topology t;
    struct error err;
    cpu_set_t mask;
    assert_int_equal(sched_getaffinity(0, sizeof mask, &mask), 0);
    assert_int_equal(topology_read(&t, NULL, &err), STATUS_OK);
    assert_true(t.is_this_machine);
    assert_non_null(t.hwloc);
    assert_in_range(t.n_cpus, 1, CPU_COUNT(&mask));
    assert_in_range(t.n_cores, 1, t.n_cpus);
    assert_in_range(t.n_usable, 1, t.n_cores);
    assert_in_range(t.memory_bytes, 1, UINT64_MAX);
    struct sysinfo info;
    assert_int_equal(sysinfo(&info), 0);
    if (t.n_nodes == 1 && t.n_memory_only == 0)
        assert_true(t.memory_bytes >= (uint64_t)info.totalram * info.mem_unit);
    topology_done(&t);
}

/* Threads of this process. An emulator has some of its own, whose affinity stays as it was. */
static int count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int n = 0;
    for (struct dirent *entry; tasks && (entry = readdir(tasks)) != NULL;)
        n += entry->d_name[0] != '.';
    if (tasks)
        closedir(tasks);
    return n;
}

/* Topology of this machine under an affinity mask; every CPU of the layout is in the mask. */
static void check_mask(const cpu_set_t *mask)
{
    struct topology t;
    struct error err;
    cpu_set_t before;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(sched_setaffinity(0, sizeof *mask, mask), 0);
    enum status status = topology_read(&t, NULL, &err);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(status, STATUS_OK);
    assert_in_range(t.n_cpus, 1, CPU_COUNT(mask));
    assert_in_range(t.n_cores, 1, CPU_COUNT(mask));
    struct team_layout l = make(&t, (struct team_request){.n_threads = 9});
    for (int i = 0; i < 9; i++)
        assert_true(CPU_ISSET(l.cpus[i], mask));
    team_layout_done(&l);
    l = make(&t, (struct team_request){0});
    assert_in_range(l.n_threads, 1, CPU_COUNT(mask));
    team_layout_done(&l);
    topology_done(&t);
}

/* Case S12: every second of the CPUs that may be used, the first one not; and only the last one. */
static void test_affinity_mask(void **state)
{
    (void)state;
    cpu_set_t all, half, last;
    int n = 0;
    CPU_ZERO(&half);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    NEED(CPU_COUNT(&all) > 1 ? "" : NULL, "two CPUs");
    NEED(count_threads() == 1 ? "" : NULL, "a process of one thread, which an emulator's is not");
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all))
            continue;
        CPU_ZERO(&last);
        CPU_SET(cpu, &last);
        if (n++ % 2)
            CPU_SET(cpu, &half);
    }
    check_mask(&half);
    check_mask(&last);
}

/* Every allocation of reading and laying out can fail; each time it says so and leaks nothing. */
static void test_out_of_memory(void **state)
{
    (void)state;
    static const struct topology_source sources[] = {{.synthetic = "node:4 core:16 pu:2"},
                                                     {.xml = MACHINES "cpu_only_nodes.xml"},
                                                     {.synthetic = "node:2 core:512 pu:4"}};
    static const struct team_request large = {.n_threads = 4096, .n_nodes = 64};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        enum status status = STATUS_MEMORY;
        int n_failed = 0;
        for (long n = 0; status == STATUS_MEMORY && n < 1000; n++) {
            struct topology t;
            struct team_layout l = {0};
            struct error err;
            memory_fail_after(n);
            status = topology_read(&t, &sources[i], &err);
            if (status == STATUS_OK)
                status = team_layout_make(&l, &t, &large, &err);
            memory_fail_after(-1);
            n_failed += status == STATUS_MEMORY;
            team_layout_done(&l);
            topology_done(&t);
        }
        assert_int_equal(status, STATUS_OK);
        assert_true(n_failed >= 4);
    }
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server),
        cmocka_unit_test(test_shared_caches),
        cmocka_unit_test(test_server_layouts),
        cmocka_unit_test(test_oversubscribed),
        cmocka_unit_test(test_hybrid_desktop),
        cmocka_unit_test(test_slow_cores_only),
        cmocka_unit_test(test_kinds_by_frequency),
        cmocka_unit_test(test_gaps_in_node_numbers),
        cmocka_unit_test(test_memory_only_node),
        cmocka_unit_test(test_nodes_without_memory),
        cmocka_unit_test(test_cpuset),
        cmocka_unit_test(test_one_core),
        cmocka_unit_test(test_no_cores_told),
        cmocka_unit_test(test_uneven_nodes),
        cmocka_unit_test(test_cores_before_hyper_threads),
        cmocka_unit_test(test_virtual_nodes),
        cmocka_unit_test(test_virtual_nodes_of_two),
        cmocka_unit_test(test_virtual_nodes_on_one_core),
        cmocka_unit_test(test_impossible_layouts),
        cmocka_unit_test(test_bad_sources),
        cmocka_unit_test(test_this_machine),
        cmocka_unit_test(test_affinity_mask),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
