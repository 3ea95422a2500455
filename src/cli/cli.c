#include "cli/cli.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/status_line.h"

int cli_failed(const char *command, const struct error *err)
{
    status_line_clear();
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

enum status cli_refuse_same_file(const char *in, const char *out, struct error *err)
{
    struct stat a, b;
    if (in && stat(in, &a) == 0 && stat(out, &b) == 0 && a.st_dev == b.st_dev &&
        a.st_ino == b.st_ino)
        return fail(err, STATUS_USAGE, "%s: is the model itself; give another output", out);
    return STATUS_OK;
}

bool cli_output_arrived(void)
{
    bool is_flushed = fflush(stdout) == 0;
    if (is_flushed && !ferror(stdout))
        return true;
    struct pollfd output = {.fd = STDOUT_FILENO};
    return poll(&output, 1, 0) == 1 && output.revents & POLLERR;
}
