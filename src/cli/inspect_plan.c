#include "cli/inspect_plan.h"

#include <jansson.h>

#include "cli/json_out.h"
#include "engine/plan_print.h"

static const char *reach_name(enum reach reach)
{
    static const char *const names[] = {"own", "first", "all"};
    return names[reach];
}

static json_t *json_step(const struct plan_row *row)
{
    return json_pack("{s:s, s:s, s:b, s:i, s:i, s:i, s:I, s:s, s:s, s:s, s:s}", "step",
                     step_kind_name(row->kind), "ends", sync_name(row->sync), "leader",
                     row->is_leader, "rows", row->n_rows, "units", row->n_units, "grain",
                     row->grain, "weight_bytes", (json_int_t)row->bytes, "kernels", row->kernels,
                     "before", row->each, "reads", reach_name(row->reads), "writes",
                     reach_name(row->writes));
}

/* Steps of each node in one layer of a stretch. */
static json_t *json_stretch(const struct plan_listing *l, const struct plan_stretch *s)
{
    json_t *nodes = json_array();
    for (int node = 0; node < l->plan->layout->n_nodes; node++) {
        json_t *steps = json_array();
        for (int i = 0; i < s->n_steps; i++) {
            struct plan_row row = plan_row(l, node, s->step0 + i);
            json_array_append_new(steps, json_step(&row));
        }
        json_array_append_new(nodes, steps);
    }
    return json_pack("{s:o, s:i, s:o}", "layer",
                     s->layer < 0 ? json_null() : json_integer(s->layer), "layers", s->n_layers,
                     "nodes", nodes);
}

static json_t *json_node(const struct plan_listing *l, int node)
{
    const struct plan *plan = l->plan;
    const struct cut *cut = &plan->slices.cut;
    const struct node_sizes *sizes = &plan->sizes[node];
    struct plan_totals t = plan_totals(l, node);
    return json_pack("{s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:[I,I], s:[I,I]}", "threads",
                     plan->layout->nodes[node].n_threads, "node_barriers", t.n_node_syncs,
                     "global_barriers", t.n_global_syncs, "token_weight_bytes", (json_int_t)t.bytes,
                     "kv_position_bytes", (json_int_t)t.kv_position_bytes, "weight_bytes",
                     (json_int_t)sizes->weights, "kv_bytes", (json_int_t)sizes->kv, "scratch_bytes",
                     (json_int_t)sizes->scratch, "heads", (json_int_t)cut->heads[node],
                     (json_int_t)cut->heads[node + 1], "ff", (json_int_t)cut->ff[node],
                     (json_int_t)cut->ff[node + 1]);
}

static enum status print_json(FILE *out, const struct plan_listing *l, struct error *err)
{
    const struct plan *plan = l->plan;
    json_t *stretches = json_array(), *nodes = json_array();
    for (int i = 0; i < l->n_stretches; i++)
        json_array_append_new(stretches, json_stretch(l, &l->stretches[i]));
    for (int node = 0; node < plan->layout->n_nodes; node++)
        json_array_append_new(nodes, json_node(l, node));
    uint64_t trits4_bytes = plan_trits4_bytes(plan);
    json_t *all =
        json_pack("{s:s, s:o, s:s, s:i, s:i, s:b, s:i, s:o, s:o}", "trits_choice",
                  trits_reason_name(plan->trits.reason), "trits4_weight_bytes",
                  trits4_bytes ? json_integer((json_int_t)trits4_bytes) : json_null(), "dataflow",
                  plan->options.dataflow == DATAFLOW_ROW ? "row" : "column", "tokens", l->n_tokens,
                  "threads", plan->layout->n_threads, "virtual_nodes", plan->layout->is_virtual,
                  "n_ctx", plan->options.n_ctx, "nodes", nodes, "stretches", stretches);
    return json_out(out, all, 0, err);
}

static enum status print(FILE *out, const struct plan *plan, enum plan_format format,
                         struct error *err)
{
    struct plan_listing listing;
    TRY(plan_listing_make(&listing, plan, 1, err));
    enum status status = STATUS_OK;
    if (format == PLAN_JSON)
        status = print_json(out, &listing, err);
    else if (format == PLAN_SVG)
        plan_print_svg(out, &listing);
    else
        plan_print_text(out, &listing);
    plan_listing_done(&listing);
    return status;
}

enum status inspect_plan(const struct model *model, const struct engine_options *options,
                         const char *machine, enum plan_format format, FILE *out, struct error *err)
{
    struct engine *engine;
    struct topology_source source = {.xml = machine};
    TRY(engine_plan_on(&engine, model, options, machine ? &source : NULL, err));
    enum status status = print(out, engine_plan_of(engine), format, err);
    engine_close(engine);
    return status;
}
