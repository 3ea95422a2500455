/* Finds the number of a run. */
#ifndef TRINE_CLI_COMPARE_VALUE_H
#define TRINE_CLI_COMPARE_VALUE_H

#include "cli/compare_run.h"
#include "measure/comparison.h"

/* Compiled once for all runs. */
struct value_rule {
    enum comparison_value value;
    const char *test, *pattern; /* borrowed; NULL: none */
    void *code;                 /* owned: of the pattern */
};

/* errors  USAGE: a pattern that is no regular expression or has not exactly one group; MEMORY */
enum status value_rule_make(struct value_rule *rule, const struct comparison *c, struct error *err);
/* Accepts a zeroed object. */
void value_rule_done(struct value_rule *rule);

/* The number of a run that ended well.
 * COMPARISON_AUTO: avg_ts of the objects in its standard output, which is a JSON array, an object,
 * or one object a line; the only test, or the one of this name (bench_test_name; spaces do not
 * count).
 * COMPARISON_PATTERN: the pattern must match once. COMPARISON_TIME: wall_s.
 * errors  FORMAT: no such number, several, or one that is not above 0; LIMIT: PCRE2 gave up */
enum status value_find(const struct value_rule *rule, const struct shell_run *run, double *value,
                       struct error *err);

#endif
