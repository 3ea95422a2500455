#include "base/output_file.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

/* Name of the temporary file that is open, for a signal that ends the program. */
static char *volatile unfinished;

void output_file_remove_unfinished(void)
{
    if (unfinished)
        unlink(unfinished);
}

static enum status fail_io(struct output_file *file, const char *what, struct error *err)
{
    return fail(err, STATUS_IO, "%s: cannot %s: %s", file->path, what, strerror(errno));
}

enum status output_file_open(struct output_file *file, const char *path, struct error *err)
{
    *file = (struct output_file){0};
    struct stat info;
    bool exists = stat(path, &info) == 0;
    char resolved[PATH_MAX];
    if (exists && S_ISREG(info.st_mode) && realpath(path, resolved))
        path = resolved;
    size_t n = strlen(path);
    file->path = memory_alloc(n + 1, 1);
    if (!file->path)
        return fail_memory(err, path, n + 1);
    memcpy(file->path, path, n);

    if (exists && S_ISDIR(info.st_mode)) {
        fail(err, STATUS_IO, "%s: is a directory; give the name of a file", path);
        output_file_close(file);
        return STATUS_IO;
    }
    if (!exists || S_ISREG(info.st_mode)) {
        file->temporary = memory_alloc(n + 32, 1);
        if (!file->temporary) {
            output_file_close(file);
            return fail_memory(err, path, n + 32);
        }
        snprintf(file->temporary, n + 32, "%s.part%ld", path, (long)getpid());
    }
    file->stream = fopen(output_file_name(file), "wb");
    if (!file->stream) {
        memory_free(file->temporary); /* nothing to remove */
        file->temporary = NULL;
        enum status status = fail_io(file, "create", err);
        output_file_close(file);
        return status;
    }
    unfinished = file->temporary;
    if (exists && file->temporary)
        fchmod(fileno(file->stream), info.st_mode & 07777); /* a refusal costs the mode only */
    return STATUS_OK;
}

enum status output_file_write(struct output_file *file, const void *bytes, size_t n,
                              struct error *err)
{
    if (n && fwrite(bytes, 1, n, file->stream) != n)
        return fail_io(file, "write", err);
    file->bytes += n;
    return STATUS_OK;
}

enum status output_file_pad(struct output_file *file, size_t alignment, struct error *err)
{
    static const char zeros[256];
    for (size_t left = (size_t)(-file->bytes % alignment); left > 0;) {
        size_t n = left < sizeof zeros ? left : sizeof zeros;
        TRY(output_file_write(file, zeros, n, err));
        left -= n;
    }
    return STATUS_OK;
}

enum status output_file_flush(struct output_file *file, struct error *err)
{
    if (fflush(file->stream) != 0)
        return fail_io(file, "write", err);
    return STATUS_OK;
}

const char *output_file_name(const struct output_file *file)
{
    return file->temporary ? file->temporary : file->path;
}

enum status output_file_commit(struct output_file *file, struct error *err)
{
    int problem = fflush(file->stream) == 0 ? 0 : errno;
    if (!problem && file->temporary && fsync(fileno(file->stream)) != 0)
        problem = errno;
    if (fclose(file->stream) != 0 && !problem)
        problem = errno;
    file->stream = NULL;
    if (problem) {
        errno = problem;
        return fail_io(file, "write", err);
    }
    if (file->temporary && rename(file->temporary, file->path) != 0)
        return fail_io(file, "rename the finished file", err);
    unfinished = NULL;
    memory_free(file->temporary);
    file->temporary = NULL;
    return STATUS_OK;
}

void output_file_close(struct output_file *file)
{
    if (file->stream)
        fclose(file->stream);
    if (file->temporary) {
        unlink(file->temporary);
        unfinished = NULL;
    }
    memory_free(file->temporary);
    memory_free(file->path);
    *file = (struct output_file){0};
}
