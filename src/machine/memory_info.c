#include "machine/memory_info.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t mem_available(void)
{
    char line[256];
    uint64_t kib, bytes = UINT64_MAX;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1)
            bytes = kib * 1024;
    if (file)
        fclose(file);
    return bytes;
}

/* The number in "DIR/NAME"; UINT64_MAX for "max" and where there is none. */
static uint64_t number_in(const char *dir, const char *name)
{
    char path[512];
    uint64_t n = UINT64_MAX;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "r");
    if (!file)
        return n;
    if (fscanf(file, "%" SCNu64, &n) != 1)
        n = UINT64_MAX;
    fclose(file);
    return n;
}

/* Bytes of files in the page cache, which count as used and are given back when they are needed. */
static uint64_t cached_in(const char *dir)
{
    char path[512], line[256];
    uint64_t bytes, sum = 0;
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "inactive_file %" SCNu64, &bytes) == 1 ||
            sscanf(line, "active_file %" SCNu64, &bytes) == 1)
            sum += bytes;
    if (file)
        fclose(file);
    return sum;
}

static uint64_t left_of(const char *dir, const char *limit_name, const char *used_name)
{
    uint64_t limit = number_in(dir, limit_name), used = number_in(dir, used_name);
    if (limit == UINT64_MAX || used == UINT64_MAX)
        return UINT64_MAX;
    uint64_t cached = cached_in(dir);
    used = used > cached ? used - cached : 0;
    return used < limit ? limit - used : 0;
}

/* The least that the group at root + path and its parents leave. */
static uint64_t least_left(const char *root, char *path, const char *limit_name,
                           const char *used_name)
{
    uint64_t least = UINT64_MAX;
    for (;;) {
        char dir[448];
        snprintf(dir, sizeof dir, "%s%s", root, path);
        uint64_t left = left_of(dir, limit_name, used_name);
        least = left < least ? left : least;
        char *slash = strrchr(path, '/');
        if (!slash || path[0] == 0)
            return least;
        *slash = 0;
    }
}

uint64_t memory_available(void)
{
    uint64_t least = mem_available();
    char line[384];
    FILE *file = fopen("/proc/self/cgroup", "r");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *path = strrchr(line, ':');
        uint64_t left = UINT64_MAX;
        if (strncmp(line, "0::", 3) == 0)
            left = least_left("/sys/fs/cgroup", path + 1, "memory.max", "memory.current");
        else if (path && strstr(line, ":memory:"))
            left = least_left("/sys/fs/cgroup/memory", path + 1, "memory.limit_in_bytes",
                              "memory.usage_in_bytes");
        least = left < least ? left : least;
    }
    if (file)
        fclose(file);
    return least;
}
