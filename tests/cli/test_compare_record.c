/* `trine compare`: what it refuses before anything runs, and records of strangers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../compare_support.h"

/* A file that is no record: one line, status 1. */
static void expect_no_record(const char *text, const char *expected)
{
    char line[600];
    const char *path = scratch_path("hostile.json");
    write_whole(path, text, strlen(text));
    snprintf(line, sizeof line, "--record %s", path);
    struct outcome o = compare_ends(1, line);
    if (!strstr(o.err, expected) || strchr(o.err, '\n') != o.err + strlen(o.err) - 1 || o.out_bytes)
        fail_msg("'%s', expected '%s'", o.err, expected);
    outcome_done(&o);
}

/* Two runs of one round. */
static const char good_record[] =
    "{\"trine_compare\": 1, \"value\": \"auto\", \"test\": null, \"pattern\": null, "
    "\"lower_is_better\": false, \"variants\": [{\"name\": \"a\", \"command\": \"x\"}, "
    "{\"name\": \"b\", \"command\": \"y\"}], \"sessions\": [], \"runs\": ["
    "{\"cold\": false, \"round\": 1, \"attempt\": 1, \"variant\": \"a\", \"value\": 2, "
    "\"disturbed\": false, \"wall_s\": 1, \"cpu_s\": 1, \"foreign_cpus\": null, "
    "\"stolen_cpus\": null, \"read_gb_s\": null, \"begun\": 5}, "
    "{\"cold\": false, \"round\": 1, \"attempt\": 1, \"variant\": \"b\", \"value\": 1, "
    "\"disturbed\": false, \"wall_s\": 1, \"cpu_s\": 1, \"foreign_cpus\": null, "
    "\"stolen_cpus\": null, \"read_gb_s\": null, \"begun\": 5}]}";

/* What is changed in it, and what is said about that. */
static const char *const changes[][3] = {
    {"\"trine_compare\": 1", "\"trine_compare\": 2", "trine_compare is missing"},
    {"\"auto\"", "\"other\"", "value is missing"},
    {"\"test\": null", "\"test\": 7", "test is missing"},
    {"\"lower_is_better\": false", "\"lower_is_better\": 0", "lower_is_better"},
    {"\"lower_is_better\": false", "\"lower_is_better\": true",
     "lower_is_better is missing or not"},
    {"\"auto\"", "\"time\"", "lower_is_better is missing or not true"},
    {"\"auto\"", "\"pattern\"", "pattern is missing or not text"},
    {"\"pattern\": null", "\"pattern\": \"(x)\"", "pattern is missing or not null"},
    {"\"auto\", \"test\": null, \"pattern\": null",
     "\"pattern\", \"test\": \"tg4\", \"pattern\": \"(x)\"", "test is missing or not null"},
    {"\"name\": \"b\"", "\"name\": \"a\"", "variants[1]: two variants are called 'a'"},
    {"\"command\": \"y\"", "\"command\": \"\"", "variants[1]: the command"},
    {", {\"name\": \"b\", \"command\": \"y\"}", "", "two or more"},
    {"\"sessions\": []", "\"sessions\": [1]", "sessions"},
    {"\"round\": 1", "\"round\": 0", "runs[0]: round is missing or not a whole number"},
    {"\"round\": 1", "\"round\": 1e9", "runs[0]: round"},
    {"\"attempt\": 1", "\"attempt\": 1000000000", "runs[0]: attempt"},
    {"\"variant\": \"a\"", "\"variant\": \"q\"", "runs[0]: variant"},
    {"\"variant\": \"b\"", "\"variant\": \"a\"", "runs[1]: the same run stands there twice"},
    {"\"value\": 2", "\"value\": 0", "runs[0]: value"},
    {"\"value\": 2", "\"value\": -1e308", "runs[0]: value"},
    {"\"wall_s\": 1", "\"wall_s\": \"1\"", "runs[0]: wall_s"},
    {"\"begun\": 5", "\"begun\": -5", "runs[0]: begun"},
    {"\"runs\": [", "\"runs\": [[], ", "runs[0]: "},
    {"\"attempt\": 1, \"variant\": \"b\"", "\"attempt\": 2, \"variant\": \"b\"",
     "no round is finished"},
};

static void test_hostile_records(void **state)
{
    (void)state;
    json_t *analysis;
    char line[600];
    const char *path = scratch_path("good.json");
    write_whole(path, good_record, strlen(good_record));
    snprintf(line, sizeof line, "--record %s", path);
    analysis = compare(line);
    expect_between(variant(analysis, 1), "ratio", 0.5, 0.5);
    json_decref(analysis);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        char *text = with_replaced(good_record, changes[i][0], changes[i][1]);
        expect_no_record(text, changes[i][2]);
        free(text);
    }
    static const char *const others[] = {"", "{", "[]", "7", "{}", "\xff"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        expect_no_record(others[i], "hostile.json: ");
    struct outcome o = compare_ends(1, "--record models");
    outcome_done(&o);
    o = compare_ends(1, "--record absent.json");
    outcome_done(&o);
}

/* A record that is shown: its pattern matters to nobody, and what is not known is left out. */
static void test_shown_records(void **state)
{
    (void)state;
    char line[600];
    const char *path = scratch_path("shown.json");
    char *text = with_replaced(good_record, "\"auto\", \"test\": null, \"pattern\": null",
                               "\"pattern\", \"test\": null, \"pattern\": \"(\"");
    char *known = with_replaced(text, "\"foreign_cpus\": null", "\"foreign_cpus\": 0.125");
    write_whole(path, known, strlen(known));
    free(text);
    free(known);
    snprintf(line, sizeof line, "--record %s", path);
    struct outcome o = compare_ends(0, line);
    assert_non_null(strstr(o.out, "foreign CPUs at most 0.12 in any run\n"));
    assert_null(strstr(o.out, "nan"));
    outcome_done(&o);
}

/* Options that say what runs, or how, when only a record is shown. */
static void test_unused_options(void **state)
{
    (void)state;
    static const char *const unused[] = {
        "--names x,y", "--test tg4",  "--pattern '(x)'",   "--lower",
        "--time",      "--rounds 7",  "--cold 0",          "--retries 1",
        "--timeout 9", "--bandwidth", "--max-foreign 0.5",
    };
    const char *path = scratch_path("unused.json");
    write_whole(path, good_record, strlen(good_record));
    for (size_t i = 0; i < sizeof unused / sizeof unused[0]; i++) {
        char line[600], expected[64];
        snprintf(line, sizeof line, "--record %s %s", path, unused[i]);
        snprintf(expected, sizeof expected, "trine compare: %.*s is of no use without commands",
                 (int)strcspn(unused[i], " "), unused[i]);
        struct outcome o = compare_ends(2, line);
        if (!strstr(o.err, expected) || o.out_bytes)
            fail_msg("'%s', expected '%s'", o.err, expected);
        outcome_done(&o);
    }
    char line[600];
    snprintf(line, sizeof line, "--record %s --base b --json --plot %s", path, fresh("unused.svg"));
    struct outcome o = compare_ends(0, line);
    outcome_done(&o);
}

/* A record or a plot that cannot be written is found out before anything runs. */
static void test_unwritable(void **state)
{
    (void)state;
    static const char *const results[] = {"--record", "--plot"};
    for (int i = 0; i < 2; i++) {
        char line[600];
        snprintf(line, sizeof line,
                 "--a 'echo 1; touch %s' --b 'echo 1' " NUMBER " --max-foreign 0 %s /no/where",
                 fresh("ran"), results[i]);
        struct outcome o = compare_ends(1, line);
        assert_true(access(scratch_path("ran"), F_OK) != 0);
        assert_int_equal(o.out_bytes, 0);
        outcome_done(&o);
    }
}

/* Texts that no record could hold are refused before anything runs; the shell makes them. */
static void test_refused_texts(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"--a \"$touch; : $(printf '\\377')\" --b true", "--a is no UTF-8 at byte "},
        {"--a \"$touch\" --b \"$(printf 'echo \\303')\"", "--b is no UTF-8 at byte 6"},
        {"--a \"$touch\" --b true --names \"x,$(printf '\\377')\"", "--names: '?' is no name"},
        {"--a \"$touch\" --b true --pattern \"($(printf '\\377'))\"",
         "--pattern is no UTF-8 at byte 2"},
        {"--a \"$touch\" --b true --test \"$(printf '\\377')\"", "--test is no UTF-8 at byte 1"},
        {"--a \"$touch\" --b \": $(printf %065534d 0)\"",
         "--b is too long: 65536 bytes, at most 65535"},
        {"--a \"$touch\" --b true --pattern \"($(printf %065534d 0))\"", "--pattern is too long"},
        {"--a \"$touch\" --b true --test \"$(printf %065536d 0)\"", "--test is too long"},
        {"--a \"$touch\" --b ' ' --names x,y", "--b is empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct outcome o =
            run_command("touch='touch %s; echo 1'; exec %s compare %s --record %s", fresh("ran"),
                        build_path("trine"), cases[i][0], fresh("refused.json"));
        if (o.status != 2 || !strstr(o.err, cases[i][1]) || o.out_bytes)
            fail_msg("%s: status %d, '%s', expected '%s'", cases[i][0], o.status, o.err,
                     cases[i][1]);
        assert_true(access(scratch_path("ran"), F_OK) != 0);
        outcome_done(&o);
    }
}

/* The longest command is run, recorded and read again. */
static void test_longest_command(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct outcome o = run_command(
            "exec %s compare --a \"echo 1; : $(printf %%065525d 0)\" --b 'echo \303\244 1' "
            "--pattern '([0-9])' --rounds 1 --cold 0 --max-foreign 0 --record %s",
            build_path("trine"), i ? scratch_path("longest.json") : fresh("longest.json"));
        if (o.status != 0)
            fail_msg("%s", o.err);
        outcome_done(&o);
    }
}

static void test_usage(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",
                                        "--a true",
                                        "--a true --b true --names x",
                                        "--a true --b true --names x,y,z",
                                        "--a true --b true --names x,x",
                                        "--a true --b true --names ,y",
                                        "--a true --b ' '",
                                        "--a true --b true --base c",
                                        "--a true --b true --pattern x",
                                        "--a true --b true --pattern '(x)(y)'",
                                        "--a true --b true --pattern '(x'",
                                        "--a true --b true --pattern '(x)' --time",
                                        "--a true --b true --lower",
                                        "--a true --b true --rounds 0",
                                        "--a true --b true --timeout 0",
                                        "--a true --b true --record x.svg --plot x.svg",
                                        "--z true"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct outcome o = compare_ends(2, wrong[i]);
        if (o.out_bytes || strchr(o.err, '\n') != o.err + strlen(o.err) - 1)
            fail_msg("compare %s: '%s' '%s'", wrong[i], o.out, o.err);
        outcome_done(&o);
    }
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile_records), cmocka_unit_test(test_shown_records),
        cmocka_unit_test(test_unused_options),  cmocka_unit_test(test_unwritable),
        cmocka_unit_test(test_refused_texts),   cmocka_unit_test(test_longest_command),
        cmocka_unit_test(test_usage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
