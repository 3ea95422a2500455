#define PCRE2_CODE_UNIT_WIDTH 8
#include "cli/quantize_rules.h"

#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

struct quantize_rule {
    pcre2_code *code; /* owned */
    pcre2_match_data *match;
    enum format_id type;
};

/* PQ2_0 and PTQ1_0 are for rotated weights, Q8_K for activations, the other byte orders of I2_S would
 * be read as the published one: a file of those would be another model. */
static bool is_writable(enum format_id id)
{
    static const enum format_id excluded[] = {FORMAT_PQ2_0, FORMAT_PTQ1_0, FORMAT_Q8_K,
                                              FORMAT_I2_S_4ROW, FORMAT_I2_S_ARM};
    for (size_t i = 0; i < sizeof excluded / sizeof excluded[0]; i++)
        if (id == excluded[i])
            return false;
    return format_of(id)->encode != NULL;
}

enum status quantize_find_type(const char *what, const char *name, enum format_id *type,
                               struct error *err)
{
    char known[400] = "";
    *type = format_by_name(name);
    if (*type != N_FORMATS && is_writable(*type))
        return STATUS_OK;
    for (int id = 0; id < N_FORMATS; id++)
        if (is_writable((enum format_id)id)) {
            size_t n = strlen(known);
            snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "",
                     format_of((enum format_id)id)->name);
        }
    return fail(err, STATUS_USAGE, "%s: %s type '%.40s'; types that can be written: %s", what,
                *type == N_FORMATS ? "unknown" : "cannot write", name, known);
}

/* One rule of n characters. */
static enum status add_rule(struct quantize_rules *rules, const char *text, size_t n,
                            struct error *err)
{
    char type[24] = "";
    const char *equals = memrchr(text, '=', n);
    if (!equals || equals == text || (size_t)(text + n - equals) > sizeof type)
        return fail(err, STATUS_USAGE, "--tensor-type: '%.*s' is not of the form REGEX=TYPE",
                    (int)n, text);
    memcpy(type, equals + 1, (size_t)(text + n - equals) - 1);
    struct quantize_rule *rule = &rules->rules[rules->n];
    TRY(quantize_find_type("--tensor-type", type, &rule->type, err));
    int code;
    size_t at;
    rule->code = pcre2_compile((PCRE2_SPTR)text, (size_t)(equals - text), 0, &code, &at, NULL);
    if (!rule->code) {
        char reason[128] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
        return fail(err, STATUS_USAGE, "--tensor-type: '%.*s': %s at character %zu",
                    (int)(equals - text), text, reason, at + 1);
    }
    rules->n++;
    rule->match = pcre2_match_data_create(1, NULL);
    return rule->match ? STATUS_OK : fail_memory(err, "--tensor-type", n);
}

enum status quantize_rules_open(struct quantize_rules *rules, const char *list, struct error *err)
{
    size_t most = 1;
    *rules = (struct quantize_rules){0};
    if (!list)
        return STATUS_OK;
    for (const char *p = list; *p; p++)
        most += *p == ',';
    rules->rules = memory_alloc(most, sizeof *rules->rules);
    if (!rules->rules)
        return fail_memory(err, "--tensor-type", most * sizeof *rules->rules);
    for (const char *p = list;; p++) {
        size_t n = strcspn(p, ",");
        TRY(add_rule(rules, p, n, err));
        p += n;
        if (!*p)
            return STATUS_OK;
    }
}

enum format_id quantize_rules_find(const struct quantize_rules *rules, struct text name)
{
    for (int i = 0; i < rules->n; i++) {
        const struct quantize_rule *rule = &rules->rules[i];
        if (pcre2_match(rule->code, (PCRE2_SPTR)name.bytes, name.n, 0, 0, rule->match, NULL) >= 0)
            return rule->type;
    }
    return N_FORMATS;
}

void quantize_rules_close(struct quantize_rules *rules)
{
    for (int i = 0; i < rules->n; i++) {
        pcre2_code_free(rules->rules[i].code);
        pcre2_match_data_free(rules->rules[i].match);
    }
    memory_free(rules->rules);
    *rules = (struct quantize_rules){0};
}
