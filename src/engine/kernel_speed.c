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

/* The part's job on a matrix that has its memory, with memory for the rest. */
static enum status make_job(struct matmul_job *job, struct arena *arena, const struct part *part,
                            struct packed w, struct error *err)
{
    *job = part->job.matmul;
    job->w = w;
    struct activations *a = &job->a;
    a->q = arena_alloc(arena, (size_t)a->stride, sizeof *a->q);
    a->x = arena_alloc(arena, (size_t)a->stride, sizeof *a->x);
    a->scale = arena_alloc(arena, (size_t)a->n_scales + 1, sizeof *a->scale);
    a->sum = arena_alloc(arena, (size_t)a->n_sums + 1, sizeof *a->sum);
    job->out = arena_alloc(arena, (size_t)job->w.n_rows, sizeof *job->out);
    job->scratch = arena_alloc(arena, MATMUL_SCRATCH_BYTES, 1);
    if (!a->q || !a->x || !a->scale || !a->sum || !job->out || !job->scratch)
        return fail_memory(err, "kernel probe", (size_t)w.n_rows * sizeof *job->out);
    job->n_tokens = 1;
    job->epilogue = EPILOGUE_STORE;
    job->out_stride = job->w.n_rows;
    job->bias = NULL; /* these have as many numbers as the plan's matrix has rows */
    job->row_scale = job->token_scale = NULL;
    return STATUS_OK;
}

/* Seconds a byte, after a first pass that counts for nothing. */
static enum status time_part(double *byte_s, const struct part *part, struct packed w,
                             double seconds, struct error *err)
{
    struct arena arena = {0};
    union job job;
    enum status status = make_job(&job.matmul, &arena, part, w, err);
    if (status == STATUS_OK) {
        part->run(&job, 0, (int)w.n_rows);
        int64_t begin = clock_ns(), now, n = 0;
        do {
            part->run(&job, 0, (int)w.n_rows);
            now = clock_ns();
            n++;
        } while ((double)(now - begin) < seconds * 1e9);
        *byte_s = (double)(now - begin) / 1e9 / (double)n / (double)bytes_of(&w);
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
