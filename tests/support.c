#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *build_dir = "build/release", *assets_dir, *oracle_dir;
static char scratch_dir[512];

void support_init(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1][0] ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--build") == 0)
            build_dir = value;
        else if (strcmp(argv[i], "--assets") == 0)
            assets_dir = value;
        else if (strcmp(argv[i], "--oracle") == 0)
            oracle_dir = value;
    }
}

/* Every path handed out, so that they can be freed at the end. */
static char **paths;
static size_t n_paths;

static void free_paths(void)
{
    while (n_paths)
        free(paths[--n_paths]);
    free(paths);
}

static const char *join(const char *dir, const char *name)
{
    if (!dir)
        return NULL;
    if (!paths)
        atexit(free_paths);
    paths = realloc(paths, (n_paths + 1) * sizeof *paths);
    size_t n = strlen(dir) + strlen(name) + 2;
    char *path = malloc(n);
    assert_true(paths && path);
    snprintf(path, n, "%s/%s", dir, name);
    return paths[n_paths++] = path;
}

const char *build_path(const char *name)
{
    return join(build_dir, name);
}

const char *asset_path(const char *name)
{
    return join(assets_dir, name);
}

const char *oracle_path(const char *name)
{
    return join(oracle_dir, name);
}

static int remove_entry(const char *path, const struct stat *info, int flag, struct FTW *ftw)
{
    (void)info, (void)flag, (void)ftw;
    return remove(path);
}

static void remove_scratch(void)
{
    nftw(scratch_dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

const char *scratch_path(const char *name)
{
    if (!scratch_dir[0]) {
        snprintf(scratch_dir, sizeof scratch_dir, "%s/scratch.%ld", build_dir, (long)getpid());
        assert_int_equal(mkdir(scratch_dir, 0777), 0);
        atexit(remove_scratch);
    }
    return join(scratch_dir, name);
}

char *read_whole(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    size_t room = 1 << 16, n = 0, got;
    char *bytes = malloc(room);
    while (bytes && (got = fread(bytes + n, 1, room - n - 1, f)) > 0) {
        n += got;
        if (room - n < 2)
            bytes = realloc(bytes, room *= 2);
    }
    fclose(f);
    if (bytes)
        bytes[n] = 0;
    if (size)
        *size = n;
    return bytes;
}

void write_whole(const char *path, const void *bytes, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static int hex_digit(char c)
{
    return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
}

uint8_t *from_hex(const char *hex, size_t *size)
{
    size_t n = strlen(hex) / 2;
    uint8_t *bytes = malloc(n ? n : 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
    if (size)
        *size = n;
    return bytes;
}

int each_json_line(const char *path, void (*visit)(json_t *line))
{
    char *text = read_whole(path, NULL), *rest = text, *line;
    if (!text)
        fail_msg("%s: %s", path, strerror(errno));
    int n = 0;
    while ((line = strsep(&rest, "\n"))) {
        if (!line[0])
            continue;
        json_error_t problem;
        json_t *object = json_loads(line, 0, &problem);
        if (!object)
            fail_msg("%s: %s", path, problem.text);
        visit(object);
        json_decref(object);
        n++;
    }
    free(text);
    return n;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* In the child: standard files as the outcome wants them, then the shell. */
static void become(const char *line, const char *out_path, const char *err_path)
{
    int in = open("/dev/null", O_RDONLY);
    int out = open(out_path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int err = open(err_path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    dup2(in, 0);
    dup2(out, 1);
    dup2(err, 2);
    execl("/bin/sh", "sh", "-c", line, (char *)NULL);
    _exit(127);
}

struct outcome run_command(const char *format, ...)
{
    char command[4096], line[4200];
    va_list args;
    va_start(args, format);
    assert_true(vsnprintf(command, sizeof command, format, args) < (int)sizeof command);
    va_end(args);
    bool is_simple = !strpbrk(command, "|;&(");
    snprintf(line, sizeof line, "%s%s", is_simple ? "exec " : "", command);

    const char *out_path = scratch_path("command.out"), *err_path = scratch_path("command.err");
    double start = now();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        become(line, out_path, err_path);
    int status;
    struct rusage usage;
    assert_int_equal(wait4(child, &status, 0, &usage), child);
    struct outcome o = {.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                        .seconds = now() - start,
                        .peak_kib = usage.ru_maxrss};
    o.out = read_whole(out_path, &o.out_bytes);
    o.err = read_whole(err_path, NULL);
    assert_true(o.out && o.err);
    return o;
}

void outcome_done(struct outcome *o)
{
    free(o->out);
    free(o->err);
    *o = (struct outcome){0};
}
