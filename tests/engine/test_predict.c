/* What predict_token charges for the plan of a small model, against sums by hand. */
#include "../fixture.h"

#include <math.h>

#include "base/clock.h"
#include "engine/kernel_speed.h"
#include "engine/plan_print.h"
#include "engine/predict.h"

#define N_LAYERS 2 /* of the fixture */

/* A plan on a machine that need not be this one. */
struct planned {
    struct model model;
    struct topology topology;
    struct team_layout layout;
    struct plan plan;
};

static void plan(struct planned *p, const char *machine, struct engine_options options)
{
    struct error err;
    const char *path = scratch_path("predict.gguf");
    fixture_write(path, &(struct fixture){.format = FORMAT_TQ2_0, .real_output = true, .seed = 3});
    struct topology_source source = {.synthetic = machine};
    if (model_open(&p->model, path, &err) != STATUS_OK ||
        topology_read(&p->topology, &source, &err) != STATUS_OK ||
        team_layout_make(&p->layout, &p->topology, &(struct team_request){0}, &err) != STATUS_OK ||
        plan_make(&p->plan, &p->model, &p->layout, &options, NULL, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static void done(struct planned *p)
{
    plan_done(&p->plan);
    team_layout_done(&p->layout);
    topology_done(&p->topology);
    model_close(&p->model);
}

/* Memory of 1 GB/s a node, and nothing else takes time. */
static const double gigabytes[4] = {1e9, 1e9, 1e9, 1e9};
static const struct machine_speed plain = {
    .node_bytes_s = gigabytes, .core_bytes_s = 1e9, .share = 1};

static struct prediction predicted(const char *machine, struct engine_options options,
                                   const struct machine_speed *speed, int depth)
{
    struct planned p;
    struct prediction prediction;
    plan(&p, machine, options);
    assert_int_equal(predict_token(&p.plan, speed, depth, &prediction, NULL), STATUS_OK);
    done(&p);
    return prediction;
}

static double seconds_of(const char *machine, struct engine_options options,
                         const struct machine_speed *speed, int depth)
{
    return predicted(machine, options, speed, depth).seconds;
}

static void assert_close(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fabs(b)))
        fail_msg("%.12g is not %.12g", a, b);
}

#define ONE_CORE   "node:1 core:1 pu:1"
#define FOUR_CORES "node:1 core:4 pu:1"
#define TWO_NODES  "node:2 core:2 pu:1"

static const struct engine_options column = {.dataflow = DATAFLOW_COLUMN};

/* One thread reads every weight once, and keys and values (of 128 elements in f16) of one position
 * in 2 layers. */
static void test_streaming(void **state)
{
    (void)state;
    struct planned p;
    plan(&p, ONE_CORE, column);
    const int64_t kv = 2 * 2 * 128 * N_LAYERS;
    struct prediction at0, at700;
    assert_int_equal(predict_token(&p.plan, &plain, 0, &at0, NULL), STATUS_OK);
    assert_int_equal(predict_token(&p.plan, &plain, 700, &at700, NULL), STATUS_OK);
    assert_int_equal(at0.bytes, p.plan.sizes[0].weights + kv);
    assert_int_equal(at700.bytes, p.plan.sizes[0].weights + 701 * kv);
    assert_int_equal(predict_node_bytes(&p.plan, 0, 700), at700.bytes);
    assert_close(at0.seconds, (double)at0.bytes / 1e9);
    assert_close(at700.seconds - at0.seconds, 700 * (double)kv / 1e9);
    assert_close(at0.bandwidth, 1e9);

    struct machine_speed half = plain;
    half.share = 0.5; /* of memory, not of the core */
    half.core_bytes_s = 1e12;
    assert_int_equal(predict_token(&p.plan, &half, 0, &at700, NULL), STATUS_OK);
    assert_close(at700.seconds, 2 * at0.seconds);
    done(&p);
}

/* Layers are cut in halves (the fixture's sizes allow it), so two nodes need half the time. */
static void test_two_nodes(void **state)
{
    (void)state;
    double one = seconds_of(ONE_CORE, column, &plain, 0);
    struct prediction two = predicted("node:2 core:1 pu:1", column, &plain, 0);
    assert_true(two.seconds < 0.52 * one && two.seconds > 0.49 * one);
    assert_close(two.bandwidth, 2e9);

    /* A slow node holds up the other: the time is that of its bytes, step by step. */
    static const double unequal[2] = {1e12, 1e9};
    struct machine_speed slow = plain;
    slow.node_bytes_s = unequal;
    slow.core_bytes_s = 1e12;
    assert_close(seconds_of("node:2 core:1 pu:1", column, &slow, 0), two.seconds);
}

/* Cores that saturate memory together, and cores that don't. */
static void test_cores(void **state)
{
    (void)state;
    struct machine_speed cores = plain;
    double one = seconds_of(ONE_CORE, column, &plain, 0);
    assert_close(seconds_of(FOUR_CORES, column, &cores, 0), one); /* any of them takes it all */
    cores.core_bytes_s = 0.25e9;
    double four = seconds_of(FOUR_CORES, column, &cores, 0);
    assert_true(four > one); /* not all steps have a multiple of four units */
    assert_close(seconds_of(ONE_CORE, column, &cores, 0), 4 * one);
    assert_true(four < 4 * one);
}

/* Barriers of a plan, counted by the listing, each at its own price. */
static void assert_barriers(const char *machine, struct engine_options options)
{
    struct machine_speed speed = plain;
    double without = seconds_of(machine, options, &speed, 0);
    speed.node_s = 1e-6;
    speed.global_s = 1e-3;
    speed.flat_s = 5;
    struct prediction with = predicted(machine, options, &speed, 0);
    struct planned p;
    struct plan_listing listing;
    plan(&p, machine, options);
    assert_int_equal(plan_listing_make(&listing, &p.plan, 1, NULL), STATUS_OK);
    struct plan_totals t = plan_totals(&listing, 0);
    double global_s = options.is_flat_barrier ? speed.flat_s : speed.global_s;
    assert_close(with.time.node_s, t.n_node_syncs * speed.node_s);
    assert_close(with.time.global_s, t.n_global_syncs * global_s);
    assert_close(with.seconds, without + with.time.node_s + with.time.global_s);
    plan_listing_done(&listing);
    done(&p);
}

static void test_barriers(void **state)
{
    (void)state;
    struct engine_options options = column;
    assert_barriers(TWO_NODES, options);
    options.quantise = QUANTISE_LEADER;
    assert_barriers(TWO_NODES, options);
    options.dataflow = DATAFLOW_ROW;
    assert_barriers(TWO_NODES, options);
    options.row_attention = ROW_ATTENTION_POSITION;
    assert_barriers(TWO_NODES, options);
    options.is_flat_barrier = true;
    assert_barriers(TWO_NODES, options);
}

/* The experiments act through the plan. */
static void test_barrier_switches(void **state)
{
    (void)state;
    struct machine_speed speed = plain;
    speed.node_s = 1e-6;
    speed.global_s = 1e-3;
    struct engine_options options = column;
    double usual = seconds_of(TWO_NODES, options, &speed, 0);
    options.n_extra_barriers = 3;
    assert_close(seconds_of(TWO_NODES, options, &speed, 0), usual + 3 * N_LAYERS * speed.global_s);
    options.n_extra_barriers = 0;
    options.n_promoted_barriers = 3;
    assert_close(seconds_of(TWO_NODES, options, &speed, 0),
                 usual + 3 * N_LAYERS * (speed.global_s - speed.node_s));

    /* one node: a global barrier is one of the node; one thread waits for nobody */
    struct prediction one = predicted(FOUR_CORES, column, &speed, 0);
    assert_true(one.time.node_s > 0 && one.time.global_s == 0);
    assert_true(predicted(ONE_CORE, column, &speed, 0).time.node_s == 0);
}

/* Static rows: a share of the work for every further thread. Threads that help are late by half a
 * unit at most, so never more. */
static void test_late_threads(void **state)
{
    (void)state;
    struct machine_speed speed = plain;
    speed.late = 0.1;
    struct engine_options options = column;
    options.is_static_rows = true;
    struct prediction fixed = predicted(FOUR_CORES, options, &speed, 0);
    assert_close(fixed.time.late_s, 3 * 0.1 * fixed.time.stream_s);
    assert_close(fixed.seconds, 1.3 * seconds_of(FOUR_CORES, options, &plain, 0));
    assert_true(predicted(ONE_CORE, options, &speed, 0).time.late_s == 0);
    struct prediction helped = predicted(FOUR_CORES, column, &speed, 0);
    assert_close(helped.time.stream_s, fixed.time.stream_s);
    assert_true(helped.time.late_s > 0 && helped.time.late_s <= fixed.time.late_s);
    speed.late = 100;
    struct prediction worst = predicted(FOUR_CORES, column, &speed, 0);
    assert_true(worst.time.late_s <= 2 * worst.time.stream_s); /* steps of one unit: T / 2U = 2 */
}

/* A layer norms its width (256) twice and quantises the inputs of O (256) and down (512); the
 * embedding and the output's norm are 256 each. Folding one chunk and copying the wanted column
 * are the rest: every element once, as one thread on one node does it. */
static void test_preparation(void **state)
{
    (void)state;
    struct machine_speed speed = plain;
    speed.element_s = 1e-6;
    struct prediction each = predicted(ONE_CORE, column, &speed, 0);
    double elements = N_LAYERS * (256 + 256 + 512 + 256 + 256) + 3 * 256;
    assert_close(each.time.prepare_s, elements * speed.element_s);
    assert_true(each.time.leader_s == 0);
    struct engine_options options = column;
    options.quantise = QUANTISE_LEADER;
    struct prediction leader = predicted(FOUR_CORES, options, &speed, 0);
    double led = N_LAYERS * (256 + 256 + 512 + 256) + 2 * 256;
    assert_close(leader.time.leader_s, led * speed.element_s);
}

/* Two nodes quantise only their own inputs of O and down in column-split, all of them row-owned. */
static void test_leaders_of_dataflows(void **state)
{
    (void)state;
    struct machine_speed speed = plain;
    speed.element_s = 1e-6;
    struct engine_options options = {.dataflow = DATAFLOW_COLUMN, .quantise = QUANTISE_LEADER};
    double split = predicted(TWO_NODES, options, &speed, 0).time.leader_s;
    options.dataflow = DATAFLOW_ROW;
    double owned = predicted(TWO_NODES, options, &speed, 0).time.leader_s;
    assert_close(owned - split, N_LAYERS * (256 + 512) / 2 * speed.element_s);
}

static void test_caches(void **state)
{
    (void)state;
    struct machine_speed speed = plain;
    double from_memory = seconds_of(FOUR_CORES, column, &plain, 0);
    speed.core_bytes_s = 100e9;
    speed.cache_bytes = 1 << 30;
    speed.cache_bytes_s = 4e9;
    struct prediction cached = predicted(FOUR_CORES, column, &speed, 0);
    assert_true(cached.is_cached);
    assert_close(cached.seconds, from_memory / 4);
    speed.cache_bytes = cached.bytes - 1;
    assert_false(predicted(FOUR_CORES, column, &speed, 0).is_cached);
    assert_close(seconds_of(FOUR_CORES, column, &speed, 0), from_memory);
}

/* Nothing that gets slower makes a token faster. */
static void test_monotony(void **state)
{
    (void)state;
    static const double half[2] = {0.5e9, 0.5e9};
    const struct machine_speed usual = {.node_bytes_s = gigabytes,
                                        .core_bytes_s = 0.4e9,
                                        .share = 0.9,
                                        .node_s = 1e-7,
                                        .global_s = 1e-6,
                                        .late = 0.01,
                                        .element_s = 1e-9};
    for (int i = 0; i < 4; i++) {
        struct engine_options o = {.dataflow = i & 1 ? DATAFLOW_ROW : DATAFLOW_COLUMN};
        o.quantise = i & 2 ? QUANTISE_LEADER : QUANTISE_AUTO;
        double s = seconds_of(TWO_NODES, o, &usual, 100);
        struct machine_speed slower[7] = {usual, usual, usual, usual, usual, usual, usual};
        slower[0].node_bytes_s = half;
        slower[1].core_bytes_s /= 4;
        slower[2].share /= 2;
        slower[3].node_s *= 2;
        slower[4].global_s *= 2;
        slower[5].late *= 2;
        slower[6].element_s *= 2;
        for (int k = 0; k < 7; k++)
            if (!(seconds_of(TWO_NODES, o, &slower[k], 100) > s))
                fail_msg("plan %d is no slower with change %d", i, k);
        assert_true(seconds_of(TWO_NODES, o, &usual, 1000) > s);
    }
}

/* Seconds that the product of a part takes for one token, on weights and activations of its own. */
static double product_seconds(const struct part *part)
{
    struct arena arena = {0};
    union job job = part->job;
    struct matmul_job *m = &job.matmul;
    m->w.data = arena_alloc(&arena, part->weight_bytes, 1);
    m->a.q = arena_alloc(&arena, (size_t)m->a.stride, sizeof *m->a.q);
    m->a.x = arena_alloc(&arena, (size_t)m->a.stride, sizeof *m->a.x);
    m->a.scale = arena_alloc(&arena, (size_t)m->a.n_scales + 1, sizeof *m->a.scale);
    m->a.sum = arena_alloc(&arena, (size_t)m->a.n_sums + 1, sizeof *m->a.sum);
    m->out = arena_alloc(&arena, (size_t)m->w.n_rows + TILE_ROWS, sizeof *m->out);
    m->scratch = arena_alloc(&arena, MATMUL_SCRATCH_BYTES, 1);
    m->epilogue = EPILOGUE_STORE;
    m->row_scale = m->token_scale = m->bias = NULL;
    m->n_tokens = 1;
    double best = 1e9;
    for (int i = 0; i < 20; i++) {
        int64_t begin = clock_ns();
        part->run(&job, 0, (int)m->w.n_rows);
        best = fmin(best, (double)(clock_ns() - begin) / 1e9);
    }
    arena_done(&arena);
    return best;
}

/* Bytes a second of all products of a token. */
static double products_bytes_s(const struct plan *plan)
{
    const struct program *program = &plan->programs[PROGRAM_FEW][0];
    double bytes = 0, seconds = 0;
    for (int s = 0; s < program->n_steps; s++)
        for (int i = 0; i < program->steps[s].n_parts; i++)
            if (program->steps[s].parts[i].weight_bytes > 0) {
                bytes += (double)program->steps[s].parts[i].weight_bytes;
                seconds += product_seconds(&program->steps[s].parts[i]);
            }
    return bytes / seconds;
}

/* The probe of kernels: within a factor 20 of the same products timed here (other programs may take
 * the core from one of the two, so it is tried three times), and no memory is said. */
static void test_kernel_probe(void **state)
{
    (void)state;
    struct planned p;
    double bytes_s = 0, ratio = 0;
    plan(&p, ONE_CORE, column);
    for (int i = 0; i < 3 && !(ratio > 1.0 / 20 && ratio < 20); i++) {
        assert_int_equal(
            kernel_speed_measure(&bytes_s, &p.plan, &p.topology, 0, 1 << 20, 0.01, NULL),
            STATUS_OK);
        ratio = bytes_s / products_bytes_s(&p.plan);
    }
    if (!(ratio > 1.0 / 20 && ratio < 20))
        fail_msg("%g bytes/s, %g of what a direct timing says", bytes_s, ratio);
    struct error err;
    memory_fail_after(0);
    assert_int_equal(kernel_speed_measure(&bytes_s, &p.plan, &p.topology, 0, 1 << 20, 0.01, &err),
                     STATUS_MEMORY);
    struct prediction prediction;
    assert_int_equal(predict_token(&p.plan, &plain, 0, &prediction, &err), STATUS_MEMORY);
    memory_fail_after(-1);
    done(&p);
}

/* Products that count their runs, one for each kind of packing. */
#define N_KINDS 12
static int n_runs[N_KINDS];
#define KIND_LIST(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define KIND_RUN(i)                                                                                \
    static void run_##i(const union job *job, int begin, int end)                                  \
    {                                                                                              \
        n_runs[i] += job && begin < end;                                                           \
    }
KIND_LIST(KIND_RUN)
#define KIND_NAME(i) run_##i,
static kernel *const runs[N_KINDS] = {KIND_LIST(KIND_NAME)};

/* A plan with more kinds than any has today: all of them are timed. */
static void test_many_kinds(void **state)
{
    (void)state;
    struct planned p;
    double bytes_s = 0;
    plan(&p, ONE_CORE, column);
    struct program *program = &p.plan.programs[PROGRAM_FEW][0], whole = *program;
    struct part parts[N_KINDS];
    const struct part *product = NULL;
    for (int s = 0; s < program->n_steps && !product; s++)
        for (int i = 0; i < program->steps[s].n_parts; i++)
            if (program->steps[s].parts[i].weight_bytes > 0)
                product = &program->steps[s].parts[i];
    assert_non_null(product);
    for (int i = 0; i < N_KINDS; i++) {
        parts[i] = *product;
        parts[i].run = runs[i];
    }
    struct step step = {.parts = parts, .n_parts = N_KINDS};
    *program = (struct program){.n_steps = 1, .steps = &step};
    assert_int_equal(kernel_speed_measure(&bytes_s, &p.plan, &p.topology, 0, 1 << 16, 1e-6, NULL),
                     STATUS_OK);
    *program = whole;
    for (int i = 0; i < N_KINDS; i++)
        if (n_runs[i] < 2)
            fail_msg("kind %d was not timed", i);
    done(&p);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streaming),
        cmocka_unit_test(test_two_nodes),
        cmocka_unit_test(test_cores),
        cmocka_unit_test(test_barriers),
        cmocka_unit_test(test_barrier_switches),
        cmocka_unit_test(test_late_threads),
        cmocka_unit_test(test_preparation),
        cmocka_unit_test(test_leaders_of_dataflows),
        cmocka_unit_test(test_caches),
        cmocka_unit_test(test_monotony),
        cmocka_unit_test(test_kernel_probe),
        cmocka_unit_test(test_many_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
