#include "engine/kernel_choice.h"

#include "engine/kernel_speed.h"

#define LEAST_MODEL   ((uint64_t)256 << 20) /* bytes of a file; below, trits5 */
#define TRITS_MARGIN  0.03
#define TRITS_SECONDS 0.01 /* a turn */
#define TILES_SECONDS 0.004
#define TILES_ROWS    256
#define FEWEST_TOKENS 16 /* that tiles multiply */

const char *trits_reason_name(enum trits_reason reason)
{
#define TRITS_REASON_NAME(name, text) text,
    static const char *const names[] = {TRITS_REASON_LIST(TRITS_REASON_NAME)};
#undef TRITS_REASON_NAME
    return names[reason];
}

/* Bytes of a thread's matrix, so that both packings come from memory; a virtual machine may tell of
 * caches that it shares with others. */
static uint64_t bytes_each(const struct topology *topology, const struct team_layout *layout)
{
    const uint64_t least = (uint64_t)8 << 20, most = (uint64_t)64 << 20;
    uint64_t bytes = 2 * topology->l3_bytes / (uint64_t)layout->nodes[0].n_threads;
    return bytes < least ? least : bytes < most ? bytes : most;
}

static struct kernel_trial trits_trial(enum packing packing, enum isa isa, int group,
                                       int64_t n_cols, uint64_t bytes)
{
    uint64_t tile_bytes = packed_tile_bytes(packing, group, n_cols);
    int64_t n_rows = (int64_t)(bytes / tile_bytes + 1) * TILE_ROWS;
    return (struct kernel_trial){
        kernel_select(OP_matmul, packing, isa)->run, {packing, group, n_rows, n_cols, NULL}, 1};
}

/* As coarse as scales of the format are in the file; packing may find coarser ones. */
static int group_of(const struct tensor *t)
{
    int group = format_of(t->format)->scale_group;
    group = group <= 0 ? 0 : group < 64 ? 64 : group > 256 ? 256 : group;
    return group && t->n_cols % group == 0 ? group : 0;
}

enum trits kernel_faster_trits(double trits4_s, double trits5_s)
{
    return trits4_s > trits5_s * (1 + TRITS_MARGIN) ? TRITS_4 : TRITS_5;
}

/* The speeds of both on ternary weights as the model's. */
static bool time_trits(double weights_s[2], const struct tensor *t, enum isa isa,
                       const struct topology *topology, struct thread_team *team)
{
    int group = group_of(t);
    uint64_t bytes = bytes_each(topology, team_layout_of(team));
    struct kernel_trial four = trits_trial(PACKING_trits4, isa, group, t->n_cols, bytes);
    struct kernel_trial five = trits_trial(PACKING_trits5, isa, group, t->n_cols, bytes);
    return kernel_race(weights_s, &four, &five, TRITS_SECONDS, team, topology);
}

void kernel_choose_trits(struct engine_options *options, struct trits_choice *choice,
                         const struct model *model, uint64_t file_bytes,
                         const struct topology *topology, struct thread_team *team)
{
    const struct tensor *t = &model->weights.layers[0].ffn_up.tensor;
    bool is_asked = options->trits != TRITS_AUTO;
    *choice = (struct trits_choice){is_asked ? TRITS_BY_OPTION : TRITS_BY_DEFAULT, {0, 0}};
    if (is_asked)
        return;
    bool is_fast = kernel_select(OP_matmul, PACKING_trits5, options->isa)->isa != ISA_scalar;
    options->trits = is_fast ? TRITS_5 : TRITS_4;
    if (!is_fast || !format_of(t->format)->is_ternary || file_bytes < LEAST_MODEL)
        return;
    choice->reason = TRITS_BY_TIMING_LATER;
    if (!team)
        return;
    bool is_timed = time_trits(choice->weights_s, t, options->isa, topology, team);
    choice->reason = is_timed ? TRITS_BY_TIMING : TRITS_BY_LACK_OF_MEMORY;
    options->trits = kernel_faster_trits(choice->weights_s[0], choice->weights_s[1]);
}

enum status kernel_choose_plan(struct plan *plan, const struct model *model,
                               const struct team_layout *layout,
                               const struct engine_options *options,
                               const struct trits_choice *choice, struct thread_team *team,
                               struct error *err)
{
    enum status status = plan_make(plan, model, layout, options, team, err);
    struct trits_choice made = *choice;
    bool is_cut = status == STATUS_OK && plan->is_ctx_cut;
    bool has_both = status == STATUS_OK && weight_slices_have_both_trits(&plan->slices);
    bool has_other = choice->reason == TRITS_BY_TIMING && options->trits == TRITS_4;
    if (has_other && (status == STATUS_LIMIT || (is_cut && has_both))) {
        struct engine_options smaller = *options;
        struct plan other;
        smaller.trits = TRITS_5;
        enum status of_other = plan_make(&other, model, layout, &smaller, team, err);
        if (of_other == STATUS_OK) {
            plan_done(plan);
            *plan = other;
            made.reason = TRITS_BY_SIZE;
        }
        status = is_cut ? STATUS_OK : of_other; /* without it the first one is kept */
    }
    if (status == STATUS_OK) {
        plan->trits = made;
        if (made.reason != TRITS_BY_OPTION && !weight_slices_have_both_trits(&plan->slices))
            plan->trits.reason = TRITS_BY_DEFAULT;
    }
    return status;
}

/* The largest matrix of a packing on any node; NULL: there is none. */
static const struct packed *largest_of(const struct plan *plan, enum packing packing)
{
    const struct weight_slice *largest = NULL;
    for (int node = 0; node < plan->layout->n_nodes; node++) {
        const struct node_slices *own = &plan->slices.nodes[node];
        for (int i = 0; i < own->n_slices; i++) {
            const struct weight_slice *s = own->slices[i];
            if (s->w.packing == packing &&
                (!largest || weight_slice_bytes(s) > weight_slice_bytes(largest)))
                largest = s;
        }
    }
    return largest && weight_slice_bytes(largest) > 0 ? &largest->w : NULL;
}

void kernel_choose_products(struct plan *plan, struct thread_team *team,
                            const struct topology *topology)
{
    int n_tokens = plan->options.n_batch;
    for (enum packing p = PACKING_none + 1; p < N_PACKINGS; p++) {
        const struct packed *w = largest_of(plan, p);
        if (!w || plan->matmul[p]->isa != ISA_amx || n_tokens < FEWEST_TOKENS)
            continue;
        const struct kernel_row *below = kernel_select(OP_matmul, p, ISA_avx512vbmi);
        struct packed rows = {p, w->group, TILES_ROWS, w->n_cols, NULL};
        struct kernel_trial tiles = {plan->matmul[p]->run, rows, n_tokens};
        struct kernel_trial next = {below->run, rows, n_tokens};
        double weights_s[2];
        if (!kernel_race(weights_s, &tiles, &next, TILES_SECONDS, team, topology))
            plan->is_tiles_untimed = true;
        else if (weights_s[0] <= weights_s[1])
            plan->matmul[p] = below;
    }
}
