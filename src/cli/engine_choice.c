#include "cli/engine_choice.h"

#include "machine/cpu_features.h"

enum status engine_choice_isa(const char *name, enum isa *isa, struct error *err)
{
    *isa = cpu_best_isa();
    if (!name)
        return STATUS_OK;
    TRY(isa_parse(name, isa, err));
    *isa = cpu_isa_within(*isa); /* a cap above what there is caps nothing */
    return STATUS_OK;
}

enum status engine_choice_resolve(const struct engine_choice *c, struct engine_options *o,
                                  struct error *err)
{
    if (c->n_threads_a_node && c->n_threads)
        return fail(err, STATUS_USAGE, "-t and --threads-per-node exclude each other; give one");
    o->n_threads = (int)c->n_threads;
    o->n_nodes = (int)c->n_nodes;
    o->n_threads_a_node = (int)c->n_threads_a_node;
    TRY(engine_choice_isa(c->isa, &o->isa, err));
    o->head = (enum head_type)c->head;
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
