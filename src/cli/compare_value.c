#include "cli/compare_value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench_tests.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

static enum status compile(struct value_rule *rule, struct error *err)
{
    int problem;
    size_t at;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)rule->pattern, PCRE2_ZERO_TERMINATED,
                                     PCRE2_MULTILINE, &problem, &at, NULL);
    if (!code) {
        char text[128] = "";
        pcre2_get_error_message(problem, (PCRE2_UCHAR *)text, sizeof text);
        return fail(err, STATUS_USAGE, "--pattern: at character %zu: %s", at, text);
    }
    uint32_t n_groups = 0;
    rule->code = code;
    pcre2_pattern_info(code, PCRE2_INFO_CAPTURECOUNT, &n_groups);
    if (n_groups != 1)
        return fail(err, STATUS_USAGE,
                    "--pattern: has %u groups; exactly one, around the number, is needed: "
                    "'speed: ([0-9.]+)'",
                    n_groups);
    return STATUS_OK;
}

enum status value_rule_make(struct value_rule *rule, const struct comparison *c, struct error *err)
{
    *rule = (struct value_rule){.value = c->value, .test = c->test, .pattern = c->pattern};
    return rule->value == COMPARISON_PATTERN ? compile(rule, err) : STATUS_OK;
}

void value_rule_done(struct value_rule *rule)
{
    pcre2_code_free(rule->code);
    *rule = (struct value_rule){0};
}

static enum status accept(double number, const char *what, double *value, struct error *err)
{
    if (!(number > 0 && number < 1e18))
        return fail(err, STATUS_FORMAT, "%s is %g: a number above 0 is needed", what, number);
    *value = number;
    return STATUS_OK;
}

/* What the group of a match holds, in the output. */
struct found {
    bool is_found; /* false: no further match */
    const char *bytes;
    int n;
};

/* The next match from *at on. */
static enum status next_match(const struct value_rule *rule, const struct shell_run *run,
                              pcre2_match_data *match, size_t *at, struct found *found,
                              struct error *err)
{
    int n = *at > run->out_bytes ? PCRE2_ERROR_NOMATCH
                                 : pcre2_match(rule->code, (PCRE2_SPTR)run->out, run->out_bytes,
                                               *at, 0, match, NULL);
    *found = (struct found){.is_found = n > 0};
    if (n == PCRE2_ERROR_NOMATCH)
        return STATUS_OK;
    if (n < 0) {
        char text[128] = "";
        pcre2_get_error_message(n, (PCRE2_UCHAR *)text, sizeof text);
        return fail(err, STATUS_LIMIT, "the pattern gave up on its standard output: %s", text);
    }
    if (n == 1)
        return fail(err, STATUS_FORMAT,
                    "the pattern matches in its standard output, but its group is no part of the "
                    "match");
    const size_t *places = pcre2_get_ovector_pointer(match);
    *at = places[1] > *at ? places[1] : *at + 1;
    found->bytes = run->out + places[2];
    found->n = (int)(places[3] - places[2]);
    return STATUS_OK;
}

/* The only match. */
static enum status match_once(const struct value_rule *rule, const struct shell_run *run,
                              pcre2_match_data *match, struct found *found, struct error *err)
{
    size_t at = 0;
    struct found other;
    TRY(next_match(rule, run, match, &at, found, err));
    if (!found->is_found)
        return fail(err, STATUS_FORMAT, "the pattern matches nothing in its standard output");
    TRY(next_match(rule, run, match, &at, &other, err));
    if (!other.is_found)
        return STATUS_OK;
    return fail(err, STATUS_FORMAT,
                "the pattern matches more than once, first '%.*s', then '%.*s'; make it match one "
                "place",
                found->n, found->bytes, other.n, other.bytes);
}

static enum status find_by_pattern(const struct value_rule *rule, const struct shell_run *run,
                                   double *value, struct error *err)
{
    pcre2_match_data *match = pcre2_match_data_create(2, NULL);
    if (!match)
        return fail(err, STATUS_MEMORY, "out of memory");
    struct found found;
    enum status status = match_once(rule, run, match, &found, err);
    pcre2_match_data_free(match);
    TRY(status);
    char text[64], *end;
    snprintf(text, sizeof text, "%.*s", found.n, found.bytes);
    double number = strtod(text, &end);
    if (end == text || *end)
        return fail(err, STATUS_FORMAT, "the pattern matches '%s', which is no number", text);
    return accept(number, "what the pattern matches", value, err);
}

/* All objects of the output, as an array: of an array, of a single object, or of one object a line;
 * other lines are passed over. The caller decrefs. NULL: none. */
static json_t *objects_of(const struct shell_run *run)
{
    json_t *all = json_loadb(run->out, run->out_bytes, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_array(all))
        return all;
    if (json_is_object(all))
        return json_pack("[o]", all);
    json_decref(all);
    json_t *array = json_array();
    const char *end = run->out + run->out_bytes;
    for (const char *line = run->out, *next; line < end; line = next) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        next = newline ? newline + 1 : end;
        json_t *object = json_loadb(line, (size_t)(next - line), JSON_REJECT_DUPLICATES, NULL);
        if (json_is_object(object))
            json_array_append(array, object);
        json_decref(object);
    }
    return array;
}

static int small_integer(json_t *object, const char *name, int otherwise)
{
    json_t *value = json_object_get(object, name);
    int64_t number = json_integer_value(value);
    return json_is_integer(value) && number >= 0 && number < INT32_MAX / 2 ? (int)number
                                                                           : otherwise;
}

/* The name without its spaces: "tg128@d512". */
static const char *name_of(json_t *object, char name[64])
{
    struct bench_test test = {.n_prompt = small_integer(object, "n_prompt", 0),
                              .n_gen = small_integer(object, "n_gen", 0),
                              .n_depth = small_integer(object, "n_depth", 0),
                              .n_seq = small_integer(object, "n_seq", 1)};
    bench_test_name(&test, name);
    char *to = name;
    for (const char *from = name; *from; from++)
        if (*from != ' ')
            *to++ = *from;
    *to = 0;
    return name;
}

static bool is_named(const char *wanted, const char *name)
{
    for (; *wanted; wanted++)
        if (*wanted != ' ' && *wanted != *name++)
            return false;
    return *name == 0;
}

static void append(char *list, size_t size, const char *name)
{
    size_t n = strlen(list);
    snprintf(list + n, size - n, "%s%s", n ? ", " : "", name);
}

static enum status choose_test(const struct value_rule *rule, json_t *objects, double *value,
                               struct error *err)
{
    char list[400] = "", name[64];
    size_t i, n = 0, n_found = 0;
    json_t *object;
    double number = 0;
    json_array_foreach(objects, i, object)
    {
        json_t *speed = json_object_get(object, "avg_ts");
        if (!json_is_number(speed))
            continue;
        n++;
        append(list, sizeof list, name_of(object, name));
        if (rule->test && !is_named(rule->test, name))
            continue;
        n_found++;
        number = json_number_value(speed);
    }
    if (n == 0)
        return fail(err, STATUS_FORMAT,
                    "its standard output has no avg_ts as llama-bench -o json writes it; give "
                    "--pattern or --time");
    if (n_found == 0)
        return fail(err, STATUS_FORMAT, "has no test '%s'; its tests: %s", rule->test, list);
    if (n_found > 1)
        return fail(err, STATUS_FORMAT, "has %zu tests%s%s: %s; say which with --test", n_found,
                    rule->test ? " called " : "", rule->test ? rule->test : "", list);
    return accept(number, "avg_ts", value, err);
}

enum status value_find(const struct value_rule *rule, const struct shell_run *run, double *value,
                       struct error *err)
{
    if (rule->value == COMPARISON_TIME)
        return accept(run->wall_s, "its time", value, err);
    if (rule->value == COMPARISON_PATTERN)
        return find_by_pattern(rule, run, value, err);
    json_t *objects = objects_of(run);
    enum status status = choose_test(rule, objects, value, err);
    json_decref(objects);
    return status;
}
