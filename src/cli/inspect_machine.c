#include "cli/inspect_machine.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/json_out.h"
#include "machine/bandwidth.h"
#include "machine/counters.h"
#include "machine/cpu_features.h"

#define SECONDS 1.0

struct machine_report {
    struct topology topology;
    struct team_layout layout; /* by default */
    struct thread_team *team;  /* NULL, and no bandwidth: another machine */
    struct bandwidth bandwidth;
    struct counters *counters;
};

static enum status report(struct machine_report *r, const char *xml, struct error *err)
{
    struct topology_source source = {.xml = xml};
    TRY(topology_read(&r->topology, &source, err));
    TRY(team_layout_make(&r->layout, &r->topology, &(struct team_request){0}, err));
    if (xml)
        return STATUS_OK;
    TRY(counters_open(&r->counters, NULL, err));
    TRY(team_open(&r->team, &r->layout, true, err));
    return bandwidth_measure(&r->bandwidth, r->team, &r->topology, SECONDS, r->layout.n_nodes > 1,
                             err);
}

static void report_done(struct machine_report *r)
{
    counters_close(r->counters);
    bandwidth_done(&r->bandwidth);
    team_close(r->team);
    team_layout_done(&r->layout);
    topology_done(&r->topology);
}

/* "0-3,8": the n CPU numbers, runs of neighbours as one. */
static void print_cpus(const int *cpus, int n)
{
    for (int i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && cpus[end] == cpus[end - 1] + 1; end++)
            ;
        printf(i ? ",%d" : "%d", cpus[i]);
        if (end > i + 1)
            printf("-%d", cpus[end - 1]);
    }
}

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

static const char *size_or_unknown(uint64_t bytes, char out[16])
{
    return bytes ? cli_size(bytes, out) : "unknown";
}

static void print_topology(const struct topology *t, bool is_here)
{
    char l2[16], l3[16], memory[16];
    if (is_here)
        printf("processor  %s, %s\n", t->cpu[0] ? t->cpu : cpu_name(), isa_name(cpu_best_isa()));
    else
        printf("processor  %s\n", t->cpu[0] ? t->cpu : "unknown");
    printf("caches     L2 %s a core, L3 %s a node\n", size_or_unknown(t->l2_bytes, l2),
           size_or_unknown(t->l3_bytes, l3));
    printf("usable     %d core%s, %d CPU%s, %d node%s, %s of memory\n", t->n_cores,
           plural(t->n_cores), t->n_cpus, plural(t->n_cpus), t->n_nodes, plural(t->n_nodes),
           cli_size(t->memory_bytes, memory));
    if (t->n_slow_cores)
        printf("           %d slow core%s left out\n", t->n_slow_cores, plural(t->n_slow_cores));
    if (t->n_memory_only)
        printf("           %d node%s with memory only left out\n", t->n_memory_only,
               plural(t->n_memory_only));
    if (t->quota > 0)
        printf("           a quota allows the time of %.2f CPUs\n", t->quota);
    for (int i = 0; i < t->n_nodes; i++) {
        const struct machine_node *node = &t->nodes[i];
        printf("node %-5d %d core%s on CPU%s ", node->os_node, node->n_cores, plural(node->n_cores),
               plural(node->n_cores));
        print_cpus(node->cpus, node->n_cores);
        if (node->memory_node == node->os_node)
            printf(", %s of memory\n", cli_size(node->memory_bytes, memory));
        else
            printf(", no memory: uses that of node %d\n", node->memory_node);
    }
}

static void print_layout(const struct machine_report *r)
{
    const struct team_layout *l = &r->layout;
    printf("threads    %d on %d node%s by default, %s\n", l->n_threads, l->n_nodes,
           plural(l->n_nodes),
           !r->team                  ? "not started: another machine"
           : team_is_pinned(r->team) ? "pinned"
                                     : "not pinned: the system refuses");
    for (int i = 0; i < l->n_nodes; i++) {
        const struct team_node *node = &l->nodes[i];
        printf("           %d on node %d, CPU%s ", node->n_threads, node->os_node,
               plural(node->n_threads));
        print_cpus(l->cpus + node->thread0, node->n_threads);
        printf("\n");
    }
}

static void print_bandwidth(const struct machine_report *r)
{
    const struct bandwidth *b = &r->bandwidth;
    if (!r->team) {
        printf("bandwidth  unknown: another machine\n");
        return;
    }
    printf("bandwidth  %.1f GB/s: all threads read, each of its own node\n",
           b->machine_bytes_s / 1e9);
    if (!b->node_bytes_s)
        return;
    printf("           GB/s of the threads of a node alone, from the memory of node\n"
           "           %7s",
           "");
    for (int j = 0; j < b->n_nodes; j++)
        printf(" %7d", r->layout.nodes[j].memory_node);
    for (int i = 0; i < b->n_nodes; i++) {
        printf("\n           %7d", r->layout.nodes[i].os_node);
        for (int j = 0; j < b->n_nodes; j++)
            printf(" %7.1f", b->node_bytes_s[i * b->n_nodes + j] / 1e9);
    }
    printf("\n");
}

static void print_counters(const struct machine_report *r)
{
    for (int i = 0; i < N_COUNTERS; i++) {
        enum counter_id id = (enum counter_id)i;
        struct counter_reading reading = counters_read(r->counters, id);
        printf("%-10s %s: %s%s%s\n", i ? "" : "counters", counter_info(id)->text,
               reading.is_present ? reading.source : "absent: ",
               reading.is_present ? "" : reading.reason,
               reading.is_present && counter_info(id)->is_machine ? ", of the whole machine" : "");
    }
}

static json_t *json_counters(const struct machine_report *r)
{
    json_t *counters = json_object();
    for (int i = 0; i < N_COUNTERS; i++) {
        enum counter_id id = (enum counter_id)i;
        struct counter_reading reading = counters_read(r->counters, id);
        json_object_set_new(counters, counter_info(id)->name,
                            json_pack("{s:b, s:s}", "present", reading.is_present,
                                      reading.is_present ? "source" : "reason",
                                      reading.is_present ? reading.source : reading.reason));
    }
    return counters;
}

static json_t *json_numbers(const int *numbers, int n)
{
    json_t *array = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(array, json_integer(numbers[i]));
    return array;
}

static json_t *json_nodes(const struct topology *t)
{
    json_t *nodes = json_array();
    for (int i = 0; i < t->n_nodes; i++) {
        const struct machine_node *node = &t->nodes[i];
        json_array_append_new(nodes, json_pack("{s:i, s:i, s:I, s:o}", "node", node->os_node,
                                               "memory_node", node->memory_node, "memory_bytes",
                                               (json_int_t)node->memory_bytes, "cpus",
                                               json_numbers(node->cpus, node->n_cores)));
    }
    return nodes;
}

static json_t *json_layout(const struct machine_report *r)
{
    json_t *nodes = json_array();
    for (int i = 0; i < r->layout.n_nodes; i++) {
        const struct team_node *node = &r->layout.nodes[i];
        json_array_append_new(
            nodes,
            json_pack("{s:i, s:i, s:o}", "node", node->os_node, "memory_node", node->memory_node,
                      "cpus", json_numbers(r->layout.cpus + node->thread0, node->n_threads)));
    }
    return json_pack("{s:i, s:b, s:o}", "threads", r->layout.n_threads, "pinned",
                     r->team && team_is_pinned(r->team), "nodes", nodes);
}

/* Rows: where the threads are; columns: where the memory is. Null when there is one node. */
static json_t *json_matrix(const struct bandwidth *b)
{
    if (!b->node_bytes_s)
        return json_null();
    json_t *rows = json_array();
    for (int i = 0; i < b->n_nodes; i++) {
        json_t *row = json_array();
        for (int j = 0; j < b->n_nodes; j++)
            json_array_append_new(row, json_real(b->node_bytes_s[i * b->n_nodes + j]));
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *json_report(const struct machine_report *r)
{
    const struct topology *t = &r->topology;
    const char *isa = r->team ? isa_name(cpu_best_isa()) : NULL;
    json_t *bytes_s = r->team ? json_real(r->bandwidth.machine_bytes_s) : json_null();
    return json_pack(
        "{s:s, s:s?, s:i, s:i, s:i, s:i, s:f, s:i, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}",
        "processor", t->cpu[0] || !r->team ? t->cpu : cpu_name(), "isa", isa, "cores", t->n_cores,
        "cpus", t->n_cpus, "slow_cores", t->n_slow_cores, "memory_only_nodes", t->n_memory_only,
        "quota", t->quota, "usable_threads", t->n_usable, "memory_bytes",
        (json_int_t)t->memory_bytes, "l2_bytes", (json_int_t)t->l2_bytes, "l3_bytes",
        (json_int_t)t->l3_bytes, "nodes", json_nodes(t), "layout", json_layout(r), "read_bytes_s",
        bytes_s, "node_read_bytes_s", json_matrix(&r->bandwidth), "counters",
        r->team ? json_counters(r) : json_null());
}

static enum status print_json(const struct machine_report *r, struct error *err)
{
    return json_out(stdout, json_report(r), 0, err);
}

enum status inspect_machine(const char *xml, bool is_json, struct error *err)
{
    struct machine_report r = {0};
    enum status status = report(&r, xml, err);
    if (status == STATUS_OK && is_json) {
        status = print_json(&r, err);
    } else if (status == STATUS_OK) {
        print_topology(&r.topology, r.team != NULL);
        print_layout(&r);
        print_bandwidth(&r);
        if (r.team)
            print_counters(&r);
    }
    report_done(&r);
    return status;
}
