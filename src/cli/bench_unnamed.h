/* A file that never has a name: what a writer of named files writes goes through a pipe, whose name
 * it gets, into a file that the system frees with its last descriptor. */
#ifndef TRINE_CLI_BENCH_UNNAMED_H
#define TRINE_CLI_BENCH_UNNAMED_H

#include <pthread.h>

#include "base/error.h"

struct unnamed_file {
    char path[40]; /* to be opened for writing, once; a pipe */
    char directory[128];
    int file, read_end, write_end; /* descriptors, owned */
    int problem;                   /* errno of the copying thread */
    pthread_t copier;
};

/* In $TMPDIR, or /tmp. errors: IO */
enum status unnamed_file_open(struct unnamed_file *file, struct error *err);

/* After the writer has closed `path`: the descriptor of the file, which is the caller's now; -1 with
 * err filled (IO) when not all of it could be written. */
int unnamed_file_finish(struct unnamed_file *file, struct error *err);

#endif
