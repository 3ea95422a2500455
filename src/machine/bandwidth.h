/* How fast this machine reads memory: measured, never remembered. */
#ifndef TRINE_MACHINE_BANDWIDTH_H
#define TRINE_MACHINE_BANDWIDTH_H

#include "machine/node_memory.h"
#include "machine/thread_team.h"

struct bandwidth {
    int n_nodes;            /* of the team's layout */
    double machine_bytes_s; /* all threads, each its own node's memory */
    double *node_bytes_s;   /* (n_nodes, n_nodes): threads of node i alone read memory of node j;
                               NULL when it was not asked for */
};

/* Reads distinct memory with every thread of the team, for about `seconds` in all; the best of
 * several passes. A pass reads whole cache lines forward, in one to four streams a thread, at the
 * widest vectors that the baseline has, after they were flushed from the caches. For this it takes 32 MiB
 * a thread, but at most a quarter of the node's memory and half of what is free.
 * Every loop and node is read at least once, however short that is: up to a second on processors that
 * flush slowly (cache_flush.h).
 * is_matrix: also each node from each node.
 * errors  MEMORY */
enum status bandwidth_measure(struct bandwidth *bandwidth, struct thread_team *team,
                              const struct topology *topology, double seconds, bool is_matrix,
                              struct error *err);
void bandwidth_done(struct bandwidth *bandwidth);

#endif
