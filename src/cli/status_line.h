/* How far work is: one line of a terminal on standard error, rewritten in place; elsewhere nothing. */
#ifndef TRINE_CLI_STATUS_LINE_H
#define TRINE_CLI_STATUS_LINE_H

#include <stdbool.h>
#include <stddef.h>

/* Whether standard error is a terminal, so that lines are shown. */
bool status_line_is_terminal(void);

/* In the place of the line that is shown. */
void status_line_show(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "write tensor 3 of 21"; after the last one the line is cleared. */
void status_line_count(const char *what, size_t i, size_t n);

/* Leaves the terminal as it was before. Called before anything else is written there; does nothing where
 * no line is shown. */
void status_line_clear(void);

#endif
