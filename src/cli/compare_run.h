/* Runs a command line and watches what it does to the machine. */
#ifndef TRINE_CLI_COMPARE_RUN_H
#define TRINE_CLI_COMPARE_RUN_H

#include <stddef.h>

#include "base/error.h"
#include "machine/foreign_load.h"

struct shell_run {
    char *out; /* owned: what it wrote to standard output, terminated */
    size_t out_bytes;
    double wall_s;            /* from its start to its end */
    double cpu_s;             /* user and system, of all its processes */
    struct foreign_load load; /* while it ran; NAN: cannot be known here */
    double load_s;            /* the time that the load was taken over */
    int n_left;               /* processes that it left behind in its group; they were killed */
};

/* Runs `/bin/sh -c command` with empty standard input in a process group of its own, which is
 * killed when the shell has ended, after timeout_s, and when this process is interrupted. A process
 * that leaves the group lives on and counts as foreign. Its messages are kept only for the error.
 * The caller frees with shell_run_done, also after a failure.
 * errors  IO: it cannot be started, ended with another status than 0 or by a signal, or has a
 *         process that cannot be killed; LIMIT: timeout, more than 16 MiB of output; MEMORY */
enum status shell_run(struct shell_run *run, const char *command, double timeout_s,
                      struct error *err);
void shell_run_done(struct shell_run *run);

#endif
