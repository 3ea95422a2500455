#include "cli/engine_choice.h"

#include <stdio.h>

#include "engine/plan.h"
#include "machine/cpu_features.h"

enum status engine_choice_isa(const char *name, enum isa *isa, struct error *err)
{
    *isa = cpu_best_isa();
    if (!name)
        return STATUS_OK;
    TRY(isa_parse(name, isa, err));
    if (!isa_is_native(*isa))
        return fail(err, STATUS_USAGE, "--isa %s: an instruction set of another architecture",
                    name);
    *isa = cpu_isa_within(*isa); /* a cap above what there is caps nothing */
    return STATUS_OK;
}

enum status engine_choice_resolve(const struct engine_choice *c, struct engine_options *o,
                                  struct error *err)
{
    if (c->n_threads_a_node && c->n_threads)
        return fail(err, STATUS_USAGE, "-t and --threads-per-node exclude each other; give one");
    if ((c->row_scatter || c->row_attention) && c->dataflow != DATAFLOW_ROW)
        return fail(err, STATUS_USAGE, "%s is for --dataflow row; give that too, or leave it out",
                    c->row_scatter ? "--row-scatter" : "--row-attention");
    o->n_threads = (int)c->n_threads;
    o->n_nodes = (int)c->n_nodes;
    o->n_threads_a_node = (int)c->n_threads_a_node;
    TRY(engine_choice_isa(c->isa, &o->isa, err));
    o->head = (enum head_type)c->head;
    o->trits = (enum trits)c->trits;
    o->is_unpinned = c->is_unpinned;
    o->dataflow = (enum dataflow)c->dataflow;
    o->is_flat_barrier = c->barrier == 1;
    o->is_static_rows = c->rows == 1;
    o->quantise = (enum quantise)c->quantise;
    o->act_scale = (enum act_scale)c->act_scale;
    o->is_attention_whole = c->attention_split == 1;
    o->kv_placement = (enum placement)c->kv_placement;
    o->weights_placement = (enum placement)c->weights_placement;
    o->n_extra_barriers = (int)c->n_extra;
    o->n_promoted_barriers = (int)c->n_promoted;
    o->prefetch_wait_kib = (int)c->prefetch_kib;
    o->row_scatter = (enum row_scatter)c->row_scatter;
    o->row_attention = (enum row_attention)c->row_attention;
    return STATUS_OK;
}

/* Whether a row's value is not its default, which is zero in every type. */
static bool is_given(const struct option *row, const struct engine_choice *c)
{
    const void *field = (const char *)c + row->offset;
    switch (row->type) {
    case OPT_FLAG: return *(const bool *)field;
    case OPT_INT: return *(const int64_t *)field != 0;
    case OPT_CHOICE: return *(const int *)field != 0;
    case OPT_TEXT: return *(const char *const *)field != NULL;
    default: return false;
    }
}

const char *engine_choice_given(const struct engine_choice *c)
{
    static const struct option rows[] = {ENGINE_OPTIONS(0), {NULL, NULL, NULL, NULL, 0, 0, 0, 0}};
    for (const struct option *row = rows; row->names || row->help; row++)
        if (row->names && row->offset != offsetof(struct engine_choice, i2s_layout) &&
            is_given(row, c))
            return row->names;
    return NULL;
}

enum status engine_choice_refuse(const struct engine_choice *c, struct error *err)
{
    const char *given = engine_choice_given(c);
    if (!given)
        return STATUS_OK;
    return fail(err, STATUS_USAGE,
                "%s has no effect with --reference, which runs one plain thread; leave out one of "
                "the two",
                given);
}

/* Weights that --act-scale group has put in groups. */
static bool has_groups(const struct weight_slices *slices, int n_nodes)
{
    for (int node = 0; node < n_nodes; node++)
        for (int i = 0; i < slices->nodes[node].n_slices; i++)
            if (slices->nodes[node].slices[i]->group_row_scale)
                return true;
    return false;
}

static bool has_packing(const struct weight_slices *slices, int n_nodes, enum packing packing)
{
    for (int node = 0; node < n_nodes; node++)
        for (int i = 0; i < slices->nodes[node].n_slices; i++)
            if (slices->nodes[node].slices[i]->w.packing == packing)
                return true;
    return false;
}

/* --trits where no matrix has the packing, where it is the only one that is ever chosen, and where
 * nobody would choose it. */
static void note_trits(enum trits trits, const struct plan *plan)
{
    int n_nodes = plan->layout->n_nodes;
    bool has_4 = has_packing(&plan->slices, n_nodes, PACKING_trits4);
    bool has_5 = has_packing(&plan->slices, n_nodes, PACKING_trits5);
    bool has_both = weight_slices_have_both_trits(&plan->slices);
    bool is_5_slow = plan->matmul[PACKING_trits5]->isa == ISA_scalar;
    const char *isa = isa_name(plan->options.isa), *name = trits == TRITS_4 ? "trits4" : "trits5";
    if (trits == TRITS_AUTO)
        return;
    if (!has_4 && !has_5)
        fprintf(stderr, "note: --trits %s has no effect: no matrix is ternary\n", name);
    else if (!has_both)
        fprintf(stderr,
                "note: --trits %s has no effect: the ternary matrices hold a fourth value, which "
                "only trits4 has\n",
                name);
    else if (trits == TRITS_5 && is_5_slow)
        fprintf(stderr,
                "note: --trits trits5 is slow: %s has no kernel for it, so the scalar one runs\n",
                isa);
    else if (trits == TRITS_4 && is_5_slow)
        fprintf(stderr, "note: --trits trits4 has no effect: %s has no kernel for trits5\n", isa);
}

/* NUMA nodes that the threads' memory comes from: virtual nodes share one. */
static bool has_memory_nodes(const struct team_layout *layout)
{
    for (int node = 1; node < layout->n_nodes; node++)
        if (layout->nodes[node].memory_node != layout->nodes[0].memory_node)
            return true;
    return false;
}

static bool has_helpers(const struct team_layout *layout)
{
    for (int node = 0; node < layout->n_nodes; node++)
        if (layout->nodes[node].n_threads > 1)
            return true;
    return false;
}

/* Not here: --quantise and --attention-split, which change the list of steps everywhere;
 * --prefetch-wait, which prefetches before any barrier; --act-scale token, whose promise, the same
 * scale on all nodes, one node keeps. */
void engine_choice_note(const struct engine_choice *c, const struct engine *engine)
{
    static const char one_node[] = "there is one node";
    static const char one_memory[] = "the memory of all threads is one NUMA node's";
    const struct plan *plan = engine_plan_of(engine);
    const struct team_layout *layout = plan->layout;
    bool has_nodes = layout->n_nodes > 1, has_memories = has_memory_nodes(layout);
    const struct {
        const char *option, *reason;
        bool is_given, has_effect;
    } all[] = {
        {"--dataflow row", one_node, c->dataflow == DATAFLOW_ROW, has_nodes},
        {"--row-scatter", one_node, c->row_scatter != 0, has_nodes},
        {"--row-attention", one_node, c->row_attention != 0, has_nodes},
        {"--barrier flat", one_node, c->barrier == 1, has_nodes},
        {"--promote-barriers", one_node, c->n_promoted != 0, has_nodes},
        {"--extra-barriers", "there is one thread", c->n_extra != 0, layout->n_threads > 1},
        {"--rows static", "no node has a second thread", c->rows == 1, has_helpers(layout)},
        {"--kv-placement", one_memory, c->kv_placement != 0, has_memories},
        {"--weights-placement", one_memory, c->weights_placement != 0, has_memories},
        {"--act-scale group", "no matrix is ternary with one scale per row",
         c->act_scale == ACT_SCALE_GROUP, has_groups(&plan->slices, layout->n_nodes)},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].is_given && !all[i].has_effect)
            fprintf(stderr, "note: %s has no effect: %s\n", all[i].option, all[i].reason);
    note_trits((enum trits)c->trits, plan);
}
