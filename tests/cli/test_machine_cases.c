/* The machine as commands see it: instruction sets, allowed CPUs, more threads than cores; and type 42
 * in both group sizes. S07, S09, S12, S13, S14. */
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../fixture.h"
#include "../support.h"
#include "machine/topology.h"

#define KJV    "models/trine-kjv.gguf"
#define PROMPT "-p 'In the beginning' --temp 0"

static const char *trine;

/* Random weights everywhere, so that the text depends on all of them. */
static const char *write_random(const char *name, enum format_id format)
{
    const char *path = scratch_path(name);
    fixture_write(path, &(struct fixture){.format = format, .real_output = true, .seed = 3});
    return path;
}

/* Runs a command that must succeed. */
static struct outcome run_well(const char *command)
{
    struct outcome o = run_command("%s", command);
    if (o.status != 0)
        fail_msg("%s: status %d: %s", command, o.status, o.err);
    return o;
}

/* Logits of some tokens of a model, by any program line; *size gets their bytes. */
static char *logits_of(const char *program, const char *path, const char *options, size_t *size)
{
    char command[1024];
    const char *out = scratch_path("logits.bin");
    snprintf(command, sizeof command, "%s logits %s --tokens 1,7,250,33,99,64,5 -o %s %s", program,
             path, out, options);
    struct outcome o = run_well(command);
    outcome_done(&o);
    char *bytes = read_whole(out, size);
    assert_non_null(bytes);
    assert_int_equal(*size, 7 * 259 * sizeof(float));
    return bytes;
}

static void expect_logits(const char *program, const char *path, const char *options,
                          const char *expected)
{
    size_t size;
    char *bytes = logits_of(program, path, options, &size);
    if (memcmp(bytes, expected, size) != 0)
        fail_msg("%s %s %s: other logits", program, path, options);
    free(bytes);
}

/* Number of times that `word` is in `text`. */
static int count_word(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)); at += strlen(word))
        n++;
    return n;
}

/* S07: the same weights with 64 and with 128 of them to a scale. */
static void test_type_42(void **state)
{
    (void)state;
    const char *g64 = write_random("g64.gguf", FORMAT_Q2_0);
    const char *g128 = write_random("g128.gguf", FORMAT_Q2_0_G128);
    assert_int_equal(format_of(FORMAT_Q2_0)->type_id, 42);
    assert_int_equal(format_of(FORMAT_Q2_0_G128)->type_id, 42);
    size_t size;
    char *expected = logits_of(trine, g64, "", &size);
    expect_logits(trine, g128, "", expected);
    expect_logits(trine, g128, "--nodes 2 -t 2 --act-scale token", expected);
    free(expected);
    const char *const paths[] = {g64, g128}, *const found[] = {"64 weights a block",
                                                               "128 weights a block"};
    for (int i = 0; i < 2; i++) {
        struct outcome o = run_command("%s inspect %s", trine, paths[i]);
        assert_int_equal(o.status, 0);
        if (!strstr(o.out, "type id 42") || !strstr(o.out, found[i]))
            fail_msg("inspect %s does not tell the layout: %s", paths[i], o.out);
        outcome_done(&o);
    }
}

/* The types that other programs have no path for without AVX2. */
static const enum format_id ternary[] = {FORMAT_TQ2_0, FORMAT_I2_S, FORMAT_Q2_0, FORMAT_IQ2_BN};

/* S09: the same bits without any vector instruction, and the start-up line says so. */
static void test_scalar(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const char *path = write_random("scalar.gguf", ternary[i]);
        size_t size;
        char *expected = logits_of(trine, path, "", &size);
        expect_logits(trine, path, "--isa scalar", expected);
        free(expected);
    }
    struct outcome full = run_command("%s run %s %s -n 16 -q", trine, KJV, PROMPT);
    struct outcome scalar = run_command("%s run %s %s -n 16 --isa scalar", trine, KJV, PROMPT);
    assert_int_equal(scalar.status, 0);
    assert_true(full.out_bytes > 20);
    assert_string_equal(scalar.out, full.out);
    assert_non_null(strstr(scalar.err, "_scalar"));
    assert_null(strstr(scalar.err, "_avx"));
    outcome_done(&full);
    outcome_done(&scalar);
}

/* S09 on CPUs that have none of them, emulated. */
static void test_old_cpus(void **state)
{
    (void)state;
    static const char *const cpus[] = {"Nehalem", "qemu64"};
    bool has_qemu = system("command -v qemu-x86_64 > /dev/null") == 0;
    NEED(has_qemu && !IS_SANITISED ? "" : NULL, "qemu-x86_64, and no sanitiser");
    for (int i = 0; i < 4; i++) {
        const char *path = write_random("old.gguf", ternary[i]);
        size_t size;
        char *expected = logits_of(trine, path, "", &size), program[600];
        snprintf(program, sizeof program, "qemu-x86_64 -cpu %s %s", cpus[i % 2], trine);
        expect_logits(program, path, "-t 1", expected);
        free(expected);
    }
}

/* The first line of a file of /proc that begins with `name`; empty if the thread has ended. */
static void read_status_line(const char *path, const char *name, char *line, size_t size)
{
    char text[256];
    line[0] = 0;
    FILE *file = fopen(path, "r");
    while (file && fgets(text, sizeof text, file))
        if (strncmp(text, name, strlen(name)) == 0)
            snprintf(line, size, "%s", text + strlen(name));
    if (file)
        fclose(file);
}

/* Threads of a process whose CPUs are all among those allowed; fails for one that has another. */
static int count_confined(pid_t pid, const char *allowed)
{
    char folder[64], path[400], line[256];
    int n = 0;
    snprintf(folder, sizeof folder, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        snprintf(path, sizeof path, "%s/%s/status", folder, entry->d_name);
        read_status_line(path, "Cpus_allowed_list:", line, sizeof line);
        for (char *number = strtok(line, " \t\n,"); number; number = strtok(NULL, " \t\n,")) {
            char padded[40];
            snprintf(padded, sizeof padded, ",%s,", number);
            if (!strstr(allowed, padded))
                fail_msg("a thread may run on %s, allowed: %s", number, allowed);
            n++;
        }
    }
    if (dir)
        closedir(dir);
    return n;
}

/* Two CPUs of which neither is the first where there are four, else the last one: as a mask and as
 * ",1,3,". */
static int choose_cpus(cpu_set_t *chosen, char *list, size_t size)
{
    cpu_set_t all;
    int cpus[CPU_SETSIZE], n = 0;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all))
            cpus[n++] = i;
    CPU_ZERO(chosen);
    if (n >= 4) {
        CPU_SET(cpus[1], chosen);
        CPU_SET(cpus[3], chosen);
        snprintf(list, size, ",%d,%d,", cpus[1], cpus[3]);
        return 2;
    }
    CPU_SET(cpus[n - 1], chosen);
    snprintf(list, size, ",%d,", cpus[n - 1]);
    return 1;
}

/* S12: watches all threads while text is written under an affinity mask. */
static void test_allowed_cpus(void **state)
{
    (void)state;
    cpu_set_t chosen, before;
    char list[64], command[1200];
    int n_most = choose_cpus(&chosen, list, sizeof list), n_seen = 0, status;
    const char *out = scratch_path("allowed.out"), *err = scratch_path("allowed.err");
    struct outcome expected = run_command("%s run %s %s -n 48 -q --isa scalar", trine, KJV, PROMPT);
    snprintf(command, sizeof command, "exec %s run %s %s -n 48 --isa scalar > %s 2> %s", trine, KJV,
             PROMPT, out, err);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(sched_setaffinity(0, sizeof chosen, &chosen), 0);
    pid_t pid = fork(); /* it has the mask from its first moment */
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_true(pid > 0);
    while (waitpid(pid, &status, WNOHANG) == 0) {
        n_seen += count_confined(pid, list);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(n_seen >= 10);
    char *text = read_whole(out, NULL), *talk = read_whole(err, NULL);
    assert_string_equal(text, expected.out);
    /* two CPUs may be one core */
    if (!strstr(talk, "; 1 thread on") && !(n_most == 2 && strstr(talk, "; 2 threads on")))
        fail_msg("more than %d threads: %s", n_most, talk);
    assert_null(strstr(talk, "not pinned"));
    free(text);
    free(talk);
    outcome_done(&expected);
}

/* S13: threads by default are what cores and quota leave; test_cpu_quota has the quotas of recorded
 * trees. */
static void test_default_threads(void **state)
{
    (void)state;
    struct topology topology;
    struct topology_source live = {0};
    char expected[40];
    assert_int_equal(topology_read(&topology, &live, NULL), STATUS_OK);
    snprintf(expected, sizeof expected, "; %d thread%s on", topology.n_usable,
             topology.n_usable == 1 ? "" : "s");
    if (topology.quota > 0)
        assert_true(topology.n_usable == 1 || topology.n_usable <= topology.quota);
    topology_done(&topology);
    const char *const options[] = {"", "-t 0"};
    for (int i = 0; i < 2; i++) {
        struct outcome o = run_command("%s run %s %s -n 2 %s", trine, KJV, PROMPT, options[i]);
        assert_int_equal(o.status, 0);
        if (!strstr(o.err, expected))
            fail_msg("not '%s': %s", expected, o.err);
        assert_int_equal(count_word(o.err, "warning"), 0);
        outcome_done(&o);
    }
}

/* S14: four threads a core. */
static void test_more_threads_than_cores(void **state)
{
    (void)state;
    long n = 4 * sysconf(_SC_NPROCESSORS_ONLN);
    struct outcome expected = run_command("%s run %s %s -n 64 -q", trine, KJV, PROMPT);
    struct outcome o = run_command("%s run %s %s -n 64 -t %ld", trine, KJV, PROMPT, n);
    assert_int_equal(o.status, 0);
    assert_true(expected.out_bytes > 100);
    assert_string_equal(o.out, expected.out);
    assert_int_equal(count_word(o.err, "warning"), 1);
    outcome_done(&o);
    outcome_done(&expected);
}

static void test_wrong_numbers_of_threads(void **state)
{
    (void)state;
    static const char *const values[] = {"-1",  "100000", "two",
                                         "2.5", "''",     "99999999999999999999"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        struct outcome o = run_command("%s run %s %s -n 1 -t %s", trine, KJV, PROMPT, values[i]);
        if (o.status != 2 || !strstr(o.err, "0 to 4096") || o.out_bytes != 0)
            fail_msg("-t %s: status %d: %s", values[i], o.status, o.err);
        assert_int_equal(count_word(o.err, "\n"), 1);
        outcome_done(&o);
    }
    struct outcome o = run_command("%s run --help", trine); /* 0 is documented */
    assert_non_null(strstr(o.out, "0: one per core"));
    outcome_done(&o);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    trine = build_path("trine");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_type_42),
        cmocka_unit_test(test_scalar),
        cmocka_unit_test(test_old_cpus),
        cmocka_unit_test(test_allowed_cpus),
        cmocka_unit_test(test_default_threads),
        cmocka_unit_test(test_more_threads_than_cores),
        cmocka_unit_test(test_wrong_numbers_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
