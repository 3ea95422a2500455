/* What the plan of a small model says of itself: barriers of a layer, bytes of the slices, what is
 * read and written across nodes. */
#include "../fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/plan_print.h"

#define N_LAYERS 2 /* of the fixture */

/* A plan on a machine that need not be this one. */
struct planned {
    struct model model;
    struct topology topology;
    struct team_layout layout;
    struct plan plan;
    struct plan_listing listing;
};

static void plan(struct planned *p, const char *machine, struct engine_options options)
{
    struct error err;
    const char *path = scratch_path("plan.gguf");
    fixture_write(path, &(struct fixture){.format = FORMAT_TQ2_0, .real_output = true, .seed = 3});
    struct topology_source source = {.synthetic = machine};
    if (model_open(&p->model, path, &err) != STATUS_OK ||
        topology_read(&p->topology, &source, &err) != STATUS_OK ||
        team_layout_make(&p->layout, &p->topology, &(struct team_request){0}, &err) != STATUS_OK ||
        plan_make(&p->plan, &p->model, &p->layout, &options, NULL, &err) != STATUS_OK ||
        plan_listing_make(&p->listing, &p->plan, 1, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static void done(struct planned *p)
{
    plan_listing_done(&p->listing);
    plan_done(&p->plan);
    team_layout_done(&p->layout);
    topology_done(&p->topology);
    model_close(&p->model);
}

#define TWO_NODES "node:2 core:2 pu:1"

static int count_syncs(const struct plan_listing *l, enum sync sync)
{
    const struct plan_stretch *s = plan_main_stretch(l);
    int n = 0;
    for (int i = 0; i < s->n_steps; i++)
        n += plan_row(l, 0, s->step0 + i).sync == sync;
    return n;
}

/* Global and node barriers of a layer of one token on two nodes. */
static void assert_syncs(struct engine_options options, int n_global, int n_node)
{
    struct planned p;
    plan(&p, TWO_NODES, options);
    assert_int_equal(count_syncs(&p.listing, options.is_flat_barrier ? SYNC_FLAT : SYNC_GLOBAL),
                     n_global);
    assert_int_equal(count_syncs(&p.listing, SYNC_NODE), n_node);
    struct plan_totals t = plan_totals(&p.listing, 1);
    assert_int_equal(t.n_global_syncs, N_LAYERS * n_global + 1); /* the logits */
    /* the embedding; with leaders also the chosen column and its norm */
    int n_outside = options.quantise == QUANTISE_LEADER ? 3 : 1;
    assert_int_equal(t.n_node_syncs, N_LAYERS * n_node + n_outside);
    done(&p);
}

static void test_barriers_of_a_layer(void **state)
{
    (void)state;
    struct engine_options column = {.dataflow = DATAFLOW_COLUMN}, row = {.dataflow = DATAFLOW_ROW};
    assert_syncs(column, 2, 5);
    assert_syncs(row, 4, 1);
    row.row_attention = ROW_ATTENTION_POSITION;
    assert_syncs(row, 5, 0);
    struct engine_options leaders = column;
    leaders.quantise = QUANTISE_LEADER;
    assert_syncs(leaders, 2, 10); /* four leader steps and the fold more */
    struct engine_options token = column;
    token.act_scale = ACT_SCALE_TOKEN;
    assert_syncs(token, 4, 6); /* two exchanges of largest values; the fold is a step */
    struct engine_options more = column;
    more.n_extra_barriers = 3;
    assert_syncs(more, 5, 5);
    more.n_extra_barriers = 0;
    more.n_promoted_barriers = 3;
    assert_syncs(more, 5, 2);
    more.is_flat_barrier = true;
    assert_syncs(more, 5, 2);
}

/* What the steps read is what the slices hold: every weight once. */
static void test_bytes(void **state)
{
    (void)state;
    for (int dataflow = DATAFLOW_COLUMN; dataflow <= DATAFLOW_ROW; dataflow++) {
        struct planned p;
        plan(&p, TWO_NODES, (struct engine_options){.dataflow = (enum dataflow)dataflow});
        for (int node = 0; node < 2; node++) {
            const struct node_slices *own = &p.plan.slices.nodes[node];
            assert_int_equal(own->n_slices, 6 * N_LAYERS + 1);
            uint64_t bytes = 0;
            for (int i = 0; i < own->n_slices; i++)
                bytes += weight_slice_bytes(own->slices[i]);
            assert_int_equal(plan_totals(&p.listing, node).bytes, bytes);
            assert_int_equal(p.plan.sizes[node].weights, bytes);
        }
        done(&p);
    }
}

/* The fixture's layers are alike, and said once; rows of gate and up are those of both nodes. */
static void test_stretches(void **state)
{
    (void)state;
    struct planned p;
    plan(&p, TWO_NODES, (struct engine_options){.dataflow = DATAFLOW_ROW});
    const struct plan_listing *l = &p.listing;
    assert_int_equal(l->n_stretches, 3);
    assert_int_equal(l->stretches[1].layer, 0);
    assert_int_equal(l->stretches[1].n_layers, N_LAYERS);
    int n_found = 0;
    for (int i = 0; i < l->stretches[1].n_steps; i++) {
        struct plan_row a = plan_row(l, 0, l->stretches[1].step0 + i);
        struct plan_row b = plan_row(l, 1, l->stretches[1].step0 + i);
        if (a.kind != STEP_GATE_UP)
            continue;
        assert_int_equal(a.n_rows + b.n_rows, 2 * p.model.config.n_ff);
        assert_int_equal(a.n_units, (a.n_rows + a.grain - 1) / a.grain);
        assert_non_null(strstr(a.kernels, "matmul_"));
        assert_string_equal(a.each, "rms_norm");
        assert_int_equal(a.writes, REACH_ALL);
        n_found++;
    }
    assert_int_equal(n_found, 1);
    done(&p);
}

/* Steps of a kind that read from, or write to, other nodes. */
static int count_reach(const struct plan_listing *l, enum step_kind kind, bool is_read)
{
    const struct plan_stretch *s = plan_main_stretch(l);
    int n = 0;
    for (int i = 0; i < s->n_steps; i++) {
        struct plan_row row = plan_row(l, 0, s->step0 + i);
        n += row.kind == kind && (is_read ? row.reads : row.writes) == REACH_ALL;
    }
    return n;
}

static void test_reach(void **state)
{
    (void)state;
    struct planned p;
    plan(&p, TWO_NODES, (struct engine_options){.dataflow = DATAFLOW_COLUMN});
    assert_int_equal(count_reach(&p.listing, STEP_REDUCE, true), 2);
    assert_int_equal(count_reach(&p.listing, STEP_GATE_UP, false), 0);
    assert_int_equal(count_reach(&p.listing, STEP_DOWN, false), 0);
    done(&p);
    plan(&p, TWO_NODES, (struct engine_options){.dataflow = DATAFLOW_ROW});
    assert_int_equal(count_reach(&p.listing, STEP_ATTN_OUTPUT, false), 1);
    assert_int_equal(count_reach(&p.listing, STEP_GATE_UP, false), 1);
    assert_int_equal(count_reach(&p.listing, STEP_DOWN, false), 1);
    done(&p);
    plan(&p, "node:1 core:4 pu:1", (struct engine_options){.dataflow = DATAFLOW_COLUMN});
    assert_int_equal(count_syncs(&p.listing, SYNC_GLOBAL), 0);
    assert_int_equal(count_reach(&p.listing, STEP_DOWN, false), 0);
    done(&p);
}

/* Nodes wait for each other by the number of a step: their lists have the same steps in the same
 * order, also on nodes that have no heads. */
static void test_lists_of_all_nodes_agree(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++) {
        struct engine_options options = {.dataflow = i & 1 ? DATAFLOW_ROW : DATAFLOW_COLUMN};
        options.quantise = i & 2 ? QUANTISE_LEADER : QUANTISE_AUTO;
        options.act_scale = i & 4 ? ACT_SCALE_TOKEN : ACT_SCALE_NODE;
        options.row_scatter = i & 8 ? ROW_SCATTER_COPY : ROW_SCATTER_DIRECT;
        struct planned p;
        plan(&p, "node:12 core:1 pu:1", options);
        const int64_t *heads = p.plan.slices.cut.heads;
        int n_idle = 0;
        for (int kind = 0; kind < N_PROGRAMS; kind++) {
            const struct program *first = &p.plan.programs[kind][0];
            for (int node = 0; node < 12; node++) {
                const struct program *own = &p.plan.programs[kind][node];
                n_idle += heads[node] == heads[node + 1];
                assert_int_equal(own->n_steps, first->n_steps);
                for (int s = 0; s < own->n_steps; s++) {
                    assert_int_equal(own->steps[s].kind, first->steps[s].kind);
                    assert_int_equal(own->steps[s].layer, first->steps[s].layer);
                    assert_int_equal(own->steps[s].sync, first->steps[s].sync);
                }
            }
        }
        assert_true(n_idle > 0);
        done(&p);
    }
}

static char *printed(void (*print)(FILE *, const struct plan_listing *),
                     const struct plan_listing *l)
{
    size_t size;
    const char *path = scratch_path("print");
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    print(out, l);
    fclose(out);
    return read_whole(path, &size);
}

static int count_text(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = strstr(text, what); at; at = strstr(at + 1, what))
        n++;
    return n;
}

/* The picture: a box for each step and node, a bar for each global barrier, arrows of every pair. */
static void test_prints(void **state)
{
    (void)state;
    struct planned p;
    plan(&p, TWO_NODES, (struct engine_options){.dataflow = DATAFLOW_COLUMN});
    char *text = printed(plan_print_text, &p.listing), *svg = printed(plan_print_svg, &p.listing);
    assert_int_equal(count_text(text, "layers 0 to 1, 2 alike"), 1);
    assert_int_equal(count_text(text, "    reduce "), 2); /* nodes 0 and 1 are said once */
    assert_non_null(strstr(text, "5 global barriers"));
    assert_int_equal(count_text(svg, ">global barrier<"), 2);
    assert_int_equal(count_text(svg, ">reduce<"), 2 * 2);
    assert_int_equal(count_text(svg, ">partial sum<"), 2 * 2);
    assert_int_equal(count_text(svg, "class=\"far\" marker"), 2 * 2);
    assert_int_equal(count_text(svg, "<svg"), 1);
    assert_int_equal(count_text(svg, "</svg>"), 1);
    free(text);
    free(svg);
    done(&p);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_barriers_of_a_layer),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_stretches),
        cmocka_unit_test(test_reach),
        cmocka_unit_test(test_prints),
        cmocka_unit_test(test_lists_of_all_nodes_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
