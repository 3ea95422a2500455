#include "machine/cpu_quota.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of two limits the lower one; 0 is none. */
static double tighter(double a, double b)
{
    if (a <= 0 || b <= 0)
        return a > b ? a : b;
    return a < b ? a : b;
}

/* The first line of dir/name. False when there is none. */
static bool read_line(const char *dir, const char *name, char *line, size_t size)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    bool has_line = fgets(line, (int)size, f);
    fclose(f);
    return has_line;
}

/* "max" and -1 are read as 0 and less: no limit. */
static double ratio(double quota, double period)
{
    return quota > 0 && period > 0 ? quota / period : 0;
}

/* What one group allows. */
static double group_quota(const char *dir)
{
    char line[128], *period;
    double v1 = 0, v2 = 0;
    if (read_line(dir, "cpu.max", line, sizeof line)) { /* "250000 100000" */
        double quota = strtod(line, &period);
        v2 = ratio(quota, strtod(period, NULL));
    }
    if (read_line(dir, "cpu.cfs_quota_us", line, sizeof line)) {
        double quota = strtod(line, NULL);
        if (read_line(dir, "cpu.cfs_period_us", line, sizeof line))
            v1 = ratio(quota, strtod(line, NULL));
    }
    return tighter(v1, v2);
}

/* Mount and path as one name; false when it is too long. */
static bool join(char dir[PATH_MAX], const char *mount, const char *path)
{
    int n = snprintf(dir, PATH_MAX, "%s%s", mount, path);
    return n >= 0 && n < PATH_MAX;
}

/* "/b/c" of "/a/b/c", "" of "/a". */
static const char *without_first(const char *path)
{
    const char *next = strchr(path + 1, '/');
    return next ? next : "";
}

/* The tightest of the group `path` below a mount and its parents, the mount's own included.
 * In a container the mount may show only a part of the tree that the path is told for: leading
 * parts that are not there are left out. A path that begins with /.. lies outside of it. */
static double branch_quota(const char *mount, const char *path)
{
    char dir[PATH_MAX];
    if (strncmp(path, "/..", 3) == 0)
        path = "";
    const char *seen = path;
    while (*seen && (!join(dir, mount, seen) || access(dir, F_OK) != 0))
        seen = without_first(seen);
    if (!join(dir, mount, *seen ? seen : path) && !join(dir, mount, ""))
        return 0;
    double quota = group_quota(dir);
    while (strlen(dir) > strlen(mount)) {
        *strrchr(dir, '/') = 0;
        quota = tighter(quota, group_quota(dir));
    }
    return quota;
}

static double mount_quota(const char *root, const char *name, const char *path)
{
    char mount[PATH_MAX];
    return join(mount, root, name) ? branch_quota(mount, path) : 0;
}

/* One line of cgroup_self: "4:cpu,cpuacct:/path" for version 1, "0::/path" for version 2, which is
 * mounted at the root, or beside version 1 at "unified". */
static double line_quota(const char *root, char *line)
{
    line[strcspn(line, "\n")] = 0;
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path)
        return 0;
    *controllers++ = 0;
    *path++ = 0;
    if (path[0] != '/' || path[1] == 0)
        path = "";
    if (!*controllers)
        return tighter(mount_quota(root, "", path), mount_quota(root, "/unified", path));
    char name[128], list[128];
    snprintf(name, sizeof name, "/%s", controllers);
    snprintf(list, sizeof list, ",%s,", controllers);
    if (!strstr(list, ",cpu,"))
        return 0;
    return tighter(mount_quota(root, name, path), mount_quota(root, "/cpu", path));
}

double cpu_quota(const char *cgroup_root, const char *cgroup_self)
{
    const char *root = cgroup_root ? cgroup_root : "/sys/fs/cgroup";
    FILE *f = fopen(cgroup_self ? cgroup_self : "/proc/self/cgroup", "re");
    if (!f)
        return 0;
    char line[PATH_MAX + 128];
    double quota = 0;
    while (fgets(line, sizeof line, f))
        quota = tighter(quota, line_quota(root, line));
    fclose(f);
    return quota;
}
