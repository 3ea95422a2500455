/* How fast a plan should run on a machine, which need not be this one: the plan is walked as the
 * executor walks it, but its steps are charged instead of done. A prediction, not a measurement.
 *
 * One token of one sequence. Every node has a clock; a step of T threads with U units advances it by
 *
 *   each part that every thread does for itself     elements x element_s
 *   weights and KV cache, B bytes on this node      B / U x (F / rate(T) + R / rate(R)),
 *       R = U mod T units that do not fill a round, F = U - R
 *       rate(k) = min(share x bandwidth of the node's memory, k x one core's through kernels)
 *   lateness of the slowest thread                  of the streaming: late x (T - 1);
 *       threads that help each other (rows dynamic) at most half a unit, T / 2U of the streaming
 *   other divided parts (sums, folds, the embedding) elements x element_s x ceil(U / T) / U
 *   rows written to other nodes as well             elements x element_s / T
 *   a leader's parts                                elements x element_s, the others wait
 *   the barrier                                     node_s, global_s or flat_s
 *
 * and a global barrier sets all clocks to the latest one. So every switch of the plan acts through
 * its steps: there is no case for any of them here. On one node a global barrier is one of the node;
 * a barrier of one thread costs nothing.
 *
 * A node whose weights and cache of one token fit its caches reads at their bandwidth, where it is
 * given. A stream that is larger finds nothing of itself in a cache that drops what was used longest
 * ago.
 *
 * What it does not know: arithmetic that is slower than memory beyond `share`, traffic between nodes
 * that takes bandwidth from weights, memory that is placed elsewhere than on the node that reads it, weights
 * fetched while waiting, frequencies, address translation, other programs.
 * source  lateness that grows with the work between barriers and with the threads of a barrier: the
 *         measurements in docs/measurements/prediction.md */
#ifndef TRINE_ENGINE_PREDICT_H
#define TRINE_ENGINE_PREDICT_H

#include "engine/plan.h"

/* Of a norm with quantisation, AVX-512 on a Zen 4 core, from its cache (bench/kernel_bench). */
#define PREDICT_ELEMENT_S 0.25e-9

struct machine_speed {
    const double *node_bytes_s; /* (n_nodes of the plan) its threads read its memory */
    double core_bytes_s;        /* one thread alone, through kernels */
    double share;               /* of node_bytes_s, what all threads reach through kernels */
    uint64_t cache_bytes;       /* of a node; 0: none */
    double cache_bytes_s;       /* its threads together; 0: as memory */
    double node_s, global_s,
        flat_s;  /* a barrier, from the last report to the last thread that goes on */
    double late; /* share of its time by which the slowest thread is later per further thread */
    double element_s; /* to norm, quantise or add one element */
};

/* Adds up to the time of a token, along the node that the others wait for. */
struct token_time {
    double stream_s;         /* weights and cache */
    double late_s;           /* waiting for the slowest thread of a node */
    double leader_s;         /* waiting for leaders */
    double prepare_s;        /* norms, quantisation, sums */
    double node_s, global_s; /* barriers */
};

struct prediction {
    struct token_time time;
    double seconds;   /* of a token */
    uint64_t bytes;   /* of weights and cache, all nodes */
    double bandwidth; /* of the plan's nodes together, bytes/s */
    bool is_cached;   /* every node reads from its caches */
};

/* depth: positions in the cache before the token. Not while a batch runs. errors: MEMORY */
enum status predict_token(const struct plan *plan, const struct machine_speed *speed, int depth,
                          struct prediction *prediction, struct error *err);

/* Bytes of weights and cache that a node reads for that token. */
uint64_t predict_node_bytes(const struct plan *plan, int node, int depth);

#endif
