/* What a comparison found, for people. */
#ifndef TRINE_CLI_COMPARE_PRINT_H
#define TRINE_CLI_COMPARE_PRINT_H

#include "measure/comparison.h"

/* One line on standard error about the run that was added last; n_rounds: how many there will
 * be. */
void compare_print_run(const struct comparison *c, int n_rounds);

/* Table, verdicts and conditions on standard output. */
void compare_print(const struct comparison *c, const struct comparison_analysis *a);

#endif
