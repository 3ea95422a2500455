/* `trine compare`: planted differences are found, equal programs are not called different, what is
 * disturbed is repeated and said; and commands that fail, hang or leave something behind. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../compare_support.h"

#include "machine/foreign_load.h"

#define MODEL "models/trine-kjv.gguf"

static const char *trine, *self; /* self: this program */

/* Sourced by a command: "speed BASE NAME" prints what llama-bench would, BASE in thousandths with
 * noise of at most 2 %, another one at each call. NAME: a file that counts the calls. */
static const char script[] =
    "speed() {\n"
    "    n=$(cat \"$2\" 2>/dev/null || echo 0); n=$((n + 1)); echo $n >\"$2\"\n"
    "    v=$(($1 * (1000 + (n * 2654435761 % 4294967296 >> 7) % 41 - 20) / 1000))\n"
    "    echo \"[{\\\"n_prompt\\\": 0, \\\"n_gen\\\": 128, \\\"n_depth\\\": 0, \\\"avg_ts\\\": "
    "$v.25}]\"\n"
    "}\n";

static const char *script_path(void)
{
    const char *path = scratch_path("speed.sh");
    write_whole(path, script, strlen(script));
    return path;
}

/* Two scripted programs of these speeds, nine rounds. */
static json_t *compare_speeds(int a, int b, const char *more)
{
    char line[2000];
    const char *path = script_path();
    snprintf(line, sizeof line,
             "--a '. %s; speed %d %s' --b '. %s; speed %d %s; true' --rounds 9 --max-foreign 0 %s",
             path, a, fresh("count.a"), path, b, fresh("count.b"), more);
    return compare(line);
}

static void test_planted_slowdown(void **state)
{
    (void)state;
    json_t *analysis = compare_speeds(50000, 45000, "--names one,two"), *b = variant(analysis, 1);
    assert_string_equal(text_in(b, "name"), "two");
    expect_between(b, "ratio", 0.88, 0.92);
    expect_between(b, "ratio_low", 0.86, 0.92);
    expect_between(b, "ratio_high", 0.88, 0.94);
    assert_string_equal(text_in(b, "verdict"), "worse");
    expect_between(variant(analysis, 0), "median", 49000, 51000);
    expect_between(variant(analysis, 0), "ratio", 1, 1);
    expect_between(analysis, "rounds_used", 9, 9);
    expect_between(analysis, "cold_rounds", 1, 1);
    json_decref(analysis);
    analysis = compare_speeds(50000, 45000, "--base b"); /* and from the other side */
    expect_between(variant(analysis, 0), "ratio", 1 / 0.92, 1 / 0.88);
    assert_string_equal(text_in(variant(analysis, 0), "verdict"), "better");
    json_decref(analysis);
}

/* The noise of the two is the same sequence, which begins elsewhere. */
static void test_equal_programs(void **state)
{
    (void)state;
    for (int begin = 1; begin < 40; begin += 13) {
        char line[1500];
        const char *path = script_path(), *b = scratch_path("count.b");
        snprintf(line, sizeof line, "%d\n", begin);
        write_whole(b, line, strlen(line));
        snprintf(line, sizeof line,
                 "--a '. %s; speed 50000 %s' --b '. %s; speed 50000 %s' --rounds 9 --cold 0 "
                 "--max-foreign 0",
                 path, fresh("count.a"), path, b);
        json_t *analysis = compare(line);
        expect_between(variant(analysis, 1), "ratio_low", 0.9, 1);
        expect_between(variant(analysis, 1), "ratio_high", 1, 1.1);
        assert_string_equal(text_in(variant(analysis, 1), "verdict"), "no difference shown");
        json_decref(analysis);
    }
}

/* Real work, really timed: b generates eight times as many tokens and takes six to eight times as
 * long on an idle machine. Programs that were mixed up would stand at an eighth, a number that is
 * not their time anywhere. */
static void test_real_time(void **state)
{
    (void)state;
    char line[2000], run[300];
    snprintf(run, sizeof run, "%s run %s -p In --temp 0 --reference -n", trine, MODEL);
    snprintf(line, sizeof line, "--a '%s 4' --b '%s 32' --time --cold 0 --rounds 5 --max-foreign 0",
             run, run);
    json_t *analysis = compare(line);
    expect_between(variant(analysis, 1), "ratio", 1.5, 20);
    expect_between(analysis, "rounds_used", 5, 5);
    assert_true(number_of(variant(analysis, 0), "median") > 0.005);
    json_decref(analysis);
}

/* What trine bench itself writes: one test as an array, two as lines. */
static void test_bench(void **state)
{
    (void)state;
    char line[2000];
    snprintf(
        line, sizeof line,
        "--a '%s bench %s -p 0 -n 4 -d 8 -r 1 -o json' --b '%s bench %s -p 4 -n 4 -d 8 -r 1 -o "
        "jsonl' --cold 0 --rounds 1 --max-foreign 0 --test 'tg4 @ d8'",
        trine, MODEL, trine, MODEL);
    json_t *analysis = compare(line);
    expect_between(variant(analysis, 0), "median", 10, 1e7);
    expect_between(variant(analysis, 1), "median", 10, 1e7);
    json_decref(analysis);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static json_t *read_record(const char *path)
{
    char *text = read_whole(path, NULL);
    if (!text)
        fail_msg("%s: no record", path);
    json_t *record = parse(text);
    free(text);
    return record;
}

static bool is_true(json_t *run, const char *name)
{
    return json_is_true(field(run, name));
}

/* Every flag follows from its own figures. Between is what depends on when the load was read. */
static void check_flags(json_t *record, double limit)
{
    json_t *run;
    size_t i;
    json_array_foreach(field(record, "runs"), i, run)
    {
        double cpus = number_of(run, "foreign_cpus") + number_of(run, "stolen_cpus");
        double wall = number_of(run, "wall_s");
        if (cpus <= limit && is_true(run, "disturbed"))
            fail_msg("run %zu: %g CPUs, but disturbed", i, cpus);
        if ((cpus - limit) * wall > 0.021 && !is_true(run, "disturbed"))
            fail_msg("run %zu: %g CPUs in %g s, but not disturbed", i, cpus, wall);
    }
}

static int count_text(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text += strlen(what))
        n++;
    return n;
}

static int count_disturbed(json_t *record)
{
    json_t *run;
    size_t i;
    int n = 0;
    json_array_foreach(field(record, "runs"), i, run) n += is_true(run, "disturbed");
    return n;
}

/* Systems that simulate /proc/stat give zeros: nothing can be found disturbed there. */
static void need_foreign_load(void)
{
    struct cpu_times times;
    if (!cpu_times_read(&times, NULL)) {
        print_message("skipped: needs /proc/stat\n");
        skip();
    }
}

/* a sleeps; at its first call a process that has left its group burns a CPU. */
static void test_disturbed_round(void **state)
{
    (void)state;
    need_foreign_load();
    char line[3000];
    const char *record_path = fresh("disturbed.json"), *plot_path = fresh("disturbed.svg");
    const char *mark = scratch_path("mark");
    rmdir(mark);
    snprintf(
        line, sizeof line,
        "--a 'if mkdir %s 2>/dev/null; then setsid timeout 0.5 sh -c \"while :; do :; done\" & "
        "fi; sleep 0.3; echo speed 100' --b 'sleep 0.15; echo speed 100' --pattern "
        "'speed (\\d+)' --cold 0 --rounds 1 --max-foreign 0.3 --retries 4 --record %s --plot %s",
        mark, record_path, plot_path);
    struct outcome o = compare_ends(0, line);
    json_t *record = read_record(record_path), *runs = field(record, "runs");
    json_t *first = json_array_get(runs, 0), *second = json_array_get(runs, 1);
    assert_true(is_true(first, "disturbed"));
    assert_true(number_of(first, "foreign_cpus") > 0.3);
    /* begun again with a, not finished with b */
    assert_string_equal(text_in(second, "variant"), "a");
    assert_int_equal(number_of(second, "attempt"), 2);
    check_flags(record, 0.3);
    assert_int_equal(count_text(o.err, "DISTURBED"), count_disturbed(record));
    assert_true(strstr(o.out, "disturbed attempt") || strstr(o.out, "ATTENTION"));
    char *plot = read_whole(plot_path, NULL);
    assert_non_null(plot);
    assert_int_equal(count_text(plot, "<title>disturbed: round 1"), count_disturbed(record));
    free(plot);
    json_decref(record);
    outcome_done(&o);
    rmdir(mark);
}

/* It never gets better: kept, used because nothing is clean, and said loudly. */
static void test_always_disturbed(void **state)
{
    (void)state;
    need_foreign_load();
    char line[2000];
    const char *record_path = fresh("always.json");
    const char *burn = "setsid timeout 0.25 sh -c \"while :; do :; done\" & sleep 0.2; echo 5";
    snprintf(line, sizeof line,
             "--a '%s' --b '%s' --pattern '(\\d+)' --cold 0 --rounds 1 --retries 1 --max-foreign "
             "0.1 --record %s",
             burn, burn, record_path);
    struct outcome o = compare_ends(0, line);
    assert_non_null(strstr(o.out, "ATTENTION: round 1 of 1 disturbed"));
    assert_non_null(strstr(o.out, "ALL are used"));
    json_t *record = read_record(record_path);
    assert_int_equal(json_array_size(field(record, "runs")), 3); /* one, then both */
    assert_int_equal(count_disturbed(record), 3);
    json_decref(record);
    outcome_done(&o);
    /* seen again without running anything, and not repeated when it is continued */
    snprintf(line, sizeof line, "--record %s", record_path);
    json_t *analysis = compare(line);
    assert_true(is_true(analysis, "uses_disturbed_rounds"));
    assert_int_equal(json_integer_value(json_array_get(field(analysis, "disturbed_rounds"), 0)), 1);
    json_decref(analysis);
}

/* At its fourth call a interrupts the comparison and waits. */
static void resume_line(char *line, size_t size, int rounds, const char *record)
{
    const char *path = script_path();
    snprintf(
        line, size,
        "--a '. %s; speed 50000 %s; if [ $n = 4 ]; then echo $$ >%s; kill -INT $PPID; sleep 30; "
        "fi' --b '. %s; speed 45000 %s' --rounds %d --max-foreign 0 --record %s",
        path, scratch_path("count.a"), scratch_path("waits"), path, scratch_path("count.b"), rounds,
        record);
}

static bool is_process_of(const char *pid_path)
{
    char *text = read_whole(pid_path, NULL);
    assert_non_null(text);
    long pid = strtol(text, NULL, 10);
    free(text);
    assert_true(pid > 1);
    return kill((pid_t)pid, 0) == 0 || errno != ESRCH;
}

static void test_resume(void **state)
{
    (void)state;
    char line[3000], more[3500];
    const char *path = fresh("resume.json");
    fresh("count.a");
    fresh("count.b");
    resume_line(line, sizeof line, 5, path);
    double begin = now();
    struct outcome o = compare_ends(128 + SIGINT, line);
    assert_true(now() - begin < 15);
    outcome_done(&o);
    assert_false(is_process_of(scratch_path("waits")));
    json_t *before = read_record(path), *runs = field(before, "runs"), *run;
    /* a cold round, rounds 1 and 2, and b of round 3 if it came first */
    size_t n_before = json_array_size(runs), i;
    assert_true(n_before == 6 || n_before == 7);

    json_t *analysis = compare(line);
    expect_between(analysis, "rounds", 5, 5);
    expect_between(analysis, "cold_rounds", 2, 2); /* what was warm need not be so any more */
    expect_between(variant(analysis, 1), "ratio", 0.87, 0.93);
    json_decref(analysis);
    json_t *after = read_record(path);
    json_array_foreach(runs, i, run)
        assert_true(json_equal(run, json_array_get(field(after, "runs"), i)));
    assert_int_equal(json_array_size(field(after, "sessions")), 2);
    size_t n_after = json_array_size(field(after, "runs"));
    assert_int_equal(n_after, n_before + 2 + 6);

    /* finished: nothing more runs; more rounds: only these */
    json_decref(compare(line));
    json_t *same = read_record(path);
    assert_true(json_equal(after, same));
    resume_line(line, sizeof line, 6, path);
    snprintf(more, sizeof more, "%s --cold 0", line);
    json_decref(compare(more));
    json_t *longer = read_record(path);
    assert_int_equal(json_array_size(field(longer, "runs")), n_after + 2);

    /* another command, other names, another number: not this record */
    static const char *const others[] = {"--names x,y", "--c true", "--time", "--test tg128"};
    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++) {
        snprintf(more, sizeof more, "%s %s", line, others[k]);
        o = compare_ends(2, more);
        assert_non_null(strstr(o.err, "resume.json: "));
        outcome_done(&o);
    }
    json_decref(before);
    json_decref(after);
    json_decref(same);
    json_decref(longer);
}

/* The record at `path` with a text replaced by another, continued to two rounds. */
static struct outcome continue_changed(int status, const char *path, const char *line,
                                       const char *from, const char *to)
{
    char more[1200], *text = read_whole(path, NULL), *changed;
    assert_non_null(text);
    changed = with_replaced(text, from, to);
    write_whole(path, changed, strlen(changed));
    snprintf(more, sizeof more, "%s --rounds 2", line);
    struct outcome o = compare_ends(status, more);
    write_whole(path, text, strlen(text));
    free(text);
    free(changed);
    return o;
}

static void test_facts(void **state)
{
    (void)state;
    char line[1000];
    const char *path = fresh("facts.json");
    snprintf(line, sizeof line,
             "--a 'cat %s >/dev/null; echo 1' --b 'echo 2 --model=%s' --pattern '^([12])' --rounds "
             "1 --cold 0 --bandwidth --max-foreign 0 --record %s",
             MODEL, MODEL, path);
    struct outcome o = compare_ends(0, line);
    assert_non_null(strstr(o.out, "read bandwidth"));
    json_t *record = read_record(path), *session = json_array_get(field(record, "sessions"), 0);
    json_t *files = field(session, "files"), *file = json_array_get(files, 0);
    struct stat info;
    assert_int_equal(stat(MODEL, &info), 0);
    assert_int_equal(json_array_size(files), 1);
    assert_string_equal(text_in(file, "name"), "trine-kjv.gguf");
    expect_between(file, "bytes", (double)info.st_size, (double)info.st_size);
    json_t *machine = field(session, "machine");
    assert_true(strlen(text_in(machine, "cpu")) > 0 && strlen(text_in(machine, "kernel")) > 0);
    expect_between(machine, "cores", 1, 1e5);
    expect_between(machine, "memory_bytes", 1e8, 1e15);
    expect_between(json_array_get(field(record, "runs"), 0), "read_gb_s", 0.1, 1e5);
    json_decref(record);
    outcome_done(&o);

    o = continue_changed(0, path, line, "\"bytes\": ", "\"bytes\": 1");
    assert_non_null(strstr(o.err, "ATTENTION: trine-kjv.gguf is not the file"));
    outcome_done(&o);
    o = continue_changed(1, path, line, "\"cpu\": \"", "\"cpu\": \"Other ");
    assert_non_null(strstr(o.err, "the record was begun on Other "));
    outcome_done(&o);
    o = compare_ends(0, line); /* as it was: nothing to say */
    assert_true(strstr(o.err, "ATTENTION: trine") == NULL);
    outcome_done(&o);
}

/* A comparison whose b is this command fails with a line that holds `expected`. */
static void expect_failure(const char *options, const char *b, const char *expected)
{
    char line[2000];
    double begin = now();
    snprintf(line, sizeof line, "--a 'echo 3' --b '%s' --cold 0 --rounds 1 --max-foreign 0 %s", b,
             options);
    struct outcome o = compare_ends(1, line);
    const char *message = strstr(o.err, "trine compare: b failed in round 1: ");
    if (!message || !strstr(message, expected) || o.out_bytes ||
        strchr(message, '\n') != message + strlen(message) - 1)
        fail_msg("%s: '%s', expected '%s'", b, o.err, expected);
    assert_true(now() - begin < 15);
    outcome_done(&o);
}

static void test_failing_commands(void **state)
{
    (void)state;
    expect_failure(NUMBER, "echo first >&2; echo last words >&2; echo >&2; exit 3",
                   "exit status 3: last words\n");
    expect_failure(NUMBER, "exit 7", "exit status 7\n");
    expect_failure(NUMBER, "kill -SEGV $$", "ended by signal 11");
    expect_failure(NUMBER, "no-such-program-here", "exit status 127: ");
    expect_failure(NUMBER " --timeout 0.3", "sleep 30 & sleep 30", "not finished after 0.3 s");
    expect_failure(NUMBER " --timeout 0.3", "exec >&- 2>&-; sleep 30", "not finished after 0.3 s");
    expect_failure(NUMBER, "head -c 17000000 /dev/zero", "more than 16 MiB");
    expect_failure(NUMBER, "yes x | head -c 200000 >&2; exit 1", "exit status 1: x\n");
}

/* This program as a command that does not go when it is killed: traced by a process outside of its
 * group, a dead process stays as it is until the tracer looks at it or ends, here after 12 s. */
static int outlive_kill(void)
{
    int ready[2];
    char byte = 0;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    if (pipe(ready) != 0)
        return 1;
    pid_t traced = getpid(), tracer = fork();
    if (tracer == 0) {
        setsid();
        bool is_good = ptrace(PTRACE_SEIZE, traced, NULL, NULL) == 0;
        ssize_t n = write(ready[1], is_good ? "1" : "0", 1);
        freopen("/dev/null", "w", stdout);
        freopen("/dev/null", "w", stderr);
        sleep(is_good && n == 1 ? 12 : 0);
        _exit(0);
    }
    if (tracer < 0 || read(ready[0], &byte, 1) != 1 || byte != '1') {
        fprintf(stderr, "cannot trace\n");
        return 1;
    }
    printf("1\n");
    fflush(stdout);
    sleep(60);
    return 0;
}

/* Waited for, but not without end. */
static void test_unkillable(void **state)
{
    (void)state;
    char line[500];
    snprintf(line, sizeof line, "--a 'exec %s --outlive-kill' --b true --time --cold 0 --timeout 1",
             self);
    double begin = now();
    struct outcome o = compare_ends(1, line);
    if (strstr(o.err, "exit status 1: cannot trace")) {
        outcome_done(&o);
        print_message("skipped: needs ptrace\n");
        skip();
    }
    if (!strstr(o.err, "a failed in round 1: a process of it cannot be killed"))
        fail_msg("%s", o.err);
    assert_true(now() - begin < 9);
    outcome_done(&o);
}

/* What ends a match early is not a match that does not exist. */
static void test_patterns(void **state)
{
    (void)state;
    expect_failure("--pattern '(*LIMIT_MATCH=50)(?:a|aa)*b|^(3)$'", "echo aaaaaaaaaaaaaaaaaaaaaaaa",
                   "the pattern gave up on its standard output: match limit exceeded");
    expect_failure("--pattern 'x|([0-9]+)'", "echo x", "its group is no part of the match");
}

/* One object over several lines, as jq writes it. */
static void test_spread_object(void **state)
{
    (void)state;
    json_t *analysis = compare("--a 'printf \"{\\n \\\"avg_ts\\\":\\n 8\\n}\\n\"' --b 'echo "
                               "\"{\\\"avg_ts\\\": 4}\"' --rounds 1 --cold 0 --max-foreign 0");
    expect_between(variant(analysis, 1), "ratio", 0.5, 0.5);
    json_decref(analysis);
}

static void test_numbers(void **state)
{
    (void)state;
    expect_failure(NUMBER, "true", "matches nothing");
    expect_failure(NUMBER, "echo 4 5", "matches more than once, first '4', then '5'");
    expect_failure(NUMBER, "echo 0", "is 0: a number above 0 is needed");
    expect_failure("--pattern '([0-9.a-z]+)'", "echo 4x", "matches '4x', which is no number");
    expect_failure("--pattern '([0-9.a-z]+)'", "echo nan", "a number above 0 is needed");
    expect_failure("--pattern '([0-9.e]+)'", "echo 1e300", "a number above 0 is needed");
    struct outcome o = compare_ends(1, "--a 'echo 3' --b 'echo 4'");
    assert_non_null(strstr(o.err, "no avg_ts"));
    assert_non_null(strstr(o.err, "--pattern or --time"));
    outcome_done(&o);
    o = compare_ends(1, "--a 'echo \"{\\\"avg_ts\\\": 1, \\\"n_gen\\\": 2}\"; echo "
                        "\"{\\\"avg_ts\\\": 1, \\\"n_prompt\\\": 2}\"' --b 'echo 4'");
    assert_non_null(strstr(o.err, "has 2 tests: tg2, pp2; say which with --test"));
    outcome_done(&o);
    o = compare_ends(1, "--test tg4 --a 'echo \"{\\\"avg_ts\\\": 1, \\\"n_gen\\\": 4, "
                        "\\\"n_depth\\\": 8}\"' --b 'echo 4'");
    assert_non_null(strstr(o.err, "has no test 'tg4'; its tests: tg4@d8"));
    outcome_done(&o);
    json_t *analysis = compare("--a 'echo noise; echo \"{\\\"avg_ts\\\": 8}\"' --b 'echo "
                               "\"{\\\"avg_ts\\\": 4}\"' --rounds 1 --cold 0 --max-foreign 0");
    expect_between(variant(analysis, 1), "ratio", 0.5, 0.5);
    assert_string_equal(text_in(variant(analysis, 1), "verdict"), "too few rounds");
    json_decref(analysis);
    analysis = compare("--a 'echo t=2.5e-1' --b 'echo t=.5' --pattern 't=([-.e0-9]+)' --lower "
                       "--cold 0 --max-foreign 0");
    expect_between(variant(analysis, 1), "ratio", 2, 2);
    assert_string_equal(text_in(variant(analysis, 1), "verdict"), "worse");
    json_decref(analysis);
}

/* What stays in the group is killed, what leaves it does not hold up the comparison by its pipe. */
static void test_left_behind(void **state)
{
    (void)state;
    char line[1000];
    double begin = now();
    snprintf(line, sizeof line,
             "--a 'sleep 30 & echo $! >%s; echo 1' --b 'setsid sleep 12 & echo 2' " NUMBER
             " --rounds 1 --cold 0 --max-foreign 0",
             scratch_path("left"));
    struct outcome o = compare_ends(0, line);
    assert_true(now() - begin < 8);
    assert_non_null(strstr(o.err, "a leaves 1 process behind, which is killed"));
    assert_false(is_process_of(scratch_path("left")));
    outcome_done(&o);
}

static int prepare(void **state)
{
    (void)state;
    trine = build_path("trine");
    return 0;
}

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc == 2 && strcmp(argv[1], "--outlive-kill") == 0)
        return outlive_kill();
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planted_slowdown), cmocka_unit_test(test_equal_programs),
        cmocka_unit_test(test_real_time),        cmocka_unit_test(test_bench),
        cmocka_unit_test(test_disturbed_round),  cmocka_unit_test(test_always_disturbed),
        cmocka_unit_test(test_resume),           cmocka_unit_test(test_facts),
        cmocka_unit_test(test_failing_commands), cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_unkillable),       cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_spread_object),    cmocka_unit_test(test_left_behind),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
