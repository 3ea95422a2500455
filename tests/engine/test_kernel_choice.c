/* What a timing chooses: the timing itself with kernels of known speed, trits4 or trits5, and products
 * on tiles, which are emulated here and lose. */
#include <stdatomic.h>

#include "../fixture.h"
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

/* Four times the time for the same weights; for 64 times the weights; no memory. */
static void test_timing(void **state)
{
    (void)state;
    struct team t;
    double s[2];
    team_start(&t);
    struct kernel_trial quick = {run_quick, {PACKING_trits4, 0, 64, 64, NULL}, 3}, slow = quick;
    slow.run = run_slow;
    struct kernel_trial large = slow;
    large.w.n_rows *= 64;
    assert_true(kernel_race(s, &quick, &slow, 1e-3, t.team, &t.topology));
    assert_true(s[0] > s[1] && s[1] > 0);
    assert_true(kernel_race(s, &slow, &quick, 1e-3, t.team, &t.topology));
    assert_true(s[1] > s[0] && s[0] > 0);
    assert_true(kernel_race(s, &large, &quick, 1e-3, t.team, &t.topology));
    assert_true(s[0] > s[1]);
    assert_true(n_runs[0] > 0 && n_runs[1] > 0);
    for (int fails = 0; fails < 8; fails++) {
        memory_fail_after(fails);
        bool is_timed = kernel_race(s, &quick, &slow, 1e-3, t.team, &t.topology);
        memory_fail_after(-1);
        assert_true(fails > 1 || !is_timed);
    }
    team_end(&t);
}

/* Margins: trits5 is left for more than 3 % only. */
static void test_faster_trits(void **state)
{
    (void)state;
    assert_int_equal(kernel_faster_trits(103.1, 100), TRITS_4);
    assert_int_equal(kernel_faster_trits(102.9, 100), TRITS_5);
    assert_int_equal(kernel_faster_trits(100, 103.1), TRITS_5);
    assert_int_equal(kernel_faster_trits(2e12, 1e12), TRITS_4);
    assert_int_equal(kernel_faster_trits(0, 0), TRITS_5);
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

#define TIMED_BYTES ((uint64_t)256 << 20) /* of a file: where kernel_choice.h begins to time */

/* A model as large as one that is timed gets what its own timing says; without memory for that, without a
 * team, or one byte smaller, trits5. */
static void test_trits_timed(void **state)
{
    (void)state;
    struct team t;
    struct model model;
    struct trits_choice choice;
    team_start(&t);
    open_tiny(&model, "TQ2_0");
    struct engine_options options = {.isa = cpu_best_isa()};
    if (kernel_select(OP_matmul, PACKING_trits5, options.isa)->isa == ISA_scalar) {
        kernel_choose_trits(&options, &choice, &model, TIMED_BYTES, &t.topology, t.team);
        assert_true(options.trits == TRITS_4 && choice.reason == TRITS_BY_DEFAULT);
    } else {
        kernel_choose_trits(&options, &choice, &model, TIMED_BYTES, &t.topology, t.team);
        const double *s = choice.weights_s;
        assert_int_equal(choice.reason, TRITS_BY_TIMING);
        assert_true(s[0] > 0 && s[1] > 0);
        assert_int_equal(options.trits, s[0] > 1.03 * s[1] ? TRITS_4 : TRITS_5);
        options.trits = TRITS_AUTO;
        memory_fail_after(0);
        kernel_choose_trits(&options, &choice, &model, TIMED_BYTES, &t.topology, t.team);
        memory_fail_after(-1);
        assert_true(options.trits == TRITS_5 && choice.reason == TRITS_BY_LACK_OF_MEMORY);
        options.trits = TRITS_AUTO;
        kernel_choose_trits(&options, &choice, &model, TIMED_BYTES, &t.topology, NULL);
        assert_true(options.trits == TRITS_5 && choice.reason == TRITS_BY_TIMING_LATER);
        options.trits = TRITS_AUTO;
        kernel_choose_trits(&options, &choice, &model, TIMED_BYTES - 1, &t.topology, t.team);
        assert_true(options.trits == TRITS_5 && choice.reason == TRITS_BY_DEFAULT);
    }
    for (options.trits = TRITS_4; options.trits <= TRITS_5; options.trits++) {
        enum trits asked = options.trits;
        kernel_choose_trits(&options, &choice, &model, TIMED_BYTES, &t.topology, t.team);
        assert_true(options.trits == asked && choice.reason == TRITS_BY_OPTION);
    }
    model_close(&model);
    team_end(&t);
}

/* The least memory that holds a plan, or holds it with all of the usual context. */
static uint64_t least_memory(const struct team *t, const struct model *model,
                             struct engine_options options, uint64_t *weight_bytes)
{
    uint64_t below = 0, enough = (uint64_t)64 << 30;
    while (enough - below > 1) {
        struct plan plan;
        struct error err;
        options.memory_bytes = below + (enough - below) / 2;
        enum status status = plan_make(&plan, model, &t->layout, &options, t->team, &err);
        assert_true(status == STATUS_OK || status == STATUS_LIMIT);
        if (status == STATUS_OK && !plan.is_ctx_cut) {
            enough = options.memory_bytes;
            *weight_bytes = plan.sizes[0].weights;
        } else {
            below = options.memory_bytes;
        }
        if (status == STATUS_OK)
            plan_done(&plan);
    }
    return enough;
}

/* Plans in that memory with trits4, which a timing chose or the user: what it becomes. */
static enum status plan_with(struct plan *plan, const struct team *t, const struct model *model,
                             struct engine_options options, enum trits_reason reason,
                             uint64_t memory_bytes)
{
    struct error err;
    struct trits_choice choice = {reason, {2, 1}};
    options.trits = TRITS_4;
    options.memory_bytes = memory_bytes;
    return kernel_choose_plan(plan, model, &t->layout, &options, &choice, t->team, &err);
}

static void check_fit(const struct team *t, const struct model *model,
                      struct engine_options options)
{
    struct plan plan;
    uint64_t weights[2], least[2];
    for (int i = 0; i < 2; i++) {
        options.trits = i ? TRITS_5 : TRITS_4;
        least[i] = least_memory(t, model, options, &weights[i]);
    }
    assert_true(weights[0] > weights[1]);
    assert_int_equal(least[0] - least[1], weights[0] - weights[1]);

    assert_int_equal(plan_with(&plan, t, model, options, TRITS_BY_TIMING, least[0]), STATUS_OK);
    assert_int_equal(plan.sizes[0].weights, weights[0]);
    assert_int_equal(plan.trits.reason, TRITS_BY_TIMING);
    plan_done(&plan);
    assert_int_equal(plan_with(&plan, t, model, options, TRITS_BY_TIMING, least[1]), STATUS_OK);
    assert_int_equal(plan.sizes[0].weights, weights[1]);
    assert_int_equal(plan.options.trits, TRITS_5);
    assert_int_equal(plan.trits.reason, TRITS_BY_SIZE);
    assert_false(plan.is_ctx_cut);
    plan_done(&plan);

    enum status status = plan_with(&plan, t, model, options, TRITS_BY_OPTION, least[1]);
    if (options.n_ctx > 0) {
        assert_int_equal(status, STATUS_LIMIT);
        status = plan_with(&plan, t, model, options, TRITS_BY_TIMING, least[1] - 1);
        assert_int_equal(status, STATUS_LIMIT);
    } else { /* the user's packing is kept, and the context is what fits beside it */
        assert_int_equal(status, STATUS_OK);
        assert_true(plan.is_ctx_cut && plan.sizes[0].weights == weights[0]);
        plan_done(&plan);
    }
}

/* trits4 that a timing chose is larger than trits5: where only that fits, or leaves the usual context, it
 * is taken; not in the place of one that was asked for. */
static void test_trits_that_fit(void **state)
{
    (void)state;
    struct team t;
    struct model model;
    team_start(&t);
    open_tiny(&model, "TQ2_0");
    struct engine_options options = {.isa = cpu_best_isa(), .n_ctx = 64, .n_batch = 8};
    check_fit(&t, &model, options);
    options.n_ctx = 0;
    check_fit(&t, &model, options);
    model_close(&model);
    team_end(&t);
}

/* A plan whose context is cut stands although there is no memory to make the smaller one. */
static void test_trits_kept(void **state)
{
    (void)state;
    struct team t;
    struct model model;
    struct plan plan;
    uint64_t weights[2], least[2];
    team_start(&t);
    open_tiny(&model, "TQ2_0");
    struct engine_options options = {.isa = cpu_best_isa(), .n_batch = 8};
    for (int i = 0; i < 2; i++) {
        options.trits = i ? TRITS_5 : TRITS_4;
        least[i] = least_memory(&t, &model, options, &weights[i]);
    }
    bool is_made = false, is_smaller = false;
    int n_kept = 0;
    for (int fails = 0; !is_smaller; fails++) {
        memory_fail_after(fails);
        enum status status = plan_with(&plan, &t, &model, options, TRITS_BY_TIMING, least[1]);
        memory_fail_after(-1);
        assert_true(status == STATUS_OK || (status == STATUS_MEMORY && !is_made));
        if (status != STATUS_OK)
            continue;
        is_made = true;
        is_smaller = plan.trits.reason == TRITS_BY_SIZE;
        n_kept += !is_smaller;
        assert_int_equal(plan.sizes[0].weights, weights[is_smaller]);
        assert_int_equal(plan.is_ctx_cut, !is_smaller);
        assert_true(is_smaller || plan.trits.reason == TRITS_BY_TIMING);
        plan_done(&plan);
    }
    assert_true(n_kept > 0);
    model_close(&model);
    team_end(&t);
}

/* Matrices that hold +2 are trits4 whatever is chosen: a smaller context is not for want of trits5. */
static void test_fourth_value(void **state)
{
    (void)state;
    struct team t;
    struct model model;
    struct plan plan;
    uint64_t weights[2], least[2];
    team_start(&t);
    open_tiny(&model, "TQ2_0");
    model_close(&model);
    const char *path = scratch_path("tiny-llama-TQ2_0.gguf");
    fixture_add_fourth_value(path);
    open_model(&model, path);
    struct engine_options options = {.isa = cpu_best_isa(), .n_batch = 8};
    for (int i = 0; i < 2; i++) {
        options.trits = i ? TRITS_5 : TRITS_4;
        least[i] = least_memory(&t, &model, options, &weights[i]);
    }
    assert_true(weights[0] == weights[1] && least[0] == least[1]);
    for (int is_cut = 0; is_cut < 2; is_cut++) {
        assert_int_equal(plan_with(&plan, &t, &model, options, TRITS_BY_TIMING, least[0] - is_cut),
                         STATUS_OK);
        assert_int_equal(plan.is_ctx_cut, is_cut);
        assert_int_equal(plan.trits.reason, TRITS_BY_DEFAULT);
        assert_int_equal(plan.options.trits, TRITS_4);
        plan_done(&plan);
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
    for (int i = 0; i < (IS_SANITISED ? 1 : 3); i++) {
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
        cmocka_unit_test(test_timing),         cmocka_unit_test(test_faster_trits),
        cmocka_unit_test(test_trits),          cmocka_unit_test(test_trits_timed),
        cmocka_unit_test(test_trits_that_fit), cmocka_unit_test(test_trits_kept),
        cmocka_unit_test(test_fourth_value),   cmocka_unit_test(test_tiles_lose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
