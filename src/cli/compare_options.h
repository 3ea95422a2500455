/* Options of `trine compare`. */
#ifndef TRINE_CLI_COMPARE_OPTIONS_H
#define TRINE_CLI_COMPARE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "measure/comparison.h"

struct compare_options {
    const char *commands[COMPARISON_MOST]; /* NULL: not given */
    const char *names, *base;
    int64_t n_rounds, n_cold, n_retries;
    double max_foreign, timeout_s;
    const char *test, *pattern;
    bool is_time, is_lower, is_bandwidth, is_json;
    const char *record, *plot;
};

/* The comparison that the options describe, without runs.
 * errors  USAGE: also texts that no record could hold; MEMORY */
enum status compare_options_apply(const struct compare_options *o, struct comparison *c,
                                  struct error *err);

/* Is this record of the comparison that the options describe?
 * errors  USAGE: the first difference */
enum status compare_options_match(const struct comparison *wanted, const struct comparison *record,
                                  const char *path, struct error *err);

#endif
