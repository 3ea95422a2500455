#include "cli/compare_options.h"

#include <string.h>

#include "base/text.h"

static enum status check_text(const char *option, const char *text, struct error *err)
{
    struct error why;
    if (!text || comparison_check_text(text, &why) == STATUS_OK)
        return STATUS_OK;
    return fail(err, STATUS_USAGE, "%s %s", option, why.text);
}

static enum status add_variant(struct comparison *c, const char **names, char letter,
                               const char *command, struct error *err)
{
    char option[] = {'-', '-', letter, 0}, name[COMPARISON_NAME_BYTES + 2] = {letter};
    TRY(check_text(option, command, err));
    if (*names) {
        size_t n = strcspn(*names, ",");
        if (n >= sizeof name)
            n = sizeof name - 1; /* too long: refused by its length */
        memcpy(name, *names, n);
        name[n] = 0;
        *names += strcspn(*names, ",");
        *names += **names == ',';
    }
    struct error why;
    enum status status = comparison_add_variant(c, name, command, &why);
    if (status == STATUS_OK)
        return STATUS_OK;
    return fail(err, status, "%s: %s", *names ? "--names" : option, why.text);
}

static int count_commas(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += *text == ',';
    return n;
}

static enum status add_variants(const struct compare_options *o, struct comparison *c,
                                struct error *err)
{
    const char *names = o->names;
    int n = 0;
    for (int i = 0; i < COMPARISON_MOST; i++)
        n += o->commands[i] != NULL;
    if (n < 2)
        return fail(err, STATUS_USAGE, "give two commands or more: --a 'COMMAND' --b 'COMMAND'");
    if (names && count_commas(names) + 1 != n)
        return fail(err, STATUS_USAGE, "--names: %d names for %d commands", count_commas(names) + 1,
                    n);
    for (int i = 0; i < COMPARISON_MOST; i++)
        if (o->commands[i])
            TRY(add_variant(c, &names, (char)('a' + i), o->commands[i], err));
    return STATUS_OK;
}

static const char *copy(struct comparison *c, const char *text)
{
    return text ? arena_text(&c->arena, text, strlen(text)) : NULL;
}

enum status compare_options_apply(const struct compare_options *o, struct comparison *c,
                                  struct error *err)
{
    if ((o->pattern != NULL) + (o->test != NULL) + o->is_time > 1)
        return fail(err, STATUS_USAGE, "--test, --pattern and --time exclude each other");
    if (o->is_lower && !o->pattern)
        return fail(err, STATUS_USAGE, "--lower says what the number of --pattern means");
    TRY(check_text("--test", o->test, err));
    TRY(check_text("--pattern", o->pattern, err));
    TRY(comparison_init(c, err));
    TRY(add_variants(o, c, err));
    c->value = o->is_time ? COMPARISON_TIME : o->pattern ? COMPARISON_PATTERN : COMPARISON_AUTO;
    c->is_lower_better = o->is_time || o->is_lower;
    c->test = copy(c, o->test);
    c->pattern = copy(c, o->pattern);
    if ((o->test && !c->test) || (o->pattern && !c->pattern))
        return fail_memory(err, "options", 0);
    return STATUS_OK;
}

static bool is_same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

enum status compare_options_match(const struct comparison *wanted, const struct comparison *record,
                                  const char *path, struct error *err)
{
    const char *hint = "give the same, or another --record";
    if (wanted->n_variants != record->n_variants)
        return fail(err, STATUS_USAGE, "%s: is the record of %d commands, not of %d; %s", path,
                    record->n_variants, wanted->n_variants, hint);
    for (int v = 0; v < wanted->n_variants; v++) {
        if (!is_same(wanted->names[v], record->names[v]))
            return fail(err, STATUS_USAGE, "%s: name %d is '%s' there, not '%s'; %s", path, v + 1,
                        record->names[v], wanted->names[v], hint);
        if (!is_same(wanted->commands[v], record->commands[v]))
            return fail(err, STATUS_USAGE, "%s: the command of '%s' is another one there: %s; %s",
                        path, record->names[v], record->commands[v], hint);
    }
    if (wanted->value != record->value || !is_same(wanted->test, record->test) ||
        !is_same(wanted->pattern, record->pattern) ||
        wanted->is_lower_better != record->is_lower_better)
        return fail(err, STATUS_USAGE,
                    "%s: has its numbers from another --test, --pattern, --time or --lower; %s",
                    path, hint);
    return STATUS_OK;
}
