#include "engine/kernel_speed.h"

#include <string.h>

#include "base/clock.h"
#include "machine/node_memory.h"

#define MADE_UP 0x55 /* every byte: finite as a scale of any packing */

/* Parts with one kernel: the one with the most rows, and the bytes of all. */
struct kind {
    const struct part *part;
    uint64_t bytes;
};

static void add_part(struct kind *kinds, int *n, const struct part *part)
{
    int i = 0;
    while (i < *n && kinds[i].part->run != part->run)
        i++;
    if (i == *n)
        kinds[(*n)++] = (struct kind){part, 0};
    if (part->weight_bytes > kinds[i].part->weight_bytes)
        kinds[i].part = part;
    kinds[i].bytes += part->weight_bytes;
}

/* Parts that read weights: as many kinds as a plan can have. */
static size_t count_parts(const struct program *program)
{
    size_t n = 0;
    for (int s = 0; s < program->n_steps; s++)
        for (int i = 0; i < program->steps[s].n_parts; i++)
            n += program->steps[s].parts[i].weight_bytes > 0;
    return n;
}

/* *kinds: owned by the caller. */
static enum status list_kinds(const struct plan *plan, struct kind **kinds, int *n,
                              struct error *err)
{
    const struct program *program = &plan->programs[PROGRAM_FEW][0];
    size_t most = count_parts(program);
    *kinds = memory_alloc(most, sizeof **kinds);
    *n = 0;
    if (!*kinds)
        return fail_memory(err, "kernel probe", most * sizeof **kinds);
    for (int s = 0; s < program->n_steps; s++)
        for (int i = 0; i < program->steps[s].n_parts; i++)
            if (program->steps[s].parts[i].weight_bytes > 0)
                add_part(*kinds, n, &program->steps[s].parts[i]);
    return STATUS_OK;
}

static uint64_t bytes_of(const struct packed *w)
{
    return packed_bytes(w->packing, w->group, w->n_rows, w->n_cols);
}

/* The part's matrix with rows for at least that many bytes. */
static struct packed enlarged(const struct part *part, uint64_t least_bytes)
{
    struct packed w = part->job.matmul.w;
    int64_t tiles = (w.n_rows + TILE_ROWS - 1) / TILE_ROWS;
    w.n_rows = tiles * TILE_ROWS * ((int64_t)(least_bytes / part->weight_bytes) + 1);
    return w;
}

static int per_group(int64_t n_cols, int group)
{
    return group ? (int)((n_cols + group - 1) / group) : 1;
}

/* A job on a matrix that has its memory, with memory for the rest. Activations are written: pages that
 * never were are all the same one, which the nearest cache holds. */
static enum status make_job(struct matmul_job *job, struct arena *arena, struct packed w,
                            int n_tokens, struct error *err)
{
    struct packing_needs needs = packing_needs(w.packing, w.group);
    struct activations *a = &job->a;
    size_t n = (size_t)n_tokens, n_out = n * (size_t)w.n_rows;
    *job = (struct matmul_job){.w = w, .n_tokens = n_tokens, .scale = {1, 1}};
    job->out_stride = w.n_rows;
    a->n_cols = w.n_cols;
    a->stride = (w.n_cols + 19 + 63) / 64 * 64; /* whole steps of every packing */
    a->group = needs.act_group;
    a->sum_group = needs.sum_group;
    a->n_scales = per_group(w.n_cols, needs.act_group);
    a->n_sums = per_group(w.n_cols, needs.sum_group);
    if (needs.is_float)
        a->x = arena_alloc(arena, n * (size_t)a->stride, sizeof *a->x);
    else
        a->q = arena_alloc(arena, n * (size_t)a->stride, sizeof *a->q);
    a->scale = arena_alloc(arena, n * (size_t)a->n_scales, sizeof *a->scale);
    a->sum = arena_alloc(arena, n * (size_t)a->n_sums, sizeof *a->sum);
    job->out = arena_alloc(arena, n_out, sizeof *job->out);
    job->scratch = arena_alloc(arena, MATMUL_SCRATCH_BYTES, 1);
    if ((!a->q && !a->x) || !a->scale || !a->sum || !job->out || !job->scratch)
        return fail_memory(err, "kernel probe", n_out * sizeof *job->out);
    for (size_t i = 0; i < n * (size_t)a->stride; i++)
        if (a->q)
            a->q[i] = (int8_t)(i % 17 - 8);
        else
            a->x[i] = (float)(i % 17) - 8;
    return STATUS_OK;
}

/* Seconds of a pass over all rows. */
static double time_passes(kernel *run, const union job *job, double seconds)
{
    int64_t begin = clock_ns(), now, n = 0;
    do {
        run(job, 0, (int)job->matmul.w.n_rows);
        now = clock_ns();
        n++;
    } while ((double)(now - begin) < seconds * 1e9);
    return (double)(now - begin) / 1e9 / (double)n;
}

/* Seconds a byte, after a first pass that counts for nothing. */
static enum status time_part(double *byte_s, const struct part *part, struct packed w,
                             double seconds, struct error *err)
{
    struct arena arena = {0};
    union job job;
    enum status status = make_job(&job.matmul, &arena, w, 1, err);
    if (status == STATUS_OK) {
        part->run(&job, 0, (int)w.n_rows);
        *byte_s = time_passes(part->run, &job, seconds) / (double)bytes_of(&w);
    }
    arena_done(&arena);
    return status;
}

/* How each kind is run. */
struct trial {
    const struct topology *topology;
    const struct team_layout *layout;
    int memory_node;
    uint64_t least_bytes;
    double seconds;
};

/* Seconds a byte of one kind, on made-up weights. */
static enum status time_kind(double *byte_s, const struct kind *kind, const struct trial *trial,
                             struct error *err)
{
    struct packed w = enlarged(kind->part, trial->least_bytes);
    struct node_arena memory;
    TRY(node_arena_open(&memory, trial->topology, trial->layout, MEMORY_LOCAL, trial->memory_node,
                        bytes_of(&w), "kernel probe", err));
    w.data = memset(memory.base, MADE_UP, bytes_of(&w));
    enum status status = time_part(byte_s, kind->part, w, trial->seconds, err);
    node_arena_close(&memory);
    return status;
}

enum status kernel_speed_measure(double *bytes_s, const struct plan *plan,
                                 const struct topology *topology, int memory_node,
                                 uint64_t least_bytes, double seconds, struct error *err)
{
    const struct trial trial = {topology, plan->layout, memory_node, least_bytes, seconds};
    struct kind *kinds;
    int n;
    TRY(list_kinds(plan, &kinds, &n, err));
    double all_s = 0, all_bytes = 0, byte_s = 0;
    enum status status = STATUS_OK;
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        status = time_kind(&byte_s, &kinds[i], &trial, err);
        all_s += byte_s * (double)kinds[i].bytes;
        all_bytes += (double)kinds[i].bytes;
    }
    memory_free(kinds);
    *bytes_s = all_bytes / all_s;
    return status;
}

/* What one thread multiplies in a race; a cache line of its own. */
struct racer {
    _Alignas(64) union job jobs[2];
    struct node_arena memory; /* both matrices, one after the other the same bytes */
    struct arena arena;
    double weights_s;
    enum status status;
};

struct race {
    const struct kernel_trial *trials[2];
    const struct topology *topology;
    const struct team_layout *layout;
    struct racer *racers; /* (n_threads) */
    int runs;             /* which of the two */
    double seconds;
};

static enum status make_racer(const struct race *race, struct racer *racer, int memory_node)
{
    struct error lost;
    uint64_t bytes[2] = {bytes_of(&race->trials[0]->w), bytes_of(&race->trials[1]->w)};
    uint64_t most = bytes[0] > bytes[1] ? bytes[0] : bytes[1];
    TRY(node_arena_open(&racer->memory, race->topology, race->layout, MEMORY_LOCAL, memory_node,
                        most, "kernel probe", &lost));
    memset(racer->memory.base, MADE_UP, most);
    for (int i = 0; i < 2; i++) {
        const struct kernel_trial *trial = race->trials[i];
        struct packed w = trial->w;
        w.data = racer->memory.base;
        TRY(make_job(&racer->jobs[i].matmul, &racer->arena, w, trial->n_tokens, &lost));
    }
    return STATUS_OK;
}

static void prepare_racer(void *context, const struct team_member *me)
{
    struct race *race = context;
    struct racer *racer = &race->racers[me->index];
    racer->status = make_racer(race, racer, race->layout->nodes[me->node].memory_node);
}

static void run_racer(void *context, const struct team_member *me)
{
    const struct race *race = context;
    struct racer *racer = &race->racers[me->index];
    const union job *job = &racer->jobs[race->runs];
    double weights = (double)job->matmul.w.n_rows * (double)job->matmul.w.n_cols;
    racer->weights_s = weights / time_passes(race->trials[race->runs]->run, job, race->seconds);
}

/* Weights a second of all threads, of the best of some turns; the first counts for nothing. */
static void run_race(struct race *race, struct thread_team *team, double best[2])
{
    enum { TURNS = 4 };
    for (int turn = 0; turn < TURNS; turn++)
        for (race->runs = 0; race->runs < 2; race->runs++) {
            double sum = 0;
            team_run(team, run_racer, race);
            for (int i = 0; i < race->layout->n_threads; i++)
                sum += race->racers[i].weights_s;
            if (turn == 1 || (turn > 1 && sum > best[race->runs]))
                best[race->runs] = sum;
        }
}

bool kernel_race(double weights_s[2], const struct kernel_trial *a, const struct kernel_trial *b,
                 double seconds, struct thread_team *team, const struct topology *topology)
{
    struct arena arena = {0};
    struct race race = {.trials = {a, b}, .topology = topology, .seconds = seconds};
    race.layout = team_layout_of(team);
    size_t n = (size_t)race.layout->n_threads;
    race.racers = arena_alloc(&arena, n, sizeof *race.racers);
    if (!race.racers)
        return false;
    team_run(team, prepare_racer, &race);
    bool is_ready = true;
    for (size_t i = 0; i < n; i++)
        is_ready &= race.racers[i].status == STATUS_OK;
    if (is_ready)
        run_race(&race, team, weights_s);
    for (size_t i = 0; i < n; i++) {
        node_arena_close(&race.racers[i].memory);
        arena_done(&race.racers[i].arena);
    }
    arena_done(&arena);
    return is_ready;
}
