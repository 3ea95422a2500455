/* What the tests of `trine compare` share. */
#ifndef TRINE_TESTS_COMPARE_SUPPORT_H
#define TRINE_TESTS_COMPARE_SUPPORT_H

#include "support.h"

/* A regular expression for a command that prints one number. */
#define NUMBER "--pattern '([0-9.]+)'"

/* A file below the scratch folder that is not there, by its full path. */
const char *fresh(const char *name);

/* Runs `trine compare` with these arguments, as a shell would; any other exit status fails. */
struct outcome compare_ends(int status, const char *arguments);

/* The analysis of a comparison that succeeds. The caller decrefs. */
json_t *compare(const char *arguments);

/* Of JSON; anything else than what is asked for fails. */
json_t *parse(const char *text);
json_t *field(json_t *object, const char *name);
double number_of(json_t *object, const char *name);
const char *text_in(json_t *object, const char *name);
json_t *variant(json_t *analysis, size_t i);
void expect_between(json_t *object, const char *name, double low, double high);

/* A copy of a record with the first `from` replaced, which must be there. The caller frees. */
char *with_replaced(const char *text, const char *from, const char *to);

#endif
