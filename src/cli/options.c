#include "cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_end(const struct option *o)
{
    return !o->names && !o->help;
}

/* Does the comma-separated list `names` hold this word? */
static bool has_name(const char *names, const char *word, size_t n)
{
    while (names && *names) {
        size_t length = strcspn(names, ",");
        if (length == n && memcmp(names, word, n) == 0)
            return true;
        names += length;
        names += strspn(names, ", ");
    }
    return false;
}

/* Where the bare name of a positional row begins (it ends at a comma or the end), or NULL. */
static const char *bare_name(const struct option *o)
{
    for (const char *name = o->names; name && *name;) {
        if (*name != '-')
            return name;
        name += strcspn(name, ",");
        name += strspn(name, ", ");
    }
    return NULL;
}

static enum status parse_number(const struct option *o, const char *name, const char *text,
                                double *value, struct error *err)
{
    char *end;
    errno = 0;
    *value = strtod(text, &end);
    bool is_decimal = text[0] && strspn(text, "0123456789.eE+-") == strlen(text);
    if (is_decimal && *end == 0 && errno == 0 && *value >= o->min && *value <= o->max)
        return STATUS_OK;
    return fail(err, STATUS_USAGE, "%s: '%s' is not a number from %g to %g", name, text, o->min,
                o->max);
}

static enum status parse_integer(const struct option *o, const char *name, const char *text,
                                 int64_t *value, struct error *err)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    size_t sign = text[0] == '-';
    bool is_whole = text[sign] && strspn(text + sign, "0123456789") == strlen(text + sign);
    if (is_whole && errno == 0 && (double)*value >= o->min && (double)*value <= o->max)
        return STATUS_OK;
    return fail(err, STATUS_USAGE, "%s: '%s' is not a whole number from %.0f to %.0f", name, text,
                o->min, o->max);
}

static enum status parse_choice(const struct option *o, const char *name, const char *text,
                                int *choice, struct error *err)
{
    size_t n = strlen(text);
    int i = (int)o->min;
    for (const char *word = o->value; *word; i++) {
        size_t length = strcspn(word, "|");
        if (length == n && memcmp(word, text, n) == 0) {
            *choice = i;
            return STATUS_OK;
        }
        word += length;
        word += *word == '|';
    }
    return fail(err, STATUS_USAGE, "%s: '%s' is none of %s", name, text, o->value);
}

static enum status set_value(const struct option *o, const char *name, const char *text,
                             void *values, struct error *err)
{
    void *field = (char *)values + o->offset;
    switch (o->type) {
    case OPT_FLAG: *(bool *)field = true; return STATUS_OK;
    case OPT_TEXT:
    case OPT_MAYBE_XML: *(const char **)field = text; return STATUS_OK;
    case OPT_CHOICE: return parse_choice(o, name, text, field, err);
    case OPT_INT: return parse_integer(o, name, text, field, err);
    case OPT_NUMBER: return parse_number(o, name, text, field, err);
    }
    return STATUS_OK;
}

static enum status set_defaults(const struct command *command, void *values, struct error *err)
{
    for (const struct option *o = command->options; !is_end(o); o++)
        if (o->initial)
            TRY(set_value(o, o->names, o->initial, values, err));
    return STATUS_OK;
}

/* The row of an option word (without "=value"), or NULL. */
static const struct option *find_option(const struct command *command, const char *word, size_t n)
{
    for (const struct option *o = command->options; !is_end(o); o++)
        if (has_name(o->names, word, n))
            return o;
    return NULL;
}

/* The nth row that can be given by position, or NULL. */
static const struct option *nth_positional(const struct command *command, int n)
{
    for (const struct option *o = command->options; !is_end(o); o++)
        if (bare_name(o) && n-- == 0)
            return o;
    return NULL;
}

static bool is_xml(const char *word)
{
    size_t n = strlen(word);
    return word[0] != '-' && n >= 4 && strcmp(word + n - 4, ".xml") == 0;
}

/* The value of an option that was given without "=value": the next argument, where it takes one. */
static enum status take_value(const struct option *o, const char *name, int argc, char **argv,
                              int *i, const char **value, struct error *err)
{
    bool has_next = *i + 1 < argc;
    *value = "";
    if (o->type == OPT_FLAG || (o->type == OPT_MAYBE_XML && !(has_next && is_xml(argv[*i + 1]))))
        return STATUS_OK;
    if (!has_next)
        return fail(err, STATUS_USAGE, "%s needs a value: %s", name, o->value);
    *value = argv[++*i];
    return STATUS_OK;
}

/* One argument that begins with a dash, and its value. Advances *i over what it used. */
static enum status parse_option(const struct command *command, int argc, char **argv, int *i,
                                void *values, struct error *err)
{
    const char *word = argv[*i];
    size_t n = strncmp(word, "--", 2) == 0 ? strcspn(word, "=") : strlen(word);
    const struct option *o = find_option(command, word, n);
    if (!o)
        return fail(err, STATUS_USAGE, "unknown option '%s'", word);
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)n, word);
    const char *value = word[n] == '=' ? word + n + 1 : NULL;
    if (bare_name(o) && *(const char **)((char *)values + o->offset))
        return fail(err, STATUS_USAGE, "%s gives once more what was given before", name);
    if (o->type == OPT_FLAG && value)
        return fail(err, STATUS_USAGE, "%s takes no value", name);
    if (!value)
        TRY(take_value(o, name, argc, argv, i, &value, err));
    return set_value(o, name, value, values, err);
}

enum status options_parse(const struct command *command, int argc, char **argv, void *values,
                          bool *wants_help, struct error *err)
{
    *wants_help = false;
    TRY(set_defaults(command, values, err));
    int n_positional = 0;
    bool options_end = false;
    for (int i = 0; i < argc; i++) {
        bool is_option = !options_end && argv[i][0] == '-' && argv[i][1];
        if (is_option && strcmp(argv[i], "--") == 0) {
            options_end = true;
        } else if (is_option && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
            *wants_help = true;
            return STATUS_OK;
        } else if (is_option) {
            TRY(parse_option(command, argc, argv, &i, values, err));
        } else {
            const struct option *o = nth_positional(command, n_positional++);
            if (!o || (o->type == OPT_TEXT && *(const char **)((char *)values + o->offset)))
                return fail(err, STATUS_USAGE, "one argument too many: '%s'", argv[i]);
            TRY(set_value(o, o->names, argv[i], values, err));
        }
    }
    return STATUS_OK;
}

static void print_positionals(const struct command *command)
{
    const struct option *o;
    for (int n = 0; (o = nth_positional(command, n)); n++)
        printf(" %.*s", (int)strcspn(bare_name(o), ","), bare_name(o));
}

void options_help(const struct command *command)
{
    printf("trine %s: %s\n\nusage: trine %s", command->name, command->summary, command->name);
    print_positionals(command);
    printf(" [options]\n\n%s\n", command->details);
    for (const struct option *o = command->options; !is_end(o); o++) {
        if (!o->names) {
            printf("\n%s\n", o->help);
            continue;
        }
        char left[80];
        snprintf(left, sizeof left, "%s%s%s", o->names, o->value ? " " : "",
                 o->value ? o->value : "");
        printf("  %-30s %s", left, o->help);
        if (o->initial)
            printf(" [%s]", o->initial);
        putchar('\n');
    }
}

void options_overview(void)
{
    printf("trine %s: runs ternary (1.58-bit) and other low-bit language models\n\n"
           "usage: trine COMMAND MODEL [options]\n\n",
           TRINE_VERSION);
    for (const struct command *const *c = commands; *c; c++)
        printf("  %-10s %s\n", (*c)->name, (*c)->summary);
    printf("\n`trine COMMAND --help` lists the options of a command; `man trine` has them all.\n");
}

/* Text with the characters that man(7) would take for its own escaped. */
static void print_manual_text(const char *text)
{
    for (const char *c = text; *c; c++) {
        if (*c == '-' || *c == '\\')
            putchar('\\');
        if (*c == '\\')
            putchar('e');
        else
            putchar(*c);
    }
}

static void print_manual_option(const struct option *o)
{
    printf(".TP\n.B ");
    print_manual_text(o->names);
    if (o->value) {
        printf(" \\fI");
        print_manual_text(o->value);
        printf("\\fR");
    }
    printf("\n");
    print_manual_text(o->help);
    if (o->initial) {
        printf(" (default: ");
        print_manual_text(o->initial);
        printf(")");
    }
    printf("\n");
}

static void print_manual_command(const struct command *c)
{
    printf(".SH TRINE ");
    for (const char *letter = c->name; *letter; letter++)
        putchar(toupper((unsigned char)*letter));
    printf("\n");
    print_manual_text(c->summary);
    printf(".\n.PP\n");
    print_manual_text(c->details);
    printf("\n");
    for (const struct option *o = c->options; !is_end(o); o++) {
        if (o->names) {
            print_manual_option(o);
            continue;
        }
        printf(".SS ");
        print_manual_text(o->help);
        printf("\n");
    }
}

void options_manual(void)
{
    printf(".TH TRINE 1 \"\" \"trine %s\" \"User Commands\"\n.SH NAME\ntrine \\- run ternary "
           "(1.58\\-bit) and other low\\-bit language models\n.SH SYNOPSIS\n.B trine\n.I COMMAND "
           "MODEL\n[options]\n.SH DESCRIPTION\nThe result goes to standard output, everything "
           "else to standard error. Exit status: 0 done, 1 refused or failed, 2 wrong usage.\n",
           TRINE_VERSION);
    for (const struct command *const *c = commands; *c; c++)
        print_manual_command(*c);
}
