#include "engine/packing_scan.h"

#include <stdatomic.h>

#include "engine/tensor_rows.h"

#define PART_BYTES ((uint64_t)1 << 20) /* of a tensor: what one thread reads at a time */

/* A matrix under inspection. */
struct scanned {
    const struct tensor *tensor; /* borrowed */
    int64_t part_rows, first_part;
    _Atomic bool is_other; /* not ternary: nothing more to see */
};

struct scan {
    struct scanned *matrices; /* owned: arena; (n_matrices) */
    int n_matrices;
    bool allow_trits5;
    int64_t n_parts;
    struct packing_choice *parts; /* owned: arena; (n_parts) */
    void **scratch;               /* owned: arena; per thread */
    _Alignas(64) _Atomic int64_t next;
    struct arena arena;
};

static int64_t parts_of(const struct scanned *m)
{
    return (m->tensor->n_rows + m->part_rows - 1) / m->part_rows;
}

static void add_matrix(struct scan *s, const struct weight *w)
{
    const struct tensor *t = &w->tensor;
    int64_t group = format_of(t->format)->row_group;
    int64_t rows = (int64_t)(PART_BYTES / format_row_bytes(t->format, (uint64_t)t->n_cols));
    struct scanned *m = &s->matrices[s->n_matrices++];
    m->tensor = t;
    m->part_rows = rows > group ? rows / group * group : group;
    m->first_part = s->n_parts;
    s->n_parts += parts_of(m);
}

static void list_matrices(struct scan *s, const struct model *model, bool with_output)
{
    for (int i = 0; i < model->config.n_layer; i++) {
        const struct layer_weights *l = &model->weights.layers[i];
        const struct weight *const these[N_MATRICES] = {
            [MATRIX_Q] = &l->attn_q,      [MATRIX_K] = &l->attn_k,      [MATRIX_V] = &l->attn_v,
            [MATRIX_O] = &l->attn_output, [MATRIX_GATE] = &l->ffn_gate, [MATRIX_UP] = &l->ffn_up,
            [MATRIX_DOWN] = &l->ffn_down,
        };
        for (int k = 0; k < N_MATRICES; k++)
            add_matrix(s, these[k]);
    }
    if (with_output)
        add_matrix(s, &model->weights.output);
}

/* One part; of a matrix that is known not to be ternary nothing is read. */
static struct packing_choice look_at(const struct scan *s, struct scanned *m, int64_t part,
                                     void *scratch)
{
    const struct tensor *t = m->tensor;
    int64_t row0 = part * m->part_rows, row1 = row0 + m->part_rows;
    row1 = row1 < t->n_rows ? row1 : t->n_rows;
    if (atomic_load_explicit(&m->is_other, memory_order_relaxed))
        return packing_of_format(t->format);
    if (format_of(t->format)->is_ternary) {
        struct tensor rows = rows_of_tensor(t, row0, row1);
        populate_rows(&rows);
    }
    struct packing_choice found = packing_choose_rows(t, row0, row1, s->allow_trits5, scratch);
    if (!packing_is_trits(found.packing))
        atomic_store_explicit(&m->is_other, true, memory_order_relaxed);
    return found;
}

static void scan_parts(void *context, const struct team_member *me)
{
    struct scan *s = context;
    int64_t part;
    int i = 0;
    while ((part = atomic_fetch_add(&s->next, 1)) < s->n_parts) {
        while (i + 1 < s->n_matrices && part >= s->matrices[i + 1].first_part)
            i++;
        s->parts[part] =
            look_at(s, &s->matrices[i], part - s->matrices[i].first_part, s->scratch[me->index]);
    }
}

static enum status scan(struct scan *s, const struct model *model, bool with_output,
                        struct thread_team *team, struct error *err)
{
    static const struct team_member alone = {0};
    int n_threads = team ? team_layout_of(team)->n_threads : 1;
    size_t n_scratch = PACKING_CHOOSE_SCRATCH(model_longest_row(&model->config));
    s->matrices =
        arena_alloc(&s->arena, (size_t)packing_scan_count(&model->config), sizeof *s->matrices);
    s->scratch = arena_alloc(&s->arena, (size_t)n_threads, sizeof *s->scratch);
    bool is_complete = s->matrices && s->scratch;
    for (int i = 0; is_complete && i < n_threads; i++)
        is_complete = (s->scratch[i] = arena_alloc(&s->arena, n_scratch, 1)) != NULL;
    if (is_complete) {
        list_matrices(s, model, with_output);
        s->parts = arena_alloc(&s->arena, (size_t)s->n_parts, sizeof *s->parts);
    }
    if (!is_complete || !s->parts)
        return fail_memory(err, model->path, s->arena.total);
    if (team)
        team_run(team, scan_parts, s);
    else
        scan_parts(s, &alone);
    return STATUS_OK;
}

enum status packing_scan(struct packing_choice *best, const struct model *model, bool with_output,
                         bool allow_trits5, struct thread_team *team, struct error *err)
{
    struct scan s = {.allow_trits5 = allow_trits5};
    enum status status = scan(&s, model, with_output, team, err);
    for (int i = 0; status == STATUS_OK && i < s.n_matrices; i++) {
        const struct scanned *m = &s.matrices[i];
        best[i] = s.parts[m->first_part];
        for (int64_t part = 1; part < parts_of(m); part++)
            best[i] = packing_join(m->tensor->format, best[i], s.parts[m->first_part + part]);
    }
    arena_done(&s.arena);
    return status;
}
