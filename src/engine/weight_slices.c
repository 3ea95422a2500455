#include "engine/weight_slices.h"

#include <string.h>

#include "engine/packing_scan.h"
#include "kernels/kernel_select.h"

/* How one matrix is packed: chosen once, the same on all nodes. */
struct choice {
    enum packing packing;
    int group;
    bool is_grouped; /* one scale per row, in groups for the sake of activations */
    bool is_half;    /* trits: f16 holds all scales, so that groups finer than rows may have them */
    bool has_code3;  /* trits: with +2, which trits5 cannot hold */
};

struct layer_choices {
    struct choice q, k, v, o, gate_up, down;
};

struct maker {
    struct weight_slices *slices;
    const struct model *model;
    const struct engine_options *options;
    enum dataflow dataflow;
    struct packing_choice *best; /* (packing_scan_count) */
    bool has_trits5;
    struct layer_choices *choices; /* (n_layer) */
    struct choice output;
    enum format_id head; /* that the output matrix is converted to, or N_FORMATS */
    bool is_out_of_memory;
};

/* Types without a packing of their own are decoded to f32. */
static struct choice make_choice(struct packing_choice best)
{
    if (best.packing == PACKING_none)
        return (struct choice){.packing = PACKING_f32};
    return (struct choice){best.packing, best.group, false, best.is_half, best.has_code3};
}

/* With --act-scale group weights with one scale per row get groups, for activations have those of
 * their weights; n_cols: inputs. */
static struct choice with_groups(const struct maker *m, struct choice c, int64_t n_cols)
{
    if (m->options->act_scale != ACT_SCALE_GROUP || !packing_is_trits(c.packing) || c.group != 0)
        return c;
    for (int group = 256; group >= 64; group /= 2)
        if (n_cols % group == 0)
            return (struct choice){c.packing, group, true, c.is_half, c.has_code3};
    return c;
}

static struct choice choose(const struct maker *m, int matrix, const struct weight *w)
{
    return with_groups(m, make_choice(m->best[matrix]), w->tensor.n_cols);
}

/* Two matrices of trits whose rows are interleaved: the finer group, trits4 if one needs it. */
static struct choice join_trits(struct choice a, struct choice b)
{
    enum packing p = a.packing == b.packing ? a.packing : PACKING_trits4;
    int group = packing_finer_group(a.group, b.group);
    bool has_code3 = a.has_code3 || b.has_code3;
    return (struct choice){p, group, false, a.is_half && b.is_half, has_code3};
}

/* One packing for two matrices whose rows are interleaved. Where only one of them holds trits, and
 * where scales of rows are no f16 numbers beside scales of groups, by the types alone; f32, which every
 * type can be decoded to, where these have nothing in common. */
static struct choice choose_pair(const struct maker *m, int matrix, const struct weight *first,
                                 const struct weight *second)
{
    struct choice a = make_choice(m->best[matrix]), b = make_choice(m->best[matrix + 1]);
    bool are_trits = packing_is_trits(a.packing) && packing_is_trits(b.packing);
    bool is_same_kind = (a.group == 0) == (b.group == 0);
    if (are_trits && (is_same_kind || (a.is_half && b.is_half)))
        return with_groups(m, join_trits(a, b), first->tensor.n_cols);
    a = make_choice(packing_of_format(first->tensor.format));
    b = make_choice(packing_of_format(second->tensor.format));
    return a.packing == b.packing ? a : (struct choice){.packing = PACKING_f32};
}

static void choose_layer(struct maker *m, int layer)
{
    const struct layer_weights *w = &m->model->weights.layers[layer];
    int at = layer * N_MATRICES;
    m->choices[layer] = (struct layer_choices){
        .q = choose(m, at + MATRIX_Q, &w->attn_q),
        .k = choose(m, at + MATRIX_K, &w->attn_k),
        .v = choose(m, at + MATRIX_V, &w->attn_v),
        .o = choose(m, at + MATRIX_O, &w->attn_output),
        .gate_up = choose_pair(m, at + MATRIX_GATE, &w->ffn_gate, &w->ffn_up),
        .down = choose(m, at + MATRIX_DOWN, &w->ffn_down),
    };
}

/* What an output matrix is converted to. */
struct head {
    enum format_id format; /* N_FORMATS: nothing */
    enum packing packing;
};

static const struct head head_types[] = {
#define HEAD_TYPE_ROW(name, format, packing) {format, PACKING_##packing},
    HEAD_TYPE_LIST(HEAD_TYPE_ROW)
#undef HEAD_TYPE_ROW
};

static struct choice choose_output(const struct maker *m)
{
    if (m->head == N_FORMATS)
        return choose(m, N_MATRICES * m->model->config.n_layer, &m->model->weights.output);
    enum packing packing = head_types[m->options->head].packing;
    return (struct choice){.packing = packing, .group = packing_group(packing)};
}

static enum status choose_head(struct maker *m, struct error *err)
{
    const struct tensor *t = &m->model->weights.output.tensor;
    m->head = head_types[m->options->head].format;
    if (m->head == t->format)
        m->head = N_FORMATS;
    if (m->head == N_FORMATS || t->n_cols % format_of(m->head)->block == 0)
        return STATUS_OK;
    return fail(
        err, STATUS_UNSUPPORTED,
        "%s: rows of the output matrix have %lld weights, no multiple of the %d of a block of "
        "%s; use --head q8_0 or keep",
        m->model->path, (long long)t->n_cols, format_of(m->head)->block, format_of(m->head)->name);
}

static int64_t gcd(int64_t a, int64_t b)
{
    return b == 0 ? a : gcd(b, a % b);
}

/* Inputs that a cut through the columns must keep together. */
static int64_t block_of(struct choice c)
{
    int own = packing_group(c.packing);
    int64_t block = own ? own : c.group ? c.group : 16;
    return block;
}

static int64_t *boundaries(struct maker *m, int n_nodes)
{
    int64_t *at = arena_alloc(&m->slices->arena, (size_t)n_nodes + 1, sizeof *at);
    m->is_out_of_memory |= !at;
    return at;
}

static void make_cut(struct maker *m, int n_nodes, const int *weights)
{
    const struct model_config *c = &m->model->config;
    int64_t head_multiple = 1, ff_multiple = 16;
    for (int layer = 0; layer < c->n_layer && m->dataflow == DATAFLOW_COLUMN; layer++) {
        int64_t o = block_of(m->choices[layer].o), down = block_of(m->choices[layer].down);
        int64_t heads = o / gcd(o, c->head_dim);
        head_multiple *= heads / gcd(head_multiple, heads);
        ff_multiple *= down / gcd(ff_multiple, down);
    }
    struct cut *cut = &m->slices->cut;
    cut->n_nodes = n_nodes;
    cut->heads = boundaries(m, n_nodes);
    cut->ff = boundaries(m, n_nodes);
    cut->embd = boundaries(m, n_nodes);
    cut->vocab = boundaries(m, n_nodes);
    if (m->is_out_of_memory)
        return;
    cut_even(c->n_head, head_multiple, weights, n_nodes, cut->heads);
    cut_even(c->n_ff, ff_multiple, weights, n_nodes, cut->ff);
    cut_even(c->n_embd, TILE_ROWS, weights, n_nodes, cut->embd);
    cut_even(c->n_vocab, TILE_ROWS, weights, n_nodes, cut->vocab);
}

static void *take(struct maker *m, int64_t n, size_t size)
{
    void *block = arena_alloc(&m->slices->arena, (size_t)n, size);
    m->is_out_of_memory |= !block;
    return block;
}

/* Rows [row0, row1) and inputs [col0, col1) of one or two matrices. */
struct range {
    int64_t row0, row1, col0, col1;
};

/* The row of a head that packed row i of it comes from: both halves of a rotated pair side by side. */
static int head_row(const struct rope_config *rope, int i)
{
    if (rope->pairs == ROPE_ADJACENT || i >= rope->n_rot)
        return i;
    return i / 2 + i % 2 * (rope->n_rot / 2);
}

/* Which source row each packed row is; NULL where it is its own number. */
static const int32_t *row_map(struct maker *m, struct range r, bool is_rotated)
{
    const struct model_config *c = &m->model->config;
    bool is_moved = is_rotated && c->rope.pairs == ROPE_HALVES;
    if (r.row0 == 0 && !is_moved)
        return NULL;
    int32_t *row_of = take(m, r.row1 - r.row0 + 1, sizeof *row_of);
    for (int64_t i = 0; row_of && i < r.row1 - r.row0; i++) {
        int64_t row = r.row0 + i, head = row / c->head_dim;
        int in_head = (int)(row % c->head_dim);
        row_of[i] = (int32_t)(is_moved ? head * c->head_dim + head_row(&c->rope, in_head) : row);
    }
    return row_of;
}

/* Biases in packed order; inputs beyond the first cut must not add them again. */
static const float *arrange_bias(struct maker *m, const struct weight_slice *s,
                                 const struct weight *const *weights)
{
    bool has_bias = false;
    for (int i = 0; i < s->n_sources; i++)
        has_bias |= weights[i]->bias != NULL;
    if (!has_bias || s->col0 > 0)
        return NULL;
    float *bias = take(m, s->w.n_rows + 1, sizeof *bias);
    for (int64_t r = 0; bias && r < s->w.n_rows; r++) {
        const struct weight *w = weights[r % s->n_sources];
        int64_t i = r / s->n_sources;
        bias[r] = w->bias ? w->bias[s->row_of ? s->row_of[i] : i] : 0;
    }
    return bias;
}

static float *take_row_scales(struct maker *m, int64_t n_rows)
{
    return take(m, (n_rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS, sizeof(float));
}

static struct weight_slice slice_of(struct maker *m, const char *role,
                                    const struct weight *const *weights, int n, struct choice c,
                                    struct range r, bool is_rotated)
{
    struct weight_slice s = {.role = role, .n_sources = n, .col0 = r.col0, .converted = N_FORMATS};
    for (int i = 0; i < n; i++)
        s.source[i] = &weights[i]->tensor;
    int64_t n_rows = r.col0 < r.col1 ? n * (r.row1 - r.row0) : 0;
    s.w = (struct packed){c.packing, c.group, n_rows, r.col1 - r.col0, NULL};
    s.has_code3 = c.has_code3;
    s.row_of = row_map(m, r, is_rotated);
    s.scale[0] = weights[0]->scale;
    s.scale[1] = weights[n - 1]->scale;
    s.bias = arrange_bias(m, &s, weights);
    if (c.is_grouped && n_rows > 0)
        s.group_row_scale = take_row_scales(m, n_rows);
    return s;
}

static struct weight_slice slice_one(struct maker *m, const char *role, const struct weight *w,
                                     struct choice c, struct range r, bool is_rotated)
{
    return slice_of(m, role, &w, 1, c, r, is_rotated);
}

/* O and down: by inputs, or by outputs. */
static struct weight_slice slice_narrow(struct maker *m, const char *role, const struct weight *w,
                                        struct choice c, int node, int64_t col0, int64_t col1)
{
    const int64_t *embd = m->slices->cut.embd;
    struct range r = {embd[node], embd[node + 1], 0, w->tensor.n_cols};
    if (m->dataflow == DATAFLOW_COLUMN)
        r = (struct range){0, w->tensor.n_rows, col0, col1};
    struct weight_slice s = slice_one(m, role, w, c, r, false);
    bool is_int = m->dataflow == DATAFLOW_COLUMN && m->slices->cut.n_nodes > 1 &&
                  m->options->act_scale == ACT_SCALE_TOKEN && packing_is_trits(c.packing) &&
                  c.group == 0;
    if (is_int && s.w.n_rows > 0)
        s.row_scale = take_row_scales(m, s.w.n_rows);
    return s;
}

static struct layer_slices slice_layer(struct maker *m, int node, int layer)
{
    const struct model_config *c = &m->model->config;
    const struct layer_weights *w = &m->model->weights.layers[layer];
    const struct layer_choices *choices = &m->choices[layer];
    const struct cut *cut = &m->slices->cut;
    struct kv_range kv = cut_kv_range(cut, node, c->n_head, c->n_head_kv);
    if (m->dataflow == DATAFLOW_ROW && m->options->row_attention == ROW_ATTENTION_POSITION)
        kv = cut_kv_own(cut, node, c->n_head, c->n_head_kv); /* nodes share pages */
    int64_t hd = c->head_dim, n_embd = c->n_embd;
    int64_t q0 = cut->heads[node] * hd, q1 = cut->heads[node + 1] * hd;
    int64_t ff0 = cut->ff[node], ff1 = cut->ff[node + 1];
    struct range q = {q0, q1, 0, n_embd}, k = {kv.kv0 * hd, kv.kv1 * hd, 0, n_embd};
    struct range ff = {ff0, ff1, 0, n_embd};
    const struct weight *pair[2] = {&w->ffn_gate, &w->ffn_up};
    /* Heads that are normed turn afterwards, as they are. */
    bool is_turned = !model_has_head_norms(m->model);
    return (struct layer_slices){
        .q = slice_one(m, "attn_q", &w->attn_q, choices->q, q, is_turned),
        .k = slice_one(m, "attn_k", &w->attn_k, choices->k, k, is_turned),
        .v = slice_one(m, "attn_v", &w->attn_v, choices->v, k, false),
        .o = slice_narrow(m, "attn_output", &w->attn_output, choices->o, node, q0, q1),
        .gate_up = slice_of(m, "ffn_gate, ffn_up", pair, 2, choices->gate_up, ff, false),
        .down = slice_narrow(m, "ffn_down", &w->ffn_down, choices->down, node, ff0, ff1),
    };
}

uint64_t weight_slice_bytes(const struct weight_slice *s)
{
    const struct packed *w = &s->w;
    if (w->n_rows == 0 || w->n_cols == 0)
        return 0;
    return (packed_bytes(w->packing, w->group, w->n_rows, w->n_cols) + 63) / 64 * 64;
}

uint64_t node_slices_trits4_bytes(const struct node_slices *own)
{
    uint64_t bytes = 0;
    for (int i = 0; i < own->n_slices; i++) {
        struct weight_slice s = *own->slices[i];
        if (s.w.packing == PACKING_trits5)
            s.w.packing = PACKING_trits4;
        bytes += weight_slice_bytes(&s);
    }
    return bytes;
}

bool weight_slices_have_both_trits(const struct weight_slices *slices)
{
    for (int node = 0; node < slices->cut.n_nodes; node++)
        for (int i = 0; i < slices->nodes[node].n_slices; i++) {
            const struct weight_slice *s = slices->nodes[node].slices[i];
            if (packing_is_trits(s->w.packing) && !s->has_code3)
                return true;
        }
    return false;
}

/* All slices in the order in which a token reads them. */
static void list_slices(struct maker *m, struct node_slices *own)
{
    int n_layer = m->model->config.n_layer;
    own->slices = take(m, 6 * (int64_t)n_layer + 1, sizeof(void *));
    if (!own->slices)
        return;
    for (int layer = 0; layer < n_layer; layer++) {
        struct layer_slices *l = own->layers + layer;
        struct weight_slice *these[] = {&l->q, &l->k, &l->v, &l->o, &l->gate_up, &l->down};
        for (int i = 0; i < 6; i++)
            own->slices[own->n_slices++] = these[i];
    }
    own->slices[own->n_slices++] = &own->output;
    for (int i = 0; i < own->n_slices; i++)
        own->bytes += weight_slice_bytes(own->slices[i]);
}

static void slice_node(struct maker *m, int node)
{
    const struct model_config *c = &m->model->config;
    struct node_slices *own = &m->slices->nodes[node];
    const int64_t *vocab = m->slices->cut.vocab;
    own->layers = take(m, c->n_layer, sizeof *own->layers);
    if (!own->layers)
        return;
    for (int layer = 0; layer < c->n_layer; layer++)
        own->layers[layer] = slice_layer(m, node, layer);
    struct range r = {vocab[node], vocab[node + 1], 0, c->n_embd};
    own->output = slice_one(m, "output", &m->model->weights.output, m->output, r, false);
    own->output.converted = m->head;
    list_slices(m, own);
}

static enum status make(struct maker *m, int n_nodes, const int *weights, struct thread_team *team,
                        struct error *err)
{
    const struct model_config *c = &m->model->config;
    m->best = take(m, packing_scan_count(c), sizeof *m->best);
    m->choices = take(m, c->n_layer, sizeof *m->choices);
    m->slices->nodes = take(m, n_nodes, sizeof *m->slices->nodes);
    if (!m->is_out_of_memory) {
        TRY(packing_scan(m->best, m->model, m->head == N_FORMATS, m->has_trits5, team, err));
        for (int layer = 0; layer < c->n_layer; layer++)
            choose_layer(m, layer);
        m->output = choose_output(m);
        make_cut(m, n_nodes, weights);
    }
    for (int node = 0; node < n_nodes && !m->is_out_of_memory; node++)
        slice_node(m, node);
    return m->is_out_of_memory ? fail_memory(err, m->model->path, m->slices->arena.total)
                               : STATUS_OK;
}

enum status weight_slices_make(struct weight_slices *slices, const struct model *model,
                               const struct engine_options *options, enum dataflow dataflow,
                               int n_nodes, const int *weights, struct thread_team *team,
                               struct error *err)
{
    *slices = (struct weight_slices){0};
    struct maker m = {.slices = slices, .model = model, .options = options, .dataflow = dataflow};
    bool is_fast = kernel_select(OP_matmul, PACKING_trits5, options->isa)->isa != ISA_scalar;
    m.has_trits5 = options->trits == TRITS_AUTO ? is_fast : options->trits == TRITS_5;
    enum status status = choose_head(&m, err);
    if (status == STATUS_OK)
        status = make(&m, n_nodes, weights, team, err);
    if (status != STATUS_OK)
        weight_slices_done(slices);
    return status;
}

void weight_slices_done(struct weight_slices *slices)
{
    arena_done(&slices->arena);
    *slices = (struct weight_slices){0};
}
