#include "machine/perf_event_text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_PATH 640
#define MAX_LINE 256

/* Where a text comes from, for messages. */
struct source {
    char path[MAX_PATH];
    char line[MAX_LINE]; /* without its newline */
};

static enum status fail_text(const struct source *s, const char *expected, struct error *err)
{
    return fail(err, STATUS_FORMAT, "%s: '%s' is not %s", s->path, s->line, expected);
}

/* The first line of pmu/name.
 * errors  IO; FORMAT: too long to be one */
static enum status read_source(struct source *s, const char *pmu, const char *name,
                               struct error *err)
{
    if (snprintf(s->path, sizeof s->path, "%s/%s", pmu, name) >= (int)sizeof s->path)
        return fail(err, STATUS_IO, "%s: the path is too long", pmu);
    FILE *file = fopen(s->path, "re");
    if (!file)
        return fail(err, STATUS_IO, "%s: cannot read: %s", s->path, strerror(errno));
    memset(s->line, 0, sizeof s->line);
    bool has_line = fgets(s->line, sizeof s->line, file) != NULL;
    bool is_whole = s->line[MAX_LINE - 2] == 0 || s->line[MAX_LINE - 2] == '\n';
    bool is_error = ferror(file);
    fclose(file);
    if (is_error)
        return fail(err, STATUS_IO, "%s: cannot read", s->path);
    s->line[strcspn(s->line, "\n")] = 0;
    if (!has_line || !s->line[0])
        return fail(err, STATUS_FORMAT, "%s: is empty", s->path);
    if (!is_whole)
        return fail(err, STATUS_FORMAT, "%s: more than %d characters", s->path, MAX_LINE - 2);
    return STATUS_OK;
}

/* A whole number at *at, decimal or 0x hexadecimal, up to `most`; *at goes behind it. */
static bool take_number(const char **at, uint64_t most, uint64_t *value)
{
    char *end;
    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    *value = strtoull(*at, &end, strncmp(*at, "0x", 2) == 0 ? 16 : 10);
    if (errno || *value > most)
        return false;
    *at = end;
    return true;
}

/* "3" or "0-7" at *at. */
static bool take_range(const char **at, uint64_t most, uint64_t *low, uint64_t *high)
{
    if (!take_number(at, most, low))
        return false;
    *high = *low;
    if (**at != '-')
        return true;
    ++*at;
    return take_number(at, most, high) && *high >= *low;
}

static enum status read_type(struct perf_event_text *text, const char *pmu, struct error *err)
{
    struct source s;
    uint64_t type;
    TRY(read_source(&s, pmu, "type", err));
    const char *at = s.line;
    if (!take_number(&at, UINT32_MAX, &type) || *at)
        return fail_text(&s, "the number of a type", err);
    text->type = (uint32_t)type;
    return STATUS_OK;
}

static bool is_there(const char *pmu, const char *name)
{
    char path[MAX_PATH];
    int n = snprintf(path, sizeof path, "%s/%s", pmu, name);
    return n < (int)sizeof path && access(path, F_OK) == 0;
}

/* "0,40" or "0-3": CPUs of which each stands for a socket. */
static enum status read_cpus(struct perf_event_text *text, const char *pmu, struct error *err)
{
    struct source s;
    uint64_t low, high;
    if (!is_there(pmu, "cpumask"))
        return STATUS_OK;
    TRY(read_source(&s, pmu, "cpumask", err));
    for (const char *at = s.line;; at++) {
        if (!take_range(&at, INT32_MAX, &low, &high) || (*at && *at != ','))
            return fail_text(&s, "a list of CPUs, as in 0,40", err);
        if (high - low >= (uint64_t)(PERF_EVENT_MAX_CPUS - text->n_cpus))
            return fail(err, STATUS_LIMIT, "%s: '%s' lists more than %d CPUs", s.path, s.line,
                        PERF_EVENT_MAX_CPUS);
        while (low <= high)
            text->cpus[text->n_cpus++] = (int)low++;
        if (!*at)
            return STATUS_OK;
    }
}

/* "config", "config1:" and so on at *at: 0, 1, 2; -1: something else. */
static int take_word(const char **at)
{
    if (strncmp(*at, "config", 6) != 0)
        return -1;
    *at += 6;
    int word = **at == '1' || **at == '2' ? *(*at)++ - '0' : 0;
    return **at == ':' ? ++*at, word : -1;
}

/* Puts the bits of value, lowest first, where the format says: "config:0-7,32-35". */
static enum status place(struct perf_event_text *text, const struct source *format, uint64_t value,
                         bool *fits, struct error *err)
{
    static const char expected[] = "a bit field, as in config:0-7,32-35";
    const char *at = format->line;
    uint64_t low, high;
    int word = take_word(&at);
    if (word < 0)
        return fail_text(format, expected, err);
    for (;; at++) {
        if (!take_range(&at, 63, &low, &high) || (*at && *at != ','))
            return fail_text(format, expected, err);
        uint64_t n = high - low + 1, mask = n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
        text->config[word] &= ~(mask << low);
        text->config[word] |= (value & mask) << low;
        value = n == 64 ? 0 : value >> n;
        if (!*at)
            break;
    }
    *fits = value == 0;
    return STATUS_OK;
}

/* One term, "umask=0x0f" or "edge", which stands for 1. */
static enum status add_term(struct perf_event_text *text, const char *pmu,
                            const struct source *terms, const char *term, struct error *err)
{
    static const char expected[] = "a list of terms, as in event=0x04,umask=0x0f";
    char name[64];
    struct source format;
    uint64_t value = 1;
    bool fits = true;
    size_t n = strcspn(term, "=,");
    const char *at = term + n;
    if (n == 0 || n > 48 || memchr(term, '/', n))
        return fail_text(terms, expected, err);
    if (*at == '=') {
        at++;
        if (!take_number(&at, UINT64_MAX, &value) || (*at && *at != ','))
            return fail_text(terms, expected, err);
    }
    snprintf(name, sizeof name, "format/%.*s", (int)n, term);
    if (!is_there(pmu, name))
        return fail(err, STATUS_FORMAT, "%s: '%s' names '%.*s', which %s/format does not have",
                    terms->path, terms->line, (int)n, term, pmu);
    TRY(read_source(&format, pmu, name, err));
    TRY(place(text, &format, value, &fits, err));
    if (!fits)
        return fail(err, STATUS_FORMAT, "%s: '%s': %.*s does not fit '%s'", terms->path,
                    terms->line, (int)n, term, format.line);
    return STATUS_OK;
}

static enum status add_terms(struct perf_event_text *text, const char *pmu,
                             const struct source *terms, struct error *err)
{
    for (const char *term = terms->line;; term++) {
        TRY(add_term(text, pmu, terms, term, err));
        term += strcspn(term, ",");
        if (!*term)
            return STATUS_OK;
    }
}

static enum status read_scale(struct perf_event_text *text, const char *pmu, const char *name,
                              struct error *err)
{
    struct source s;
    char *end;
    if (!is_there(pmu, name))
        return STATUS_OK;
    TRY(read_source(&s, pmu, name, err));
    text->scale = strtod(s.line, &end);
    if (end == s.line || *end || !isfinite(text->scale) || text->scale <= 0)
        return fail_text(&s, "a scale, as in 6.103515625e-5", err);
    return STATUS_OK;
}

static enum status read_unit(struct perf_event_text *text, const char *pmu, const char *name,
                             struct error *err)
{
    struct source s;
    if (!is_there(pmu, name))
        return STATUS_OK;
    TRY(read_source(&s, pmu, name, err));
    if (strlen(s.line) >= sizeof text->unit)
        return fail_text(&s, "a unit, as in MiB", err);
    memcpy(text->unit, s.line, strlen(s.line) + 1);
    return STATUS_OK;
}

static enum status read_pmu(struct perf_event_text *text, const char *pmu, struct error *err)
{
    *text = (struct perf_event_text){.scale = 1};
    TRY(read_type(text, pmu, err));
    return read_cpus(text, pmu, err);
}

bool perf_event_is_named(const char *pmu, const char *event)
{
    char name[128];
    snprintf(name, sizeof name, "events/%s", event);
    return is_there(pmu, name);
}

enum status perf_event_named(struct perf_event_text *text, const char *pmu, const char *event,
                             struct error *err)
{
    struct source terms;
    char name[128], scale[128], unit[128];
    snprintf(name, sizeof name, "events/%s", event);
    snprintf(scale, sizeof scale, "events/%s.scale", event);
    snprintf(unit, sizeof unit, "events/%s.unit", event);
    TRY(read_pmu(text, pmu, err));
    TRY(read_source(&terms, pmu, name, err));
    TRY(add_terms(text, pmu, &terms, err));
    TRY(read_scale(text, pmu, scale, err));
    return read_unit(text, pmu, unit, err);
}

enum status perf_event_encoded(struct perf_event_text *text, const char *pmu, const char *terms,
                               struct error *err)
{
    struct source s = {0};
    snprintf(s.path, sizeof s.path, "%s", pmu);
    snprintf(s.line, sizeof s.line, "%s", terms);
    TRY(read_pmu(text, pmu, err));
    return add_terms(text, pmu, &s, err);
}
