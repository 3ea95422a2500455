#include "cli/bench_unnamed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_BYTES 65536 /* what a pipe holds */

static int open_file(const char *directory)
{
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    char path[160]; /* a file system without such files: a name for a moment */
    snprintf(path, sizeof path, "%s/trine-bench-XXXXXX", directory);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    return fd;
}

static bool write_all(int fd, const char *bytes, ssize_t n)
{
    while (n > 0) {
        ssize_t written = write(fd, bytes, (size_t)n);
        if (written < 0)
            return false;
        bytes += written;
        n -= written;
    }
    return true;
}

static void *copy(void *context)
{
    struct unnamed_file *file = context;
    char chunk[CHUNK_BYTES];
    ssize_t n;
    while ((n = read(file->read_end, chunk, sizeof chunk)) > 0)
        if (!write_all(file->file, chunk, n))
            break;
    file->problem = n == 0 ? 0 : errno;
    close(file->read_end); /* a writer that is not done fails now */
    return NULL;
}

static enum status fail_errno(const struct unnamed_file *file, int problem, struct error *err)
{
    return fail(err, STATUS_IO,
                "%s: cannot write a temporary file: %s; TMPDIR says which folder to use",
                file->directory, strerror(problem));
}

enum status unnamed_file_open(struct unnamed_file *file, struct error *err)
{
    const char *directory = getenv("TMPDIR");
    *file = (struct unnamed_file){0};
    snprintf(file->directory, sizeof file->directory, "%s",
             directory && directory[0] ? directory : "/tmp");
    file->file = open_file(file->directory);
    if (file->file < 0)
        return fail_errno(file, errno, err);
    int ends[2], problem = pipe2(ends, O_CLOEXEC) == 0 ? 0 : errno;
    if (problem) {
        close(file->file);
        return fail_errno(file, problem, err);
    }
    file->read_end = ends[0];
    file->write_end = ends[1];
    snprintf(file->path, sizeof file->path, "/proc/self/fd/%d", file->write_end);
    problem = pthread_create(&file->copier, NULL, copy, file);
    if (problem) {
        close(file->file);
        close(file->read_end);
        close(file->write_end);
        return fail_errno(file, problem, err);
    }
    return STATUS_OK;
}

int unnamed_file_finish(struct unnamed_file *file, struct error *err)
{
    close(file->write_end);
    pthread_join(file->copier, NULL);
    /* what the system would write to disk later would disturb a measurement */
    if (!file->problem && fdatasync(file->file) != 0 && errno != EINVAL)
        file->problem = errno;
    if (!file->problem)
        return file->file;
    close(file->file);
    fail_errno(file, file->problem, err);
    return -1;
}
