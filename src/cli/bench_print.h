/* Results of `trine bench` on standard output, each as soon as it is there. */
#ifndef TRINE_CLI_BENCH_PRINT_H
#define TRINE_CLI_BENCH_PRINT_H

#include "cli/bench_run.h"

struct bench_print {
    enum bench_output output;
    int n_printed;  /* results */
    bool is_closed; /* the reader has gone: nothing more need be measured */
};

/* One result; the first after what stands before all.
 * errors  MEMORY, IO */
enum status bench_print_result(struct bench_print *print, const struct bench_model *model,
                               const struct bench_run *run, const struct bench_result *result,
                               struct error *err);

/* What stands after the last result, if there was one. */
void bench_print_end(struct bench_print *print);

#endif
