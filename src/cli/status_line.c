#include "cli/status_line.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static bool is_shown;

bool status_line_is_terminal(void)
{
    return isatty(STDERR_FILENO);
}

void status_line_show(const char *format, ...)
{
    if (!status_line_is_terminal())
        return;
    va_list args;
    va_start(args, format);
    fputc('\r', stderr);
    vfprintf(stderr, format, args);
    fputs("\033[K", stderr); /* the end of a longer one before */
    va_end(args);
    is_shown = true;
}

void status_line_count(const char *what, size_t i, size_t n)
{
    status_line_show("%s tensor %zu of %zu", what, i, n);
    if (i == n)
        status_line_clear();
}

void status_line_clear(void)
{
    if (is_shown)
        fprintf(stderr, "\r\033[K");
    is_shown = false;
}
