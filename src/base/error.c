#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *status_text(enum status status)
{
#define STATUS_CASE(name, text)                                                                    \
    case STATUS_##name: return text;
    switch (status) {
        STATUS_LIST(STATUS_CASE)
    }
#undef STATUS_CASE
    return "unknown status";
}

enum status fail(struct error *err, enum status status, const char *format, ...)
{
    if (!err)
        return status;
    err->status = status;
    va_list args;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    for (char *c = err->text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    return status;
}
