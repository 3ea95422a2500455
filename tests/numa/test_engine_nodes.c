/* The engine on a machine that really has several nodes (scripts/check_numa): every slice and the
 * cache lie where they should, both dataflows give the bits of one node, cpusets are kept to. Without
 * --nodes everything is skipped. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "../engine/engine_run.h"
#include "engine/plan.h"
#include "machine/cpu_features.h"
#include "machine/node_memory.h"

#define MODEL    "models/trine-kjv.gguf"
#define N_TOKENS 12

static int n_nodes; /* of the machine, with CPUs; 0: not one of those machines */
static int cpu0[16], n_node_cpus[16];

static void parse_nodes(int argc, char **argv)
{
    const char *text = "";
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], "--nodes") == 0)
            text = argv[i + 1];
    int n_cpus = 0, here, mib, length;
    while (n_nodes < 16 && sscanf(text, "%d/%d%n", &here, &mib, &length) == 2) {
        cpu0[n_nodes] = n_cpus;
        n_node_cpus[n_nodes++] = here;
        n_cpus += here;
        text += length + (text[length] == ',');
    }
}

#define NEED_NODES() NEED(n_nodes ? MODEL : NULL, "a machine of scripts/check_numa")

static struct engine_options options_of(int nodes, enum dataflow dataflow)
{
    return (struct engine_options){.n_nodes = nodes,
                                   .isa = cpu_best_isa(),
                                   .n_ctx = 512,
                                   .n_batch = N_TOKENS,
                                   .n_logits = N_TOKENS,
                                   .dataflow = dataflow,
                                   .act_scale = ACT_SCALE_TOKEN};
}

static void logits_of(struct engine *engine, const struct model *model, float *logits)
{
    int32_t tokens[N_TOKENS];
    fill_tokens(tokens, N_TOKENS, model->config.n_vocab, 7);
    struct session *session = open_session(engine);
    run_pieces(engine, session, model->config.n_vocab, tokens, N_TOKENS, 5, logits);
    session_close(session);
}

/* Every page of every slice is on the node that reads it. */
static void check_slices(const struct engine *engine)
{
    const struct plan *plan = engine_plan_of(engine);
    for (int node = 0; node < plan->layout->n_nodes; node++) {
        const struct node_slices *own = &plan->slices.nodes[node];
        assert_int_equal(own->n_slices, 6 * plan->model->config.n_layer + 1);
        for (int i = 0; i < own->n_slices; i++) {
            struct page_report pages = {0};
            uint64_t bytes = weight_slice_bytes(own->slices[i]);
            if (bytes == 0)
                continue;
            page_report_add(&pages, own->slices[i]->w.data, bytes,
                            plan->layout->nodes[node].memory_node, UINT64_MAX);
            assert_true(pages.is_known);
            if (pages.n_right != pages.n_sampled)
                fail_msg("%s of node %d: %d of %d pages are there", own->slices[i]->role, node,
                         (int)pages.n_right, (int)pages.n_sampled);
        }
    }
    struct engine_report report;
    engine_report(engine, &report);
    assert_true(report.is_bound);
    assert_true(report.placed == 1.0); /* the cache too */
}

static void check_dataflow(enum dataflow dataflow)
{
    struct model model;
    open_model(&model, MODEL);
    size_t bytes = (size_t)N_TOKENS * (size_t)model.config.n_vocab * sizeof(float);
    float *want = test_alloc(bytes, 1), *got = test_alloc(bytes, 1);
    struct engine_options options = options_of(1, DATAFLOW_COLUMN);
    struct engine *engine = open_engine(&model, &options);
    logits_of(engine, &model, want);
    engine_close(engine);

    options = options_of(n_nodes, dataflow);
    engine = open_engine(&model, &options);
    const struct team_layout *layout = engine_plan_of(engine)->layout;
    assert_int_equal(layout->n_nodes, n_nodes);
    assert_false(layout->is_virtual);
    logits_of(engine, &model, got);
    check_slices(engine);
    assert_memory_equal(got, want, bytes);
    engine_close(engine);
    free(want);
    free(got);
    model_close(&model);
}

static void test_column(void **state)
{
    (void)state;
    NEED_NODES();
    check_dataflow(DATAFLOW_COLUMN);
}

static void test_row(void **state)
{
    (void)state;
    NEED_NODES();
    check_dataflow(DATAFLOW_ROW);
}

/* The plain pass in float: int8 activations and the f16 cache move logits of this model by up to 0.3. */
static void test_reference(void **state)
{
    (void)state;
    NEED_NODES();
    struct model model;
    struct error err;
    open_model(&model, MODEL);
    size_t n = (size_t)N_TOKENS * (size_t)model.config.n_vocab;
    float *want = test_alloc(n, sizeof *want), *got = test_alloc(n, sizeof *got);
    int32_t tokens[N_TOKENS];
    fill_tokens(tokens, N_TOKENS, model.config.n_vocab, 7);
    struct reference *reference;
    struct reference_options reference_options = {.n_ctx = 64, .max_batch = N_TOKENS};
    assert_int_equal(reference_open(&reference, &model, &reference_options, &err), STATUS_OK);
    reference_forward(reference, tokens, N_TOKENS, want, N_TOKENS);
    reference_close(reference);
    struct engine_options options = options_of(n_nodes, DATAFLOW_COLUMN);
    struct engine *engine = open_engine(&model, &options);
    logits_of(engine, &model, got);
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) < 0.6f))
            fail_msg("logit %d: %f, reference %f", (int)i, (double)got[i], (double)want[i]);
    engine_close(engine);
    free(want);
    free(got);
    model_close(&model);
}

/* By itself the engine keeps a small model on one node and gives a large one all. */
static void test_automatic(void **state)
{
    (void)state;
    NEED_NODES();
    assert_int_equal(engine_best_nodes(n_nodes, 2400000000u, 32), n_nodes);
    assert_int_equal(engine_best_nodes(n_nodes, 2667808u, 8), 1);
    struct model model;
    open_model(&model, MODEL);
    struct engine_options options = options_of(0, DATAFLOW_AUTO);
    struct engine *engine = open_engine(&model, &options);
    assert_int_equal(engine_plan_of(engine)->layout->n_nodes, 1);
    char text[512];
    engine_describe(engine, text, sizeof text);
    assert_non_null(strstr(text, "too small"));
    engine_close(engine);
    model_close(&model);
}

/* Two nodes allowed: threads and weights stay on them. */
static void test_affinity(void **state)
{
    (void)state;
    NEED_NODES();
    cpu_set_t before, allowed;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&allowed);
    for (int node = 1; node < 3; node++)
        for (int i = 0; i < n_node_cpus[node]; i++)
            CPU_SET(cpu0[node] + i, &allowed);
    assert_int_equal(sched_setaffinity(0, sizeof allowed, &allowed), 0);
    struct model model;
    open_model(&model, MODEL);
    struct engine_options options = options_of(2, DATAFLOW_COLUMN);
    struct engine *engine = open_engine(&model, &options);
    const struct team_layout *layout = engine_plan_of(engine)->layout;
    assert_false(layout->is_virtual);
    for (int i = 0; i < layout->n_threads; i++)
        assert_true(CPU_ISSET(layout->cpus[i], &allowed));
    check_slices(engine);
    engine_close(engine);
    model_close(&model);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

int main(int argc, char **argv)
{
    parse_nodes(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_column),    cmocka_unit_test(test_row),
        cmocka_unit_test(test_reference), cmocka_unit_test(test_automatic),
        cmocka_unit_test(test_affinity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
