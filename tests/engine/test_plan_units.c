/* Units of a step in batches of every length: each product of rows and tokens belongs to one thread, and
 * threads that keep to their own units (--rows static) have about the same number of products. */
#include "engine/plan_builder.h"
#include "engine_run.h"
#include "machine/cpu_features.h"

#define N_BATCH 512

struct planned {
    struct topology topology;
    struct team_layout layout;
    struct plan plan;
};

static struct model model;

static void plan(struct planned *p, const char *machine, enum dataflow dataflow)
{
    struct error err;
    struct topology_source source = {.synthetic = machine};
    struct engine_options options = {
        .isa = cpu_best_isa(), .n_ctx = N_BATCH, .n_batch = N_BATCH, .dataflow = dataflow};
    if (topology_read(&p->topology, &source, &err) != STATUS_OK ||
        team_layout_make(&p->layout, &p->topology, &(struct team_request){0}, &err) != STATUS_OK ||
        plan_make(&p->plan, &model, &p->layout, &options, NULL, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static void done(struct planned *p)
{
    plan_done(&p->plan);
    team_layout_done(&p->layout);
    topology_done(&p->topology);
}

/* Rows times tokens of units [begin, end) of a part, as the executor takes them. */
static int64_t products_of(const struct part *part, int begin, int end)
{
    int each = part_grains(part, part->n), first = part_first_grain(part, begin);
    int64_t n = 0;
    for (int at = first; at < part_first_grain(part, end); at++) {
        int token0, token1, row = at % each * part->grain;
        part_token_range(part, at / each, &token0, &token1);
        int rows = row + part->grain < part->n ? part->grain : part->n - row;
        n += (int64_t)rows * (token1 - token0);
    }
    return n;
}

/* Products of a part in the static share of a thread. */
static int64_t share_of(const struct step *step, const struct part *part, int in_node,
                        int n_threads)
{
    int begin, end, before = 0;
    step_range(step, in_node, n_threads, &begin, &end);
    for (const struct part *p = step->parts; p < part; p++)
        before += part_units(p);
    begin = begin > before ? begin - before : 0;
    end = end > before ? end - before : 0;
    int n = part_units(part);
    return begin < end && begin < n ? products_of(part, begin, end < n ? end : n) : 0;
}

/* All products are done once; of a step that is one matrix, where threads have three grains and more, a thread has
 * its fair share but for two of them at most. */
static int check_part(const struct step *step, const struct part *part, int n_threads, int n_tokens)
{
    int64_t all = (int64_t)part->n * n_tokens, sum = 0, least = all, most = 0;
    for (int t = 0; t < n_threads; t++) {
        int64_t n = share_of(step, part, t, n_threads);
        least = n < least ? n : least;
        most = n > most ? n : most;
        sum += n;
    }
    assert_int_equal(sum, all);
    int token0, token1;
    part_token_range(part, 0, &token0, &token1);
    int64_t grain = (int64_t)part->grain * (token1 - token0), fair = all / n_threads;
    bool is_judged = step->n_parts == 1 && fair >= 3 * grain;
    if (is_judged && (least < fair - 2 * grain || most > fair + 2 * grain))
        fail_msg("%s, %d tokens: threads have %lld to %lld products, fair were %lld",
                 step_kind_name(step->kind), n_tokens, (long long)least, (long long)most,
                 (long long)fair);
    return is_judged;
}

static int check_batch(const struct planned *p, int n_tokens)
{
    int n_judged = 0;
    struct batch_shape shape = {.n_tokens = n_tokens, .n_logits = 1, .n_chunks = 2};
    shape.token_block = 1;
    for (int node = 0; node < p->layout.n_nodes; node++) {
        int n_threads = p->layout.nodes[node].n_threads;
        struct program *program = &p->plan.programs[PROGRAM_MANY][p->layout.nodes[node].thread0];
        program_fit(program, &shape, p->layout.n_nodes, node);
        for (int s = 0; s < program->n_steps; s++) {
            const struct step *step = &program->steps[s];
            for (int i = 0; i < step->n_parts; i++)
                if (step->parts[i].n_token_blocks > 1)
                    n_judged += check_part(step, &step->parts[i], n_threads, n_tokens);
        }
    }
    return n_judged;
}

static void test_shares(void **state)
{
    (void)state;
    static const char *const machines[] = {"node:1 core:12 pu:1", "node:2 core:12 pu:1"};
    static const int n_tokens[] = {9, 60, 100, 128, 130, 200, 300, 400, 511, 512};
    for (int m = 0; m < 2; m++)
        for (int flow = DATAFLOW_COLUMN; flow <= DATAFLOW_ROW; flow++) {
            struct planned p;
            int n_judged = 0;
            plan(&p, machines[m], (enum dataflow)flow);
            for (size_t i = 0; i < sizeof n_tokens / sizeof n_tokens[0]; i++)
                n_judged += check_batch(&p, n_tokens[i]);
            assert_true(n_judged >= 2 * 10); /* O and down, in every batch */
            done(&p);
        }
}

/* What a thread fetches while it waits: the weights of its first unit in the product that comes next; of one
 * whose tokens are divided, where that depends on the batch, nothing. */
static void check_fetched(const struct program *program, int thread, int n_threads, int n_found[2])
{
    const struct step *next = NULL;
    for (int i = program->n_steps; i-- > 0;) {
        const struct step *step = &program->steps[i];
        if (next && next->n_parts == 1) {
            const struct part *part = next->parts;
            bool is_divided = part->n_token_blocks > 1;
            int begin, end, n_grains = part_grains(part, part->n);
            step_range(next, thread, n_threads, &begin, &end);
            assert_int_equal(step->next_bytes > 0, !is_divided && begin < end);
            if (step->next_bytes > 0)
                assert_ptr_equal(step->next_weights, part->weights + part->weight_bytes /
                                                                         (uint64_t)n_grains *
                                                                         (uint64_t)begin);
            n_found[is_divided]++;
        }
        if (step->n_parts > 0 && step->parts[0].weight_bytes > 0)
            next = step;
    }
}

static void test_fetched(void **state)
{
    (void)state;
    enum { N_THREADS = 12 };
    struct engine_options options = {.isa = cpu_best_isa(),
                                     .n_threads = N_THREADS,
                                     .n_nodes = 1,
                                     .n_ctx = N_BATCH,
                                     .n_batch = N_BATCH,
                                     .prefetch_wait_kib = 1};
    struct engine *engine = open_engine(&model, &options);
    const struct plan *p = engine_plan_of(engine);
    for (int kind = 0; kind < N_PROGRAMS; kind++) {
        int n_found[2] = {0};
        for (int thread = 0; thread < N_THREADS; thread++)
            check_fetched(&p->programs[kind][thread], thread, N_THREADS, n_found);
        assert_true(n_found[0] > 0);
        assert_int_equal(n_found[1] > 0, kind == PROGRAM_MANY);
    }
    engine_close(engine);
}

static int open_shape(void **state)
{
    (void)state;
    open_synth(&model, "units", "--shape trilm-190m --type TQ2_0 --layers 1 --small-vocab");
    return 0;
}

static int close_shape(void **state)
{
    (void)state;
    model_close(&model);
    return 0;
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shares),
                                       cmocka_unit_test(test_fetched)};
    return cmocka_run_group_tests(tests, open_shape, close_shape);
}
