/* What a session of a comparison stands on: the machine and the files that its commands name. */
#ifndef TRINE_CLI_COMPARE_FACTS_H
#define TRINE_CLI_COMPARE_FACTS_H

#include "measure/comparison.h"

/* A new object: when it began, version and commit, machine, files, and the limit of foreign CPUs.
 * NULL without memory. */
json_t *compare_facts(const struct comparison *c, double max_foreign);

/* A record is only continued on the machine that it was begun on.
 * errors  FORMAT */
enum status compare_facts_check(const struct comparison *c, json_t *facts, struct error *err);

/* Says on standard error which files are not those of the first session. */
void compare_facts_report(const struct comparison *c);

#endif
