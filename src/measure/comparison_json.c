#include "measure/comparison_json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/output_file.h"
#include "measure/json_finite.h"

#define VERSION    1
#define MOST_BYTES ((int64_t)64 << 20)
#define LARGEST    1e18

static const char *const value_names[N_COMPARISON_VALUES] = {"auto", "pattern", "time"};

static json_t *text_json(const char *text)
{
    return text ? json_string(text) : json_null();
}

static json_t *variants_json(const struct comparison *c)
{
    json_t *array = json_array();
    for (int v = 0; v < c->n_variants; v++)
        json_array_append_new(
            array, json_pack("{s:s, s:s}", "name", c->names[v], "command", c->commands[v]));
    return array;
}

static json_t *run_json(const struct comparison *c, const struct comparison_run *run)
{
    return json_pack("{s:b, s:i, s:i, s:s, s:f, s:b, s:f, s:f, s:o, s:o, s:o, s:I}", "cold",
                     run->is_cold, "round", run->round, "attempt", run->attempt, "variant",
                     c->names[run->variant], "value", run->value, "disturbed", run->is_disturbed,
                     "wall_s", run->wall_s, "cpu_s", run->cpu_s, "foreign_cpus",
                     json_finite(run->foreign_cpus), "stolen_cpus", json_finite(run->stolen_cpus),
                     "read_gb_s", json_finite(run->read_gb_s), "begun", (json_int_t)run->begun);
}

static json_t *record_json(const struct comparison *c)
{
    json_t *runs = json_array();
    for (size_t i = 0; i < c->n_runs; i++)
        json_array_append_new(runs, run_json(c, &c->runs[i]));
    json_t *variants = variants_json(c);
    /* no memory: never a record with less in it */
    if (json_array_size(runs) != c->n_runs || json_array_size(variants) != (size_t)c->n_variants) {
        json_decref(runs);
        json_decref(variants);
        return NULL;
    }
    return json_pack("{s:i, s:s, s:o, s:o, s:b, s:o, s:O, s:o}", "trine_compare", VERSION, "value",
                     value_names[c->value], "test", text_json(c->test), "pattern",
                     text_json(c->pattern), "lower_is_better", c->is_lower_better, "variants",
                     variants, "sessions", c->sessions, "runs", runs);
}

/* 15 digits are the same again after reading and writing. */
enum status comparison_write(const struct comparison *c, const char *path, struct error *err)
{
    json_t *record = record_json(c);
    char *text = record ? json_dumps(record, JSON_INDENT(1) | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(record);
    if (!text)
        return fail_memory(err, path, 0);
    struct output_file file;
    enum status status = output_file_open(&file, path, err);
    if (status == STATUS_OK) {
        status = output_file_write(&file, text, strlen(text), err);
        if (status == STATUS_OK)
            status = output_file_write(&file, "\n", 1, err);
        if (status == STATUS_OK)
            status = output_file_commit(&file, err);
        output_file_close(&file);
    }
    free(text);
    return status;
}

/* Reads fields of a stranger's objects; after the first one that is wrong all give zero. */
struct record_reader {
    const char *path;
    char where[32]; /* "record", "runs[3]" */
    enum status status;
    struct error *err;
};

static void refuse(struct record_reader *r, const char *name, const char *expected)
{
    if (r->status == STATUS_OK)
        r->status = fail(r->err, STATUS_FORMAT,
                         "%s: %s: %s is missing or not %s; this is no record of trine compare",
                         r->path, r->where, name, expected);
}

static const char *read_text(struct record_reader *r, json_t *object, const char *name,
                             bool may_be_null)
{
    json_t *value = json_object_get(object, name);
    if (may_be_null && json_is_null(value))
        return NULL;
    size_t n = json_string_length(value);
    if (json_is_string(value) && n <= COMPARISON_TEXT_BYTES &&
        strlen(json_string_value(value)) == n)
        return json_string_value(value);
    refuse(r, name, "text");
    return "";
}

static bool read_flag(struct record_reader *r, json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    if (!json_is_boolean(value))
        refuse(r, name, "true or false");
    return json_is_true(value);
}

static int64_t read_integer(struct record_reader *r, json_t *object, const char *name,
                            int64_t least, int64_t most)
{
    json_t *value = json_object_get(object, name);
    int64_t number = json_integer_value(value);
    if (json_is_integer(value) && number >= least && number <= most)
        return number;
    char expected[80];
    snprintf(expected, sizeof expected, "a whole number from %lld to %lld", (long long)least,
             (long long)most);
    refuse(r, name, expected);
    return least;
}

static double read_number(struct record_reader *r, json_t *object, const char *name,
                          bool may_be_null)
{
    json_t *value = json_object_get(object, name);
    double number = json_number_value(value);
    if (may_be_null && json_is_null(value))
        return NAN;
    if (!json_is_number(value) || !(number >= 0 && number <= LARGEST))
        refuse(r, name, "a number from 0 to 1e18");
    return number;
}

static json_t *read_array(struct record_reader *r, json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    if (!json_is_array(value))
        refuse(r, name, "an array");
    return value;
}

/* A copy that lives as long as the comparison. */
static const char *keep(struct record_reader *r, struct comparison *c, const char *text)
{
    char *copy = text ? arena_text(&c->arena, text, strlen(text)) : NULL;
    if (text && !copy && r->status == STATUS_OK)
        r->status = fail_memory(r->err, r->path, strlen(text));
    return copy;
}

/* What compare_options_apply never makes. */
static void check_settings(struct record_reader *r, const struct comparison *c)
{
    if (c->value == COMPARISON_PATTERN && !c->pattern)
        refuse(r, "pattern", "text, which value \"pattern\" needs");
    if (c->value != COMPARISON_PATTERN && c->pattern)
        refuse(r, "pattern", "null, as value is not \"pattern\"");
    if (c->value != COMPARISON_AUTO && c->test)
        refuse(r, "test", "null, as value is not \"auto\"");
    if (c->value == COMPARISON_TIME && !c->is_lower_better)
        refuse(r, "lower_is_better", "true, as value is \"time\"");
    if (c->value == COMPARISON_AUTO && c->is_lower_better)
        refuse(r, "lower_is_better", "false, as value is \"auto\"");
}

static void read_settings(struct record_reader *r, struct comparison *c, json_t *record)
{
    read_integer(r, record, "trine_compare", VERSION, VERSION);
    const char *value = read_text(r, record, "value", false);
    c->value = N_COMPARISON_VALUES;
    for (int i = 0; i < N_COMPARISON_VALUES; i++)
        if (strcmp(value, value_names[i]) == 0)
            c->value = (enum comparison_value)i;
    if (c->value == N_COMPARISON_VALUES)
        refuse(r, "value", "one of auto, pattern, time");
    c->test = keep(r, c, read_text(r, record, "test", true));
    c->pattern = keep(r, c, read_text(r, record, "pattern", true));
    c->is_lower_better = read_flag(r, record, "lower_is_better");
    check_settings(r, c);
}

static void read_variants(struct record_reader *r, struct comparison *c, json_t *record)
{
    json_t *array = read_array(r, record, "variants"), *object;
    size_t i;
    json_array_foreach(array, i, object)
    {
        snprintf(r->where, sizeof r->where, "variants[%zu]", i);
        const char *name = read_text(r, object, "name", false);
        const char *command = read_text(r, object, "command", false);
        struct error why;
        if (r->status == STATUS_OK && comparison_add_variant(c, name, command, &why) != STATUS_OK)
            r->status = fail(r->err, why.status == STATUS_MEMORY ? STATUS_MEMORY : STATUS_FORMAT,
                             "%s: %s: %s", r->path, r->where, why.text);
        if (r->status != STATUS_OK)
            return;
    }
    strcpy(r->where, "record");
    if (c->n_variants < 2)
        refuse(r, "variants", "two or more");
}

static void read_run(struct record_reader *r, struct comparison *c, json_t *object)
{
    const char *name = read_text(r, object, "variant", false);
    struct comparison_run run = {
        .is_cold = read_flag(r, object, "cold"),
        .round = (int)read_integer(r, object, "round", 1, COMPARISON_ROUNDS),
        .attempt = (int)read_integer(r, object, "attempt", 1, COMPARISON_ATTEMPTS),
        .variant = comparison_find(c, name),
        .value = read_number(r, object, "value", false),
        .is_disturbed = read_flag(r, object, "disturbed"),
        .wall_s = read_number(r, object, "wall_s", false),
        .cpu_s = read_number(r, object, "cpu_s", false),
        .foreign_cpus = read_number(r, object, "foreign_cpus", true),
        .stolen_cpus = read_number(r, object, "stolen_cpus", true),
        .read_gb_s = read_number(r, object, "read_gb_s", true),
        .begun = read_integer(r, object, "begun", 0, INT64_MAX)};
    if (run.variant < 0)
        refuse(r, "variant", "the name of a variant");
    if (!(run.value > 1 / LARGEST))
        refuse(r, "value", "above 0");
    if (r->status == STATUS_OK &&
        !isnan(comparison_value_of(c, run.is_cold, run.round, run.attempt, run.variant)))
        r->status = fail(r->err, STATUS_FORMAT, "%s: %s: the same run stands there twice", r->path,
                         r->where);
    if (r->status == STATUS_OK)
        r->status = comparison_add_run(c, &run, r->err);
}

static void read_runs(struct record_reader *r, struct comparison *c, json_t *record)
{
    json_t *array = read_array(r, record, "runs");
    for (size_t i = 0; r->status == STATUS_OK && i < json_array_size(array); i++) {
        snprintf(r->where, sizeof r->where, "runs[%zu]", i);
        read_run(r, c, json_array_get(array, i));
    }
}

static void read_sessions(struct record_reader *r, struct comparison *c, json_t *record)
{
    json_t *sessions = read_array(r, record, "sessions"), *session;
    size_t i;
    json_array_foreach(sessions, i, session)
    {
        if (!json_is_object(session))
            refuse(r, "sessions", "an array of objects");
    }
    if (r->status == STATUS_OK)
        json_array_extend(c->sessions, sessions);
}

static enum status load(const char *path, json_t **record, struct error *err)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return fail(err, STATUS_IO, "%s: cannot open: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode) || info.st_size > MOST_BYTES)
        return fail(err, STATUS_FORMAT,
                    "%s: is no file of at most 64 MiB; give a record of trine "
                    "compare",
                    path);
    json_error_t problem;
    *record = json_load_file(path, JSON_REJECT_DUPLICATES, &problem);
    if (!*record)
        return fail(err, STATUS_FORMAT, "%s: is no JSON: line %d: %s", path, problem.line,
                    problem.text);
    return STATUS_OK;
}

enum status comparison_read(struct comparison *c, const char *path, struct error *err)
{
    json_t *record;
    TRY(comparison_init(c, err));
    TRY(load(path, &record, err));
    struct record_reader r = {.path = path, .where = "record", .err = err};
    read_settings(&r, c, record);
    if (r.status == STATUS_OK)
        read_variants(&r, c, record);
    read_sessions(&r, c, record);
    if (r.status == STATUS_OK)
        read_runs(&r, c, record);
    json_decref(record);
    return r.status;
}

static json_t *summary_json(const struct comparison *c, const struct comparison_summary *s, int v)
{
    static const char *const verdicts[] = {"base", "too few rounds", "no difference shown",
                                           "better", "worse"};
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:i, s:s}", "name",
                     c->names[v], "median", json_finite(s->median), "min", json_finite(s->min),
                     "max", json_finite(s->max), "mean", json_finite(s->mean), "standard_error",
                     json_finite(s->standard_error), "cold_median", json_finite(s->cold_median),
                     "ratio", json_finite(s->ratio), "ratio_low", json_finite(s->interval.low),
                     "ratio_high", json_finite(s->interval.high), "rounds_below", s->n_below,
                     "rounds_above", s->n_above, "verdict", verdicts[s->verdict]);
}

static json_t *disturbed_rounds_json(const struct comparison *c)
{
    json_t *rounds = json_array();
    for (int round = 1; round <= comparison_last_round(c, false); round++) {
        struct comparison_round r = comparison_round(c, false, round);
        if (r.counts && r.is_disturbed)
            json_array_append_new(rounds, json_integer(round));
    }
    return rounds;
}

json_t *comparison_analysis_json(const struct comparison *c, const struct comparison_analysis *a)
{
    json_t *variants = json_array();
    for (int v = 0; v < c->n_variants; v++)
        json_array_append_new(variants, summary_json(c, &a->variants[v], v));
    return json_pack("{s:s, s:b, s:s, s:i, s:i, s:i, s:i, s:o, s:b, s:i, s:o, s:o, s:o, s:o, s:o}",
                     "value", value_names[c->value], "lower_is_better", c->is_lower_better, "base",
                     c->names[a->base], "rounds", a->n_rounds, "rounds_clean", a->n_clean,
                     "rounds_used", a->n_used, "attempts_repeated", a->n_repeated,
                     "disturbed_rounds", disturbed_rounds_json(c), "uses_disturbed_rounds",
                     a->uses_disturbed, "cold_rounds", a->n_cold, "foreign_cpus_max",
                     json_finite(a->foreign_max), "stolen_cpus_max", json_finite(a->stolen_max),
                     "read_gb_s_min", json_finite(a->read_gb_s_min), "read_gb_s_max",
                     json_finite(a->read_gb_s_max), "variants", variants);
}
