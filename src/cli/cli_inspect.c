/* `trine inspect`: what a file holds, how its types were read, and whether Trine runs it. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/engine_choice.h"
#include "cli/inspect_machine.h"
#include "cli/inspect_plan.h"
#include "cli/inspect_predict.h"
#include "cli/json_out.h"
#include "cli/model_outline.h"
#include "gguf/gguf_metadata.h"
#include "measure/json_finite.h"
#include "model/model_load.h"
#include "tensor/packings.h"
#include "tokenizer/tokenizer.h"

struct inspect_options {
    const char *model, *pre_tokenizer, *machine, *shape, *type;
    bool json, brief, plan, predict;
    int64_t n_ctx;
    int format;
    struct predict_options prediction;
    struct engine_choice engine;
};

static const char default_imbalance[] = "1.7";

#define INSPECT(field) offsetof(struct inspect_options, field)
static const struct option options[] = {
    {"MODEL, -m, --model", "FILE", NULL, "the GGUF file (the first one of a split model)", OPT_TEXT,
     INSPECT(model), 0, 0},
    {"--json", NULL, NULL, "one JSON object on standard output", OPT_FLAG, INSPECT(json), 0, 0},
    {"--brief", NULL, NULL, "the summary only, no list of keys and tensors", OPT_FLAG,
     INSPECT(brief), 0, 0},
    {"--machine", "[FILE.xml]", NULL,
     "show this machine instead: nodes, cores, and how fast they read memory (about a second); the "
     "value is optional: another machine, of which `lstopo FILE.xml` wrote the file (a name "
     "without "
     ".xml as --machine=FILE); with --plan: plan for that one",
     OPT_MAYBE_XML, INSPECT(machine), 0, 0},
    {"--pre-tokenizer", "NAME", NULL, "judge the tokenizer as `run` with this option would",
     OPT_TEXT, INSPECT(pre_tokenizer), 0, 0},
    {"--plan", NULL, NULL, "instead: what every node would do for a token, before anything runs",
     OPT_FLAG, INSPECT(plan), 0, 0},
    {"--format", PLAN_FORMATS, "text", "of --plan; svg: a picture of one layer", OPT_CHOICE,
     INSPECT(format), 0, 0},
    {"-c, --ctx-size", "N", "0", "context of --plan, as for `run`", OPT_INT, INSPECT(n_ctx), 0,
     1 << 30},
    {"--shape", "NAME", NULL, "--plan for a published shape instead of a file, as `synth` has them",
     OPT_TEXT, INSPECT(shape), 0, 0},
    {"--type", "T", NULL, "type of its weights: TQ2_0, IQ2_BN, I2_S, Q4_0, ...", OPT_TEXT,
     INSPECT(type), 0, 0},
    {NULL, NULL, NULL, "Prediction", OPT_FLAG, 0, 0, 0},
    {"--predict", NULL, NULL,
     "with --plan: how fast a token should be, from the plan and the speed of the machine",
     OPT_FLAG, INSPECT(predict), 0, 0},
    {"--bandwidth", "GB/S[,GB/S...]", NULL,
     "that a node's threads read from its memory: one number for all nodes of the plan, or one for "
     "each; if not given it is measured, on another machine it must be given",
     OPT_TEXT, INSPECT(prediction.bandwidth), 0, 0},
    {"--core-bandwidth", "GB/S", "0",
     "that one thread reads through kernels; 0: measured, on another machine 12 is assumed",
     OPT_NUMBER, INSPECT(prediction.core_gb_s), 0, 1e6},
    {"--cache-bandwidth", "GB/S", "0",
     "of a node's L3, if all that it reads for a token fits; 0: as memory", OPT_NUMBER,
     INSPECT(prediction.cache_gb_s), 0, 1e6},
    {"--kernel-share", "PCT", "0",
     "of the bandwidth, what all threads reach through kernels; 0: measured, on another machine 91 "
     "is assumed",
     OPT_NUMBER, INSPECT(prediction.share), 0, 100},
    {"--barrier-us", "NODE,GLOBAL[,FLAT]", NULL,
     "what barriers take; if not given it is measured, on another machine assumed", OPT_TEXT,
     INSPECT(prediction.barriers), 0, 0},
    {"--imbalance", "PCT", default_imbalance,
     "share of its work by which the slowest thread is later, for every further thread of its node",
     OPT_NUMBER, INSPECT(prediction.late), 0, 1000},
    {"--depth", "N", "0", "tokens in the cache", OPT_INT, INSPECT(prediction.depth), 0,
     (1 << 30) - 1},
    ENGINE_OPTIONS(INSPECT(engine)),
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0}};

/* Widest row that is looked at: far above any model. */
#define MAX_WIDTH    (1 << 24)

#define PACKING_TEXT 192 /* characters of a line about packings */

/* Sums over the tensors of one format. */
struct format_sum {
    size_t n_tensors, n_trits; /* n_trits: of another format, but their values are ternary */
    uint64_t n_weights, bytes;
    const char *reason; /* why the type id was read as this format; NULL: it has one meaning */
};

struct inspection {
    struct gguf_file file;
    bool *has_trits; /* owned; per tensor */
    struct format_sum sums[N_FORMATS], all;
    struct error model_problem, tokenizer_problem; /* status OK: runs */
    char tokenizer[160];
};

static uint64_t n_weights(const struct tensor_span *span)
{
    return span->ne[0] * span->ne[1] * span->ne[2] * span->ne[3];
}

static double bits(uint64_t bytes, uint64_t n)
{
    return n ? 8 * (double)bytes / (double)n : 0;
}

/* Would `run` take this file? Each part is judged on its own, so that both answers are seen. */
static void judge(struct inspection *in, const struct inspect_options *o)
{
    struct model model;
    span_rule *rule = i2s_layout_rule(o->engine.i2s_layout);
    if (model_open_by(&model, o->model, rule, &in->model_problem) == STATUS_OK) {
        model_check_scales(&model, &in->model_problem);
        model_close(&model);
    }
    struct tokenizer *t;
    if (tokenizer_open(&t, &in->file, o->model, o->pre_tokenizer, &in->tokenizer_problem) ==
        STATUS_OK) {
        snprintf(in->tokenizer, sizeof in->tokenizer, "%s, %d tokens, bos %d, eos %d",
                 tokenizer_kind(t), tokenizer_n_vocab(t), tokenizer_bos(t), tokenizer_eos(t));
        tokenizer_close(t);
    }
}

/* The engine packs matrices; the embedding only where it is the output matrix too. */
static bool is_packed(const struct gguf_file *file, const struct gguf_tensor *t)
{
    bool is_embedding = text_is(t->span.name, "token_embd.weight");
    return t->n_dims == 2 && t->span.ne[1] > 1 && t->span.ne[0] <= MAX_WIDTH &&
           !(is_embedding && gguf_find_tensor(file, "output.weight"));
}

/* Which tensors hold ternary values though their format is not ternary. */
static enum status find_trits(struct inspection *in, const char *path, struct error *err)
{
    const struct gguf_file *file = &in->file;
    int64_t longest = 0;
    for (size_t i = 0; i < file->n_tensors; i++)
        if (is_packed(file, &file->tensors[i]) && (int64_t)file->tensors[i].span.ne[0] > longest)
            longest = (int64_t)file->tensors[i].span.ne[0];
    size_t bytes = PACKING_CHOOSE_SCRATCH(longest);
    void *scratch = memory_alloc(bytes, 1);
    in->has_trits = memory_alloc(file->n_tensors, sizeof *in->has_trits);
    bool is_ready = scratch && in->has_trits;
    for (size_t i = 0; is_ready && i < file->n_tensors; i++) {
        struct tensor t = model_tensor(&file->tensors[i]);
        if (is_packed(file, &file->tensors[i]) && !format_of(t.format)->is_ternary)
            in->has_trits[i] = packing_is_trits(packing_choose(&t, false, scratch).packing);
    }
    memory_free(scratch);
    return is_ready ? STATUS_OK : fail_memory(err, path, bytes + file->n_tensors);
}

static void add_up(struct inspection *in)
{
    for (size_t i = 0; i < in->file.n_tensors; i++) {
        const struct tensor_span *span = &in->file.tensors[i].span;
        struct format_sum *sums[] = {&in->sums[span->format], &in->all};
        for (int k = 0; k < 2; k++) {
            sums[k]->n_tensors++;
            sums[k]->n_trits += in->has_trits[i];
            sums[k]->n_weights += n_weights(span);
            sums[k]->bytes += span->bytes;
            sums[k]->reason = span->reason;
        }
    }
}

#define AS_TRITS "packed as trits4, or trits5 with VBMI"

/* How the tensors of a format would lie in memory. */
static void describe_packing(enum format_id f, const struct format_sum *sum, char out[PACKING_TEXT])
{
    char bytes[16], others[64];
    struct packing_choice choice = packing_of_format(f);
    if (choice.packing)
        snprintf(others, sizeof others, "packed as %s", packing_name(choice.packing));
    else
        snprintf(others, sizeof others, "no packing of its own: decoded to f32 tiles, %s",
                 cli_size(4 * sum->n_weights, bytes));
    if (format_of(f)->is_ternary)
        snprintf(out, PACKING_TEXT, AS_TRITS);
    else if (sum->n_trits == sum->n_tensors)
        snprintf(out, PACKING_TEXT, "ternary values, " AS_TRITS);
    else if (sum->n_trits)
        snprintf(out, PACKING_TEXT, "%zu with ternary values, " AS_TRITS "; the others %s",
                 sum->n_trits, others);
    else
        snprintf(out, PACKING_TEXT, "%s", others);
}

static void print_summary(const struct inspection *in)
{
    char size[16];
    for (int i = 0; i < in->file.n_shards; i++) {
        const struct gguf_shard *shard = &in->file.shards[i];
        printf("file       %s: %s, GGUF version %u, alignment %u, data from byte %" PRIu64 "\n",
               shard->path, cli_size(shard->size, size), shard->version, shard->alignment,
               shard->data_offset);
    }
    printf("weights    %.1f M in %zu tensors, %s, %.3f bits each\n",
           (double)in->all.n_weights / 1e6, in->all.n_tensors, cli_size(in->all.bytes, size),
           bits(in->all.bytes, in->all.n_weights));
    for (int f = 0; f < N_FORMATS; f++) {
        const struct format_sum *sum = &in->sums[f];
        if (!sum->n_tensors)
            continue;
        printf("  %-8s %4zu tensors, %9.3f M weights, %10s, %.4f bits each\n",
               format_of((enum format_id)f)->name, sum->n_tensors, (double)sum->n_weights / 1e6,
               cli_size(sum->bytes, size), bits(sum->bytes, sum->n_weights));
        char packing[PACKING_TEXT];
        describe_packing((enum format_id)f, sum, packing);
        printf("           %s\n", packing);
        if (sum->reason)
            printf("           %s\n", sum->reason);
    }
    printf("tokenizer  %s\n",
           in->tokenizer_problem.status ? in->tokenizer_problem.text : in->tokenizer);
    if (in->model_problem.status)
        printf("runs       no: %s\n", in->model_problem.text);
    else if (in->tokenizer_problem.status)
        printf("runs       with token numbers only (`logits --tokens`): see tokenizer\n");
    else
        printf("runs       yes\n");
}

static void print_lists(const struct inspection *in)
{
    printf("\n%zu keys\n", in->file.n_pairs);
    for (size_t i = 0; i < in->file.n_pairs; i++) {
        char value[160], key[200];
        gguf_describe(&in->file.pairs[i], value, sizeof value);
        printf("  %-42s %-8s %s\n", text_printable(in->file.pairs[i].key, key, sizeof key),
               gguf_type_name(in->file.pairs[i].type), value);
    }
    printf("\n%zu tensors\n", in->file.n_tensors);
    for (size_t i = 0; i < in->file.n_tensors; i++) {
        const struct gguf_tensor *t = &in->file.tensors[i];
        char shape[96], size[16], name[80];
        int n = snprintf(shape, sizeof shape, "%" PRIu64, t->span.ne[0]);
        for (uint32_t d = 1; d < t->n_dims; d++)
            n += snprintf(shape + n, sizeof shape - (size_t)n, " x %" PRIu64, t->span.ne[d]);
        printf(
            "  %-32s %-9s %20s %12s %.4f bits%s\n", text_printable(t->span.name, name, sizeof name),
            format_of((enum format_id)t->span.format)->name, shape, cli_size(t->span.bytes, size),
            bits(t->span.bytes, n_weights(&t->span)), in->has_trits[i] ? ", ternary values" : "");
    }
}

/* JSON text of bytes that may not be UTF-8: then what disturbs becomes '?'. */
static json_t *json_text(struct text t)
{
    json_t *value = json_stringn(t.bytes, t.n);
    if (value)
        return value;
    char *copy = memory_alloc(t.n, 1);
    if (!copy)
        return json_null();
    memcpy(copy, t.bytes, t.n);
    value = json_stringn(copy, text_make_printable(copy, t.n));
    memory_free(copy);
    return value;
}

/* Text that may be absent. */
static json_t *json_text_or_null(const char *text)
{
    return text ? json_text(text_of(text)) : json_null();
}

static json_t *json_scalar(const struct gguf_pair *pair, uint64_t i)
{
    if (pair->element == GGUF_BOOL)
        return json_boolean(gguf_element_integer(pair, i));
    double number = gguf_element_number(pair, i);
    if (gguf_is_integer_type(pair->element) && number < 0x1p63)
        return json_integer(gguf_element_integer(pair, i));
    return json_finite(number);
}

/* Arrays are given in full up to 64 elements, beyond that as type and count. */
static json_t *json_value(const struct gguf_pair *pair)
{
    uint64_t at = 0;
    if (pair->type != GGUF_ARRAY)
        return pair->type == GGUF_STRING ? json_text(gguf_next_string(pair, &at))
                                         : json_scalar(pair, 0);
    if (pair->count > 64)
        return json_pack("{s:s, s:I}", "array_of", gguf_type_name(pair->element), "count",
                         (json_int_t)pair->count);
    json_t *array = json_array();
    for (uint64_t i = 0; i < pair->count; i++)
        json_array_append_new(array, pair->element == GGUF_STRING
                                         ? json_text(gguf_next_string(pair, &at))
                                         : json_scalar(pair, i));
    return array;
}

static json_t *json_tensor(const struct gguf_tensor *t, bool has_trits)
{
    json_t *shape = json_array();
    for (uint32_t d = 0; d < t->n_dims; d++)
        json_array_append_new(shape, json_integer((json_int_t)t->span.ne[d]));
    return json_pack("{s:o, s:s, s:i, s:o, s:I, s:I, s:i, s:b}", "name", json_text(t->span.name),
                     "format", format_of((enum format_id)t->span.format)->name, "type_id",
                     (int)t->span.type_id, "shape", shape, "bytes", (json_int_t)t->span.bytes,
                     "offset", (json_int_t)t->span.offset, "shard", t->span.shard, "ternary_values",
                     has_trits);
}

/* Pairs as a list, because keys may hold bytes that make two of them one in JSON. */
static json_t *json_pair(const struct gguf_pair *pair)
{
    return json_pack("{s:o, s:s, s:o}", "key", json_text(pair->key), "type",
                     gguf_type_name(pair->type), "value", json_value(pair));
}

static json_t *json_formats(const struct inspection *in)
{
    json_t *formats = json_array();
    for (int f = 0; f < N_FORMATS; f++) {
        const struct format_sum *sum = &in->sums[f];
        char packing[PACKING_TEXT];
        if (!sum->n_tensors)
            continue;
        describe_packing((enum format_id)f, sum, packing);
        json_array_append_new(formats,
                              json_pack("{s:s, s:I, s:I, s:I, s:f, s:s, s:s?}", "format",
                                        format_of((enum format_id)f)->name, "tensors",
                                        (json_int_t)sum->n_tensors, "weights",
                                        (json_int_t)sum->n_weights, "bytes", (json_int_t)sum->bytes,
                                        "bits_per_weight", bits(sum->bytes, sum->n_weights),
                                        "packing", packing, "decision", sum->reason));
    }
    return formats;
}

static enum status print_json(const struct inspection *in, struct error *err)
{
    json_t *files = json_array(), *keys = json_array(), *tensors = json_array();
    for (int i = 0; i < in->file.n_shards; i++)
        json_array_append_new(files, json_pack("{s:o, s:I, s:i, s:i}", "path",
                                               json_text_or_null(in->file.shards[i].path), "bytes",
                                               (json_int_t)in->file.shards[i].size, "version",
                                               (int)in->file.shards[i].version, "alignment",
                                               (int)in->file.shards[i].alignment));
    for (size_t i = 0; i < in->file.n_pairs; i++)
        json_array_append_new(keys, json_pair(&in->file.pairs[i]));
    for (size_t i = 0; i < in->file.n_tensors; i++)
        json_array_append_new(tensors, json_tensor(&in->file.tensors[i], in->has_trits[i]));
    json_t *all = json_pack(
        "{s:o, s:I, s:I, s:f, s:o, s:b, s:o, s:o, s:o, s:o}", "files", files, "weights",
        (json_int_t)in->all.n_weights, "bytes", (json_int_t)in->all.bytes, "bits_per_weight",
        bits(in->all.bytes, in->all.n_weights), "formats", json_formats(in), "runs",
        !in->model_problem.status && !in->tokenizer_problem.status, "model_problem",
        json_text_or_null(in->model_problem.status ? in->model_problem.text : NULL),
        "tokenizer_problem",
        json_text_or_null(in->tokenizer_problem.status ? in->tokenizer_problem.text : NULL),
        "metadata", keys, "tensors", tensors);
    return json_out(stdout, all, 0, err);
}

/* The file of another machine, or NULL. */
static const char *other_machine(const struct inspect_options *o)
{
    return o->machine && o->machine[0] ? o->machine : NULL;
}

static enum status show_plan(const struct inspect_options *o, const struct model *model,
                             struct error *err)
{
    struct engine_options choice = {.n_ctx = (int)o->n_ctx};
    TRY(engine_choice_resolve(&o->engine, &choice, err));
    if (other_machine(o) && o->engine.isa) /* kernels that are only planned need not run here */
        TRY(isa_parse(o->engine.isa, &choice.isa, err));
    if (o->predict)
        return inspect_predict(model, &choice, other_machine(o), &o->prediction,
                               o->json || o->format == PLAN_JSON, stdout, err);
    return inspect_plan(model, &choice, other_machine(o),
                        o->json ? PLAN_JSON : (enum plan_format)o->format, stdout, err);
}

static enum status plan_shape(const struct inspect_options *o, struct error *err)
{
    struct model_outline outline;
    TRY(model_outline_open(&outline, o->shape, o->type, err));
    enum status status = show_plan(o, &outline.model, err);
    model_outline_close(&outline);
    return status;
}

static enum status plan_file(const struct inspect_options *o, struct error *err)
{
    struct model model;
    TRY(model_open_by(&model, o->model, i2s_layout_rule(o->engine.i2s_layout), err));
    enum status status = show_plan(o, &model, err);
    model_close(&model);
    return status;
}

/* Options of the listing of a file, where something else is shown. */
static enum status check_listing(const struct inspect_options *o, struct error *err)
{
    const char *instead = o->plan ? "--plan" : o->machine ? "--machine" : NULL;
    const char *not_brief = instead ? instead : o->json ? "--json" : NULL;
    if (o->brief && not_brief)
        return fail(err, STATUS_USAGE, "--brief has no effect with %s; leave out one of the two",
                    not_brief);
    if (o->pre_tokenizer && instead)
        return fail(err, STATUS_USAGE,
                    "--pre-tokenizer has no effect with %s; leave out one of the two", instead);
    if (o->model && o->machine && !o->plan)
        return fail(err, STATUS_USAGE,
                    "--machine shows a machine and no model: leave %s out, or give --plan too; a "
                    "machine's file that does not end in .xml is --machine=FILE",
                    o->model);
    return STATUS_OK;
}

/* Options that go together. */
static enum status check_options(const struct inspect_options *o, struct error *err)
{
    const struct predict_options *p = &o->prediction;
    const char *given = o->n_ctx ? "-c" : o->format ? "--format" : engine_choice_given(&o->engine);
    if (o->predict && !o->plan)
        return fail(err, STATUS_USAGE, "--predict goes with --plan");
    if (given && !o->plan)
        return fail(err, STATUS_USAGE, "%s goes with --plan", given);
    if (!o->predict &&
        (p->bandwidth || p->barriers || p->depth || p->core_gb_s > 0 || p->cache_gb_s > 0 ||
         p->share > 0 || p->late != strtod(default_imbalance, NULL)))
        return fail(err, STATUS_USAGE,
                    "--bandwidth, --core-bandwidth, --cache-bandwidth, --kernel-share, "
                    "--barrier-us, --imbalance and --depth go with --plan --predict");
    if (o->json && o->format)
        return fail(err, STATUS_USAGE, "--json is --format json; give one of the two");
    if (o->predict && o->format == PLAN_SVG)
        return fail(err, STATUS_USAGE, "--predict prints text or json, no picture");
    if (!o->shape != !o->type)
        return fail(err, STATUS_USAGE, "--shape and --type go together");
    if (o->shape && !o->plan)
        return fail(err, STATUS_USAGE, "--shape goes with --plan; a shape has no file to show");
    if (o->shape && o->model)
        return fail(err, STATUS_USAGE, "give a file or --shape, not both");
    if (o->engine.i2s_layout && !o->model)
        return fail(err, STATUS_USAGE, "--i2s-layout is for a file");
    return check_listing(o, err);
}

static enum status inspect(struct inspection *in, const struct inspect_options *o,
                           struct error *err)
{
    TRY(check_options(o, err));
    if (o->machine && !o->plan)
        return inspect_machine(other_machine(o), o->json, err);
    if (o->shape)
        return plan_shape(o, err);
    if (!o->model)
        return fail(err, STATUS_USAGE, "no model: give its file as -m FILE or first argument");
    if (o->plan)
        return plan_file(o, err);
    TRY(gguf_open(&in->file, o->model, i2s_layout_rule(o->engine.i2s_layout), err));
    TRY(find_trits(in, o->model, err));
    add_up(in);
    judge(in, o);
    if (o->json)
        return print_json(in, err);
    print_summary(in);
    if (!o->brief)
        print_lists(in);
    return STATUS_OK;
}

static int run_command(const void *values)
{
    struct inspection in = {0};
    struct error err;
    enum status status = inspect(&in, values, &err);
    gguf_close(&in.file);
    memory_free(in.has_trits);
    return status == STATUS_OK ? EXIT_SUCCESS : cli_failed("inspect", &err);
}

const struct command command_inspect = {
    "inspect",
    "show what a model file holds and how it is read",
    "Lists metadata and tensors, the layout decided for every type (some type ids have\n"
    "several meanings), sizes, and whether Trine runs the file or why not.",
    options,
    sizeof(struct inspect_options),
    run_command};
