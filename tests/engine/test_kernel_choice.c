/* What a timing chooses: the timing itself with kernels of known speed, trits4 or trits5, and products
 * on tiles, which are emulated here and lose. */
#include <stdatomic.h>

#include "base/clock.h"
#include "base/memory.h"
#include "engine/kernel_choice.h"
#include "engine/kernel_speed.h"
#include "engine/plan.h"
#include "engine_run.h"
#include "machine/cpu_features.h"

#define UNIT_NS 200000

static _Atomic int n_runs[2];

static void spin(int64_t ns)
{
    int64_t until = clock_ns() + ns;
    while (clock_ns() < until)
        ;
}

/* A matrix of twice the weights in the same time, and another in four times that. */
static void run_quick(const union job *job, int begin, int end)
{
    n_runs[0] += job->matmul.n_tokens == 3 && begin < end;
    spin(UNIT_NS);
}

static void run_slow(const union job *job, int begin, int end)
{
    n_runs[1] += job->matmul.n_tokens == 3 && begin < end;
    spin(4 * UNIT_NS);
}

struct team {
    struct topology topology;
    struct team_layout layout;
    struct thread_team *team;
};

static void team_start(struct team *t)
{
    struct error err;
    struct team_request request = {.n_threads = 2, .n_nodes = 1};
    if (topology_read(&t->topology, NULL, &err) != STATUS_OK ||
        team_layout_make(&t->layout, &t->topology, &request, &err) != STATUS_OK ||
        team_open(&t->team, &t->layout, false, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static void team_end(struct team *t)
{
    team_close(t->team);
    team_layout_done(&t->layout);
    topology_done(&t->topology);
}

/* Four times the time for the same weights; for eight times the weights; margins; no memory. */
static void test_timing(void **state)
{
    (void)state;
    struct team t;
    struct error err;
    team_start(&t);
    struct kernel_trial quick = {run_quick, {PACKING_trits4, 0, 64, 64, NULL}, 3}, slow = quick;
    slow.run = run_slow;
    bool is_faster[4];
    struct kernel_trial large = slow;
    large.w.n_rows *= 64;
    assert_int_equal(
        kernel_faster(&is_faster[0], &quick, &slow, 0, 1e-3, t.team, &t.topology, &err), STATUS_OK);
    assert_int_equal(
        kernel_faster(&is_faster[1], &slow, &quick, 0, 1e-3, t.team, &t.topology, &err), STATUS_OK);
    assert_int_equal(
        kernel_faster(&is_faster[2], &quick, &slow, 1000, 1e-3, t.team, &t.topology, &err),
        STATUS_OK);
    assert_int_equal(
        kernel_faster(&is_faster[3], &large, &quick, 0, 1e-3, t.team, &t.topology, &err),
        STATUS_OK);
    assert_true(is_faster[0] && !is_faster[1] && !is_faster[2] && is_faster[3]);
    assert_true(n_runs[0] > 0 && n_runs[1] > 0);
    for (int fails = 0; fails < 8; fails++) {
        memory_fail_after(fails);
        enum status status =
            kernel_faster(&is_faster[0], &quick, &slow, 0, 1e-3, t.team, &t.topology, &err);
        memory_fail_after(-1);
        assert_true(status == STATUS_MEMORY || (status == STATUS_OK && fails > 1));
    }
    team_end(&t);
}

/* A packing of the plan's projections. */
static enum packing packing_of(const struct engine *engine)
{
    return engine_plan_of(engine)->slices.nodes[0].layers[0].gate_up.w.packing;
}

/* Both can be asked for, and give the same bits; small models are not timed. */
static void test_trits(void **state)
{
    (void)state;
    struct model model;
    int32_t tokens[8];
    open_tiny(&model, "TQ2_0");
    fill_tokens(tokens, 8, model.config.n_vocab, 2);
    struct engine_options options = {.isa = cpu_best_isa(), .n_threads = 2, .n_nodes = 1};
    bool is_fast = kernel_select(OP_matmul, PACKING_trits5, options.isa)->isa != ISA_scalar;
    float *logits[3];
    for (enum trits trits = TRITS_AUTO; trits <= TRITS_5; trits++) {
        options.trits = trits;
        struct engine *engine = open_engine(&model, &options);
        bool is_5 = trits == TRITS_5 || (trits == TRITS_AUTO && is_fast);
        assert_int_equal(packing_of(engine), is_5 ? PACKING_trits5 : PACKING_trits4);
        engine_close(engine);
        logits[trits] = run_engine(&model, options, tokens, 8, 8);
        if (trits)
            expect_same_bits(logits[trits], logits[0], 8, model.config.n_vocab, "trits");
    }
    for (int i = 0; i < 3; i++)
        free(logits[i]);
    model_close(&model);
}

/* A model as large as one that is timed: the two are asked which is faster, and it is one of them. */
static void test_trits_timed(void **state)
{
    (void)state;
    struct team t;
    struct error err;
    struct model model;
    team_start(&t);
    open_tiny(&model, "TQ2_0");
    struct engine_options options = {.isa = cpu_best_isa(), .is_unpinned = true};
    assert_int_equal(
        kernel_choose_trits(&options, &model, (uint64_t)1 << 40, &t.topology, t.team, &err),
        STATUS_OK);
    bool is_fast = kernel_select(OP_matmul, PACKING_trits5, options.isa)->isa != ISA_scalar;
    assert_true(options.trits == TRITS_4 || (is_fast && options.trits == TRITS_5));
    if (is_fast) {
        options.trits = TRITS_AUTO;
        memory_fail_after(0);
        assert_int_equal(
            kernel_choose_trits(&options, &model, (uint64_t)1 << 40, &t.topology, t.team, &err),
            STATUS_MEMORY);
        memory_fail_after(-1);
    }
    model_close(&model);
    team_end(&t);
}

/* Tiles in software are slower than AVX-512 by far: the engine leaves them, whatever was asked for, and
 * says so; and a product of many tokens runs. */
static void test_tiles_lose(void **state)
{
    (void)state;
    if (!cpu_has_isa(ISA_avx512vbmi)) {
        print_message("skipped: needs avx512vbmi\n");
        skip();
    }
    static const char *const types[] = {"TQ2_0", "Q4_K", "Q6_K"};
    for (int i = 0; i < 3; i++) {
        struct model model;
        int32_t tokens[40];
        char text[600];
        open_tiny(&model, types[i]);
        fill_tokens(tokens, 40, model.config.n_vocab, 2);
        struct engine_options options = {.isa = ISA_amx, .n_threads = 2, .n_nodes = 1};
        struct engine *engine;
        struct error err;
        assert_int_equal(engine_plan(&engine, &model, &options, &err), STATUS_OK);
        engine_describe(engine, text, sizeof text);
        assert_non_null(strstr(text, "_amx"));
        engine_close(engine);
        engine = open_engine(&model, &options);
        engine_describe(engine, text, sizeof text);
        if (strstr(text, "_amx,") || strstr(text, "_amx;") || !strstr(text, "_avx512"))
            fail_msg("%s", text);
        engine_close(engine);
        float *chosen = run_engine(&model, options, tokens, 40, 40);
        options.isa = ISA_scalar;
        float *scalar = run_engine(&model, options, tokens, 40, 40);
        expect_same_bits(chosen, scalar, 40, model.config.n_vocab, types[i]);
        free(chosen);
        free(scalar);
        model_close(&model);
    }
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timing),
        cmocka_unit_test(test_trits),
        cmocka_unit_test(test_trits_timed),
        cmocka_unit_test(test_tiles_lose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
