/* Traces for people (a table, a picture, a page) and for viewers (Chrome's trace events, which
 * ui.perfetto.dev opens). */
#ifndef TRINE_ENGINE_TRACE_PRINT_H
#define TRINE_ENGINE_TRACE_PRINT_H

#include <stdio.h>

#include "engine/trace.h"

/* What is printed. */
struct trace_report {
    const struct trace *trace; /* borrowed */
    const struct plan *plan;   /* borrowed */
    const char *title;         /* borrowed: model and machine, one line */
    double token_s;            /* seconds of a traced batch as its caller saw it: mean */
    double median_s;           /* and median */
    double plain_median_s;     /* the median without tracing */
    struct trace_sum kinds[N_STEP_KINDS], all;
};

/* The shares of a sum, for all prints alike. */
#define TRACE_SHARE_LIST(X)                                                                        \
    X(work, "work")                                                                                \
    X(late_own, "late, own node")                                                                  \
    X(late_other, "late, other node")                                                              \
    X(latency, "latency")                                                                          \
    X(leader, "leader")
#define TRACE_SHARE_ONE(field, text) +1
enum { N_TRACE_SHARES = 0 TRACE_SHARE_LIST(TRACE_SHARE_ONE) };
#undef TRACE_SHARE_ONE

const char *trace_share_name(int share);
/* Seconds. */
double trace_share(const struct trace_sum *sum, int share);

/* Seconds of a token: as its caller saw it, and not less than its steps. */
double trace_whole(const struct trace_report *report);

/* Fills the sums from the batches of the trace. */
void trace_report_sum(struct trace_report *report);

/* Milliseconds of a token and per cent of it, a line for each kind of step. */
void trace_print_table(FILE *out, const struct trace_report *report);

/* JSON: a process for each node, a track for each thread, for each step a slice of work and one of
 * waiting; microseconds since the first step began. */
void trace_print_chrome(FILE *out, const struct trace_report *report);

/* A picture: a bar for each kind of step and one for the token, divided in shares, to one scale. */
void trace_print_svg(FILE *out, const struct trace_report *report);

/* A page that needs nothing else: that picture, a token thread by thread, and the numbers. */
void trace_print_html(FILE *out, const struct trace_report *report);

#endif
