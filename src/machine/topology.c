#include "machine/topology.h"

#include <errno.h>
#include <hwloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "machine/cpu_quota.h"

/* One usable physical core. */
struct core {
    hwloc_obj_t node; /* where it belongs; hwloc makes one node of a machine that tells of none */
    hwloc_obj_t obj;  /* the core, or its only CPU where cores are not told */
    int cpu0;         /* its first usable CPU */
    int n_cpus;       /* its usable CPUs */
};

/* What is gathered before nodes are made of it. */
struct survey {
    hwloc_topology_t hwloc; /* borrowed */
    hwloc_bitmap_t usable;  /* owned: CPUs that this process may use */
    hwloc_bitmap_t fast;    /* owned: those of the fast cores */
    struct core *cores;     /* owned: arena of the topology; by node, then by CPU */
    int n_cores;
};

static enum status fail_no_topology(const char *path, struct error *err)
{
    return fail(err, STATUS_FORMAT, "%s: no topology: expected an XML file as lstopo writes it",
                path);
}

/* Describes the source to hwloc. */
static enum status choose_source(hwloc_topology_t hwloc, const struct topology_source *source,
                                 struct error *err)
{
    if (source->synthetic && hwloc_topology_set_synthetic(hwloc, source->synthetic) != 0)
        return fail(err, STATUS_FORMAT,
                    "topology \"%s\": not a synthetic description of hwloc, as \"node:4 core:2 "
                    "pu:1\"",
                    source->synthetic);
    if (!source->xml || hwloc_topology_set_xml(hwloc, source->xml) == 0)
        return STATUS_OK;
    if (errno != EINVAL)
        return fail(err, STATUS_IO, "%s: cannot read the topology: %s", source->xml,
                    strerror(errno));
    return fail_no_topology(source->xml, err);
}

/* What may not be used stays in the topology, so that the distance to it is known: it is told apart
 * by the allowed sets. Discovery must not move this thread to other CPUs. */
static enum status load(struct topology *t, const struct topology_source *source, struct error *err)
{
    hwloc_topology_t hwloc;
    if (hwloc_topology_init(&hwloc) != 0)
        return fail_memory(err, "topology", sizeof *t);
    t->hwloc = hwloc;
    TRY(choose_source(hwloc, source, err));
    bool is_live = !source->synthetic && !source->xml;
    hwloc_topology_set_flags(hwloc, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED |
                                        (is_live ? HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING : 0ul));
    if (hwloc_topology_load(hwloc) != 0) {
        if (source->xml)
            return fail(err, STATUS_FORMAT,
                        "%s: no topology: expected an XML file as lstopo writes it", source->xml);
        return fail(err, STATUS_IO, "the topology of this machine cannot be read: %s",
                    strerror(errno));
    }
    t->is_this_machine = is_live && hwloc_topology_is_thissystem(hwloc);
    return STATUS_OK;
}

/* The CPUs of cpuset and affinity mask. The mask of all threads of the process together: the caller
 * may be pinned already. */
static enum status find_usable(const struct topology *t, struct survey *s, struct error *err)
{
    s->usable = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(s->hwloc));
    hwloc_bitmap_t mask = hwloc_bitmap_alloc();
    bool has_memory = s->usable && mask;
    if (has_memory && t->is_this_machine &&
        (hwloc_get_cpubind(s->hwloc, mask, HWLOC_CPUBIND_PROCESS) == 0 ||
         hwloc_get_cpubind(s->hwloc, mask, HWLOC_CPUBIND_THREAD) == 0))
        hwloc_bitmap_and(s->usable, s->usable, mask);
    hwloc_bitmap_free(mask);
    if (!has_memory)
        return fail_memory(err, "topology", sizeof *s);
    if (hwloc_bitmap_iszero(s->usable))
        return fail(err, STATUS_LIMIT,
                    "no CPU may be used: check the affinity mask and the cpuset "
                    "of this process");
    return STATUS_OK;
}

static const char *info_of(const struct hwloc_info_s *infos, unsigned n, const char *name)
{
    for (unsigned i = 0; i < n; i++)
        if (strcmp(infos[i].name, name) == 0)
            return infos[i].value;
    return NULL;
}

/* A kind of CPU, as hwloc tells it. */
struct cpu_kind {
    int efficiency; /* higher is faster; -1: unknown */
    const char *type, *max_mhz;
};

/* Is a core of this kind slow beside one of the fastest? hwloc also makes kinds of equal cores that
 * differ a little in frequency: the ones that boost highest must not count as the only fast ones. */
static bool is_slow_kind(const struct cpu_kind *kind, const struct cpu_kind *fastest)
{
    if (kind->efficiency < 0 || kind->efficiency >= fastest->efficiency)
        return false;
    if (kind->type && fastest->type)
        return strcmp(kind->type, fastest->type) != 0;
    if (kind->max_mhz && fastest->max_mhz)
        return strtod(kind->max_mhz, NULL) < 0.8 * strtod(fastest->max_mhz, NULL);
    return true;
}

/* The usable CPUs without those of slow kinds. */
static enum status find_fast(struct survey *s, struct error *err)
{
    s->fast = hwloc_bitmap_dup(s->usable);
    hwloc_bitmap_t members = hwloc_bitmap_alloc();
    struct cpu_kind fastest = {.efficiency = -1};
    /* Kinds are in order of efficiency. The fastest that counts is one that may be used. */
    for (int i = hwloc_cpukinds_get_nr(s->hwloc, 0) - 1; s->fast && members && i >= 0; i--) {
        struct cpu_kind kind;
        struct hwloc_info_s *infos;
        unsigned n_infos;
        if (hwloc_cpukinds_get_info(s->hwloc, (unsigned)i, members, &kind.efficiency, &n_infos,
                                    &infos, 0) != 0 ||
            !hwloc_bitmap_intersects(members, s->usable))
            continue;
        kind.type = info_of(infos, n_infos, "CoreType");
        kind.max_mhz = info_of(infos, n_infos, "FrequencyMaxMHz");
        if (fastest.efficiency < 0)
            fastest = kind;
        if (is_slow_kind(&kind, &fastest))
            hwloc_bitmap_andnot(s->fast, s->fast, members);
    }
    bool has_memory = s->fast && members;
    hwloc_bitmap_free(members);
    return has_memory ? STATUS_OK : fail_memory(err, "topology", sizeof *s);
}

/* The core of a CPU, or the CPU itself where cores are not told. */
static hwloc_obj_t core_of(hwloc_topology_t hwloc, hwloc_obj_t pu)
{
    hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(hwloc, HWLOC_OBJ_CORE, pu);
    return core ? core : pu;
}

/* The next core with a CPU in `set` after `core` (NULL: the first).
 * CPUs of a core follow each other in hwloc's logical order. */
static hwloc_obj_t next_core(hwloc_topology_t hwloc, hwloc_const_bitmap_t set, hwloc_obj_t core)
{
    hwloc_obj_t pu = NULL;
    if (core) /* go on behind its last CPU */
        for (pu = core; pu->last_child;)
            pu = pu->last_child;
    while ((pu = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_PU, pu)))
        if (hwloc_bitmap_isset(set, (int)pu->os_index))
            return core_of(hwloc, pu);
    return NULL;
}

/* The node beside a CPU: of those that name it the one with the fewest CPUs, then the lowest number.
 * Memory without CPUs of its own may name the CPUs of other nodes that use it. */
static hwloc_obj_t home_of(hwloc_topology_t hwloc, hwloc_obj_t core, int cpu)
{
    hwloc_obj_t home = NULL, node = NULL;
    while ((node = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, node))) {
        if (!hwloc_bitmap_isset(node->cpuset, cpu))
            continue;
        int order =
            home ? hwloc_bitmap_weight(node->cpuset) - hwloc_bitmap_weight(home->cpuset) : -1;
        if (order < 0 || (order == 0 && node->os_index < home->os_index))
            home = node;
    }
    int os_node = hwloc_bitmap_first(core->nodeset);
    if (!home && os_node >= 0)
        home = hwloc_get_numanode_obj_by_os_index(hwloc, (unsigned)os_node);
    return home ? home : hwloc_get_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, 0);
}

/* The first CPU of the core that is usable, after `cpu` (-1: the first); -1: no more. */
static int next_cpu(const struct survey *s, hwloc_obj_t core, int cpu)
{
    do
        cpu = hwloc_bitmap_next(core->cpuset, cpu);
    while (cpu >= 0 && !hwloc_bitmap_isset(s->fast, cpu));
    return cpu;
}

static int by_node_and_cpu(const void *a, const void *b)
{
    const struct core *x = a, *y = b;
    if (x->node != y->node)
        return x->node->os_index < y->node->os_index ? -1 : 1;
    return x->cpu0 - y->cpu0;
}

static enum status list_cores(struct topology *t, struct survey *s, struct error *err)
{
    int n_all = 0, n = 0;
    for (hwloc_obj_t c = NULL; (c = next_core(s->hwloc, s->usable, c));)
        n_all++;
    for (hwloc_obj_t c = NULL; (c = next_core(s->hwloc, s->fast, c));)
        n++;
    s->cores = arena_alloc(&t->arena, (size_t)n, sizeof *s->cores);
    if (!s->cores)
        return fail_memory(err, "topology", (size_t)n * sizeof *s->cores);
    for (hwloc_obj_t c = NULL; (c = next_core(s->hwloc, s->fast, c));) {
        struct core *core = &s->cores[s->n_cores++];
        core->obj = c;
        core->cpu0 = next_cpu(s, c, -1);
        core->node = home_of(s->hwloc, c, core->cpu0);
        for (int cpu = core->cpu0; cpu >= 0; cpu = next_cpu(s, c, cpu))
            core->n_cpus++;
        t->n_cpus += core->n_cpus;
    }
    qsort(s->cores, (size_t)n, sizeof *s->cores, by_node_and_cpu);
    t->n_cores = n;
    t->n_slow_cores = n_all - n;
    return STATUS_OK;
}

/* May this process put memory there? */
static bool has_memory(hwloc_topology_t hwloc, hwloc_obj_t node)
{
    return node->attr->numanode.local_memory > 0 &&
           hwloc_bitmap_isset(hwloc_topology_get_allowed_nodeset(hwloc), (int)node->os_index);
}

/* How far the memory of `to` is from `from`: by the firmware's table of distances; without one, the
 * deeper their common part of the machine, the nearer. */
static uint64_t distance(hwloc_topology_t hwloc, struct hwloc_distances_s *table, hwloc_obj_t from,
                         hwloc_obj_t to)
{
    hwloc_uint64_t there, back;
    if (table && hwloc_distances_obj_pair_values(table, from, to, &there, &back) == 0)
        return there;
    hwloc_obj_t common = hwloc_get_common_ancestor_obj(hwloc, from->parent, to->parent);
    return (uint64_t)(1000 - common->depth);
}

/* The nearest node with memory, ties in order of numbers; the node itself when none has any. */
static hwloc_obj_t memory_of(hwloc_topology_t hwloc, hwloc_obj_t node)
{
    if (has_memory(hwloc, node))
        return node;
    struct hwloc_distances_s *table = NULL;
    unsigned n = 1;
    hwloc_distances_get_by_type(hwloc, HWLOC_OBJ_NUMANODE, &n, &table,
                                HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0);
    hwloc_obj_t nearest = NULL, other = NULL;
    uint64_t least = 0;
    while ((other = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, other))) {
        if (!has_memory(hwloc, other))
            continue;
        uint64_t d = distance(hwloc, table, node, other);
        if (!nearest || d < least || (d == least && other->os_index < nearest->os_index)) {
            nearest = other;
            least = d;
        }
    }
    if (table)
        hwloc_distances_release(hwloc, table);
    return nearest ? nearest : node;
}

/* Makes a node of n cores that have it in common. */
static enum status make_node(struct topology *t, const struct survey *s, const struct core *cores,
                             int n, struct error *err)
{
    struct machine_node *node = &t->nodes[t->n_nodes++];
    node->n_cores = n;
    for (int i = 0; i < n; i++)
        if (cores[i].n_cpus > node->n_ways)
            node->n_ways = cores[i].n_cpus;
    int *cpus = arena_alloc(&t->arena, (size_t)n * (size_t)node->n_ways, sizeof *cpus);
    if (!cpus)
        return fail_memory(err, "topology", (size_t)n * (size_t)node->n_ways * sizeof *cpus);
    for (int i = 0; i < n; i++) {
        int cpu = cores[i].cpu0;
        for (int way = 0; way < node->n_ways; way++) {
            cpus[way * n + i] = cpu;
            cpu = cpu < 0 ? -1 : next_cpu(s, cores[i].obj, cpu);
        }
    }
    node->cpus = cpus;
    hwloc_obj_t memory = memory_of(s->hwloc, cores->node);
    node->os_node = (int)cores->node->os_index;
    node->memory_node = (int)memory->os_index;
    node->memory_bytes = memory->attr->numanode.local_memory;
    return STATUS_OK;
}

static enum status make_nodes(struct topology *t, const struct survey *s, struct error *err)
{
    int n_nodes = 0;
    for (int i = 0; i < s->n_cores; i++)
        n_nodes += i == 0 || s->cores[i].node != s->cores[i - 1].node;
    t->nodes = arena_alloc(&t->arena, (size_t)n_nodes, sizeof *t->nodes);
    if (!t->nodes)
        return fail_memory(err, "topology", (size_t)n_nodes * sizeof *t->nodes);
    for (int i = 0, n; i < s->n_cores; i += n) {
        for (n = 1; i + n < s->n_cores && s->cores[i + n].node == s->cores[i].node; n++)
            ;
        TRY(make_node(t, s, &s->cores[i], n, err));
    }
    return STATUS_OK;
}

/* Has the node of this number usable cores? */
static bool is_home(const struct topology *t, int os_node)
{
    for (int i = 0; i < t->n_nodes; i++)
        if (t->nodes[i].os_node == os_node)
            return true;
    return false;
}

static void sum_memory(struct topology *t)
{
    for (int i = 0; i < t->n_nodes; i++) {
        bool is_counted = false;
        for (int k = 0; k < i; k++)
            is_counted = is_counted || t->nodes[k].memory_node == t->nodes[i].memory_node;
        if (!is_counted)
            t->memory_bytes += t->nodes[i].memory_bytes;
    }
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(t->hwloc, HWLOC_OBJ_NUMANODE, node)))
        t->n_memory_only += has_memory(t->hwloc, node) && !is_home(t, (int)node->os_index);
}

/* The figure of a node may lack memory that was added to the running machine, as virtual machines
 * get it. With one node the total is its. */
static void find_added_memory(struct topology *t)
{
    uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    bool is_single = hwloc_get_nbobjs_by_type(t->hwloc, HWLOC_OBJ_NUMANODE) == 1;
    if (t->is_this_machine && is_single && bytes > t->memory_bytes)
        t->nodes[0].memory_bytes = t->memory_bytes = bytes;
}

/* Is a usable core of the node beside this cache? */
static bool is_beside(const struct machine_node *node, hwloc_obj_t cache)
{
    for (int i = 0; i < node->n_cores; i++)
        if (hwloc_bitmap_isset(cache->cpuset, node->cpus[i]))
            return true;
    return false;
}

/* Of the first core and the first node: the others are alike, or nothing better can be said. A cache
 * of several cores or nodes is theirs in equal parts. */
static void find_caches(struct topology *t, const struct survey *s)
{
    hwloc_obj_t cache =
        hwloc_get_ancestor_obj_by_type(s->hwloc, HWLOC_OBJ_L2CACHE, s->cores[0].obj);
    if (cache) {
        int n = hwloc_get_nbobjs_inside_cpuset_by_type(s->hwloc, cache->cpuset, HWLOC_OBJ_CORE);
        t->l2_bytes = cache->attr->cache.size / (uint64_t)(n > 0 ? n : 1);
    }
    cache = NULL;
    while ((cache = hwloc_get_next_obj_by_type(s->hwloc, HWLOC_OBJ_L3CACHE, cache))) {
        uint64_t n_nodes = 0;
        for (int i = 0; i < t->n_nodes; i++)
            n_nodes += is_beside(&t->nodes[i], cache);
        if (is_beside(&t->nodes[0], cache))
            t->l3_bytes += cache->attr->cache.size / n_nodes;
    }
}

static void find_name(struct topology *t)
{
    hwloc_obj_t package = hwloc_get_obj_by_type(t->hwloc, HWLOC_OBJ_PACKAGE, 0);
    const char *name = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
    if (!name)
        name = hwloc_obj_get_info_by_name(hwloc_get_root_obj(t->hwloc), "CPUModel");
    if (name)
        text_printable(text_of(name + strspn(name, " ")), t->cpu, sizeof t->cpu);
}

static void find_quota(struct topology *t, const struct topology_source *source)
{
    if (t->is_this_machine || source->cgroup_root || source->cgroup_self)
        t->quota = cpu_quota(source->cgroup_root, source->cgroup_self);
    t->n_usable = t->n_cores;
    if (t->quota > 0 && t->quota < t->n_cores)
        t->n_usable = t->quota < 1 ? 1 : (int)t->quota;
}

static enum status survey(struct topology *t, struct survey *s, struct error *err)
{
    TRY(find_usable(t, s, err));
    TRY(find_fast(s, err));
    TRY(list_cores(t, s, err));
    TRY(make_nodes(t, s, err));
    sum_memory(t);
    find_added_memory(t);
    find_caches(t, s);
    find_name(t);
    return STATUS_OK;
}

enum status topology_read(struct topology *topology, const struct topology_source *source,
                          struct error *err)
{
    static const struct topology_source here;
    if (!source)
        source = &here;
    *topology = (struct topology){0};
    enum status status = load(topology, source, err);
    struct survey s = {.hwloc = topology->hwloc};
    if (status == STATUS_OK)
        status = survey(topology, &s, err);
    if (status == STATUS_OK)
        find_quota(topology, source);
    hwloc_bitmap_free(s.usable);
    hwloc_bitmap_free(s.fast);
    if (status != STATUS_OK)
        topology_done(topology);
    return status;
}

void topology_done(struct topology *topology)
{
    if (topology->hwloc)
        hwloc_topology_destroy(topology->hwloc);
    arena_done(&topology->arena);
    *topology = (struct topology){0};
}
