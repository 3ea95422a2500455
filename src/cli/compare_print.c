#include "cli/compare_print.h"

#include <stdio.h>
#include <string.h>

void compare_print_run(const struct comparison *c, int n_rounds)
{
    const struct comparison_run *run = &c->runs[c->n_runs - 1];
    fprintf(stderr, "%s %d of %d", run->is_cold ? "cold round" : "round", run->round, n_rounds);
    if (run->attempt > 1)
        fprintf(stderr, ", attempt %d", run->attempt);
    fprintf(stderr, ": %s %.5g", c->names[run->variant], run->value);
    if (isfinite(run->foreign_cpus))
        fprintf(stderr, ", %.2f foreign CPUs", run->foreign_cpus);
    if (run->stolen_cpus >= 0.005)
        fprintf(stderr, ", %.2f stolen", run->stolen_cpus);
    fprintf(stderr, "%s\n", run->is_disturbed ? "  DISTURBED" : "");
}

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

/* Bytes for printf's width, so that names with long characters keep the columns. */
static int width_of(const char *name, int columns)
{
    int extra = 0;
    for (const char *c = name; *c; c++)
        extra += ((unsigned char)*c & 0xc0) == 0x80;
    return columns + extra;
}

static void print_row(const struct comparison *c, const struct comparison_analysis *a, int v,
                      int columns)
{
    const struct comparison_summary *s = &a->variants[v];
    char range[48], cold[24] = "-";
    snprintf(range, sizeof range, "%.5g to %.5g", s->min, s->max);
    if (isfinite(s->cold_median))
        snprintf(cold, sizeof cold, "%.5g", s->cold_median);
    printf("%-*s %10.5g  %-20s %3d %10s", width_of(c->names[v], columns), c->names[v], s->median,
           range, a->n_used, cold);
    if (v == a->base)
        printf("      1\n");
    else
        printf("  %6.3f  %.3f to %.3f\n", s->ratio, s->interval.low, s->interval.high);
}

static void print_table(const struct comparison *c, const struct comparison_analysis *a)
{
    int columns = 4;
    for (int v = 0; v < c->n_variants; v++) {
        int n = (int)strlen(c->names[v]) - width_of(c->names[v], 0);
        columns = n > columns ? n : columns;
    }
    printf("%-*s %10s  %-20s %3s %10s  %6s  %s\n", columns, "name", "median", "range", "n", "cold",
           "ratio", "95 % interval");
    for (int v = 0; v < c->n_variants; v++)
        print_row(c, a, v, columns);
}

static const char *verdict_word(const struct comparison *c, enum comparison_verdict verdict)
{
    bool is_better = verdict == VERDICT_BETTER;
    if (c->value == COMPARISON_PATTERN)
        return is_better ? "better" : "worse";
    return is_better ? "faster" : "slower";
}

static void print_verdict(const struct comparison *c, const struct comparison_analysis *a, int v)
{
    const struct comparison_summary *s = &a->variants[v];
    const char *base = c->names[a->base], *name = c->names[v];
    bool is_below = s->ratio < 1;
    int n_side = is_below ? s->n_below : s->n_above;
    switch (s->verdict) {
    case VERDICT_BASE: break;
    case VERDICT_TOO_FEW:
        printf("%s: %d round%s cannot show a difference to %s; 5 are needed\n", name, a->n_used,
               plural(a->n_used), base);
        break;
    case VERDICT_EQUAL:
        if (s->interval.low <= 1 && s->interval.high >= 1)
            printf("%s: no difference to %s shown: the interval holds 1\n", name, base);
        else
            printf("%s: no difference to %s shown: %s in only %d of %d rounds\n", name, base,
                   is_below ? "below" : "above", n_side, a->n_used);
        break;
    case VERDICT_BETTER:
    case VERDICT_WORSE:
        printf("%s is %.3f of %s (%.3f to %.3f), %s in %d of %d rounds: %s\n", name, s->ratio, base,
               s->interval.low, s->interval.high, is_below ? "below" : "above", n_side, a->n_used,
               verdict_word(c, s->verdict));
        break;
    }
}

static void print_disturbed(const struct comparison *c, const struct comparison_analysis *a)
{
    if (a->n_rounds == a->n_clean)
        return;
    printf("%s: round", a->uses_disturbed ? "ATTENTION" : "DISTURBED");
    const char *separator = a->n_rounds - a->n_clean > 1 ? "s " : " ";
    for (int round = 1; round <= comparison_last_round(c, false); round++) {
        struct comparison_round r = comparison_round(c, false, round);
        if (!r.counts || !r.is_disturbed)
            continue;
        printf("%s%d", separator, round);
        separator = ", ";
    }
    if (a->uses_disturbed)
        printf(" of %d disturbed by other programs; too few are clean, so ALL are used: do not "
               "rely on these numbers\n",
               a->n_rounds);
    else
        printf(" of %d disturbed by other programs: left out\n", a->n_rounds);
}

static void print_conditions(const struct comparison_analysis *a)
{
    if (a->n_repeated)
        printf("%d disturbed attempt%s at a round repeated\n", a->n_repeated,
               plural(a->n_repeated));
    char stolen[48] = "";
    if (isfinite(a->stolen_max))
        snprintf(stolen, sizeof stolen, ", stolen ones %.2f", a->stolen_max);
    if (isfinite(a->foreign_max))
        printf("foreign CPUs at most %.2f in any run%s\n", a->foreign_max, stolen);
    else
        printf("ATTENTION: foreign CPUs are not known; no round could be found disturbed\n");
    if (isfinite(a->read_gb_s_min))
        printf("read bandwidth of the machine before the rounds: %.1f to %.1f GB/s\n",
               a->read_gb_s_min, a->read_gb_s_max);
}

void compare_print(const struct comparison *c, const struct comparison_analysis *a)
{
    print_table(c, a);
    printf("\n");
    for (int v = 0; v < c->n_variants; v++)
        print_verdict(c, a, v);
    print_disturbed(c, a);
    print_conditions(a);
}
