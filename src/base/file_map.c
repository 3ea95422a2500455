#include "base/file_map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *kind_of(mode_t mode)
{
    if (S_ISDIR(mode))
        return "a directory";
    if (S_ISFIFO(mode))
        return "a named pipe (FIFO)";
    if (S_ISCHR(mode) || S_ISBLK(mode))
        return "a device";
    return "no regular file";
}

static enum status fail_errno(const char *path, const char *what, struct error *err)
{
    return fail(err, STATUS_IO, "%s: cannot %s: %s", path, what, strerror(errno));
}

static enum status map_descriptor(int fd, const char *path, const char *expected,
                                  const uint8_t **bytes, size_t *size, struct error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return fail_errno(path, "inspect", err);
    if (!S_ISREG(info.st_mode))
        return fail(err, STATUS_IO, "%s: is %s, expected %s; give the path of the file", path,
                    kind_of(info.st_mode), expected);
    *size = (size_t)info.st_size;
    if (*size == 0)
        return STATUS_OK;
    void *mapping = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapping == MAP_FAILED)
        return fail_errno(path, "map into memory", err);
    *bytes = mapping;
    return STATUS_OK;
}

enum status file_map(const char *path, const char *expected, const uint8_t **bytes, size_t *size,
                     struct error *err)
{
    *bytes = NULL;
    *size = 0;
    /* O_NONBLOCK: opening a FIFO would otherwise wait for a writer. */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return fail_errno(path, "open", err);
    enum status status = map_descriptor(fd, path, expected, bytes, size, err);
    close(fd);
    return status;
}

void file_unmap(const uint8_t *bytes, size_t size)
{
    if (bytes)
        munmap((void *)(uintptr_t)bytes, size);
}
