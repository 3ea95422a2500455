#include "cli/bench_counters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "measure/json_finite.h"

enum status bench_counters_open(struct bench_counters *b, size_t n_tests, struct error *err)
{
    b->tests = memory_alloc(n_tests, sizeof *b->tests);
    if (!b->tests)
        return fail_memory(err, "counters", n_tests * sizeof *b->tests);
    return counters_open(&b->counters, NULL, err);
}

void bench_counters_close(struct bench_counters *b)
{
    counters_close(b->counters);
    memory_free(b->tests);
    *b = (struct bench_counters){0};
}

void bench_counters_keep(struct bench_counters *b, const struct bench_test *test, int n_samples)
{
    struct bench_counted *kept = &b->tests[b->n++];
    *kept = (struct bench_counted){.test = *test, .n_samples = n_samples};
    for (int i = 0; i < N_COUNTERS; i++)
        kept->readings[i] = counters_read(b->counters, (enum counter_id)i);
}

static double n_tokens(const struct bench_counted *t)
{
    return (double)t->n_samples * (double)bench_test_tokens(&t->test);
}

/* The same but for the number of generated tokens. */
static bool are_lengths_of_one(const struct bench_test *a, const struct bench_test *b)
{
    return a->n_prompt == b->n_prompt && a->n_depth == b->n_depth && a->n_seq == b->n_seq &&
           a->n_gen > 0 && b->n_gen > 0 && a->n_gen != b->n_gen;
}

/* Of the earlier tests that differ in length only, the one that differs most; NULL: none. */
static const struct bench_counted *partner_of(const struct bench_counters *b,
                                              const struct bench_counted *test)
{
    const struct bench_counted *best = NULL;
    for (const struct bench_counted *t = b->tests; t < test; t++)
        if (are_lengths_of_one(&t->test, &test->test) &&
            (!best ||
             abs(t->test.n_gen - test->test.n_gen) > abs(best->test.n_gen - test->test.n_gen)))
            best = t;
    return best;
}

/* What one more token takes; NAN where a run has no reading. */
static double per_more(const struct bench_counted *a, const struct bench_counted *b, int id)
{
    const struct bench_counted *longer = a->test.n_gen > b->test.n_gen ? a : b;
    const struct bench_counted *shorter = longer == a ? b : a;
    if (!a->readings[id].is_present || !b->readings[id].is_present)
        return NAN;
    return counter_per_more((enum counter_id)id, &longer->readings[id], n_tokens(longer),
                            &shorter->readings[id], n_tokens(shorter));
}

static json_t *reading_fields(const struct bench_counted *test, int i,
                              const struct bench_counted *partner)
{
    enum counter_id id = (enum counter_id)i;
    const struct counter_reading *r = &test->readings[id];
    if (!r->is_present)
        return json_pack("{s:n, s:s}", "value", "reason", r->reason);
    json_t *fields = json_object();
    json_object_set_new(fields, "value", json_finite(counter_value(id, r)));
    json_object_set_new(fields, "per_token", json_finite(counter_per_token(id, r, n_tokens(test))));
    if (partner)
        json_object_set_new(fields, "per_further_token", json_finite(per_more(test, partner, i)));
    json_object_set_new(fields, "source", json_string(r->source));
    json_object_set_new(fields, "includes_other_programs",
                        json_boolean(counter_info(id)->is_machine));
    json_object_set_new(fields, "estimated", json_boolean(r->is_estimated));
    return fields;
}

json_t *bench_counters_fields(const struct bench_counters *b)
{
    const struct bench_counted *test = &b->tests[b->n - 1], *partner = partner_of(b, test);
    json_t *fields = json_object();
    json_object_set_new(fields, "n_tokens", json_integer((json_int_t)n_tokens(test)));
    if (partner)
        json_object_set_new(fields, "compared_with_n_gen", json_integer(partner->test.n_gen));
    for (int i = 0; i < N_COUNTERS; i++)
        json_object_set_new(fields, counter_info((enum counter_id)i)->name,
                            reading_fields(test, i, partner));
    return fields;
}

/* "12.3", or "-". */
static const char *number_text(double value, char out[24])
{
    snprintf(out, 24, "-");
    if (isfinite(value))
        snprintf(out, 24, "%.4g", value);
    return out;
}

static void print_row(const struct bench_counted *test, int i, const struct bench_counted *partner)
{
    enum counter_id id = (enum counter_id)i;
    const struct counter_reading *r = &test->readings[id];
    const struct counter_info *info = counter_info(id);
    double size = info->unit_size, further = partner ? per_more(test, partner, i) : NAN;
    char name[64], partner_name[64] = "", all[24], one[24], more[24];
    if (partner)
        bench_test_name(&partner->test, partner_name);
    printf("| %-16s | %-15s | %-4s | %11s | %11s | %15s | %-16s | %-7s | %s%s |\n",
           bench_test_name(&test->test, name), info->text, info->unit,
           number_text(counter_value(id, r) / size, all),
           number_text(counter_per_token(id, r, n_tokens(test)) / size, one),
           number_text(further / size, more), partner_name,
           info->is_machine ? "machine" : "process", r->source,
           r->is_estimated ? "; estimated: counted for a part of the time" : "");
}

static void print_head(void)
{
    printf("| %-16s | %-15s | %-4s | %11s | %11s | %15s | %-16s | %-7s | %s |\n", "test", "counter",
           "unit", "all", "a token", "a further token", "compared with", "of", "source");
    printf("| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", "----------------",
           "---------------", "----",
           "----------:", "----------:", "--------------:", "----------------", "-------",
           "------");
}

/* The last reason of a counter, with the test if others have it. */
static void print_absent(const struct bench_counters *b, int id)
{
    const struct bench_counted *absent = NULL;
    size_t n_absent = 0;
    char name[64] = "";
    for (size_t t = 0; t < b->n; t++)
        if (!b->tests[t].readings[id].is_present) {
            absent = &b->tests[t];
            n_absent++;
        }
    if (!absent)
        return;
    if (n_absent < b->n)
        bench_test_name(&absent->test, name);
    printf("absent%s%s: %s: %s\n", name[0] ? " in " : "", name,
           counter_info((enum counter_id)id)->text, absent->readings[id].reason);
}

void bench_counters_print(const struct bench_counters *b)
{
    bool has_head = false;
    printf("\n");
    for (size_t t = 0; t < b->n; t++)
        for (int id = 0; id < N_COUNTERS; id++) {
            if (!b->tests[t].readings[id].is_present)
                continue;
            if (!has_head)
                print_head();
            has_head = true;
            print_row(&b->tests[t], id, partner_of(b, &b->tests[t]));
        }
    if (has_head)
        printf("\nmachine: with everything else that ran\n");
    for (int id = 0; b->n > 0 && id < N_COUNTERS; id++)
        print_absent(b, id);
}
