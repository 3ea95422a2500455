/* How far a long measurement is: a bar on a terminal; elsewhere a line about each tenth. */
#ifndef TRINE_CLI_PPL_PROGRESS_H
#define TRINE_CLI_PPL_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ppl_progress {
    size_t n_all, n_done, n_shown; /* steps: chunks, prompts, items */
    int64_t begin_ns;
    bool is_quiet, is_within_line;
    /* the value of each step, not only where a line ends; set after the beginning */
    bool shows_all;
};

void progress_begin(struct ppl_progress *p, size_t n_all, bool is_quiet);

/* n_done steps are done. value: what is known so far, "PPL 17.2"; may be empty. */
void progress_step(struct ppl_progress *p, size_t n_done, const char *value);

/* Leaves the terminal as it was, elsewhere a whole line; also when the run failed. */
void progress_end(struct ppl_progress *p);

#endif
