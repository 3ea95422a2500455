#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* Long texts lose their middle: they begin with a path and end with what is wrong. */
static void keep_ends(char *out, size_t size, const char *text, size_t n)
{
    size_t head = size / 4, tail = size - head - 4;
    memcpy(out, text, head);
    memcpy(out + head, "...", 3);
    memcpy(out + head + 3, text + n - tail, tail);
    out[size - 1] = 0;
}

enum status fail(struct error *err, enum status status, const char *format, ...)
{
    char text[8192];
    if (!err)
        return status;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    size_t length = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    err->status = status;
    if (length < sizeof err->text)
        memcpy(err->text, text, length + 1);
    else
        keep_ends(err->text, sizeof err->text, text, length);
    err->text[text_make_printable(err->text, strlen(err->text))] = 0;
    return status;
}
