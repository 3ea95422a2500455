#include "cli/json_out.h"

#include <stdlib.h>

#include "base/memory.h"

enum status json_out(FILE *out, json_t *value, size_t flags, struct error *err)
{
    char *text = value ? json_dumps(value, JSON_INDENT(2) | flags) : NULL;
    enum status status = text ? STATUS_OK : fail_memory(err, "JSON", 0);
    if (text)
        fprintf(out, "%s\n", text);
    free(text);
    json_decref(value);
    return status;
}
