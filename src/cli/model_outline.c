#include "cli/model_outline.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/bench_unnamed.h"
#include "cli/synth_header.h"

/* The header through a pipe into a file without a name; *n_bytes: of the whole model. */
static enum status write_header(const char *shape, const char *type, int *fd, uint64_t *n_bytes,
                                struct error *err)
{
    struct unnamed_file file;
    TRY(unnamed_file_open(&file, err));
    enum status status = synth_write_header(shape, type, file.path, n_bytes, err);
    struct error lost;
    *fd = unnamed_file_finish(&file, &lost);
    if (status == STATUS_OK && *fd < 0) {
        *err = lost;
        status = STATUS_IO;
    }
    if (status != STATUS_OK && *fd >= 0)
        close(*fd);
    return status;
}

/* The header in front of zeros that are never written and so need no memory. */
static enum status map_header(struct model_outline *o, int fd, struct error *err)
{
    struct stat info;
    void *bytes = mmap(NULL, o->n_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED)
        return fail_memory(err, o->title, o->n_bytes);
    o->bytes = bytes;
    if (fstat(fd, &info) != 0 || pread(fd, bytes, (size_t)info.st_size, 0) != info.st_size)
        return fail(err, STATUS_IO, "%s: cannot read back the temporary file: %s", o->title,
                    strerror(errno));
    mprotect(bytes, o->n_bytes, PROT_READ);
    return STATUS_OK;
}

static enum status open_mapped(struct model_outline *o, struct error *err)
{
    struct gguf_file file;
    TRY(gguf_open_bytes(&file, o->bytes, o->n_bytes, o->title, format_resolve, err));
    return model_bind(&o->model, o->title, &file, err);
}

enum status model_outline_open(struct model_outline *o, const char *shape, const char *type,
                               struct error *err)
{
    int fd;
    uint64_t n_bytes;
    *o = (struct model_outline){0};
    snprintf(o->title, sizeof o->title, "%s %s", shape, type);
    TRY(write_header(shape, type, &fd, &n_bytes, err));
    o->n_bytes = (size_t)n_bytes;
    enum status status = map_header(o, fd, err);
    close(fd);
    if (status == STATUS_OK)
        status = open_mapped(o, err);
    if (status != STATUS_OK)
        model_outline_close(o);
    return status;
}

void model_outline_close(struct model_outline *o)
{
    model_close(&o->model);
    if (o->bytes)
        munmap(o->bytes, o->n_bytes);
    o->bytes = NULL;
}
