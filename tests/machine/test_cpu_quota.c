/* CPU quotas of recorded cgroup trees, and the threads that they leave. */
#include "../support.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "machine/cpu_quota.h"
#include "machine/topology.h"

/* Writes a file below the scratch folder and makes the folders above it. */
static void put(const char *name, const char *text)
{
    char *path = strdup(scratch_path(name));
    assert_non_null(path);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
    write_whole(path, text, strlen(text));
    free(path);
}

/* The quota of a tree below the scratch folder, for a process that is in the groups `self`. */
static double quota(const char *tree, const char *self)
{
    put("self", self);
    return cpu_quota(scratch_path(tree), scratch_path("self"));
}

static void test_version_2(void **state)
{
    (void)state;
    put("v2/two/cpu.max", "250000 100000\n");
    put("v2/half/cpu.max", "50000 100000\n");
    put("v2/all/cpu.max", "max 100000\n");
    put("v2/slow/cpu.max", "30000 10000\n");
    assert_true(quota("v2", "0::/two\n") == 2.5);
    assert_true(quota("v2", "0::/half\n") == 0.5);
    assert_true(quota("v2", "0::/all\n") == 0);
    assert_true(quota("v2", "0::/slow\n") == 3);
    assert_true(quota("v2", "0::/\n") == 0);
}

/* The tightest of the group and its parents; groups beside do not count. */
static void test_nested(void **state)
{
    (void)state;
    put("nested/a/cpu.max", "150000 100000\n");
    put("nested/a/b/cpu.max", "max 100000\n");
    put("nested/a/b/c/cpu.max", "400000 100000\n");
    put("nested/a/b/d/cpu.max", "100000 100000\n");
    assert_true(quota("nested", "0::/a/b/c\n") == 1.5);
    assert_true(quota("nested", "0::/a/b/d\n") == 1);
    assert_true(quota("nested", "0::/a/b\n") == 1.5);
    assert_true(quota("nested", "0::/a/b/none\n") == 1.5);
    put("nested/cpu.max", "75000 100000\n");
    assert_true(quota("nested", "0::/a/b/c\n") == 0.75);
}

/* Controllers have folders of their own; the file names other groups too. */
static void test_version_1(void **state)
{
    (void)state;
    static const char self[] = "9:name=systemd:/other\n4:memory:/other\n2:cpu,cpuacct:/pod/app\n"
                               "1:cpuset:/other\n0::/\n";
    put("v1/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    put("v1/cpu,cpuacct/pod/cpu.cfs_quota_us", "320000\n");
    put("v1/cpu,cpuacct/pod/cpu.cfs_period_us", "100000\n");
    put("v1/cpu,cpuacct/pod/app/cpu.cfs_quota_us", "-1\n");
    put("v1/cpu,cpuacct/pod/app/cpu.cfs_period_us", "100000\n");
    put("v1/cpu,cpuacct/other/cpu.cfs_quota_us", "1000\n");
    put("v1/cpu,cpuacct/other/cpu.cfs_period_us", "100000\n");
    put("v1/cpuset/other/cpu.cfs_quota_us", "1000\n");
    put("v1/cpuset/other/cpu.cfs_period_us", "100000\n");
    assert_true(quota("v1", self) == 3.2);
    put("v1/cpu,cpuacct/pod/app/cpu.cfs_quota_us", "250000\n");
    assert_true(quota("v1", self) == 2.5);
    assert_true(quota("v1", "2:cpuacct,cpu:/pod\n") == 0); /* no such folder, none named cpu */
    put("v1/cpu/pod/cpu.cfs_quota_us", "40000\n");
    put("v1/cpu/pod/cpu.cfs_period_us", "20000\n");
    assert_true(quota("v1", "2:cpuacct,cpu:/pod\n") == 2);
}

/* Version 2 beside version 1. */
static void test_hybrid(void **state)
{
    (void)state;
    put("hybrid/unified/app/cpu.max", "120000 100000\n");
    put("hybrid/cpu/app/cpu.cfs_quota_us", "200000\n");
    put("hybrid/cpu/app/cpu.cfs_period_us", "100000\n");
    assert_true(quota("hybrid", "1:cpu:/app\n0::/app\n") == 1.2);
    assert_true(quota("hybrid", "1:cpu:/app\n0::/\n") == 2);
}

/* A container sees its group as the mount, but under the name that the host gives it. */
static void test_container(void **state)
{
    (void)state;
    put("inside/cpu.max", "600000 100000\n");
    put("inside/task/cpu.max", "350000 100000\n");
    assert_true(quota("inside", "0::/docker/0123abcd\n") == 6);
    assert_true(quota("inside", "0::/docker/0123abcd/task\n") == 3.5);
    assert_true(quota("inside", "0::/../task\n") == 6);
}

static void test_nonsense_limits_nothing(void **state)
{
    (void)state;
    put("odd/empty/cpu.max", "");
    put("odd/word/cpu.max", "many\n");
    put("odd/zero/cpu.max", "100000 0\n");
    put("odd/alone/cpu.max", "100000\n");
    assert_true(quota("odd", "0::/empty\n") == 0);
    assert_true(quota("odd", "0::/word\n") == 0);
    assert_true(quota("odd", "0::/zero\n") == 0);
    assert_true(quota("odd", "0::/alone\n") == 0);
    assert_true(quota("odd", "no colons\n::\n0:\n") == 0);
    assert_true(quota("odd/none", "0::/\n") == 0);
    assert_true(cpu_quota(scratch_path("odd"), scratch_path("no-such-file")) == 0);
}

/* Names too long for a path: nothing is cut off in a way that names another group. */
static void test_long_names(void **state)
{
    (void)state;
    char self[6000] = "0::/";
    for (size_t n = strlen(self); n < sizeof self - 2; n++)
        self[n] = n % 100 ? 'a' : '/';
    put("long/cpu.max", "200000 100000\n");
    assert_true(quota("long", self) == 2);
}

/* Case S13: threads by default on 4 nodes of 16 cores. */
static void test_threads_left(void **state)
{
    (void)state;
    static const struct {
        const char *max;
        int n_usable;
    } cases[] = {{"250000 100000", 2}, {"50000 100000", 1},    {"max 100000", 64},
                 {"100000 100000", 1}, {"6390000 100000", 63}, {"9900000 100000", 64}};
    put("self", "0::/app\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put("threads/app/cpu.max", cases[i].max);
        struct topology t;
        struct team_layout layout;
        struct error err;
        struct topology_source source = {.synthetic = "node:4 core:16 pu:2",
                                         .cgroup_root = scratch_path("threads"),
                                         .cgroup_self = scratch_path("self")};
        assert_int_equal(topology_read(&t, &source, &err), STATUS_OK);
        assert_int_equal(t.n_usable, cases[i].n_usable);
        assert_int_equal(t.n_cores, 64);
        assert_int_equal(team_layout_make(&layout, &t, &(struct team_request){0}, &err), STATUS_OK);
        assert_int_equal(layout.n_threads, cases[i].n_usable);
        assert_false(layout.is_oversubscribed);
        team_layout_done(&layout);
        struct team_request more = {.n_threads = cases[i].n_usable + 1};
        assert_int_equal(team_layout_make(&layout, &t, &more, &err), STATUS_OK);
        assert_true(layout.is_oversubscribed);
        team_layout_done(&layout);
        topology_done(&t);
    }
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version_2),  cmocka_unit_test(test_nested),
        cmocka_unit_test(test_version_1),  cmocka_unit_test(test_hybrid),
        cmocka_unit_test(test_container),  cmocka_unit_test(test_nonsense_limits_nothing),
        cmocka_unit_test(test_long_names), cmocka_unit_test(test_threads_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
