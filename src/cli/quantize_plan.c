#include "cli/quantize_plan.h"

#include <inttypes.h>

#include "base/memory.h"
#include "cli/cli.h"
#include "model/model_load.h"
#include "tensor/ternary.h"

/* A plan in the making. */
struct planner {
    struct quantize_plan *plan;
    const struct quantize_wish *wish;
    const struct gguf_file *file;
    void *scratch; /* ternary_recognise */
};

/* A matrix of a layer. */
static bool is_projection(const struct gguf_tensor *t)
{
    return t->n_dims == 2 && t->span.ne[1] > 1 && text_starts(t->span.name, "blk.") &&
           text_ends(t->span.name, ".weight");
}

/* What a tensor is that keeps its type. No file tells the byte orders of I2_S apart, so the published
 * one takes the place of the others. */
static enum format_id own_type(const struct gguf_tensor *t)
{
    enum format_id type = (enum format_id)t->span.format;
    return type == FORMAT_I2_S_ARM || type == FORMAT_I2_S_4ROW ? FORMAT_I2_S : type;
}

static enum format_id wanted_type(const struct planner *p, const struct gguf_tensor *t)
{
    const struct quantize_wish *wish = p->wish;
    enum format_id type = N_FORMATS;
    if (t->n_dims == 2)
        type = quantize_rules_find(&wish->rules, t->span.name);
    if (type == N_FORMATS && text_is(t->span.name, "token_embd.weight"))
        type = wish->embedding_type;
    else if (type == N_FORMATS && text_is(t->span.name, "output.weight"))
        type = wish->output_type;
    else if (type == N_FORMATS && is_projection(t))
        type = wish->type;
    return type == N_FORMATS ? own_type(t) : type;
}

static bool fits(enum format_id type, const struct gguf_tensor *t, uint64_t *bytes)
{
    return format_bytes(type, t->span.ne[1], t->span.ne[0], "", bytes, NULL) == STATUS_OK;
}

/* One id for two layouts in one file would be read as one of them. */
static bool is_confused(enum format_id a, enum format_id b)
{
    return a != b && format_of(a)->type_id == format_of(b)->type_id;
}

/* What a tensor takes whose shape does not fit the wanted type: of a few types the first that fits,
 * for ternary ones without loss, for others with at least as many bits a weight; the type it has if that
 * is not larger. */
static enum format_id fallback_type(enum format_id wanted, const struct gguf_tensor *t)
{
    static const enum format_id rows[] = {FORMAT_IQ2_BN, FORMAT_F32, N_FORMATS};
    static const enum format_id groups[] = {FORMAT_Q2_0, FORMAT_F16, N_FORMATS};
    static const enum format_id others[] = {FORMAT_Q4_0, FORMAT_Q5_0, FORMAT_Q8_0, FORMAT_F16,
                                            N_FORMATS};
    const struct format *f = format_of(wanted);
    const enum format_id *types = !f->is_ternary ? others : f->is_scale_f32 ? rows : groups;
    double least = f->is_ternary ? 0 : format_bits_per_weight(wanted, 1, 256);
    uint64_t bytes = 0;
    while (!fits(*types, t, &bytes) || is_confused(*types, wanted) ||
           format_bits_per_weight(*types, 1, 256) < least)
        types++; /* F16 and F32 fit any shape */
    return bytes < t->span.bytes ? *types : own_type(t);
}

static enum status check_source(const struct planner *p, const struct gguf_tensor *g,
                                struct error *err)
{
    struct tensor t = model_tensor(g);
    char what[400];
    snprintf(what, sizeof what, "%s: tensor '%.*s'", p->wish->path, TEXT(g->span.name));
    if (t.format == FORMAT_PQ2_0 || t.format == FORMAT_PTQ1_0)
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: type %u (%s) holds rotated weights; as another type they would be read "
                    "as plain ones. Use the file as it is with a program that rotates",
                    what, g->span.type_id, format_of(t.format)->name);
    if (t.n_cols > QUANTIZE_MAX_WIDTH)
        return fail(err, STATUS_LIMIT,
                    "%s has rows of %" PRId64 " weights; at most %d can be converted; the file is "
                    "damaged",
                    what, t.n_cols, QUANTIZE_MAX_WIDTH);
    return format_check_scales(&t, what, err);
}

/* Weights per scale of a tensor that is to become ternary. */
static enum status find_group(const struct planner *p, const struct gguf_tensor *g,
                              enum format_id wanted, int *group, struct error *err)
{
    struct tensor t = model_tensor(g);
    struct ternary_values found;
    int own = format_of(t.format)->scale_group;
    *group = own > 0 ? own : (int)t.n_cols;
    if (format_of(t.format)->is_ternary)
        return STATUS_OK;
    if (!ternary_recognise(&t, p->scratch, &found))
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: tensor '%.*s': its %s values are not ternary, and %s holds nothing else; "
                    "making a model ternary is training, not conversion. Choose another type "
                    "(Q4_0, Q8_0, F16), for this tensor alone with --tensor-type",
                    p->wish->path, TEXT(g->span.name), format_of(t.format)->name,
                    format_of(wanted)->name);
    *group = found.group > 0 ? found.group : (int)t.n_cols;
    return STATUS_OK;
}

/* Bytes if rows could end within a block. */
static uint64_t ideal_bytes(enum format_id type, const struct gguf_tensor *t)
{
    const struct format *f = format_of(type);
    double row = (double)t->span.ne[0] / f->block * f->block_bytes + f->row_prefix;
    return (uint64_t)(row * (double)t->span.ne[1]) + (uint64_t)f->tensor_tail;
}

static enum status plan_tensor(struct planner *p, size_t i, struct error *err)
{
    const struct gguf_tensor *g = &p->file->tensors[i];
    struct tensor_plan *t = &p->plan->tensors[i];
    enum format_id source = (enum format_id)g->span.format;
    TRY(check_source(p, g, err));
    *t = (struct tensor_plan){.wanted = wanted_type(p, g), .bytes = g->span.bytes};
    t->target = t->wanted;
    if (t->wanted != source && format_of(t->wanted)->is_ternary)
        TRY(find_group(p, g, t->wanted, &t->group, err));
    if (t->wanted != source && !fits(t->wanted, g, &t->bytes)) {
        t->target = fallback_type(t->wanted, g);
        fits(t->target, g, &t->bytes);
        uint64_t ideal = ideal_bytes(t->wanted, g);
        p->plan->misfit_cost += t->bytes > ideal ? t->bytes - ideal : 0;
        p->plan->n_misfits++;
    }
    if (t->target != source)
        t->how = format_of(t->target)->is_ternary ? QUANTIZE_CODES : QUANTIZE_VALUES;
    p->plan->n_changed += t->how != QUANTIZE_KEEP;
    p->plan->bytes_before += g->span.bytes;
    p->plan->bytes_after += t->bytes;
    return STATUS_OK;
}

static enum status plan_all(struct planner *p, struct error *err)
{
    uint64_t longest = 0;
    size_t n = p->file->n_tensors, n_wanted = 0;
    for (size_t i = 0; i < n; i++) {
        const struct gguf_tensor *t = &p->file->tensors[i];
        if (t->span.ne[0] > longest && t->span.ne[0] <= QUANTIZE_MAX_WIDTH)
            longest = t->span.ne[0];
        n_wanted += is_projection(t) || wanted_type(p, t) != (enum format_id)t->span.format;
    }
    if (n_wanted == 0)
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: none of its %zu tensors is a matrix of a layer (blk.N.NAME.weight): there "
                    "is nothing to convert",
                    p->wish->path, n);
    p->plan->tensors = memory_alloc(n, sizeof *p->plan->tensors);
    p->scratch = memory_alloc(TERNARY_SCRATCH(longest), 1);
    if (!p->plan->tensors || !p->scratch)
        return fail_memory(err, p->wish->path, n * sizeof *p->plan->tensors + 5 * longest);
    for (size_t i = 0; i < n; i++)
        TRY(plan_tensor(p, i, err));
    return STATUS_OK;
}

enum status quantize_plan_make(struct quantize_plan *plan, const struct quantize_wish *wish,
                               const struct gguf_file *file, struct error *err)
{
    *plan = (struct quantize_plan){0};
    struct planner p = {plan, wish, file, NULL};
    enum status status = plan_all(&p, err);
    memory_free(p.scratch);
    return status;
}

void quantize_plan_done(struct quantize_plan *plan)
{
    memory_free(plan->tensors);
    *plan = (struct quantize_plan){0};
}

/* Why a shape does not fit. */
static void print_reason(FILE *out, const struct format *f, const struct gguf_tensor *t)
{
    if (t->span.ne[0] % (uint64_t)f->block)
        fprintf(out, "rows of %" PRIu64 " weights, %s has blocks of %d", t->span.ne[0], f->name,
                f->block);
    else
        fprintf(out, "%" PRIu64 " rows, %s stores %d together", t->span.ne[1], f->name,
                f->row_group);
}

void quantize_print_misfits(const struct quantize_plan *plan, const struct gguf_file *file,
                            FILE *out)
{
    char name[80], size[16], before[16];
    if (plan->n_misfits == 0)
        return;
    fprintf(out, "%zu tensors cannot take the type:\n", plan->n_misfits);
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct tensor_plan *t = &plan->tensors[i];
        const struct gguf_tensor *g = &file->tensors[i];
        if (t->wanted == t->target)
            continue;
        uint64_t ideal = ideal_bytes(t->wanted, g);
        fprintf(out, "  %-28s ", text_printable(g->span.name, name, sizeof name));
        print_reason(out, format_of(t->wanted), g);
        fprintf(out, ": %s %s, %s instead of %s (%+.0f %%)\n",
                t->how == QUANTIZE_KEEP ? "stays" : "becomes", format_of(t->target)->name,
                cli_size(t->bytes, size), cli_size(ideal, before),
                100 * ((double)t->bytes / (double)ideal - 1));
    }
    uint64_t wished = plan->bytes_after - plan->misfit_cost;
    fprintf(out, "that costs %s: weights of %s instead of %s (%+.0f %%)\n",
            cli_size(plan->misfit_cost, before), cli_size(plan->bytes_after, size),
            cli_size(wished, name), 100 * ((double)plan->bytes_after / (double)wished - 1));
}

struct text quantize_class(struct text name)
{
    struct text rest = name;
    if (text_starts(rest, "blk.")) {
        size_t i = 4;
        while (i < rest.n && rest.bytes[i] >= '0' && rest.bytes[i] <= '9')
            i++;
        if (i < rest.n && rest.bytes[i] == '.')
            rest = (struct text){rest.bytes + i + 1, rest.n - i - 1};
    }
    if (text_ends(rest, ".weight"))
        rest.n -= 7;
    return rest;
}

/* Whether two tensors make one line of the plan. */
static bool is_alike(const struct quantize_plan *plan, const struct gguf_file *file, size_t a,
                     size_t b)
{
    const struct gguf_tensor *x = &file->tensors[a], *y = &file->tensors[b];
    return x->span.format == y->span.format && plan->tensors[a].target == plan->tensors[b].target &&
           text_equal(quantize_class(x->span.name), quantize_class(y->span.name));
}

/* The line of tensor `first` and all that are like it; none if an earlier one is like it. */
static void print_kind(const struct quantize_plan *plan, const struct gguf_file *file, size_t first,
                       FILE *out)
{
    const struct tensor_plan *t = &plan->tensors[first];
    uint64_t before = 0, after = 0;
    int n = 0;
    for (size_t i = 0; i < file->n_tensors; i++) {
        if (!is_alike(plan, file, first, i))
            continue;
        if (i < first)
            return;
        n++;
        before += file->tensors[i].span.bytes;
        after += plan->tensors[i].bytes;
    }
    char name[80], size_before[16], size_after[16];
    fprintf(out, "  %-22s %4d tensors  %-9s ",
            text_printable(quantize_class(file->tensors[first].span.name), name, sizeof name), n,
            format_of((enum format_id)file->tensors[first].span.format)->name);
    if (t->how == QUANTIZE_KEEP)
        fprintf(out, "%-12s %10s\n", "kept", cli_size(before, size_before));
    else
        fprintf(out, "-> %-9s %10s -> %s%s\n", format_of(t->target)->name,
                cli_size(before, size_before), cli_size(after, size_after),
                t->how == QUANTIZE_CODES ? ", every value stays" : "");
}

void quantize_print_plan(const struct quantize_plan *plan, const struct gguf_file *file, FILE *out)
{
    char before[16], after[16];
    for (size_t i = 0; i < file->n_tensors; i++)
        print_kind(plan, file, i, out);
    fprintf(out, "%zu tensors to convert, %zu to keep; weights %s before, %s after\n",
            plan->n_changed, file->n_tensors - plan->n_changed,
            cli_size(plan->bytes_before, before), cli_size(plan->bytes_after, after));
}
