/* The step loop on a team of threads. */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "engine/executor.h"
#include "engine/plan_builder.h"

/* How many units of a thread's own range are taken in step seq: seq << 32 | from the front << 16 | from
 * the back. The owner takes from the front, helpers from the back, so that the owner's stream stays
 * one. A smaller seq means that none is taken yet: nothing has to be reset. */
struct claim {
    _Alignas(64) _Atomic uint64_t state;
};

struct worker {
    struct program *programs[N_PROGRAMS]; /* borrowed: the plan's */
    struct barrier_cursor cursor;
};

struct executor {
    struct plan *plan;        /* borrowed */
    struct thread_team *team; /* borrowed */
    struct barrier barrier;
    struct claim **claims;   /* owned: arena; (n_nodes) those of its threads, in its memory */
    struct worker **workers; /* owned: arena; (n_threads) */
    struct arena arena;
    /* the present batch */
    enum program_kind kind;
    struct batch_shape shape;
    struct trace *trace;
};

/* Takes one unit of a range of n: its number in the range, or -1. */
static int claim_unit(struct claim *claim, uint32_t seq, int n, bool is_owner)
{
    uint64_t state = atomic_load_explicit(&claim->state, memory_order_relaxed);
    for (;;) {
        uint32_t at = (uint32_t)(state >> 32);
        if ((int32_t)(at - seq) > 0)
            return -1; /* the owner is in a later step: this one is over */
        int front = at == seq ? (int)(state >> 16 & PLAN_MAX_UNITS) : 0;
        int back = at == seq ? (int)(state & PLAN_MAX_UNITS) : 0;
        if (front + back >= n)
            return -1;
        int unit = is_owner ? front++ : n - ++back;
        uint64_t next = (uint64_t)seq << 32 | (uint64_t)front << 16 | (uint64_t)back;
        if (atomic_compare_exchange_weak_explicit(&claim->state, &state, next, memory_order_relaxed,
                                                  memory_order_relaxed))
            return unit;
    }
}

/* Rows [begin, end) of some tokens of a matmul, just computed on this node, to the others. */
static void scatter_rows(const struct part *part, int token0, int token1, int begin, int end)
{
    const struct scatter *s = part->scatter;
    int first = begin / s->divisor, n = end / s->divisor - first;
    for (int node = 0; node < s->n_nodes; node++)
        for (int t = token0; s->to[node] && t < token1; t++)
            memcpy(s->to[node] + t * s->stride + first, s->from + t * s->stride + first,
                   (size_t)n * sizeof(float));
}

/* Grains [begin, end) of a part that is divided by rows only, or of one range of its tokens. */
static void run_grains(const struct part *part, int block, int begin, int end)
{
    int row0 = begin * part->grain, row1 = end * part->grain, token0 = 0, token1 = 0;
    row1 = row1 < part->n ? row1 : part->n;
    if (part->scatter || part->n_token_blocks > 1)
        part_token_range(part, block, &token0, &token1);
    if (part->n_token_blocks > 1) {
        union job own = part->job;
        matmul_tokens(&own.matmul, token0, token1);
        part->run(&own, row0, row1);
    } else {
        part->run(&part->job, row0, row1);
    }
    if (part->scatter)
        scatter_rows(part, token0, token1, row0, row1);
}

/* Units [begin, end) of a step, which are numbered through its parts. */
static void run_units(const struct step *step, int begin, int end)
{
    for (const struct part *part = step->parts; begin < end; part++) {
        int n = part_units(part), each = part_grains(part, part->n);
        int at = part_first_grain(part, begin), last = part_first_grain(part, end < n ? end : n);
        for (int next; at < last; at = next) {
            int block = at / each, grain0 = block * each;
            next = grain0 + each < last ? grain0 + each : last;
            run_grains(part, block, at - grain0, next - grain0);
        }
        begin = begin > n ? begin - n : 0;
        end -= n;
    }
}

static void run_each(const struct step *step)
{
    for (int i = 0; i < step->n_each; i++)
        if (step->each[i].n > 0)
            step->each[i].run(&step->each[i].job, 0, step->each[i].n);
}

/* The own range, then what is left of others' ranges; returns the units that were done. */
static uint32_t run_shared(struct executor *e, const struct step *step, uint32_t seq,
                           const struct team_member *me)
{
    struct claim *claims = e->claims[me->node];
    uint32_t n_done = 0;
    for (int i = 0; i < me->n_in_node; i++) {
        int owner = (me->in_node + i) % me->n_in_node, begin, end, unit;
        step_range(step, owner, me->n_in_node, &begin, &end);
        while ((unit = claim_unit(&claims[owner], seq, end - begin, i == 0)) >= 0) {
            run_units(step, begin + unit, begin + unit + 1);
            n_done++;
        }
    }
    return n_done;
}

static uint32_t run_own(const struct step *step, const struct team_member *me)
{
    int begin, end;
    step_range(step, me->in_node, me->n_in_node, &begin, &end);
    run_units(step, begin, end);
    return (uint32_t)(end - begin);
}

/* Memory goes on streaming while the thread waits. */
static void prefetch_next(const struct step *step)
{
    for (uint64_t at = 0; at < step->next_bytes; at += 64)
        __builtin_prefetch(step->next_weights + at, 0, 2);
}

static void run_step(struct executor *e, struct worker *w, const struct step *step,
                     const struct team_member *me, struct trace_step *times)
{
    bool is_synced = step->units.sync != SYNC_NONE;
    if (times)
        times->begun = clock_ns();
    if (is_synced)
        barrier_next(&e->barrier, &w->cursor, me->node, &step->units);
    /* Others may have finished the step while this thread was not running. */
    if (!is_synced || !barrier_is_open(&e->barrier, &w->cursor, me->node)) {
        run_each(step);
        bool is_own = step->is_private || step->is_leader;
        uint32_t n_done = is_own ? run_own(step, me) : run_shared(e, step, w->cursor.seq, me);
        if (times)
            times->done = clock_ns();
        if (is_synced && n_done > 0)
            barrier_report(&e->barrier, &w->cursor, me->node, n_done);
    } else if (times) {
        times->done = times->begun;
    }
    if (is_synced) {
        prefetch_next(step);
        barrier_wait(&e->barrier, &w->cursor, me->node, team_spin_ns(e->team));
    }
    if (times)
        times->left = clock_ns();
}

static void run_program(void *context, const struct team_member *me)
{
    struct executor *e = context;
    struct worker *w = e->workers[me->index];
    struct program *program = w->programs[e->kind];
    program_fit(program, &e->shape, e->plan->layout->n_nodes, me->node);
    struct trace_step *times = NULL;
    if (e->trace && e->trace->batch < e->trace->n_batches)
        times = trace_steps(e->trace, e->trace->batch, me->index);
    for (int i = 0; i < program->n_steps; i++)
        run_step(e, w, &program->steps[i], me, times ? times + i : NULL);
}

void executor_run(struct executor *e, enum program_kind kind, const struct batch_shape *shape,
                  struct trace *trace)
{
    e->kind = kind;
    e->shape = *shape;
    e->trace = trace && trace->kind == kind ? trace : NULL;
    team_run(e->team, run_program, e);
    if (e->trace && e->trace->batch < e->trace->n_batches)
        e->trace->batch++;
}

/* The first weights that each thread reads in the matmul that comes next. None of one whose tokens are divided:
 * which rows a unit has then depends on the batch (part_first_grain). */
static void link_weights(struct program *program, const struct team_member *me, uint64_t most)
{
    struct batch_shape shape = {.n_tokens = 1, .n_logits = 1, .n_chunks = 1};
    program_fit(program, &shape, 1, 0); /* matmuls have as many units in every batch */
    const struct step *next = NULL;
    for (int i = program->n_steps; i-- > 0;) {
        struct step *step = &program->steps[i];
        if (next) {
            const struct part *part = next->parts;
            int begin, end;
            step_range(next, me->in_node, me->n_in_node, &begin, &end);
            while (begin >= part_units(part) && part + 1 < next->parts + next->n_parts) {
                begin -= part_units(part);
                end -= part_units(part);
                part++;
            }
            int n_grains = part_grains(part, part->n);
            uint64_t unit_bytes = part->weight_bytes / (uint64_t)n_grains;
            end = end < n_grains ? end : n_grains;
            bool is_known = part->n_token_blocks <= 1 && begin < end;
            uint64_t bytes = is_known ? unit_bytes * (uint64_t)(end - begin) : 0;
            step->next_weights = is_known ? part->weights + unit_bytes * (uint64_t)begin : NULL;
            step->next_bytes = bytes < most ? bytes : most;
        }
        if (step->n_parts > 0 && step->parts[0].weight_bytes > 0)
            next = step;
    }
    program->shape = (struct batch_shape){0};
}

static void own_worker(void *context, const struct team_member *me)
{
    struct executor *e = context;
    uint64_t most = (uint64_t)e->plan->options.prefetch_wait_kib << 10;
    for (int kind = 0; kind < N_PROGRAMS; kind++) {
        struct program *program = &e->plan->programs[kind][me->index];
        e->workers[me->index]->programs[kind] = program;
        if (most > 0)
            link_weights(program, me, most);
    }
}

static bool take_parts(struct executor *e, const struct node_buffers *buffers)
{
    const struct team_layout *layout = e->plan->layout;
    size_t n_threads = (size_t)layout->n_threads, n_nodes = (size_t)layout->n_nodes;
    e->claims = arena_alloc(&e->arena, n_nodes, sizeof *e->claims);
    e->workers = arena_alloc(&e->arena, n_threads, sizeof *e->workers);
    e->barrier.nodes = arena_alloc(&e->arena, n_nodes, sizeof *e->barrier.nodes);
    e->barrier.n_nodes = layout->n_nodes;
    if (!e->claims || !e->workers || !e->barrier.nodes)
        return false;
    for (size_t i = 0; i < n_threads; i++)
        if (!(e->workers[i] = arena_alloc(&e->arena, 1, sizeof **e->workers)))
            return false;
    for (size_t i = 0; i < n_nodes; i++) {
        e->claims[i] = buffers[i].claims;
        e->barrier.nodes[i] = buffers[i].barrier;
    }
    return true;
}

enum status executor_open(struct executor **executor, struct plan *plan,
                          const struct node_buffers *buffers, struct thread_team *team,
                          struct error *err)
{
    struct arena arena = {0};
    struct executor *e = arena_alloc(&arena, 1, sizeof *e); /* in an arena because it is aligned */
    if (!e)
        return fail_memory(err, "executor", sizeof *e);
    e->arena = arena;
    e->plan = plan;
    e->team = team;
    if (!take_parts(e, buffers)) {
        executor_close(e);
        return fail_memory(err, "executor", sizeof *e);
    }
    team_run(team, own_worker, e);
    *executor = e;
    return STATUS_OK;
}

void executor_close(struct executor *e)
{
    if (!e)
        return;
    struct arena arena = e->arena; /* it lies in there itself */
    arena_done(&arena);
}
