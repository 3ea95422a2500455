#include "engine/plan_print.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "kernels/kv_page.h"

const char *sync_name(enum sync sync)
{
    static const char *const names[] = {"-", "node", "global", "flat"};
    return names[sync];
}

static const struct step *step_of(const struct plan_listing *l, int node, int step)
{
    int thread = l->plan->layout->nodes[node].thread0;
    return &l->plan->programs[PROGRAM_FEW][thread].steps[step];
}

/* Appends a name to a list unless it is there. */
static void add_name(char *list, size_t size, const char *name)
{
    size_t n = strlen(name), end = strlen(list);
    for (const char *at = strstr(list, name); at; at = strstr(at + 1, name))
        if ((at == list || at[-1] == ' ') && (at[n] == 0 || at[n] == ','))
            return;
    snprintf(list + end, size - end, "%s%s", end ? ", " : "", name);
}

static const struct kernel_row *row_of_kernel(kernel *run)
{
    for (int i = 0; i < n_kernel_rows; i++)
        if (kernel_rows[i].run == run)
            return &kernel_rows[i];
    return NULL;
}

static bool has_op(const struct part *parts, int n, enum op op)
{
    for (int i = 0; i < n; i++) {
        const struct kernel_row *row = row_of_kernel(parts[i].run);
        if (row && row->op == op)
            return true;
    }
    return false;
}

static void add_names(const struct part *parts, int n, bool is_op, char *list, size_t size)
{
    for (int i = 0; i < n; i++) {
        const struct kernel_row *row = row_of_kernel(parts[i].run);
        if (row)
            add_name(list, size, is_op ? op_name(row->op) : row->name);
    }
}

/* Where input comes from and output goes to follows from the dataflow and from what the step does:
 * partial sums, peaks and (row-owned) partial results of heads are read where they were made; outputs
 * are scattered. */
static void find_reach(const struct plan_listing *l, const struct step *step, struct plan_row *row)
{
    const struct engine_options *o = &l->plan->options;
    bool is_row = o->dataflow == DATAFLOW_ROW;
    bool is_by_position = is_row && o->row_attention == ROW_ATTENTION_POSITION;
    bool is_fold = has_op(step->each, step->n_each, OP_attention_fold) ||
                   has_op(step->parts, step->n_parts, OP_attention_fold);
    if (l->plan->layout->n_nodes == 1)
        return;
    if (has_op(step->parts, step->n_parts, OP_reduce) ||
        (is_row && has_op(step->each, step->n_each, OP_attention_fold)))
        row->reads = REACH_ALL;
    if (!is_row && o->act_scale == ACT_SCALE_TOKEN &&
        (has_op(step->each, step->n_each, OP_quantize) ||
         has_op(step->parts, step->n_parts, OP_quantize)))
        row->reads = REACH_ALL; /* peaks */
    if (is_by_position && (is_fold || step->kind == STEP_ATTENTION))
        row->reads = REACH_FIRST;
    if (is_by_position && (step->kind == STEP_QKV || step->kind == STEP_ATTENTION))
        row->writes = REACH_FIRST;
    for (int i = 0; i < step->n_parts; i++)
        if (step->parts[i].scatter)
            row->writes = REACH_ALL;
}

struct plan_row plan_row(const struct plan_listing *l, int node, int s)
{
    const struct step *step = step_of(l, node, s);
    struct plan_row row = {.kind = step->kind, .layer = step->layer};
    row.sync = step->units.sync;
    row.is_leader = step->is_leader;
    for (int i = 0; i < step->n_parts; i++) {
        const struct part *part = &step->parts[i];
        row.bytes += part->weight_bytes;
        row.n_rows += part->weight_bytes ? part->n : 0;
        row.n_units += part_units(part);
    }
    row.grain = step->n_parts ? step->parts[0].grain : 0;
    add_names(step->parts, step->n_parts, false, row.kernels, sizeof row.kernels);
    add_names(step->each, step->n_each, true, row.each, sizeof row.each);
    find_reach(l, step, &row);
    return row;
}

/* The same step but for its layer. */
static bool is_alike(const struct plan_row *a, const struct plan_row *b)
{
    return a->kind == b->kind && a->sync == b->sync && a->is_leader == b->is_leader &&
           a->n_rows == b->n_rows && a->n_units == b->n_units && a->grain == b->grain &&
           a->bytes == b->bytes && a->reads == b->reads && a->writes == b->writes &&
           strcmp(a->kernels, b->kernels) == 0 && strcmp(a->each, b->each) == 0;
}

static bool are_steps_alike(const struct plan_listing *l, int node_a, int a, int node_b, int b,
                            int n)
{
    for (int i = 0; i < n; i++) {
        struct plan_row x = plan_row(l, node_a, a + i), y = plan_row(l, node_b, b + i);
        if (!is_alike(&x, &y))
            return false;
    }
    return true;
}

static bool are_layers_alike(const struct plan_listing *l, int a, int b, int n)
{
    for (int node = 0; node < l->plan->layout->n_nodes; node++)
        if (!are_steps_alike(l, node, a, node, b, n))
            return false;
    return true;
}

/* Adds the steps from step0 on of one layer; returns their number. */
static int add_layer(struct plan_listing *l, int step0)
{
    const struct program *program = l->plan->programs[PROGRAM_FEW];
    int layer = program->steps[step0].layer, n = 0;
    while (step0 + n < program->n_steps && program->steps[step0 + n].layer == layer)
        n++;
    struct plan_stretch *last = l->n_stretches ? &l->stretches[l->n_stretches - 1] : NULL;
    if (last && layer >= 0 && last->layer >= 0 && last->n_steps == n &&
        are_layers_alike(l, last->step0, step0, n))
        last->n_layers++;
    else
        l->stretches[l->n_stretches++] = (struct plan_stretch){layer, 1, step0, n};
    return n;
}

enum status plan_listing_make(struct plan_listing *l, const struct plan *plan, int n_tokens,
                              struct error *err)
{
    *l = (struct plan_listing){.plan = plan, .n_tokens = n_tokens};
    assert(n_tokens > 0 && n_tokens <= PLAN_FEW_TOKENS);
    size_t most = (size_t)plan->programs[PROGRAM_FEW][0].n_steps;
    l->stretches = memory_alloc(most, sizeof *l->stretches);
    if (!l->stretches)
        return fail_memory(err, plan->model->path, most * sizeof *l->stretches);
    struct batch_shape shape = {.n_tokens = n_tokens, .n_logits = 1, .n_chunks = 1};
    shape.token_block = plan_few_block(plan, n_tokens);
    const struct team_layout *layout = plan->layout;
    for (int node = 0; node < layout->n_nodes; node++) {
        int thread = layout->nodes[node].thread0;
        program_fit(&plan->programs[PROGRAM_FEW][thread], &shape, layout->n_nodes, node);
    }
    for (int step = 0; step < plan->programs[PROGRAM_FEW][0].n_steps;)
        step += add_layer(l, step);
    return STATUS_OK;
}

void plan_listing_done(struct plan_listing *l)
{
    memory_free(l->stretches);
    *l = (struct plan_listing){0};
}

struct plan_totals plan_totals(const struct plan_listing *l, int node)
{
    const struct plan *plan = l->plan;
    struct plan_totals t = {.n_steps = plan->programs[PROGRAM_FEW][0].n_steps};
    for (int s = 0; s < t.n_steps; s++) {
        struct plan_row row = plan_row(l, node, s);
        t.n_node_syncs += row.sync == SYNC_NODE;
        t.n_global_syncs += row.sync == SYNC_GLOBAL || row.sync == SYNC_FLAT;
        t.bytes += row.bytes;
    }
    if (plan->n_kv_heads[node] > 0)
        t.kv_position_bytes = (uint64_t)(plan->pages[node].bytes / KV_PAGE) *
                              (uint64_t)plan->model->config.n_layer /
                              (plan_is_by_position(plan) ? (uint64_t)plan->layout->n_nodes : 1);
    return t;
}

const struct plan_stretch *plan_main_stretch(const struct plan_listing *l)
{
    const struct plan_stretch *longest = l->stretches;
    for (int i = 1; i < l->n_stretches; i++)
        if (l->stretches[i].layer >= 0 &&
            (longest->layer < 0 || l->stretches[i].n_layers > longest->n_layers))
            longest = &l->stretches[i];
    return longest;
}

void plan_kernel_names(const struct plan *plan, char *list, size_t size)
{
    list[0] = 0;
    for (int node = 0; node < plan->layout->n_nodes; node++) {
        const struct node_slices *own = &plan->slices.nodes[node];
        for (int i = 0; i < own->n_slices; i++)
            add_name(list, size, plan->matmul[own->slices[i]->w.packing]->name);
    }
}

uint64_t plan_trits4_bytes(const struct plan *plan)
{
    uint64_t bytes = 0;
    bool is_open = plan->trits.reason == TRITS_BY_TIMING_LATER;
    for (int node = 0; is_open && node < plan->layout->n_nodes; node++)
        bytes += node_slices_trits4_bytes(&plan->slices.nodes[node]);
    return bytes;
}

void plan_describe_trits(const struct plan *plan, char *text, size_t size)
{
    uint64_t bytes = 0, trits4_bytes = plan_trits4_bytes(plan);
    for (int node = 0; node < plan->layout->n_nodes; node++)
        bytes += plan->sizes[node].weights;
    text[0] = 0;
    if (trits4_bytes > 0)
        snprintf(text, size,
                 "a timing at load chooses between trits5, as planned here (weights %.1f MiB), and "
                 "trits4 (weights %.1f MiB)",
                 (double)bytes / 0x1p20, (double)trits4_bytes / 0x1p20);
}

static void print_row(FILE *out, const struct plan_row *row)
{
    char rows[16] = "-";
    if (row->n_rows)
        snprintf(rows, sizeof rows, "%d", row->n_rows);
    fprintf(out, "    %-13s %-6s %7s %6d %6d %9.3f  %s", step_kind_name(row->kind),
            sync_name(row->sync), rows, row->n_units, row->grain, (double)row->bytes / 1e6,
            row->kernels[0] ? row->kernels : "-");
    if (row->each[0])
        fprintf(out, "; first every thread: %s", row->each);
    if (row->is_leader)
        fprintf(out, "; the leader alone");
    if (row->reads != REACH_OWN)
        fprintf(out, "; reads from %s", row->reads == REACH_ALL ? "all nodes" : "the first node");
    if (row->writes != REACH_OWN)
        fprintf(out, "; writes to %s", row->writes == REACH_ALL ? "all nodes" : "the first node");
    fprintf(out, "\n");
}

/* Nodes with the same steps are said once. */
static void print_stretch(FILE *out, const struct plan_listing *l, const struct plan_stretch *s)
{
    int n_nodes = l->plan->layout->n_nodes;
    if (s->layer < 0)
        fprintf(out, "\n%s layers\n", s->step0 ? "after the" : "before the");
    else if (s->n_layers == 1)
        fprintf(out, "\nlayer %d\n", s->layer);
    else
        fprintf(out, "\nlayers %d to %d, %d alike\n", s->layer, s->layer + s->n_layers - 1,
                s->n_layers);
    for (int node = 0, last; node < n_nodes; node = last + 1) {
        last = node;
        while (last + 1 < n_nodes &&
               are_steps_alike(l, node, s->step0, last + 1, s->step0, s->n_steps))
            last++;
        if (last > node)
            fprintf(out, "  nodes %d to %d, each\n", node, last);
        else
            fprintf(out, "  node %d\n", node);
        fprintf(out, "    %-13s %-6s %7s %6s %6s %9s  %s\n", "step", "ends", "rows", "units",
                "grain", "MB", "kernels");
        for (int i = 0; i < s->n_steps; i++) {
            struct plan_row row = plan_row(l, node, s->step0 + i);
            print_row(out, &row);
        }
    }
}

static void print_totals(FILE *out, const struct plan_listing *l)
{
    const struct plan *plan = l->plan;
    uint64_t all = 0;
    fprintf(out, "\nin all\n  %-5s %7s %9s %14s %16s %14s %13s %13s\n", "node", "threads",
            "barriers", "weights MB", "KV B a position", "weights MiB", "KV MiB", "buffers MiB");
    struct plan_totals t = {0};
    for (int node = 0; node < plan->layout->n_nodes; node++) {
        const struct node_sizes *sizes = &plan->sizes[node];
        t = plan_totals(l, node);
        all += t.bytes;
        fprintf(out, "  %-5d %7d %9d %14.3f %16" PRIu64 " %14.1f %13.1f %13.1f\n", node,
                plan->layout->nodes[node].n_threads, t.n_node_syncs, (double)t.bytes / 1e6,
                t.kv_position_bytes, (double)sizes->weights / 0x1p20, (double)sizes->kv / 0x1p20,
                (double)sizes->scratch / 0x1p20);
    }
    fprintf(out, "  %.3f MB of weights are read, %d global barriers, context of %d\n",
            (double)all / 1e6, t.n_global_syncs, plan->options.n_ctx);
    char trits[160];
    plan_describe_trits(plan, trits, sizeof trits);
    if (trits[0])
        fprintf(out, "  %s\n", trits);
}

void plan_print_text(FILE *out, const struct plan_listing *l)
{
    const struct team_layout *layout = l->plan->layout;
    fprintf(out, "a batch of %d token%s on %d node%s%s, %d thread%s, %s\n", l->n_tokens,
            l->n_tokens == 1 ? "" : "s", layout->n_nodes, layout->n_nodes == 1 ? "" : "s",
            layout->is_virtual ? " (virtual)" : "", layout->n_threads,
            layout->n_threads == 1 ? "" : "s",
            l->plan->options.dataflow == DATAFLOW_ROW ? "row-owned" : "column-split");
    for (int i = 0; i < l->n_stretches; i++)
        print_stretch(out, l, &l->stretches[i]);
    print_totals(out, l);
}
