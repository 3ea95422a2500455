#include "cli/ppl_progress.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"

#define BAR_WIDTH 24

void progress_begin(struct ppl_progress *p, size_t n_all, bool is_quiet)
{
    *p = (struct ppl_progress){.n_all = n_all,
                               .begin_ns = clock_ns(),
                               .is_quiet = is_quiet,
                               .is_terminal = isatty(STDERR_FILENO)};
}

static void print_left(const struct ppl_progress *p)
{
    double seconds = (double)(clock_ns() - p->begin_ns) / 1e9;
    double left = seconds / (double)p->n_done * (double)(p->n_all - p->n_done);
    long minutes = (long)(left / 60);
    if (minutes >= 100)
        fprintf(stderr, "%ld h %02ld min left", minutes / 60, minutes % 60);
    else if (minutes >= 2)
        fprintf(stderr, "%ld min left", minutes);
    else
        fprintf(stderr, "%.0f s left", left);
}

static void print_bar(const struct ppl_progress *p, const char *value)
{
    size_t n = BAR_WIDTH * p->n_done / p->n_all;
    fprintf(stderr, "\r[");
    for (size_t i = 0; i < BAR_WIDTH; i++)
        fputc(i < n ? '#' : '.', stderr);
    fprintf(stderr, "] %zu of %zu  %s  ", p->n_done, p->n_all, value);
    print_left(p);
    fprintf(stderr, "\033[K");
}

void progress_step(struct ppl_progress *p, size_t n_done, const char *value)
{
    p->n_done = n_done;
    if (p->is_quiet)
        return;
    if (p->is_terminal) {
        print_bar(p, value);
        return;
    }
    bool is_line = 10 * n_done / p->n_all > 10 * p->n_shown / p->n_all;
    if (is_line || p->shows_all)
        fprintf(stderr, "%s%s", value, is_line ? "" : ",");
    p->is_within_line = !is_line && (p->is_within_line || p->shows_all);
    if (!is_line)
        return;
    p->n_shown = n_done;
    fprintf(stderr, "  %zu of %zu, ", n_done, p->n_all);
    print_left(p);
    fputc('\n', stderr);
}

void progress_end(struct ppl_progress *p)
{
    if (!p->is_quiet && p->is_terminal)
        fprintf(stderr, "\r\033[K");
    else if (p->is_within_line)
        fputc('\n', stderr);
}
