#include "measure/comparison.h"

#include <string.h>

#include "base/text.h"

#define LEAST_ROUNDS 5
#define MOST_CHANCE  0.0625 /* 5 of 5 rounds on one side */

enum status comparison_init(struct comparison *c, struct error *err)
{
    *c = (struct comparison){.sessions = json_array()};
    return c->sessions ? STATUS_OK : fail_memory(err, "comparison", 0);
}

void comparison_done(struct comparison *c)
{
    json_decref(c->sessions);
    memory_free(c->runs);
    arena_done(&c->arena);
    *c = (struct comparison){0};
}

static bool is_printable(const char *text)
{
    char copy[COMPARISON_NAME_BYTES + 1];
    return strcmp(text_printable(text_of(text), copy, sizeof copy), text) == 0;
}

enum status comparison_check_text(const char *text, struct error *err)
{
    size_t n = strlen(text);
    if (!text[strspn(text, " \t\n")])
        return fail(err, STATUS_USAGE, "is empty");
    if (n > COMPARISON_TEXT_BYTES)
        return fail(err, STATUS_USAGE, "is too long: %zu bytes, at most %d", n,
                    COMPARISON_TEXT_BYTES);
    for (size_t at = 0, length; at < n; at += length) {
        length = (size_t)utf8_decode(text + at, n - at, NULL);
        if (length == 0)
            return fail(err, STATUS_USAGE, "is no UTF-8 at byte %zu, so no record can hold it",
                        at + 1);
    }
    return STATUS_OK;
}

enum status comparison_add_variant(struct comparison *c, const char *name, const char *command,
                                   struct error *err)
{
    if (c->n_variants == COMPARISON_MOST)
        return fail(err, STATUS_LIMIT, "more than %d variants", COMPARISON_MOST);
    if (!name[0] || strlen(name) > COMPARISON_NAME_BYTES || !is_printable(name))
        return fail(err, STATUS_USAGE, "'%s' is no name: 1 to %d bytes of printable text", name,
                    COMPARISON_NAME_BYTES);
    if (comparison_find(c, name) >= 0)
        return fail(err, STATUS_USAGE, "two variants are called '%s'", name);
    struct error why;
    if (comparison_check_text(command, &why) != STATUS_OK)
        return fail(err, STATUS_USAGE, "the command of '%s' %s", name, why.text);
    char *own_name = arena_text(&c->arena, name, strlen(name));
    char *own_command = arena_text(&c->arena, command, strlen(command));
    if (!own_name || !own_command)
        return fail_memory(err, "comparison", strlen(command));
    c->names[c->n_variants] = own_name;
    c->commands[c->n_variants++] = own_command;
    return STATUS_OK;
}

enum status comparison_add_run(struct comparison *c, const struct comparison_run *run,
                               struct error *err)
{
    if (c->n_runs == COMPARISON_RUNS)
        return fail(err, STATUS_LIMIT, "more than %d runs", COMPARISON_RUNS);
    if (c->n_runs == c->n_room) {
        size_t n_room = c->n_room ? 2 * c->n_room : 64;
        void *runs = memory_resize(c->runs, n_room, sizeof *c->runs);
        if (!runs)
            return fail_memory(err, "comparison", n_room * sizeof *c->runs);
        c->runs = runs;
        c->n_room = n_room;
    }
    c->runs[c->n_runs++] = *run;
    return STATUS_OK;
}

int comparison_find(const struct comparison *c, const char *name)
{
    for (int v = 0; v < c->n_variants; v++)
        if (strcmp(c->names[v], name) == 0)
            return v;
    return -1;
}

static bool is_of_round(const struct comparison_run *run, bool is_cold, int round)
{
    return run->is_cold == is_cold && run->round == round;
}

struct comparison_round comparison_round(const struct comparison *c, bool is_cold, int round)
{
    struct comparison_round r = {0};
    unsigned variants[COMPARISON_ATTEMPTS + 1] = {0}; /* that ran in an attempt, a bit each */
    bool is_disturbed[COMPARISON_ATTEMPTS + 1] = {0};
    for (size_t i = 0; i < c->n_runs; i++) {
        const struct comparison_run *run = &c->runs[i];
        if (!is_of_round(run, is_cold, round))
            continue;
        variants[run->attempt] |= 1u << run->variant;
        is_disturbed[run->attempt] |= run->is_disturbed;
        r.n_attempts = run->attempt > r.n_attempts ? run->attempt : r.n_attempts;
    }
    for (int attempt = 1; attempt <= r.n_attempts; attempt++) {
        r.n_disturbed += is_disturbed[attempt];
        if (variants[attempt] == (1u << c->n_variants) - 1)
            r.counts = attempt;
    }
    r.is_disturbed = is_disturbed[r.counts];
    return r;
}

int comparison_order(const struct comparison *c, int round, int place)
{
    return (round - 1 + place) % c->n_variants;
}

double comparison_value_of(const struct comparison *c, bool is_cold, int round, int attempt,
                           int variant)
{
    for (size_t i = 0; i < c->n_runs; i++) {
        const struct comparison_run *run = &c->runs[i];
        if (is_of_round(run, is_cold, round) && run->attempt == attempt && run->variant == variant)
            return run->value;
    }
    return NAN;
}

int comparison_last_round(const struct comparison *c, bool is_cold)
{
    int last = 0;
    for (size_t i = 0; i < c->n_runs; i++)
        if (c->runs[i].is_cold == is_cold && c->runs[i].round > last)
            last = c->runs[i].round;
    return last;
}

bool comparison_uses(const struct comparison *c, const struct comparison_analysis *a,
                     const struct comparison_run *run)
{
    struct comparison_round r = comparison_round(c, run->is_cold, run->round);
    return !run->is_cold && r.counts == run->attempt && (a->uses_disturbed || !r.is_disturbed);
}

/* The numbers of the rounds that the analysis stands on, one column a variant. */
struct used_rounds {
    int n;
    double (*values)[COMPARISON_MOST]; /* owned: (rounds) */
    double *sorted;                    /* owned: (rounds), scratch */
};

static enum status take_rounds(const struct comparison *c, struct comparison_analysis *a,
                               struct used_rounds *used, struct error *err)
{
    int n_all = comparison_last_round(c, false);
    used->values = memory_alloc((size_t)n_all, sizeof *used->values);
    used->sorted = memory_alloc((size_t)n_all, sizeof *used->sorted);
    if (!used->values || !used->sorted)
        return fail_memory(err, "analysis", (size_t)n_all);
    for (int round = 1; round <= n_all; round++) {
        struct comparison_round r = comparison_round(c, false, round);
        a->n_rounds += r.counts > 0;
        a->n_clean += r.counts > 0 && !r.is_disturbed;
        a->n_repeated += r.n_disturbed - (r.counts > 0 && r.is_disturbed);
    }
    a->uses_disturbed = 2 * a->n_clean < a->n_rounds;
    for (int round = 1; round <= n_all; round++) {
        struct comparison_round r = comparison_round(c, false, round);
        if (r.counts == 0 || (r.is_disturbed && !a->uses_disturbed))
            continue;
        for (int v = 0; v < c->n_variants; v++)
            used->values[used->n][v] = comparison_value_of(c, false, round, r.counts, v);
        used->n++;
    }
    a->n_used = used->n;
    return STATUS_OK;
}

static enum comparison_verdict verdict_of(const struct comparison_summary *s, int n,
                                          bool is_lower_better)
{
    if (n < LEAST_ROUNDS)
        return VERDICT_TOO_FEW;
    bool is_below = s->interval.high < 1;
    bool is_outside = is_below || s->interval.low > 1;
    /* a round without a difference speaks against one */
    int most = is_below ? s->n_below : s->n_above;
    if (!is_outside || sign_test(most, n) > MOST_CHANCE)
        return VERDICT_EQUAL;
    return is_below == is_lower_better ? VERDICT_BETTER : VERDICT_WORSE;
}

static enum status compare_to_base(const struct comparison *c, struct used_rounds *used, int base,
                                   int variant, struct comparison_summary *s, struct error *err)
{
    for (int i = 0; i < used->n; i++) {
        double ratio = used->values[i][variant] / used->values[i][base];
        used->sorted[i] = ratio;
        s->n_below += ratio < 1;
        s->n_above += ratio > 1;
    }
    sample_sort(used->sorted, (size_t)used->n);
    s->ratio = sorted_quantile(used->sorted, (size_t)used->n, 0.5);
    TRY(bootstrap_median(used->sorted, (size_t)used->n, &s->interval, err));
    s->verdict = variant == base ? VERDICT_BASE : verdict_of(s, used->n, c->is_lower_better);
    return STATUS_OK;
}

static void describe_values(struct used_rounds *used, int variant, struct comparison_summary *s)
{
    size_t n = (size_t)used->n;
    for (size_t i = 0; i < n; i++)
        used->sorted[i] = used->values[i][variant];
    sample_sort(used->sorted, n);
    s->median = sorted_quantile(used->sorted, n, 0.5);
    s->min = used->sorted[0];
    s->max = used->sorted[n - 1];
    s->mean = sample_mean(used->sorted, n);
    s->standard_error = sample_standard_error(used->sorted, n);
}

/* Of all cold rounds that are finished; they are few. */
static enum status describe_cold(const struct comparison *c, struct comparison_analysis *a,
                                 struct error *err)
{
    int n_all = comparison_last_round(c, true);
    double *values = memory_alloc((size_t)n_all, sizeof *values);
    if (!values)
        return fail_memory(err, "analysis", (size_t)n_all);
    for (int v = 0; v < c->n_variants; v++) {
        size_t n = 0;
        for (int round = 1; round <= n_all; round++) {
            struct comparison_round r = comparison_round(c, true, round);
            if (r.counts)
                values[n++] = comparison_value_of(c, true, round, r.counts, v);
        }
        sample_sort(values, n);
        a->variants[v].cold_median = sorted_quantile(values, n, 0.5);
        a->n_cold = (int)n;
    }
    memory_free(values);
    return STATUS_OK;
}

static void describe_machine(const struct comparison *c, struct comparison_analysis *a)
{
    a->foreign_max = a->stolen_max = a->read_gb_s_min = a->read_gb_s_max = NAN;
    for (size_t i = 0; i < c->n_runs; i++) {
        a->foreign_max = fmax(a->foreign_max, c->runs[i].foreign_cpus);
        a->stolen_max = fmax(a->stolen_max, c->runs[i].stolen_cpus);
        a->read_gb_s_min = fmin(a->read_gb_s_min, c->runs[i].read_gb_s);
        a->read_gb_s_max = fmax(a->read_gb_s_max, c->runs[i].read_gb_s);
    }
}

static enum status analyse(const struct comparison *c, struct comparison_analysis *a,
                           struct used_rounds *used, struct error *err)
{
    TRY(take_rounds(c, a, used, err));
    if (used->n == 0)
        return fail(err, STATUS_LIMIT, "no round is finished: there is nothing to compare yet");
    for (int v = 0; v < c->n_variants; v++) {
        describe_values(used, v, &a->variants[v]);
        TRY(compare_to_base(c, used, a->base, v, &a->variants[v], err));
    }
    describe_machine(c, a);
    return describe_cold(c, a, err);
}

enum status comparison_analyse(const struct comparison *c, int base, struct comparison_analysis *a,
                               struct error *err)
{
    struct used_rounds used = {0};
    *a = (struct comparison_analysis){.base = base};
    enum status status = analyse(c, a, &used, err);
    memory_free(used.values);
    memory_free(used.sorted);
    return status;
}
