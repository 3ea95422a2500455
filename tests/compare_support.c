#include "compare_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *fresh(const char *name)
{
    const char *path = scratch_path(name);
    unlink(path);
    return path;
}

struct outcome compare_ends(int status, const char *arguments)
{
    bool is_simple = !strpbrk(arguments, "|;&("); /* then run_command writes exec itself */
    struct outcome o =
        run_command("%s%s compare %s", is_simple ? "" : "exec ", build_path("trine"), arguments);
    if (o.status != status)
        fail_msg("compare %s: status %d, expected %d: %s", arguments, o.status, status, o.err);
    return o;
}

json_t *parse(const char *text)
{
    json_error_t problem;
    json_t *value = json_loads(text, JSON_REJECT_DUPLICATES, &problem);
    if (!value)
        fail_msg("%s: '%s'", problem.text, text);
    return value;
}

json_t *compare(const char *arguments)
{
    char all[3000];
    snprintf(all, sizeof all, "%s --json", arguments);
    struct outcome o = compare_ends(0, all);
    json_t *analysis = parse(o.out);
    outcome_done(&o);
    return analysis;
}

json_t *field(json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    if (!value)
        fail_msg("no field %s", name);
    return value;
}

double number_of(json_t *object, const char *name)
{
    if (!json_is_number(field(object, name)))
        fail_msg("%s is no number", name);
    return json_number_value(field(object, name));
}

const char *text_in(json_t *object, const char *name)
{
    if (!json_is_string(field(object, name)))
        fail_msg("%s is no text", name);
    return json_string_value(field(object, name));
}

json_t *variant(json_t *analysis, size_t i)
{
    return json_array_get(field(analysis, "variants"), i);
}

void expect_between(json_t *object, const char *name, double low, double high)
{
    double found = number_of(object, name);
    if (!(found >= low && found <= high))
        fail_msg("%s is %g, expected %g to %g", name, found, low, high);
}

char *with_replaced(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    if (!at)
        fail_msg("the record has no '%s'", from);
    size_t n = strlen(text) + strlen(to) + 1, before = (size_t)(at - text);
    char *changed = malloc(n);
    assert_non_null(changed);
    snprintf(changed, n, "%.*s%s%s", (int)before, text, to, at + strlen(from));
    return changed;
}
