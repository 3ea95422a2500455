#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>

int cli_failed(const char *command, const struct error *err)
{
    fprintf(stderr, "trine %s: %s\n", command, err->text);
    return err->status == STATUS_USAGE ? EXIT_USAGE : EXIT_FAILURE;
}

const char *cli_size(uint64_t bytes, char out[16])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double size = (double)bytes;
    int unit = 0;
    while (size >= 1024 && unit < 4) {
        size /= 1024;
        unit++;
    }
    snprintf(out, 16, unit ? "%.1f %s" : "%.0f %s", size, units[unit]);
    return out;
}
