#include "cli/convert_report.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

/* "blk.3.attn_q.weight" without its layer: "attn_q"; -1 and the whole name of a tensor outside. */
static int layer_of(const struct hf_tensor *t, char part[96])
{
    int layer = -1, at = 0;
    sscanf(t->name, "blk.%d.%n", &layer, &at);
    snprintf(part, 96, "%s", t->name + (layer < 0 ? 0 : at));
    char *end = strrchr(part, '.');
    if (end && strcmp(end, ".weight") == 0)
        *end = 0;
    return layer;
}

static bool is_alike(const struct convert_report *r, size_t i, size_t k)
{
    return r->tensors->list[i].kind == r->tensors->list[k].kind && r->formats[i] == r->formats[k];
}

/* Tensors of the same part, kind and format in all layers. */
static int count_part(const struct convert_report *r, size_t i)
{
    char part[96], other[96];
    int n = 0;
    layer_of(&r->tensors->list[i], part);
    for (size_t k = 0; k < r->tensors->n; k++) {
        bool is_layer = layer_of(&r->tensors->list[k], other) >= 0;
        n += is_layer && is_alike(r, i, k) && strcmp(part, other) == 0;
    }
    return n;
}

/* Names of a group: "blk.*.attn_q" where all layers are in it, else one by one. */
static void print_names(const struct convert_report *r, size_t first)
{
    const char *before = "   ";
    for (size_t i = first; i < r->tensors->n; i++) {
        char part[96];
        if (!is_alike(r, first, i))
            continue;
        int layer = layer_of(&r->tensors->list[i], part);
        bool is_all = layer >= 0 && count_part(r, i) == r->config->model.n_layer;
        if (is_all && layer > 0)
            continue;
        if (is_all)
            fprintf(stderr, "%s blk.*.%s", before, part);
        else
            fprintf(stderr, "%s %s", before, r->tensors->list[i].name);
        before = ",";
    }
    fputc('\n', stderr);
}

static const char *const kinds[N_HF_KINDS] = {
    [HF_VECTOR] = "vectors",
    [HF_ORDINARY] = "ordinary matrices",
    [HF_TERNARY_FOUND] = "matrices that were ternary already",
    [HF_TERNARY_PACKED] = "packed ternary matrices",
    [HF_TERNARY_MADE] = "matrices MADE ternary here (rounded by the mean of their magnitudes)",
};

static void print_group(const struct convert_report *r, size_t first)
{
    enum hf_kind kind = r->tensors->list[first].kind;
    int n = 0;
    for (size_t i = first; i < r->tensors->n; i++)
        n += is_alike(r, first, i);
    bool is_unfit = r->is_fitted && kind != HF_VECTOR && kind != HF_ORDINARY &&
                    !format_of(r->formats[first])->is_ternary;
    fprintf(stderr, "  %d %s to %s%s\n", n, kinds[kind], format_of(r->formats[first])->name,
            is_unfit ? ", because no ternary type holds their rows and scales exactly" : "");
    if (kind != HF_VECTOR)
        print_names(r, first);
}

/* Groups in the order of their kinds. */
static void print_groups(const struct convert_report *r)
{
    for (int kind = N_HF_KINDS - 1; kind >= 0; kind--)
        for (size_t i = 0; i < r->tensors->n; i++) {
            bool is_first = (int)r->tensors->list[i].kind == kind;
            for (size_t k = 0; is_first && k < i; k++)
                is_first = !is_alike(r, i, k);
            if (is_first)
                print_group(r, i);
        }
}

static void print_weights(const struct hf_config *c)
{
    if (c->weights != HF_AS_STORED)
        fprintf(stderr, "  config.json: %s\n", c->reason);
}

static void print_templates(const struct hf_tokenizer *t)
{
    fprintf(stderr, ", %s chat template%s", t->n_templates ? "with" : "without",
            t->n_templates > 1 ? "s" : "");
    for (size_t i = 0; i < t->n_templates; i++) {
        char name[128];
        if (t->n_templates > 1 || strcmp(t->templates[i].name, "default") != 0)
            fprintf(stderr, "%s %s", i ? "," : "",
                    text_printable(text_of(t->templates[i].name), name, sizeof name));
    }
    fputc('\n', stderr);
}

static void print_tokenizer(const struct hf_tokenizer *t)
{
    fprintf(stderr, "  vocabulary: %s%s, %u tokens", t->is_spm ? "SentencePiece" : "BPE, cut like ",
            t->is_spm ? "" : t->pre, t->n_named);
    if (t->n_named < t->n_tokens)
        fprintf(stderr, " and %u rows of the embedding without one", t->n_tokens - t->n_named);
    print_templates(t);
    if (t->notes[0])
        fprintf(stderr, "  note: %s\n", t->notes);
}

void convert_report_print(const struct convert_report *r)
{
    char size[16];
    fprintf(stderr, "%s: %s, %d layers, %zu tensors, %s; every value compared\n", r->out,
            r->config->model.arch->name, r->config->model.n_layer, r->tensors->n,
            cli_size(r->bytes, size));
    print_weights(r->config);
    print_groups(r);
    if (r->largest_change > 0)
        fprintf(stderr, "  rounding to --type changed values by %.3g at most\n", r->largest_change);
    print_tokenizer(r->tokenizer);
    if (r->config->unused[0])
        fprintf(stderr, "  not looked at in config.json: %s\n", r->config->unused);
    if (r->tensors->ignored[0])
        fprintf(stderr, "  left out, as every program computes them: %s\n", r->tensors->ignored);
}
