#include "cli/inspect_predict.h"

#include <jansson.h>
#include <string.h>

#include "cli/json_out.h"
#include "cli/machine_speed.h"
#include "engine/plan_print.h"

/* A row of the table. */
struct row {
    const char *text, *key;
    double seconds;
};
#define N_ROWS 6

static void list_rows(const struct token_time *t, struct row rows[N_ROWS])
{
    const struct row all[N_ROWS] = {
        {"weights and cache", "stream_s", t->stream_s},
        {"late threads", "late_s", t->late_s},
        {"leaders", "leader_s", t->leader_s},
        {"norms, quantisation, sums", "prepare_s", t->prepare_s},
        {"node barriers", "node_barriers_s", t->node_s},
        {"global barriers", "global_barriers_s", t->global_s},
    };
    memcpy(rows, all, sizeof all);
}

/* What threads do not work for, as a share of the token. */
static double wait_share(const struct prediction *p)
{
    const struct token_time *t = &p->time;
    return (t->late_s + t->leader_s + t->node_s + t->global_s) / p->seconds;
}

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

/* What a prediction is made of and what it is for. */
struct report {
    const struct plan *plan;
    const char *machine; /* NULL: this one */
    const struct predict_options *options;
    struct known_speed known;
    struct prediction prediction;
};

static void print_sources(FILE *out, const struct report *r)
{
    const struct team_layout *layout = r->plan->layout;
    const struct machine_speed *s = &r->known.speed;
    char trits[160];
    plan_describe_trits(r->plan, trits, sizeof trits);
    fprintf(out, "prediction, not a measurement: %s, a token at depth %d\n", r->plan->model->path,
            (int)r->options->depth);
    fprintf(out, "machine    %s: %d thread%s on %d node%s%s, %s, kernels for %s\n",
            r->machine ? r->machine : "this one", layout->n_threads, plural(layout->n_threads),
            layout->n_nodes, plural(layout->n_nodes), layout->is_virtual ? " (virtual)" : "",
            r->plan->options.dataflow == DATAFLOW_ROW ? "row-owned" : "column-split",
            isa_name(r->plan->options.isa));
    if (trits[0])
        fprintf(out, "packing    %s\n", trits);
    fprintf(out,
            "bandwidth  %.1f GB/s of all nodes (%s), %.1f GB/s of one core through kernels (%s)\n",
            r->prediction.bandwidth / 1e9, origin_name(r->known.bandwidth), s->core_bytes_s / 1e9,
            origin_name(r->known.core));
    fprintf(out, "           all threads reach %.1f %% of it through kernels (%s)%s\n",
            s->share * 100, origin_name(r->known.share),
            r->prediction.is_cached ? "; all is read from caches" : "");
    fprintf(out, "barriers   %.2f us of a node, %.2f us global, %.2f us flat (%s%s)\n",
            s->node_s * 1e6, s->global_s * 1e6, s->flat_s * 1e6, origin_name(r->known.barriers),
            r->known.barriers == ORIGIN_ASSUMED ? ": the paper's range is 1.4 to 4.4 us global"
                                                : "");
    fprintf(out, "lateness   %.2f %% for every further thread of a node%s\n\n", s->late * 100,
            r->plan->options.is_static_rows ? "" : ", at most half a unit of work");
}

static void print_nodes(FILE *out, const struct report *r)
{
    fprintf(out, "  %-6s %8s %10s %12s\n", "node", "threads", "GB/s", "MB read");
    for (int i = 0; i < r->plan->layout->n_nodes; i++)
        fprintf(out, "  %-6d %8d %10.1f %12.3f\n", i, r->plan->layout->nodes[i].n_threads,
                r->known.node_bytes_s[i] / 1e9,
                (double)predict_node_bytes(r->plan, i, (int)r->options->depth) / 1e6);
}

static void print_text(FILE *out, const struct report *r)
{
    const struct prediction *p = &r->prediction;
    struct row rows[N_ROWS];
    list_rows(&p->time, rows);
    print_sources(out, r);
    print_nodes(out, r);
    fprintf(out, "\n  %-27s %9s %7s\n", "time of a token", "ms", "share");
    for (int i = 0; i < N_ROWS; i++)
        fprintf(out, "  %-27s %9.3f %5.1f %%\n", rows[i].text, rows[i].seconds * 1e3,
                rows[i].seconds / p->seconds * 100);
    fprintf(out, "  %-27s %9.3f\n\n", "in all", p->seconds * 1e3);
    double bytes_s = (double)p->bytes / p->seconds;
    fprintf(out, "%.1f tok/s, %.1f GB/s, %.0f %% of the bandwidth; threads wait for %.1f %%\n",
            1 / p->seconds, bytes_s / 1e9, bytes_s / p->bandwidth * 100, wait_share(p) * 100);
}

static json_t *json_nodes(const struct report *r)
{
    json_t *nodes = json_array();
    for (int i = 0; i < r->plan->layout->n_nodes; i++)
        json_array_append_new(
            nodes, json_pack("{s:i, s:f, s:I}", "threads", r->plan->layout->nodes[i].n_threads,
                             "read_bytes_s", r->known.node_bytes_s[i], "bytes",
                             (json_int_t)predict_node_bytes(r->plan, i, (int)r->options->depth)));
    return nodes;
}

static enum status print_json(FILE *out, const struct report *r, struct error *err)
{
    const struct prediction *p = &r->prediction;
    const struct machine_speed *s = &r->known.speed;
    json_t *time = json_object();
    struct row rows[N_ROWS];
    list_rows(&p->time, rows);
    for (int i = 0; i < N_ROWS; i++)
        json_object_set_new(time, rows[i].key, json_real(rows[i].seconds));
    json_t *from = json_pack("{s:s, s:f, s:s, s:f, s:s, s:f, s:f, s:f, s:s, s:f}", "bandwidth",
                             origin_name(r->known.bandwidth), "core_bytes_s", s->core_bytes_s,
                             "core", origin_name(r->known.core), "kernel_share", s->share, "share",
                             origin_name(r->known.share), "node_barrier_s", s->node_s,
                             "global_barrier_s", s->global_s, "flat_barrier_s", s->flat_s,
                             "barriers", origin_name(r->known.barriers), "late", s->late);
    double bytes_s = (double)p->bytes / p->seconds;
    json_t *all = json_pack(
        "{s:b, s:s, s:s, s:s, s:s, s:i, s:i, s:o, s:o, s:o, s:f, s:f, s:I, s:f, s:f, s:f, s:b}",
        "is_prediction", true, "trits_choice", trits_reason_name(r->plan->trits.reason), "model",
        r->plan->model->path, "machine", r->machine ? r->machine : "this one", "dataflow",
        r->plan->options.dataflow == DATAFLOW_ROW ? "row" : "column", "threads",
        r->plan->layout->n_threads, "depth", (int)r->options->depth, "from", from, "nodes",
        json_nodes(r), "time", time, "token_s", p->seconds, "tokens_s", 1 / p->seconds, "bytes",
        (json_int_t)p->bytes, "bytes_s", bytes_s, "bandwidth_share", bytes_s / p->bandwidth,
        "wait_share", wait_share(p), "cached", p->is_cached);
    return json_out(out, all, 0, err);
}

static enum status predict(struct report *r, const struct topology *topology, bool is_json,
                           FILE *out, struct error *err)
{
    TRY(known_speed_find(&r->known, r->plan, topology, r->options, err));
    enum status status =
        predict_token(r->plan, &r->known.speed, (int)r->options->depth, &r->prediction, err);
    if (status == STATUS_OK && is_json)
        status = print_json(out, r, err);
    else if (status == STATUS_OK)
        print_text(out, r);
    known_speed_done(&r->known);
    return status;
}

/* The context has to hold the token. */
static int n_ctx_for(const struct engine_options *options, int64_t depth)
{
    return options->n_ctx > depth ? options->n_ctx : (int)depth + 1;
}

enum status inspect_predict(const struct model *model, const struct engine_options *options,
                            const char *machine, const struct predict_options *wishes, bool is_json,
                            FILE *out, struct error *err)
{
    struct engine *engine;
    if (options->kv_placement != PLACEMENT_LOCAL || options->weights_placement != PLACEMENT_LOCAL)
        return fail(err, STATUS_USAGE,
                    "--predict knows local memory only: leave --kv-placement and "
                    "--weights-placement out");
    struct engine_options planned = *options;
    planned.n_ctx = n_ctx_for(options, wishes->depth);
    struct topology_source source = {.xml = machine};
    TRY(engine_plan_on(&engine, model, &planned, machine ? &source : NULL, err));
    struct report report = {.plan = engine_plan_of(engine), .machine = machine, .options = wishes};
    enum status status = predict(&report, engine_topology_of(engine), is_json, out, err);
    engine_close(engine);
    return status;
}
