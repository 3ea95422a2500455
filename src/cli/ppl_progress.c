#include "cli/ppl_progress.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/status_line.h"

#define BAR_WIDTH 24
#define LEFT_TEXT 48 /* characters of "3 min left" */

void progress_begin(struct ppl_progress *p, size_t n_all, bool is_quiet)
{
    *p = (struct ppl_progress){.n_all = n_all, .begin_ns = clock_ns(), .is_quiet = is_quiet};
}

static void describe_left(const struct ppl_progress *p, char out[LEFT_TEXT])
{
    double seconds = (double)(clock_ns() - p->begin_ns) / 1e9;
    double left = seconds / (double)p->n_done * (double)(p->n_all - p->n_done);
    long minutes = (long)(left / 60);
    if (minutes >= 100)
        snprintf(out, LEFT_TEXT, "%ld h %02ld min left", minutes / 60, minutes % 60);
    else if (minutes >= 2)
        snprintf(out, LEFT_TEXT, "%ld min left", minutes);
    else
        snprintf(out, LEFT_TEXT, "%.0f s left", left);
}

static void show_bar(const struct ppl_progress *p, const char *value, const char *left)
{
    size_t n = BAR_WIDTH * p->n_done / p->n_all;
    char bar[BAR_WIDTH + 1] = "";
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', n < BAR_WIDTH ? n : BAR_WIDTH);
    status_line_show("[%s] %zu of %zu  %s  %s", bar, p->n_done, p->n_all, value, left);
}

void progress_step(struct ppl_progress *p, size_t n_done, const char *value)
{
    char left[LEFT_TEXT];
    p->n_done = n_done;
    if (p->is_quiet)
        return;
    describe_left(p, left);
    if (status_line_is_terminal()) {
        show_bar(p, value, left);
        return;
    }
    bool is_line = 10 * n_done / p->n_all > 10 * p->n_shown / p->n_all;
    if (is_line || p->shows_all)
        fprintf(stderr, "%s%s", value, is_line ? "" : ",");
    p->is_within_line = !is_line && (p->is_within_line || p->shows_all);
    if (!is_line)
        return;
    p->n_shown = n_done;
    fprintf(stderr, "  %zu of %zu, %s\n", n_done, p->n_all, left);
}

void progress_end(struct ppl_progress *p)
{
    status_line_clear();
    if (p->is_within_line)
        fputc('\n', stderr);
}
