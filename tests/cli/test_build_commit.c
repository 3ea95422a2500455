/* The Makefile's record of the commit that is built: written anew when it changes, and only then. Tried
 * in a small repository with the Makefile of this one. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support.h"

#define GIT "git -c user.name=Test -c user.email=test@example.org -c commit.gpgsign=false"

static char folder[PATH_MAX], makefile[PATH_MAX];

/* What the line printed, after it succeeded in the folder, where git looks no further up. */
static char *run(const char *line)
{
    const char *script = scratch_path("script");
    write_whole(script, line, strlen(line));
    struct outcome o = run_command("env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS -u GIT_DIR "
                                   "GIT_CEILING_DIRECTORIES=%s/.. sh -c 'cd %s && . ../script'",
                                   folder, folder);
    if (o.status != 0)
        fail_msg("%s: status %d: %s%s", line, o.status, o.out, o.err);
    char *out = strdup(o.out);
    outcome_done(&o);
    return out;
}

/* The record that make leaves; *written: when. */
static char *record(struct timespec *written)
{
    char line[PATH_MAX + 64];
    struct stat status;
    const char *path = scratch_path("tree/build/release/commit");
    snprintf(line, sizeof line, "make -s -f %s CONFIG=release build/release/commit", makefile);
    free(run(line));
    assert_int_equal(stat(path, &status), 0);
    *written = status.st_mtim;
    return read_whole(path, NULL);
}

static void expect_record(const char *hash, const char *rest, struct timespec *written)
{
    char expected[128], *found = record(written);
    snprintf(expected, sizeof expected, "%s%s\n", hash, rest);
    assert_string_equal(found, expected);
    free(found);
}

static char *commit_all(void)
{
    free(run("git init -q . && git add tracked && " GIT " commit -q -m one"));
    char *hash = run("git rev-parse --short HEAD");
    hash[strcspn(hash, "\n")] = 0;
    return hash;
}

static void test_record(void **state)
{
    (void)state;
    if (access("/usr/bin/git", X_OK) != 0)
        NEED(NULL, "git");
    struct timespec first, second;
    assert_int_equal(mkdir(scratch_path("tree"), 0777), 0);
    assert_non_null(realpath(scratch_path("tree"), folder));
    assert_non_null(realpath("Makefile", makefile));
    const char *tracked = scratch_path("tree/tracked");
    write_whole(tracked, "1", 1);
    expect_record("unknown", " 0", &first);

    char *one = commit_all();
    expect_record(one, " 1", &first);
    expect_record(one, " 1", &second);
    assert_memory_equal(&first, &second, sizeof first);

    write_whole(tracked, "2", 1);
    expect_record(one, "-dirty 1", &first);
    char *two = commit_all();
    assert_string_not_equal(one, two);
    expect_record(two, " 2", &first);
    free(one);
    free(two);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_record)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
