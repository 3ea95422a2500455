/* The computer as the engine sees it: nodes with cores of their own and memory beside them.
 * Only what this process may use: the affinity mask, the cpuset and the CPU quota restrict it. */
#ifndef TRINE_MACHINE_TOPOLOGY_H
#define TRINE_MACHINE_TOPOLOGY_H

#include <stdbool.h>

#include "base/memory.h"

struct machine_node {
    int os_node;     /* its number in the operating system; numbers may have gaps */
    int memory_node; /* where memory for its cores is placed: os_node, or the nearest node with
                              memory where it has none */
    uint64_t memory_bytes; /* of memory_node */
    int n_cores;
    int n_ways;      /* CPUs (hyper-threads) of the core that has the most */
    const int *cpus; /* owned: arena; (n_ways, n_cores) OS numbers: first one CPU per physical core,
                        ascending, then the cores' other CPUs; -1: the core has no more */
};

struct topology {
    int n_nodes; /* nodes with at least one usable core */
    struct machine_node *nodes;
    int n_cores; /* of all nodes: physical cores that may be used; of hybrid CPUs the fast ones */
    int n_cpus;  /* CPUs of these cores (hyper-threads too) that may be used */
    int n_slow_cores;      /* of hybrid CPUs: usable cores that are left out */
    int n_memory_only;     /* nodes with memory and without usable cores */
    double quota;          /* CPUs worth of time that cgroups allow; 0: no limit */
    int n_usable;          /* threads to start by default: min(n_cores, floor(quota)), at least 1 */
    uint64_t memory_bytes; /* of the nodes' memory, each counted once */
    uint64_t l2_bytes;     /* of one core; 0: unknown */
    uint64_t l3_bytes;     /* of one node, all its caches together; 0: unknown */
    char cpu[64];          /* model name, or empty */
    void *hwloc;           /* owned: hwloc_topology_t; read-only after topology_read */
    bool is_this_machine;  /* false: from a text or a file, for tests: nothing can be bound */
    struct arena arena;
};

/* Where to read from; all NULL: this machine. */
struct topology_source {
    const char *synthetic;   /* hwloc's synthetic description, "node:4 core:2 pu:1" */
    const char *xml;         /* path of an XML file as lstopo writes it */
    const char *cgroup_root; /* instead of /sys/fs/cgroup */
    const char *cgroup_self; /* instead of /proc/self/cgroup */
};

/* The quota counts for this machine, or when the source says where cgroups are. NULL: this machine.
 * errors  IO, FORMAT: the source cannot be read; LIMIT: no CPU may be used; MEMORY */
enum status topology_read(struct topology *topology, const struct topology_source *source,
                          struct error *err);

/* Accepts a zeroed object. */
void topology_done(struct topology *topology);

/* Which threads run where. Threads of a node are consecutive. */
struct team_node {
    int os_node, memory_node; /* of a virtual node: those of the node it is a part of */
    int thread0, n_threads;   /* at least 1 */
};
struct team_layout {
    int n_nodes, n_threads;
    struct team_node *nodes;
    int *cpus;              /* (n_threads) CPU of each thread */
    bool is_virtual;        /* more nodes than the machine has */
    bool is_oversubscribed; /* more threads than physical cores, in all or of a node, or than the
                               quota */
    struct arena arena;
};

struct team_request {
    int n_threads;        /* 0: n_usable, at most the cores of the nodes, at least n_nodes */
    int n_nodes;          /* 0: as many as the machine has, at most n_threads */
    int n_threads_a_node; /* 0: threads are spread evenly, but a core of its own comes first;
                             otherwise that many on each node */
};

/* Fewer nodes than the machine has: those with the most cores, ties in order. More: every node's
 * cores are split evenly among its virtual nodes. Fewer threads than cores are spread over the
 * cores, so that they use all caches and memory channels. Threads beyond the cores use the other
 * CPUs of the cores, then start again.
 * errors  LIMIT: more nodes than threads, threads or threads a node times nodes beyond 4096;
 *         USAGE: n_threads is not n_threads_a_node times the nodes; MEMORY */
enum status team_layout_make(struct team_layout *layout, const struct topology *topology,
                             const struct team_request *request, struct error *err);
void team_layout_done(struct team_layout *layout);

#endif
