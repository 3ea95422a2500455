#include "engine/placement.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/float16.h"
#include "base/reader.h"
#include "engine/tensor_rows.h"
#include "kernels/kernel_select.h"
#include "tensor/ternary.h"

#define CHUNK_BYTES ((uint64_t)1 << 20) /* packed: what one thread takes at a time */

/* What is left to do on a node. */
struct node_work {
    const struct node_slices *slices;  /* borrowed */
    int64_t *first_chunk;              /* owned: arena; (n_slices + 1) */
    _Alignas(64) _Atomic int64_t next; /* chunk */
};

struct fill {
    struct plan *plan;
    struct node_work *nodes;
    uint8_t **scratch;    /* (n_threads) */
    struct error *errors; /* (n_threads) the first of each thread */
    _Atomic int has_failed;
    _Atomic uint64_t n_done;
    uint64_t n_all;
    bool is_mapped; /* all of the model's file */
    engine_progress *progress;
    void *context;
    struct arena arena;
};

void placement_assign(struct plan *plan, int node, struct node_arena *arena)
{
    const struct node_slices *own = &plan->slices.nodes[node];
    for (int i = 0; i < own->n_slices; i++) {
        uint64_t bytes = weight_slice_bytes(own->slices[i]);
        own->slices[i]->w.data = bytes ? node_arena_take(arena, bytes) : NULL;
    }
}

static int64_t chunk_rows(const struct packed *w)
{
    uint64_t tile = packed_tile_bytes(w->packing, w->group, w->n_cols);
    int64_t tiles = (int64_t)(CHUNK_BYTES / tile);
    return (tiles > 0 ? tiles : 1) * TILE_ROWS;
}

static int64_t chunks_of(const struct weight_slice *s)
{
    if (weight_slice_bytes(s) == 0)
        return 0;
    int64_t rows = chunk_rows(&s->w);
    return (s->w.n_rows + rows - 1) / rows;
}

static bool list_chunks(struct fill *f, int node)
{
    struct node_work *work = &f->nodes[node];
    work->slices = &f->plan->slices.nodes[node];
    int n = work->slices->n_slices;
    work->first_chunk = arena_alloc(&f->arena, (size_t)n + 1, sizeof *work->first_chunk);
    if (!work->first_chunk)
        return false;
    for (int i = 0; i < n; i++)
        work->first_chunk[i + 1] = work->first_chunk[i] + chunks_of(work->slices->slices[i]);
    f->n_all += work->slices->bytes;
    return true;
}

/* The file's pages that lie wholly within rows that nobody here needs again; of a mapping only:
 * memory that somebody lent would lose its contents. */
static void release(const struct fill *f, const struct tensor *part)
{
    if (!f->is_mapped)
        return;
    uintptr_t page = 4096, begin = (uintptr_t)part->data, end = begin + part->bytes;
    begin = (begin + page - 1) / page * page;
    end = end / page * page;
    if (begin < end)
        madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* "FILE: tensor 'NAME'" of a tensor of the model, for messages. */
static void name_tensor(const struct plan *plan, const struct tensor *t, char *what, size_t size)
{
    const struct gguf_file *file = &plan->model->file;
    snprintf(what, size, "%s", plan->model->path);
    for (size_t i = 0; i < file->n_tensors; i++)
        if (file->tensors[i].data == t->data)
            snprintf(what, size, "%s: tensor '%.*s'", plan->model->path,
                     TEXT(file->tensors[i].span.name));
}

/* The rows of a source that packed rows [row0, row1) come from, as a range: rows of a head are
 * permuted among themselves, and ranges of whole heads are not known here, so it may be wider. */
static struct tensor source_rows(const struct fill *f, const struct weight_slice *s, int i,
                                 int64_t row0, int64_t row1)
{
    const struct tensor *t = s->source[i];
    int64_t first = row0 / s->n_sources, last = (row1 + s->n_sources - 1) / s->n_sources;
    int64_t group = format_of(t->format)->row_group;
    if (s->row_of) {
        int64_t hd = f->plan->model->config.head_dim;
        int64_t low = s->row_of[first / hd * hd], high = s->row_of[last - 1] / hd * hd + hd;
        first = low / hd * hd;
        last = high;
    }
    first = first / group * group;
    last = (last + group - 1) / group * group;
    return rows_of_tensor(t, first, last < t->n_rows ? last : t->n_rows);
}

static enum status check_sources(const struct fill *f, const struct weight_slice *s, int64_t row0,
                                 int64_t row1, struct error *err)
{
    for (int i = 0; i < s->n_sources; i++) {
        struct tensor part = source_rows(f, s, i, row0, row1);
        char what[400];
        name_tensor(f->plan, s->source[i], what, sizeof what);
        populate_rows(&part);
        TRY(format_check_scales(&part, what, err));
    }
    return STATUS_OK;
}

/* The scale of a row whose groups have one in common; of groups of zeros it may be any. */
static float common_scale(const struct tensor *t, int64_t row, uint8_t *scratch)
{
    float *scales = (float *)scratch; /* at most one per 32 inputs, then the codes */
    if (!format_of(t->format)->is_ternary) {
        ternary_read(t, row, (int)t->n_cols, scales + 1, scratch + TERNARY_SCRATCH(t->n_cols) + 4,
                     scales);
        return scales[0];
    }
    struct ternary_rows own = {scratch + t->n_cols / 8 + 64, scales, 0};
    ternary_extract(t, row, row + 1, &own);
    for (int64_t i = 0; i < t->n_cols; i++)
        if (own.codes[i] != 1 && scales[i / own.group] != 0)
            return scales[i / own.group];
    return 0;
}

/* Per-row scales, for sums that are scaled after the nodes are added. Of the whole row: the part that
 * this node has may be zeros. */
static void fill_row_scales(const struct weight_slice *s, int64_t row0, int64_t row1,
                            uint8_t *scratch)
{
    const struct packed *w = &s->w;
    if (format_of(s->source[0]->format)->scale_group > 0) {
        for (int64_t row = row0; row < row1; row++)
            s->row_scale[row] = common_scale(s->source[0], row, scratch);
        return;
    }
    uint64_t tile_bytes = packed_tile_bytes(w->packing, w->group, w->n_cols);
    for (int64_t row = row0; row < row1; row += TILE_ROWS)
        memcpy(s->row_scale + row, w->data + (uint64_t)(row / TILE_ROWS) * tile_bytes,
               TILE_ROWS * sizeof(float));
}

/* Rows [row0, row1) in another format than the file's, a tile at a time. */
static void pack_converted(const struct weight_slice *s, int64_t row0, int64_t row1, kernel *pack,
                           uint8_t *scratch)
{
    const struct packed *w = &s->w;
    uint64_t row_bytes = format_row_bytes(s->converted, (uint64_t)w->n_cols);
    float *values = (float *)scratch;
    uint8_t *blocks = scratch + TILE_ROWS * (size_t)w->n_cols * sizeof *values;
    for (int64_t row = row0; row < row1; row += TILE_ROWS) {
        int64_t n = row1 - row < TILE_ROWS ? row1 - row : TILE_ROWS;
        for (int64_t i = 0; i < n; i++) {
            int64_t from = s->row_of ? s->row_of[row + i] : row + i;
            tensor_decode(s->source[0], from, from + 1, values + i * w->n_cols);
        }
        format_of(s->converted)->encode(values, n, w->n_cols, blocks);
        struct tensor tile = {.format = s->converted, .n_rows = n, .n_cols = w->n_cols};
        tile.data = blocks;
        tile.bytes = (uint64_t)n * row_bytes;
        struct pack_job job = {.w = *w, .source = {&tile}, .n_sources = 1};
        job.w.n_rows = n;
        job.w.data +=
            (uint64_t)(row / TILE_ROWS) * packed_tile_bytes(w->packing, w->group, w->n_cols);
        job.scratch = blocks + ((uint64_t)n * row_bytes + 63) / 64 * 64;
        pack(&(union job){.pack = job}, 0, (int)n);
    }
}

/* The scales of rows [row0, row1) beside the matrix, and 1 in every group: an f16 there might not hold
 * them. */
static void split_row_scales(const struct weight_slice *s, int64_t row0, int64_t row1,
                             uint8_t *scratch)
{
    const struct packed *w = &s->w;
    for (int64_t row = row0; row < row1; row++) {
        const struct tensor *source = s->source[row % s->n_sources];
        int64_t i = row / s->n_sources;
        s->group_row_scale[row] = common_scale(source, s->row_of ? s->row_of[i] : i, scratch);
    }
    int64_t unit_inputs = packed_unit_inputs(w->packing, w->group);
    int header = packed_unit_header(w->packing, w->group);
    int64_t steps = unit_inputs / packed_step_inputs(w->packing);
    int64_t n_units = (w->n_cols + unit_inputs - 1) / unit_inputs;
    uint64_t tile_bytes = packed_tile_bytes(w->packing, w->group, w->n_cols);
    for (int64_t row = row0; row < row1; row += TILE_ROWS)
        for (int64_t unit = 0; unit < n_units; unit++) {
            int64_t left = w->n_cols - unit * unit_inputs;
            int64_t n_groups = (left < unit_inputs ? left : unit_inputs) / w->group;
            uint8_t *at = w->data + (uint64_t)(row / TILE_ROWS) * tile_bytes +
                          unit * (header + steps * STEP_BYTES);
            for (int64_t k = 0; k < n_groups * TILE_ROWS; k++)
                store_u16(at + 2 * k, f32_to_f16(1));
        }
}

static enum status pack_chunk(struct fill *f, struct weight_slice *s, int64_t chunk,
                              uint8_t *scratch, struct error *err)
{
    int64_t rows = chunk_rows(&s->w), row0 = chunk * rows;
    int64_t row1 = row0 + rows < s->w.n_rows ? row0 + rows : s->w.n_rows;
    TRY(check_sources(f, s, row0, row1, err));
    kernel *pack = kernel_select(OP_pack, s->w.packing, f->plan->options.isa)->run;
    if (s->converted != N_FORMATS) {
        pack_converted(s, row0, row1, pack, scratch);
    } else {
        union job job = {.pack = {.w = s->w,
                                  .source = {s->source[0], s->source[1]},
                                  .n_sources = s->n_sources,
                                  .row_of = s->row_of,
                                  .col0 = s->col0,
                                  .scratch = scratch}};
        pack(&job, (int)row0, (int)row1);
    }
    if (s->group_row_scale)
        split_row_scales(s, row0, row1, scratch);
    if (s->row_scale)
        fill_row_scales(s, row0, row1, scratch);
    for (int i = 0; i < s->n_sources; i++) {
        struct tensor part = source_rows(f, s, i, row0, row1);
        release(f, &part);
    }
    return STATUS_OK;
}

/* The embedding is read from the file, a row a token; a share of it is checked by every thread. */
static enum status check_embedding(const struct fill *f, const struct team_member *me,
                                   struct error *err)
{
    const struct model_weights *w = &f->plan->model->weights;
    const struct tensor *t = &w->token_embd.tensor;
    if (t->data == w->output.tensor.data)
        return STATUS_OK; /* it was packed too */
    int64_t group = format_of(t->format)->row_group, n = t->n_rows / group;
    int n_threads = f->plan->layout->n_threads;
    struct tensor part = rows_of_tensor(t, n * me->index / n_threads * group,
                                        n * (me->index + 1) / n_threads * group);
    char what[400];
    name_tensor(f->plan, t, what, sizeof what);
    TRY(format_check_scales(&part, what, err));
    release(f, &part);
    return STATUS_OK;
}

static void fill_node(void *context, const struct team_member *me)
{
    struct fill *f = context;
    if (check_embedding(f, me, &f->errors[me->index]) != STATUS_OK)
        atomic_store(&f->has_failed, me->index + 1);
    struct node_work *work = &f->nodes[me->node];
    int i = 0;
    while (!atomic_load(&f->has_failed)) {
        int64_t chunk = atomic_fetch_add(&work->next, 1);
        while (i < work->slices->n_slices && chunk >= work->first_chunk[i + 1])
            i++;
        if (i == work->slices->n_slices)
            return;
        struct weight_slice *s = work->slices->slices[i];
        if (pack_chunk(f, s, chunk - work->first_chunk[i], f->scratch[me->index],
                       &f->errors[me->index]) != STATUS_OK) {
            atomic_store(&f->has_failed, me->index + 1);
            return;
        }
        uint64_t bytes = weight_slice_bytes(s) / (uint64_t)chunks_of(s);
        uint64_t n_done = atomic_fetch_add(&f->n_done, bytes) + bytes;
        if (me->index == 0 && f->progress)
            f->progress(f->context, n_done, f->n_all);
    }
}

static enum status fill(struct fill *f, struct thread_team *team, struct error *err)
{
    const struct team_layout *layout = f->plan->layout;
    size_t n_threads = (size_t)layout->n_threads;
    size_t longest = (size_t)model_longest_row(&f->plan->model->config);
    size_t scratch_bytes = PACK_SCRATCH(longest);
    if (f->plan->options.head != HEAD_KEEP) /* rows as floats, then as blocks of 9 bits at most */
        scratch_bytes += TILE_ROWS * longest * (sizeof(float) + 2);
    f->nodes = arena_alloc(&f->arena, (size_t)layout->n_nodes, sizeof *f->nodes);
    f->scratch = arena_alloc(&f->arena, n_threads, sizeof *f->scratch);
    f->errors = arena_alloc(&f->arena, n_threads, sizeof *f->errors);
    bool is_complete = f->nodes && f->scratch && f->errors;
    for (size_t i = 0; is_complete && i < n_threads; i++)
        is_complete = (f->scratch[i] = arena_alloc(&f->arena, scratch_bytes, 1)) != NULL;
    for (int node = 0; is_complete && node < layout->n_nodes; node++)
        is_complete = list_chunks(f, node);
    if (!is_complete)
        return fail_memory(err, f->plan->model->path, scratch_bytes * n_threads);
    team_run(team, fill_node, f);
    int failed = atomic_load(&f->has_failed);
    if (failed) {
        *err = f->errors[failed - 1];
        return err->status;
    }
    if (f->progress)
        f->progress(f->context, f->n_all, f->n_all);
    return STATUS_OK;
}

enum status placement_fill(struct plan *plan, struct thread_team *team, engine_progress *progress,
                           void *context, struct error *err)
{
    struct fill f = {.plan = plan, .progress = progress, .context = context, .is_mapped = true};
    for (int i = 0; i < plan->model->file.n_shards; i++)
        f.is_mapped &= !plan->model->file.shards[i].is_borrowed;
    enum status status = fill(&f, team, err);
    arena_done(&f.arena);
    return status;
}
