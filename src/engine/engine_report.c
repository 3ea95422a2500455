/* What an engine can tell about itself. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "engine/engine_state.h"
#include "engine/plan_print.h"
#include "machine/bandwidth.h"
#include "machine/cpu_features.h"

#define MAX_SAMPLES 4096 /* pages of one arena */

static void count_pages(const struct engine *e, struct page_report *pages)
{
    for (int node = 0; node < e->layout.n_nodes; node++) {
        const struct node_arena *arenas[] = {&e->memory[node].weights, &e->memory[node].kv};
        for (int i = 0; i < 2; i++)
            page_report_add(pages, arenas[i]->base, arenas[i]->used,
                            e->layout.nodes[node].memory_node, MAX_SAMPLES);
    }
}

void engine_report(const struct engine *e, struct engine_report *report)
{
    const struct model_config *c = &e->model->config;
    *report = (struct engine_report){.load_s = (double)e->load_ns / 1e9, .placed = -1};
    for (int node = 0; node < e->layout.n_nodes; node++) {
        report->weight_bytes += e->plan.sizes[node].weights;
        report->kv_bytes += e->plan.sizes[node].kv;
        report->scratch_bytes += e->plan.sizes[node].scratch;
        /* of the heads that two nodes hold, both read the cache */
        report->kv_token_bytes += (uint64_t)e->plan.pages[node].bytes / KV_PAGE *
                                  (uint64_t)c->n_layer * (e->plan.n_kv_heads[node] > 0);
    }
    if (e->kv.n_pools > 1)
        report->kv_token_bytes /= (uint64_t)e->layout.n_nodes;
    report->token_bytes = report->weight_bytes;
    report->cache_bytes = e->topology.l3_bytes * (uint64_t)(e->layout.n_nodes < e->topology.n_nodes
                                                                ? e->layout.n_nodes
                                                                : e->topology.n_nodes);
    report->n_migrated = -1;
    if (!e->is_loaded)
        return;
    struct page_report pages = {0};
    count_pages(e, &pages);
    if (pages.is_known && pages.n_sampled > pages.n_absent)
        report->placed = (double)pages.n_right / (double)(pages.n_sampled - pages.n_absent);
    int64_t now = pages_migrated();
    report->n_migrated = now < 0 || e->n_migrated < 0 ? -1 : now - e->n_migrated;
    report->is_bound = e->memory[0].weights.is_bound;
    report->is_pinned = team_is_pinned(e->team);
}

enum status engine_bandwidth(struct engine *e, double seconds, double *bytes_s, struct error *err)
{
    struct bandwidth bandwidth;
    TRY(bandwidth_measure(&bandwidth, e->team, &e->topology, seconds, false, err));
    *bytes_s = bandwidth.machine_bytes_s;
    bandwidth_done(&bandwidth);
    return STATUS_OK;
}

/* Appends to a text that may be full. */
static void append(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void append(char *text, size_t size, const char *format, ...)
{
    size_t n = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, size - n, format, args);
    va_end(args);
}

/* What a timing has decided, or could not. */
static void append_timings(const struct plan *plan, char *text, size_t size)
{
    const struct trits_choice *trits = &plan->trits;
    if (trits->reason == TRITS_BY_TIMING)
        append(text, size, " (timed: trits4 %.1f, trits5 %.1f G weights/s)",
               trits->weights_s[0] / 1e9, trits->weights_s[1] / 1e9);
    if (trits->reason == TRITS_BY_LACK_OF_MEMORY)
        append(text, size, " (no memory to time trits4 against trits5)");
    if (trits->reason == TRITS_BY_SIZE)
        append(text, size, " (trits4 is faster, but takes more memory than there is)");
    if (plan->is_tiles_untimed)
        append(text, size, " (no memory to time AMX)");
}

/* The weakest instruction set above this one, of those that the CPU has if there is one, and why it is
 * not used. */
static void append_next_isa(char *text, size_t size, enum isa isa)
{
    enum isa next = isa + 1;
    while (next < N_ISAS && !(isa_includes(next, isa) && cpu_has_isa(next)))
        next++;
    if (next == N_ISAS)
        for (next = isa + 1; next < N_ISAS && !(isa_includes(next, isa) && isa_is_native(next));)
            next++;
    if (next < N_ISAS)
        append(text, size, " (next faster: %s, %s)", isa_name(next),
               cpu_has_isa(next) ? "capped" : "not in this CPU");
}

void engine_describe(const struct engine *e, char *text, size_t size)
{
    const struct engine_options *o = &e->plan.options;
    char kernels[256];
    text[0] = 0;
    plan_kernel_names(&e->plan, kernels, sizeof kernels);
    append(text, size, "kernels %s", kernels);
    append_timings(&e->plan, text, size);
    append(text, size, "; %s", isa_name(o->isa));
    append_next_isa(text, size, o->isa);
    append(text, size, "; %d thread%s", e->layout.n_threads, e->layout.n_threads == 1 ? "" : "s");
    if (e->layout.is_oversubscribed)
        append(text, size, " (warning: they share %d usable core%s and delay each other)",
               e->topology.n_usable, e->topology.n_usable == 1 ? "" : "s");
    append(text, size, " on %d node%s", e->layout.n_nodes, e->layout.n_nodes == 1 ? "" : "s");
    if (e->layout.is_virtual)
        append(text, size, " (virtual)");
    else if (e->is_kept_small)
        append(text, size, " of %d (the model is too small for barriers between nodes to pay)",
               e->topology.n_nodes);
    if (e->is_loaded && e->topology.n_nodes > 1 && !e->memory[0].weights.is_bound)
        append(text, size, " (memory policies are forbidden here: first touch places pages)");
    if (e->layout.n_nodes > 1)
        append(text, size, ", %s",
               o->dataflow == DATAFLOW_ROW
                   ? "row-owned"
                   : "column-split (fewest barriers between nodes: 2 a layer)");
}
