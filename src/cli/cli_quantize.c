/* `trine quantize`: the matrices of a model in another type. What it will do is decided, and what
 * cannot take the type is said, before anything is written (quantize_plan.h); what was written is
 * read back before it gets its name (quantize_write.h). */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "cli/cli.h"
#include "cli/i2s_layout.h"
#include "cli/quantize_write.h"
#include "tensor/formats.h"

struct quantize_options {
    const char *in, *out, *type, *embedding_type, *output_type, *tensor_type;
    int64_t n_threads;
    int i2s_layout;
    bool strict, dry_run;
};

#define QUANTIZE(field) offsetof(struct quantize_options, field)
static const struct option options[] = {
    {"IN, -m, --model", "FILE", NULL, "the GGUF file to read", OPT_TEXT, QUANTIZE(in), 0, 0},
    {"OUT, -o, --output", "FILE", NULL, "the GGUF file to write", OPT_TEXT, QUANTIZE(out), 0, 0},
    {"TYPE, -t, --type", "TYPE", NULL,
     "of the matrices of layers: F32, F16, BF16, Q8_0, Q6_K, Q4_K, Q4_0, ...; for a ternary model "
     "TQ2_0, TQ1_0, Q2_0, I2_S, IQ2_BN, ...",
     OPT_TEXT, QUANTIZE(type), 0, 0},
    {"--embedding-type", "TYPE", NULL, "of the token embedding; if not given it stays as it is",
     OPT_TEXT, QUANTIZE(embedding_type), 0, 0},
    {"--output-type", "TYPE", NULL, "of the output matrix; if not given it stays as it is",
     OPT_TEXT, QUANTIZE(output_type), 0, 0},
    {"--tensor-type", "REGEX=TYPE", NULL,
     "of matrices whose names match, before the options above; several with commas between; the "
     "first that matches counts",
     OPT_TEXT, QUANTIZE(tensor_type), 0, 0},
    {"--threads", "N", "0", "threads; 0: one per core that may be used", OPT_INT,
     QUANTIZE(n_threads), 0, 4096},
    I2S_LAYOUT_OPTION(QUANTIZE(i2s_layout)),
    {"--strict", NULL, NULL,
     "refuse if a tensor cannot take its type, instead of giving it another", OPT_FLAG,
     QUANTIZE(strict), 0, 0},
    {"--dry-run", NULL, NULL, "print what would be done and write nothing", OPT_FLAG,
     QUANTIZE(dry_run), 0, 0},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0}};

struct quantization {
    const struct quantize_options *options;
    struct quantize_wish wish;
    struct gguf_file in;
    struct quantize_plan plan;
    struct chunk_team team;
    struct quantize_error *errors; /* owned: per tensor */
};

static enum status read_options(struct quantization *q, struct error *err)
{
    const struct quantize_options *o = q->options;
    struct quantize_wish *wish = &q->wish;
    if (!o->in || !o->out || !o->type)
        return fail(err, STATUS_USAGE, "give IN, OUT and TYPE");
    *wish = (struct quantize_wish){
        .path = o->in, .embedding_type = N_FORMATS, .output_type = N_FORMATS};
    TRY(quantize_find_type("TYPE", o->type, &wish->type, err));
    if (o->embedding_type)
        TRY(quantize_find_type("--embedding-type", o->embedding_type, &wish->embedding_type, err));
    if (o->output_type)
        TRY(quantize_find_type("--output-type", o->output_type, &wish->output_type, err));
    return quantize_rules_open(&wish->rules, o->tensor_type, err);
}

/* The sums of all tensors of the class and type of tensor `first`; false if an earlier one is alike. */
static bool sum_errors(const struct quantization *q, size_t first, struct quantize_error *sum)
{
    struct text class = quantize_class(q->in.tensors[first].span.name);
    *sum = (struct quantize_error){0};
    for (size_t i = 0; i < q->in.n_tensors; i++) {
        if (q->plan.tensors[i].target != q->plan.tensors[first].target ||
            !text_equal(quantize_class(q->in.tensors[i].span.name), class))
            continue;
        if (i < first)
            return false;
        sum->difference2 += q->errors[i].difference2;
        sum->weight2 += q->errors[i].weight2;
    }
    return true;
}

/* The relative error of each class that was rounded; how many classes that are. */
static int print_errors(const struct quantization *q)
{
    int n = 0;
    for (size_t i = 0; i < q->in.n_tensors; i++) {
        struct quantize_error sum;
        char name[80];
        if (!sum_errors(q, i, &sum) || sum.difference2 == 0)
            continue;
        fprintf(stderr, "  %-22s %-9s relative RMS error %.6f\n",
                text_printable(quantize_class(q->in.tensors[i].span.name), name, sizeof name),
                format_of(q->plan.tensors[i].target)->name, sqrt(sum.difference2 / sum.weight2));
        n++;
    }
    return n;
}

static void print_summary(const struct quantization *q)
{
    char before[16], after[16];
    int n_rounded = print_errors(q);
    fprintf(stderr, "%s: %zu tensors to %s, %zu kept; weights %s before, %s after; %s\n",
            q->options->out, q->plan.n_changed, format_of(q->wish.type)->name,
            q->in.n_tensors - q->plan.n_changed, cli_size(q->plan.bytes_before, before),
            cli_size(q->plan.bytes_after, after),
            n_rounded ? "values are rounded, with the errors above; every byte was read back"
                      : "every value compared, none has changed");
}

static enum status refuse_own_file(const struct quantization *q, struct error *err)
{
    for (int i = 0; i < q->in.n_shards; i++)
        TRY(cli_refuse_same_file(q->in.shards[i].path, q->options->out, err));
    return STATUS_OK;
}

static enum status quantize(struct quantization *q, struct error *err)
{
    const struct quantize_options *o = q->options;
    FILE *talk = o->dry_run ? stdout : stderr;
    TRY(read_options(q, err));
    TRY(gguf_open(&q->in, o->in, i2s_layout_rule(o->i2s_layout), err));
    TRY(refuse_own_file(q, err));
    TRY(quantize_plan_make(&q->plan, &q->wish, &q->in, err));
    if (o->dry_run)
        quantize_print_plan(&q->plan, &q->in, stdout);
    quantize_print_misfits(&q->plan, &q->in, talk);
    if (o->strict && q->plan.n_misfits)
        return fail(err, STATUS_UNSUPPORTED,
                    "%s: %zu tensors cannot take their type (listed above); nothing was written. "
                    "Without --strict they become what the list says",
                    o->in, q->plan.n_misfits);
    if (o->dry_run)
        return STATUS_OK;
    q->errors = memory_alloc(q->in.n_tensors, sizeof *q->errors);
    if (!q->errors)
        return fail_memory(err, o->in, q->in.n_tensors * sizeof *q->errors);
    TRY(chunk_team_open(&q->team, o->n_threads, err));
    TRY(quantize_write(&q->plan, &q->in, o->in, o->out, q->wish.type, &q->team, q->errors, err));
    print_summary(q);
    return STATUS_OK;
}

static int run_command(const void *values)
{
    struct quantization q = {.options = values};
    struct error err;
    enum status status = quantize(&q, &err);
    chunk_team_close(&q.team);
    quantize_plan_done(&q.plan);
    quantize_rules_close(&q.wish.rules);
    gguf_close(&q.in);
    memory_free(q.errors);
    return status == STATUS_OK ? EXIT_SUCCESS : cli_failed("quantize", &err);
}

const struct command command_quantize = {
    "quantize",
    "store a model in another type",
    "Converts the matrices of the layers to TYPE; embedding and output matrix, norms and all\n"
    "metadata stay (general.file_type and general.quantization_version follow the type). A "
    "ternary\n"
    "model goes from one ternary type to another without loss; other types round, and the error "
    "is\n"
    "measured and printed. Tensors whose shape does not fit the type are listed first, with what\n"
    "they become instead and what that costs. The file appears under its name only after it was\n"
    "read back and compared.",
    options,
    sizeof(struct quantize_options),
    run_command};
